"""What the log says of somebody's work. It is counted, never stored."""

from __future__ import annotations

from typing import Any

from turnline.client.channel import Channel
from turnline.client.turn import Turn
from turnline.core.governance import Passport, Resume
from turnline.core.study.tasks import task_data
from turnline.errors import UnknownParticipant
from turnline.hub.observed import Observed
from turnline.log.memory import MemoryLog
from turnline.testing import damage_memory

from ..logs import OpenLog
from .scenes import A_B, CountingLog, answers, closed, house, refused


async def works(channel: Channel, *ends: str) -> None:
    """Start a task for each of `ends`, and end it so."""
    for number, end in enumerate(ends):
        for what in ("started", end):
            event_type = f"task.{what}"
            await channel.send(event_type=event_type, event_data=task_data(event_type, f"{number}", "x"))


async def fails(turn: Turn) -> Any:
    raise RuntimeError("no power")


async def test_turns_and_tasks_are_counted_over_all_channels(open_log: OpenLog) -> None:
    async with house(open_log(), "alice", "bob") as home:
        home["bob"].on_turn(answers("hello", "hello"))
        for _ in range(2):
            await closed(await home.open(A_B, message="hello"))
        home["bob"].on_turn(fails)
        await closed(await home.open(A_B, message="hello"))
        talk = await home.talk()
        await works(home.handle("bob", talk), "completed", "failed", "completed", "progress")

        assert await home.hub.observed("alice") == Observed(turns=3)
        assert await home.hub.observed("bob") == Observed(
            turns=2, turns_failed=1, tasks_completed=2, tasks_failed=1
        )


async def test_the_resume_has_it() -> None:
    async with house(MemoryLog(), "alice") as home:
        await home.door.register(None, Passport(name="bob"), Resume(capabilities=["sums"]))
        channel = await home.talk()
        await works(channel, "completed")

        assert await home.hub.resume("bob") == Resume(
            capabilities=["sums"],
            observed={"turns": 0, "turns_failed": 0, "tasks_completed": 0, "tasks_failed": 0},
        )
        assert (await home.hub.resume("alice")).observed["tasks_completed"] == 1


async def test_nothing_is_written_for_it() -> None:
    log = CountingLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.talk()
        await works(channel, "completed")
        before = dict(log.appends)
        await home.hub.observed("alice")

        assert dict(log.appends) == before


async def test_no_line_of_the_channels_of_others_is_read() -> None:
    log = CountingLog()
    async with house(log, "alice", "bob", "eve") as home:
        channel = await home.talk()
        log.read_of.clear()
        await home.hub.observed("eve")

        assert log.read_of[channel.channel_id] == 0


async def test_what_stands_before_a_damage_counts() -> None:
    """E5."""
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.talk()
        await works(channel, "completed", "failed")
        await works(await home.talk(), "completed")
        damage_memory(log, channel.channel_id, len(await home.wal(channel)))

        assert await home.hub.observed("alice") == Observed(tasks_completed=2)


async def test_only_of_who_is_registered() -> None:
    async with house(MemoryLog(), "alice") as home:
        await refused(UnknownParticipant, home.hub.observed("eve"))
