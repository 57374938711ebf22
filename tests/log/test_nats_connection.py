"""Connections of a `NatsLog` to servers that do not behave: none is left open, and nobody waits for long."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.nats_servers import NatsServer
from turnline.errors import LogUnavailable
from turnline.log.nats import NatsLog
from turnline.log.nats_address import NatsAddress
from turnline.log.nats_connection import Connection, heeding

PATIENCE_SECONDS = 60.0
INFO = b'INFO {"server_id":"x","version":"2.11.0","proto":1,"max_payload":1048576,"headers":true}\r\n'
REFUSAL = b"-ERR 'Authorization Violation'\r\n"
BROKEN = b"-ERR 'Something Else'\r\n"


class Odd:
    """A server that says what it is told to, whatever it hears; it counts who comes and who goes."""

    def __init__(self, first: bytes, then: bytes) -> None:
        self._first = first
        self._then = then
        self.came = 0
        self.here = 0
        self._met = asyncio.Event()
        self._left = asyncio.Condition()
        self.address = ""

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.came += 1
        self.here += 1
        self._met.set()
        writer.write(self._first)
        try:
            while await reader.read(1 << 16):
                writer.write(self._then)
        except ConnectionError:
            pass
        writer.close()
        async with self._left:
            self.here -= 1
            self._left.notify_all()

    async def is_met(self) -> None:
        """Return when somebody has come."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._met.wait()

    async def is_left(self) -> None:
        """Return when every connection has been closed by whoever made it."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._left:
            await self._left.wait_for(lambda: self.here == 0)


@asynccontextmanager
async def odd(first: bytes, then: bytes = b"") -> AsyncIterator[Odd]:
    there = Odd(first, then)
    async with await asyncio.start_server(there.serve, "127.0.0.1", 0) as server:
        there.address = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}/log"
        yield there


@pytest.mark.parametrize(
    ("first", "then"),
    [(b"", b""), (b"HTTP/1.1 400\r\n", b""), (INFO, b""), (INFO, BROKEN), (INFO, REFUSAL)],
    ids=["silent", "something else", "falls silent", "breaks", "lets nobody in"],
)
async def test_a_connect_that_fails_leaves_no_connection_open(first: bytes, then: bytes) -> None:
    async with odd(first, then) as server:
        log = NatsLog(server.address, patience_seconds=0.2)

        with pytest.raises(LogUnavailable):
            await log.connect()
        await server.is_left()
        assert server.came
        await log.close()


async def test_a_connect_that_is_cancelled_leaves_no_connection_open() -> None:
    async with odd(INFO) as server:
        log = NatsLog(server.address)
        connecting = asyncio.ensure_future(log.connect())
        await server.is_met()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await log.close()

        await server.is_left()


async def test_closing_ends_a_connect_that_is_under_way() -> None:
    async with odd(INFO) as server:
        log = NatsLog(server.address)
        connecting = asyncio.ensure_future(log.connect())
        await server.is_met()
        await log.close()

        with pytest.raises(LogUnavailable, match="closed"):
            await connecting
        await server.is_left()


async def test_wrong_credentials_are_told_at_once_and_not_tried_again() -> None:
    async with odd(INFO, REFUSAL) as server:
        log = NatsLog(server.address, patience_seconds=PATIENCE_SECONDS)

        with pytest.raises(LogUnavailable, match="Authorization Violation"):
            await log.connect()
        assert server.came == 1
        await log.close()


async def test_a_server_that_says_nothing_is_left_for_another(nats_server: NatsServer) -> None:
    async with odd(b"") as server:
        silent = server.address.removeprefix("nats://").removesuffix("/log")
        address = nats_server.fresh().replace("nats://", f"nats://{silent},")
        for _ in range(4):  # Which one is tried first is chance.
            log = NatsLog(address, patience_seconds=PATIENCE_SECONDS)
            await log.connect()
            await log.close()

        await server.is_left()


async def test_a_server_that_answers_no_question_is_left_when_patience_ends() -> None:
    """It may be the one that is cut off from the others."""
    async with odd(INFO, b"PONG\r\n") as server:
        log = NatsLog(server.address, patience_seconds=0.2)

        with pytest.raises(LogUnavailable):
            await log.connect()
        await server.is_left()
        await log.close()


async def test_those_who_ask_while_it_connects_share_one_attempt() -> None:
    """Or the last of many would wait for all the others' attempts before its own."""
    async with odd(b"HTTP/1.1 400\r\n") as server:
        connection = Connection(NatsAddress(server.address), patience_seconds=0.0)
        asked = [connection.client() for _ in range(3)]

        refused = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(error) for error in refused] == [LogUnavailable] * 3
        assert server.came == 1
        await connection.close()


async def test_a_cancellation_that_comes_with_an_answer_is_not_lost() -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(heeding(asyncio.wait_for(answer, PATIENCE_SECONDS)))
    await asyncio.sleep(0)
    answer.set_result("here")
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_whoever_was_cancelled_before_may_still_ask() -> None:
    """As it does to release what it holds."""
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]

    async def work() -> str:
        try:
            await heeding(answers[0])
        except asyncio.CancelledError:
            return str(await heeding(answers[1]))
        return ""

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    answers[1].set_result("released")

    assert await task == "released"
