"""Kills processes that append to a `SqliteLog`, and looks at what they leave. Run by `test_sigkill.py`.

    python -m tests.faults.sigkill FOLDER KILLS SEED honest|hasty

A child opens the file its predecessor was killed on, checks it against every
acknowledgement so far, and appends until it is killed itself. This process
forks and must stay single-threaded: logs live in the children only.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NoReturn

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogError
from turnline.log.base import Log
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line

CHANNELS = ("a", "b", "c")
KILLS_A_FILE = 15
MAX_LINES_AN_APPEND = 4
SMALLEST, LARGEST = 20, 1_000_000
MAX_ACKNOWLEDGEMENTS = 12
"""After so many at most a child is killed, or a moment later."""
MOMENT_SECONDS = 0.003
EARLY_SECONDS = 0.03
PATIENCE_SECONDS = 60.0

Acknowledged = dict[str, int]
"""Channel -> the last seq that somebody was told is on the disk."""


class HastyLog(SqliteLog):
    """The twin: it acknowledges before the commit."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        asyncio.get_running_loop().create_task(super().append(channel_id, envelopes, after=after, row=row))
        await asyncio.sleep(0)


LOGS = {"honest": SqliteLog, "hasty": HastyLog}


async def problems(log: Log, acknowledged: Acknowledged) -> list[str]:
    """Return what is wrong with the log: something lost, halved or unreadable."""
    found: list[str] = []
    for channel_id in CHANNELS:
        try:
            envelopes = [envelope async for envelope in log.read(channel_id)]
        except LogError as error:
            found.append(str(error))
            continue
        if len(envelopes) < acknowledged.get(channel_id, 0):
            found.append(f"{channel_id}: {acknowledged[channel_id]} acknowledged, {len(envelopes)} found")
        if not whole(envelopes):
            found.append(f"{channel_id}: an append was halved")
    return found


def whole(envelopes: Sequence[Envelope]) -> bool:
    """Whether the envelopes are whole appends, one after the other."""
    place = 0
    for envelope in envelopes:
        place += 1
        if envelope.event_data["place"] != place:
            return False
        place = 0 if place == envelope.event_data["of"] else place
    return place == 0


def group(channel_id: str, after: int, random: Random) -> list[Envelope]:
    """Return one append: some lines that say how many they are, and their places among them."""
    of = random.randint(1, MAX_LINES_AN_APPEND)
    size = int(SMALLEST * (LARGEST / SMALLEST) ** random.random()) // of
    return [
        line(channel_id, after + place, data={"of": of, "place": place, "text": "x" * size})
        for place in range(1, of + 1)
    ]


async def work(log: Log, pipe: int, random: Random) -> None:
    """Append to every channel and say so, until somebody ends it."""

    async def write(channel_id: str) -> None:
        head = await log.head(channel_id)
        after = head.seq if head else 0
        while True:
            envelopes = group(channel_id, after, random)
            await log.append(channel_id, envelopes, after=after)
            after = envelopes[-1].seq
            os.write(pipe, f"{channel_id} {after}\n".encode())

    await asyncio.gather(*map(write, CHANNELS))


def child(kind: str, path: Path, pipe: int, acknowledged: Acknowledged, random: Random | None) -> NoReturn:
    async def main() -> None:
        log = LOGS[kind](path)
        if found := await problems(log, acknowledged):
            os.write(pipe, f"! {'; '.join(found)}\n".encode())
        elif random is not None:
            os.write(pipe, b"ok\n")
            await work(log, pipe, random)

    try:
        asyncio.run(main())
    except BaseException as error:
        os.write(pipe, f"! {type(error).__name__}: {error}\n".encode())
    os._exit(0)


def watch(pipe: int, random: Random) -> bytes:
    """Return what the child said by a random moment: early on, or after some acknowledgements."""
    early = random.random() < 0.2
    enough = 0 if early else 1 + random.randint(1, MAX_ACKNOWLEDGEMENTS)
    said = b""
    while said.count(b"\n") < enough and b"!" not in said:
        ready, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
        more = os.read(pipe, 65536) if ready else b""
        if not more:
            return said + b"! it hung, or ended\n"
        said += more
    select.select([], [], [], random.random() * (EARLY_SECONDS if early else MOMENT_SECONDS))
    return said


def look(kind: str, path: Path, acknowledged: Acknowledged) -> list[str]:
    """Let a child check the file the last one was killed on; return what it found wrong."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        child(kind, path, writing, acknowledged, None)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = [text for text in pipe if text.startswith("!")]
    os.wait()
    return found


def kill_one(kind: str, path: Path, acknowledged: Acknowledged, random: Random) -> list[str]:
    """Start a child, kill it, add what it acknowledged; return what it found wrong."""
    reading, writing = os.pipe()
    seed = random.random()
    pid = os.fork()
    if pid == 0:
        child(kind, path, writing, acknowledged, Random(seed))
    os.close(writing)
    said = watch(reading, random)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(reading, 65536):
        said += more
    os.close(reading)
    lines = said.decode().splitlines()
    for acknowledgement in lines:
        channel_id, _, seq = acknowledgement.partition(" ")
        if channel_id in CHANNELS:
            acknowledged[channel_id] = int(seq)
    return [text for text in lines if text.startswith("!")]


def main(folder: Path, kills: int, seed: int, kind: str) -> dict[str, object]:
    random = Random(seed)
    found: list[str] = []
    acknowledged: Acknowledged = {}
    total = kill = 0
    while kill < kills and not found:
        path = folder / f"{kind}-{kill}.db"
        acknowledged = {}
        for _ in range(min(KILLS_A_FILE, kills - kill)):
            kill += 1
            found += kill_one(kind, path, acknowledged, random)
            if found:
                break
        found = found or look(kind, path, acknowledged)
        total += sum(acknowledged.values())
        if not found:
            for leftover in folder.glob(f"{path.name}*"):
                leftover.unlink()
    return {"kills": kill, "acknowledged": total, "problems": found}


if __name__ == "__main__":
    where, count, start, which = sys.argv[1:]
    print(json.dumps(main(Path(where), int(count), int(start), which)))
