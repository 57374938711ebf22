"""A process that appends to a `SqliteLog` and says what was acknowledged; and what its log is worth then.

    gate -> open the log -> gate -> append, append, ... close -> gate -> again, for each session

    python -m tests.faults.scribe ORDERS        as JSON; forked where there are many

At a gate, its standard input, it waits for whoever wants to trace the next part of it; on its
standard output it says what was acknowledged. It appends again what was refused, once: whatever
failed has failed once. Its log tidies up every few pages, where a log that is left alone does so
every thousand, so that a short run has all that happens to a file.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, Literal, NoReturn

import msgspec
from msgspec import Struct

from tests.faults.sigkill import HastyLog, whole
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogConflict, LogError, LogUnavailable
from turnline.log import sqlite, sqlite_writer
from turnline.log.records import open_records
from turnline.log.sqlite import SqliteLog
from turnline.log.sqlite_file import Durability, LogFile
from turnline.log.verify import verify
from turnline.testing.lines import line, lines

CHANNELS: Final = ("_a", "_b")
"""Of the kind that nobody folds: `verify` looks at the rest."""
GATE: Final = 0
VOICE: Final = 1
WRITER: Final = "writer"
"""Said before the id of the thread that commits, or that tidies up for the loop."""
TIDY_PAGES: Final = 24
LARGEST: Final = 9_000
MAX_LINES_AN_APPEND: Final = 3
ATTEMPTS: Final = 2
PATIENCE_SECONDS: Final = 60
"""After which a scribe that hangs is ended."""
PR_SET_PTRACER: Final = 0x59616D61

Acknowledged = dict[str, int]
"""Channel -> the last seq that somebody was told is on the disk."""


class DeafLog(SqliteLog):
    """A twin: it acknowledges what was refused."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        with suppress(LogUnavailable, LogConflict):
            await super().append(channel_id, envelopes, after=after, row=row)


class StubbornLog(SqliteLog):
    """A twin: it repeats a sync that failed, and takes the second one's word for it."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        try:
            await super().append(channel_id, envelopes, after=after, row=row)
        except LogUnavailable:
            descriptor = os.open(f"{self.path}-wal", os.O_RDWR)
            os.fsync(descriptor)
            os.close(descriptor)


class TidyFile(LogFile):
    checkpoint_pages = TIDY_PAGES


Commits = Literal["loop", "thread"]
LOOP_SECONDS: Final = {"loop": math.inf, "thread": 0.0, "measured": sqlite_writer.LOOP_SECONDS}
"""Who commits, whatever strace does to the time of a sync -> the setting of the log."""


LOGS: Final[dict[str, type[SqliteLog]]] = {
    "honest": SqliteLog,
    "hasty": HastyLog,
    "deaf": DeafLog,
    "stubborn": StubbornLog,
}


class Orders(Struct, frozen=True, kw_only=True):
    """What a scribe does."""

    path: str
    seed: int
    kind: str = "honest"
    durability: Durability = "power"
    commits: Commits | Literal["measured"] = "thread"
    sessions: int = 1
    appends: int = 2
    """In each session, on each channel."""
    at_once: bool = False
    """Whether it writes to the channels at once, so that appends share commits; in no certain order."""
    ends: Acknowledged = {}
    """What is there already."""
    closes: bool = True
    """Whether its last session ends with a close."""


class Pipes(Struct, frozen=True):
    """Of a scribe: the other ends of its standard input and output."""

    gate: int
    voice: int


class Scribe:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._random = Random(orders.seed)
        self._ends = dict(orders.ends)

    async def work(self) -> None:
        for session in range(1, self._orders.sessions + 1):
            wait()
            log = await self._open()
            wait()
            if self._orders.at_once:
                await asyncio.gather(*(self._write(log, name) for name in CHANNELS))
            else:
                for name in CHANNELS:
                    await self._write(log, name)
            if self._orders.closes or session < self._orders.sessions:
                await log.close()
        say("done")

    async def _open(self) -> SqliteLog:
        kind, seconds = LOGS[self._orders.kind], LOOP_SECONDS[self._orders.commits]
        for attempt in range(1, ATTEMPTS + 1):
            try:
                log = kind(self._orders.path, durability=self._orders.durability, loop_seconds=seconds)
                break
            except LogUnavailable:
                if attempt == ATTEMPTS:
                    raise
                say("refused")
        [thread] = (one for one in threading.enumerate() if one.name == "turnline-log-writer")
        say(f"{WRITER} {thread.native_id}")
        return log

    async def _write(self, log: SqliteLog, channel_id: str) -> None:
        for _ in range(self._orders.appends):
            after = self._ends.get(channel_id, 0)
            envelopes = self._group(channel_id, after)
            await self._insist(log, channel_id, envelopes, after)
            self._ends[channel_id] = envelopes[-1].seq
            say(f"{channel_id} {envelopes[-1].seq}")
            if log.outage:
                say(f"! it wrote, and says that it cannot: {log.outage}")

    async def _insist(
        self, log: SqliteLog, channel_id: str, envelopes: Sequence[Envelope], after: int
    ) -> None:
        for _ in range(ATTEMPTS - 1):
            try:
                await log.append(channel_id, envelopes, after=after)
            except LogUnavailable as error:
                say("refused" if log.outage else f"! refused, and no outage is told: {error}")
            else:
                return
        try:
            await log.append(channel_id, envelopes, after=after)
        except LogConflict as conflict:  # What was refused is there.
            if conflict.found != envelopes[-1].seq:
                raise

    def _group(self, channel_id: str, after: int) -> list[Envelope]:
        """Return one append: some lines that say how many they are, and their places among them."""
        of = self._random.randint(1, MAX_LINES_AN_APPEND)
        size = self._random.choice((20, 500, LARGEST)) // of
        return [
            line(channel_id, after + place, data={"of": of, "place": place, "text": "x" * size})
            for place in range(1, of + 1)
        ]


def wait() -> None:
    say("waits")
    os.read(GATE, 1)


def say(text: str) -> None:
    os.write(VOICE, f"{text}\n".encode())


def start(orders: Orders) -> tuple[int, Pipes]:
    """Fork a scribe; return its process id, and the other ends of its pipes."""
    gate, opens = os.pipe()
    hears, voice = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(gate, GATE)
        os.dup2(voice, VOICE)
        for descriptor in (gate, opens, hears, voice):
            os.close(descriptor)
        # Some kernels let nobody trace a process but its parents, unless it says so.
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        _be(orders)
    os.close(gate)
    os.close(voice)
    return pid, Pipes(opens, hears)


def _be(orders: Orders) -> NoReturn:
    signal.alarm(PATIENCE_SECONDS)
    vars(sqlite)["LogFile"] = TidyFile
    try:
        asyncio.run(Scribe(orders).work())
    except BaseException as error:
        say(f"! {type(error).__name__}: {error}")
    os._exit(0)


def acknowledged(said: Sequence[str]) -> Acknowledged:
    told: Acknowledged = {}
    for text in said:
        channel_id, _, seq = text.partition(" ")
        if channel_id in CHANNELS:
            told[channel_id] = int(seq)
    return told


async def problems(path: Path, promised: Acknowledged) -> list[str]:
    """Return what is wrong with the log: something lost, halved or damaged, or nothing more can be added."""
    try:
        log = SqliteLog(path)
    except LogError as error:
        return [f"damaged: {error}"]
    try:
        found = await _damage(log)
        for channel_id in CHANNELS:
            found += await _look(log, channel_id, promised.get(channel_id, 0))
    except LogError as error:
        return [f"damaged: {error}"]
    finally:
        await log.close()
    return found


async def _damage(log: SqliteLog) -> list[str]:
    records = await open_records(log.address)
    try:
        verdict = await verify(records, built_in())
    finally:
        await records.close()
    return [f"damaged: {wrong}" for wrong in (*verdict.bad, *verdict.storage)]


async def _look(log: SqliteLog, channel_id: str, promised: int) -> list[str]:
    envelopes = await lines(log, channel_id)
    count = len(envelopes)
    await log.append(channel_id, [line(channel_id, count + 1)], after=count)
    found = [] if whole(envelopes) else [f"halved: an append to {channel_id}"]
    return [*found, f"lost: {channel_id} {promised}, found {count}"] if count < promised else found


if __name__ == "__main__":
    _be(msgspec.json.decode(sys.argv[1], type=Orders))
