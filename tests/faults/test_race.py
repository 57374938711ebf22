"""T1, T6: two processes race for one turn, a thousand times; their clocks are an hour apart.

Every question has one answer: none is missing, none is there twice.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.counts import RACES, RACES_OF_THE_TWIN
from tests.faults.race import RACER
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub, HubClient, LocalLink, Passport

ROOT: Final = Path(__file__).parents[2]
AT_ONCE: Final = 32
PATIENCE_SECONDS: Final = 120.0
HOURS: Final = {"one": 0, "two": 1}
"""Process -> by how much its clock is fast."""


@dataclass
class Raced:
    """What became of some races."""

    packets: Counter[str]
    """Channel -> answers."""
    winners: Counter[str]
    conflicts: int


@asynccontextmanager
async def racer(path: Path, name: str, kind: str) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "tests.faults.race", str(path), name, kind, str(HOURS[name])]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def race(path: Path, kind: str, count: int) -> Raced:
    async with asyncio.timeout(PATIENCE_SECONDS), AsyncExitStack() as stack:
        hub = await Hub.open(SqliteLog(path, durability="process", poll_seconds=0.005), follow=True)
        stack.push_async_callback(hub.close)
        processes = [await stack.enter_async_context(racer(path, name, kind)) for name in HOURS]
        client = HubClient(LocalLink(hub))
        user = await client.register_human(Passport(name="user", kind="human"))
        while RACER not in [one.name for one in hub.participants()]:  # noqa: ASYNC110  Nobody is told.
            await asyncio.sleep(0)
        asked, turn = list[str](), asyncio.Semaphore(AT_ONCE)

        async def ask(n: int) -> None:
            async with turn:
                channel = await user.open("consulting", RACER, message=f"question {n}")
                asked.append(channel.channel_id)
                await channel.result()

        await asyncio.gather(*(ask(n) for n in range(count)))
        conflicts = 0
        for process in processes:
            said, _ = await process.communicate(b"")
            conflicts += int(said.split()[-1])
        return await _counted(hub, asked, conflicts)


async def _counted(hub: Hub, asked: list[str], conflicts: int) -> Raced:
    packets, winners = Counter[str](), Counter[str]()
    for channel_id in asked:
        async for line in hub.log.read(channel_id):
            if line.event_type == "packet":
                packets[channel_id] += 1
                winners[line.event_data["body"]] += 1
    return Raced(packets, winners, conflicts)


async def test_t6_two_processes_race_for_a_turn_and_there_is_one_packet(tmp_path: Path) -> None:
    raced = await race(tmp_path / "log.db", "honest", RACES)

    assert sorted(raced.packets.values()) == [1] * RACES
    assert raced.winners.keys() == HOURS.keys()
    assert raced.conflicts > RACES // 20, "they hardly met"


async def test_the_harness_notices_a_log_that_does_not_compare_before_it_appends(tmp_path: Path) -> None:
    raced = await race(tmp_path / "log.db", "careless", RACES_OF_THE_TWIN)

    assert max(raced.packets.values()) > 1
