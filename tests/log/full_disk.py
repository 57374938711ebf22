"""Fills a disk of 200 kB under a `SqliteLog`, makes room, and says `recovered`. Run by `test_sqlite.py`."""

from __future__ import annotations

import asyncio
import resource
import sys

from turnline.errors import LogUnavailable
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line, lines

DISK_BYTES = 200_000
TEXT = {"text": "x" * 5_000}


def disk(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


async def fill(log: SqliteLog) -> int:
    """Append until it fails; return how many were acknowledged."""
    for seq in range(1, DISK_BYTES // 1_000):
        try:
            await log.append("c", [line("c", seq, data=TEXT)], after=seq - 1)
        except LogUnavailable:
            return seq - 1
    raise AssertionError("the disk did not fill")


async def refused(log: SqliteLog, channel_id: str) -> str:
    """Append what cannot be written; return the reason given."""
    try:
        await log.append(channel_id, [line(channel_id, 1)], after=0)
    except LogUnavailable as error:
        return error.because
    raise AssertionError("there was no room for it")


async def main(path: str) -> None:
    log = SqliteLog(path)
    disk(DISK_BYTES)
    written = await fill(log)
    tried = log.stats().transactions
    assert written, "something fits"
    assert "SQLITE_" in log.stats().read_only

    disk(0)  # Not even a page.
    assert "SQLITE_" in await refused(log, "d")
    assert "SQLITE_" in await refused(log, "e")
    assert log.stats().transactions == tried, "nothing but the probe is tried"
    assert len(await lines(log, "c")) == written, "reading goes on"

    disk(resource.RLIM_INFINITY)
    await log.append("c", [line("c", written + 1)], after=written)
    assert log.stats().read_only == ""
    assert [e.seq for e in await lines(log, "c")] == list(range(1, written + 2))
    assert [head.channel_id for head in await log.channels()] == ["c"]
    await log.close()
    print("recovered")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
