"""Appends a second of `SqliteLog`, beside two limits of the same disk measured in the same run.

    raw fsync      a page written over an old one and synced, over and over
    raw sqlite3    one connection, the same pragmas and row, one commit each insert

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
from pathlib import Path
from typing import Final

from turnwise.core.codec import NO_HASH, seal
from turnwise.core.envelope import Envelope
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


async def appends(path: Path, channels: int) -> tuple[float, float]:
    """Return the appends a second of so many channels at once, and how many shared a commit."""
    log = SqliteLog(path)
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


def main(folder: Path) -> None:
    disk, raw = fsyncs(folder), raw_inserts(folder)
    print(f"{'raw fsync':24}{disk:10,.0f} /s")
    print(f"{'raw sqlite3':24}{raw:10,.0f} /s{raw / disk:8.2f} x fsync")
    for channels in CHANNELS:
        rate, shared = asyncio.run(appends(folder / f"log-{channels}.db", channels))
        name = f"SqliteLog, {channels} channel{'s' * (channels > 1)}"
        print(
            f"{name:24}{rate:10,.0f} /s{rate / disk:8.2f} x fsync{rate / raw:8.2f} x raw sqlite3"
            f"{shared:8.1f} appends a commit"
        )


if __name__ == "__main__":
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        main(Path(temporary))
