"""Connections of `turnline serve`, over real sockets: what is slow, too much or ambiguous ends."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from turnline.errors import UnknownName
from turnline.server.connections import (
    RESERVED_DESCRIPTORS,
    Connections,
    Guarded,
    GuardedH11,
    trusted_proxies,
)
from turnline.server.httptools_connection import MAX_HEAD_BYTES, GuardedHttpTools
from turnline.server.serving import guarded, run_loop
from turnline.server.settings import ServerSettings

from ..hub.scenes import until
from .test_serve import WITHIN_SECONDS, Served, project, serving

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
WORKERS = pytest.mark.parametrize("workers", [1, 2])
PARSERS = pytest.mark.parametrize("parser", [GuardedH11, GuardedHttpTools])

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Limited:
    """A server process, and connections to it that are closed in the end."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self, sent: bytes = b"") -> Wire:
        host, port = self.served.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self.writers.append(writer)
        writer.write(sent)
        return reader, writer

    async def ask(self, request: bytes) -> bytes:
        """The answer to one request on a connection of its own."""
        head, _, body = request.partition(b"\r\n\r\n")
        return await everything(await self.connect(head + b"\r\nConnection: close\r\n\r\n" + body))


@asynccontextmanager
async def limited(
    folder: Path,
    *options: str,
    workers: int = 1,
    go_port: int = 0,
    stderr: IO[bytes] | None = None,
    descriptors: int = 0,
    **limits: object,
) -> AsyncIterator[Limited]:
    project(folder)
    (folder / "turnline.yaml").write_text(msgspec.json.encode({"limits": limits}).decode())
    several = ("--workers", str(workers)) if workers > 1 else ()
    serve = serving(folder, *several, *options, go_port=go_port, stderr=stderr, descriptors=descriptors)
    async with serve as served:
        server = Limited(served)
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                yield server
        finally:
            for writer in server.writers:
                writer.close()


class Door:
    """Where the runs of the flow `slow` knock, and wait."""

    def __init__(self) -> None:
        self.knocked: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def knock(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.knocked.put_nowait(writer)
        await reader.read()
        writer.close()


@asynccontextmanager
async def door() -> AsyncIterator[tuple[Door, int]]:
    one = Door()
    async with await asyncio.start_server(one.knock, "127.0.0.1", 0) as listening:
        yield one, listening.sockets[0].getsockname()[1]


async def everything(wire: Wire) -> bytes:
    """What comes until the server closes the connection."""
    try:
        return await wire[0].read()
    except ConnectionResetError:
        return b"(reset)"


@WORKERS
async def test_a_connection_that_says_nothing_is_closed(tmp_path: Path, workers: int) -> None:
    async with limited(tmp_path, workers=workers, header_seconds=0.2) as served:
        assert await everything(await served.connect()) == b""


@WORKERS
@pytest.mark.parametrize("begun", [b"G", b"GET /health HTTP/1.1\r\nHost: 127.0", HEALTH + b"GET /hea"])
async def test_headers_that_do_not_end_are_answered_and_the_connection_closed(
    tmp_path: Path, workers: int, begun: bytes
) -> None:
    async with limited(tmp_path, workers=workers, header_seconds=0.2) as served:
        wire = await served.connect()
        wire[1].write(begun)
        said = await everything(wire)

    assert b"HTTP/1.1 408" in said
    assert b"header_seconds" in said


async def test_headers_that_come_byte_by_byte_have_the_same_time(tmp_path: Path) -> None:
    """Each byte would start the time again, if the time were between bytes."""
    async with limited(tmp_path, header_seconds=0.3) as served:
        reader, writer = await served.connect()
        answer = asyncio.ensure_future(reader.read())
        sent = 0
        while not answer.done():
            writer.write((b"GET /" + b"a" * 1_000)[sent : sent + 1])
            sent += 1
            await asyncio.wait([answer], timeout=0.02)

        assert b"408" in await answer


async def test_a_body_that_does_not_come_is_answered_and_the_connection_closed(tmp_path: Path) -> None:
    async with limited(tmp_path, body_seconds=0.2) as served:
        wire = await served.connect()
        wire[1].write(b"POST /slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{")
        said = await everything(wire)

    assert said.startswith(b"HTTP/1.1 400")
    assert b"too_slow" in said


@WORKERS
async def test_an_oversized_body_gets_413_and_no_reset(tmp_path: Path, workers: int) -> None:
    body = b"x" * (8 * 1024 * 1024)
    head = b"POST /slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with limited(tmp_path, workers=workers) as served:
        for _ in range(5):  # A reset is a matter of timing.
            reader, writer = await served.connect()
            writer.write(head + body)
            await writer.drain()  # All of it is taken, though none is wanted.
            said = await everything((reader, writer))

            assert said.startswith(b"HTTP/1.1 413")
            assert b"at most 1048576 bytes" in said


async def test_an_oversized_body_in_chunks_gets_413_and_no_reset(tmp_path: Path) -> None:
    head = b"POST /slow HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with limited(tmp_path) as served:
        reader, writer = await served.connect()
        writer.write(head)
        for _ in range(64):
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()
        said = await everything((reader, writer))

    assert said.startswith(b"HTTP/1.1 413")


async def send_without_end(writer: asyncio.StreamWriter, piece: bytes) -> int:
    """Send until the server closes the connection; return the bytes that were sent."""
    sent = 0
    try:
        while True:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    except ConnectionError:
        return sent


async def test_a_body_without_end_is_not_read_without_end(tmp_path: Path) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with limited(tmp_path) as served:
        _, writer = await served.connect(head)
        sent = await send_without_end(writer, b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        healthy = await served.ask(HEALTH)

    assert sent < 2 * ServerSettings().linger_bytes
    assert healthy.startswith(b"HTTP/1.1 200")


async def test_a_length_that_is_said_in_two_ways_closes_the_connection(tmp_path: Path) -> None:
    both = (
        b"POST /slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\n"
    )
    async with limited(tmp_path) as served:
        wire = await served.connect()
        wire[1].write(both + HEALTH)  # Who reads the other length sees another second request.
        said = await everything(wire)

    assert said.startswith(b"HTTP/1.1 400")
    assert b"Transfer-Encoding" in said
    assert said.count(b"HTTP/1.1") == 1


HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


@pytest.mark.parametrize("length", [b"Content-Length: 4", b"Transfer-Encoding: chunked"])
async def test_a_websocket_handshake_with_a_body_is_refused_and_the_connection_closed(
    tmp_path: Path, length: bytes
) -> None:
    async with limited(tmp_path) as served:
        said = await everything(await served.connect(HANDSHAKE + length + b"\r\n\r\n"))

    assert said.startswith(b"HTTP/1.1 400")
    assert b"without a body" in said


@WORKERS
@pytest.mark.parametrize("unreadable", [b"X: y\r\n" * 300, b"X: " + b"y" * 20_000 + b"\r\n"])
async def test_a_websocket_handshake_that_cannot_be_read_is_closed_in_time(
    tmp_path: Path, unreadable: bytes, workers: int
) -> None:
    async with limited(tmp_path, workers=workers, header_seconds=0.2) as served:
        assert b"101" not in await everything(await served.connect(HANDSHAKE + unreadable + b"\r\n"))


async def test_a_websocket_that_was_accepted_outlives_the_time_for_headers(tmp_path: Path) -> None:
    async with limited(tmp_path, header_seconds=0.1) as served:
        reader, writer = await served.connect(HANDSHAKE + b"Authorization: Bearer x\r\n\r\n")
        said = await reader.readuntil(b"unauthenticated")
        with pytest.raises(TimeoutError):  # The server waits for its client to close.
            await asyncio.wait_for(everything((reader, writer)), 0.5)

    assert said.startswith(b"HTTP/1.1 101")


async def test_a_client_that_does_not_read_its_answers_is_cut_off(tmp_path: Path) -> None:
    """Without a limit, each such connection would keep its place, and its request's, for ever."""
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with limited(tmp_path, stuck_seconds=0.2) as served:
        _, writer = await served.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await send_without_end(writer, asked * 1_000)


async def test_of_one_address_only_so_many_connections_are_kept_without_a_token(tmp_path: Path) -> None:
    async with limited(tmp_path, connections_per_address=3) as served:
        kept = [await served.connect() for _ in range(3)]
        for _, writer in kept:
            writer.write(b"GET ")
        refused = await everything(await served.connect())
        kept.pop()[1].close()
        while not (again := await served.ask(HEALTH)).startswith(b"HTTP/1.1 200"):
            pass

    assert refused.startswith(b"HTTP/1.1 503")
    assert b"connections_per_address" in refused
    assert again.endswith(b"}")


async def test_connections_that_have_shown_a_token_do_not_count_for_their_address(tmp_path: Path) -> None:
    async with limited(tmp_path, "--dev", connections_per_address=2) as served:
        request = (
            b"GET /flows HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n"
            % served.served.key.encode()
        )
        wires = []
        for _ in range(6):
            reader, writer = await served.connect()
            writer.write(request)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            wires.append((reader, writer))


async def test_a_full_server_closes_the_connection_that_has_waited_longest(tmp_path: Path) -> None:
    """Idle connections do not lock others out, whatever their number."""
    async with limited(tmp_path, connections=5) as served:
        idle = [await served.connect() for _ in range(5)]
        for _, writer in idle:
            writer.write(b"GET ")
        healthy = await served.ask(HEALTH)
        closed = await everything(idle[0])

    assert healthy.startswith(b"HTTP/1.1 200")
    assert closed in (b"", b"(reset)")


async def test_a_server_that_is_full_of_requests_refuses_and_says_which_limit(tmp_path: Path) -> None:
    async with door() as (inner, port), limited(tmp_path, connections=2, go_port=port) as served:
        wires = [await served.connect() for _ in range(2)]
        for _, writer in wires:
            writer.write(b"POST /slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}")
        inside = [await inner.knocked.get() for _ in wires]
        refused = await everything(await served.connect())
        for writer in inside:
            writer.write(b"go\n")
            writer.close()
        answers = [await reader.readline() for reader, _ in wires]

    assert refused.startswith(b"HTTP/1.1 503")
    assert b"(connections)" in refused
    assert answers == [b"HTTP/1.1 200 OK\r\n"] * 2


async def test_behind_a_trusted_proxy_the_forwarded_address_counts(tmp_path: Path) -> None:
    def started(address: bytes) -> bytes:
        forwarded = b"X-Forwarded-For: 1.2.3.4, " + address
        return b"POST /slow HTTP/1.1\r\nHost: 127.0.0.1\r\n" + forwarded + b"\r\nContent-Length: 2\r\n\r\n{}"

    proxy = ("--trusted-proxy", "127.0.0.0/8")
    limits: dict[str, Any] = {"connections_per_address": 1}
    async with door() as (inner, port), limited(tmp_path, *proxy, go_port=port, **limits) as served:
        wires = [await served.connect() for _ in range(2)]
        for (_, writer), address in zip(wires, (b"9.9.9.1", b"9.9.9.2"), strict=True):
            writer.write(started(address))
        inside = [await inner.knocked.get() for _ in wires]
        refused = await served.ask(started(b"9.9.9.1"))
        for writer in inside:
            writer.close()

    assert refused.startswith(b"HTTP/1.1 429")
    assert b"connections_per_address" in refused


async def test_without_a_trusted_proxy_nobody_believes_what_a_header_says(tmp_path: Path) -> None:
    async with limited(tmp_path, connections_per_address=1) as served:
        await served.connect(b"GET ")
        refused = await served.ask(HEALTH.replace(b"\r\n\r\n", b"\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n"))

    assert b"503" in refused


async def say_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def listening(parser: type[Guarded], **limits: Any) -> AsyncIterator[int]:
    """Answer every request of a parser with 200; yields the port."""
    connections = Connections(ServerSettings(**limits), descriptors=1_024)
    config = Config(say_ok, log_config=None, server_header=False, date_header=False)
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: parser(connections, config, ServerState(), {}), "127.0.0.1", 0, backlog=8
    )
    async with asyncio.timeout(WITHIN_SECONDS), server:
        yield server.sockets[0].getsockname()[1]


async def answers_to(parser: type[Guarded], sent: bytes) -> bytes:
    """Return all that the server says to these bytes and one more request, until it closes."""
    async with listening(parser, header_seconds=0.2) as port:
        wire = await asyncio.open_connection("127.0.0.1", port)
        wire[1].write(sent + HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        said = await everything(wire)
        wire[1].close()
    return said


@PARSERS
@pytest.mark.parametrize(
    "ambiguous",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 1\r\n\r\na",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
        b"NOT A REQUEST\r\n\r\n",
    ],
)
async def test_a_request_that_can_be_read_in_two_ways_is_refused_and_the_connection_closed(
    parser: type[Guarded], ambiguous: bytes
) -> None:
    said = await answers_to(parser, ambiguous)

    assert said.count(b"HTTP/1.1 ") == 1
    assert said[9:12] in (b"400", b"501")


@PARSERS
@pytest.mark.parametrize(
    "head", [b"GET /" + b"a" * 80_000, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 20_000]
)
async def test_headers_without_end_are_refused(parser: type[Guarded], head: bytes) -> None:
    assert (await answers_to(parser, head)).startswith(b"HTTP/1.1 400")


async def test_the_number_of_headers_is_limited_though_they_are_short() -> None:
    """h11 limits what it keeps; httptools gives each header on as it comes."""
    head = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 20_000 + b"\r\n"

    assert (await answers_to(GuardedHttpTools, head)).startswith(b"HTTP/1.1 400")


async def test_a_target_that_names_a_host_is_refused() -> None:
    """The check of `Host` would not see that name."""
    said = await answers_to(GuardedHttpTools, b"GET http://evil/health HTTP/1.1\r\nHost: a\r\n\r\n")

    assert said.count(b"HTTP/1.1 ") == 1
    assert said.startswith(b"HTTP/1.1 400")


async def test_trailers_count_among_the_headers() -> None:
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    said = await answers_to(GuardedHttpTools, chunked + b"X: y\r\n" * MAX_HEAD_BYTES + b"\r\n")

    assert b"200" not in said[20:]


@PARSERS
async def test_after_a_request_for_another_protocol_nothing_more_is_read(parser: type[Guarded]) -> None:
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    said = await answers_to(parser, upgrade)

    assert said.startswith(b"HTTP/1.1 200")
    assert said.count(b"HTTP/1.1 ") <= 2


@PARSERS
async def test_requests_that_come_at_once_are_answered_in_order(parser: type[Guarded]) -> None:
    assert (await answers_to(parser, HEALTH * 9)).count(b"HTTP/1.1 200") == 10


@PARSERS
@pytest.mark.parametrize(
    "later",
    [
        b"NOT A REQUEST\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n",
    ],
)
async def test_no_answer_overtakes_that_of_an_earlier_request(parser: type[Guarded], later: bytes) -> None:
    """Otherwise a client takes the answer of one request for that of another one."""
    said = await answers_to(parser, HEALTH + later)

    assert said[:12] in (b"", b"HTTP/1.1 200")


async def test_a_websocket_is_not_begun_before_an_earlier_request_has_its_answer() -> None:
    """That answer would come in the middle of its frames."""
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    said = await answers_to(GuardedHttpTools, HEALTH + upgrade + key)

    assert said.startswith(b"HTTP/1.1 200")
    assert said.count(b"HTTP/1.1 ") == 1


def test_without_httptools_h11_reads_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    assert guarded() is GuardedHttpTools

    monkeypatch.setitem(sys.modules, "httptools", None)
    monkeypatch.delitem(sys.modules, "turnline.server.httptools_connection")
    monkeypatch.delitem(sys.modules, "uvicorn.protocols.http.httptools_impl")

    assert guarded() is GuardedH11


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_server_runs_with_and_without_uvloop(monkeypatch: pytest.MonkeyPatch, is_installed: bool) -> None:
    if not is_installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    loops = list[str]()

    async def main() -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)

    run_loop(main())

    assert loops[0].startswith("uvloop" if is_installed else "asyncio")


@pytest.mark.parametrize(("descriptors", "most"), [(20_000, 10_000), (1_024, 1_024 - 387 - 128), (100, 1)])
def test_there_are_fewer_connections_than_descriptors(descriptors: int, most: int) -> None:
    assert Connections(ServerSettings(), descriptors=descriptors).most == most


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def no_app(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("no client sends a request")


@PARSERS
@pytest.mark.parametrize("descriptors", [400, 1_024])
async def test_a_burst_of_connections_leaves_the_reserved_descriptors_free(
    descriptors: int, parser: type[Guarded]
) -> None:
    """asyncio accepts new connections before the idle ones that make room for them are closed."""
    connections = Connections(ServerSettings(connections_per_address=10_000), descriptors=descriptors)
    config = Config(no_app, log_config=None)
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: parser(connections, config, ServerState(), {}), "127.0.0.1", 0, backlog=connections.backlog
    )
    before, clients, used = count_descriptors(), list[socket.socket](), list[int]()
    async with server:
        for _ in range(2 * descriptors // connections.backlog):
            for _ in range(connections.backlog):
                clients.append(socket.socket())
                clients[-1].setblocking(False)
                clients[-1].connect_ex(server.sockets[0].getsockname())
            await asyncio.sleep(0)  # One turn of the server's loop.
            used.append(count_descriptors() - before - len(clients))
        for client in clients:
            client.close()
        await until(lambda: count_descriptors() == before)

    assert used[-1] >= connections.most
    assert max(used) <= descriptors - RESERVED_DESCRIPTORS


async def test_more_idle_connections_than_descriptors_lock_nobody_out_and_fill_no_log(tmp_path: Path) -> None:
    """The connections that have waited longest make room. Without the limit, asyncio would run out of
    descriptors, accept nothing, and write a traceback for each connection that waits, every second."""
    with (tmp_path / "stderr").open("wb") as stderr:
        given: dict[str, Any] = {"stderr": stderr, "descriptors": 400}
        given |= {"connections_per_address": 10_000, "header_seconds": 600}
        async with limited(tmp_path, **given) as served:
            for _ in range(600):
                await served.connect(b"GET ")
            healthy = await served.ask(HEALTH)

    assert healthy.startswith(b"HTTP/1.1 200")
    said = (tmp_path / "stderr").read_text()
    assert "Traceback" not in said
    assert "descriptor" not in said


async def test_a_process_without_descriptors_says_so_once_and_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(Connections(ServerSettings(), descriptors=100).handle_loop_error)
    for _ in range(2_048):  # What asyncio does each second.
        error = OSError(24, "Too many open files")
        loop.call_exception_handler(
            {"message": "socket.accept() out of system resource", "exception": error, "socket": socket.socket}
        )

    assert len(caplog.records) == 1
    assert "ulimit -n" in caplog.text
    assert caplog.records[0].exc_info is None


def test_a_proxy_is_an_address_or_a_network() -> None:
    assert trusted_proxies(["10.0.0.7", "10.0.0.0/8", "::1"]) == ("10.0.0.7", "10.0.0.0/8", "::1")
    with pytest.raises(UnknownName, match=r"proxy\.example\.com"):
        trusted_proxies(["proxy.example.com"])
