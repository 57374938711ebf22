"""What a turn is shown (W10, N7a)."""

from __future__ import annotations

from turnline.agent.agent import Agent
from turnline.core.claims import Paused
from turnline.core.envelope import JsonObject
from turnline.core.event_types import EV_TURN_PAUSED
from turnline.core.views import Message, WindowedSummary
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel
from turnline.turns.views import Windows
from turnline.turns.work import Done, Work

from .scenes import engaged


async def test_n7a_a_turn_is_shown_its_own_summary_by_a_process_that_knows_only_an_older_one() -> None:
    shown = list[list[Message]]()
    agent, view = Agent("ada", config=ScriptedModel("in short"), summarise=True), WindowedSummary(1)

    async def knows_none(work: Work) -> JsonObject | None:
        return None

    async def perform(work: Work) -> Done | Paused:
        if work.speaker == "two":
            windows = Windows(knows_none)  # Each performance is in a process of its own.
            shown.append((await windows.show(work, agent, view))[0])
        is_first = not any(one.event_type == EV_TURN_PAUSED for one in work.lines)
        return Paused(reason="time", seconds=5) if is_first else Done(data={"body": "said"})

    async with engaged(MemoryLog(), perform) as scene:
        channel_id = await scene.open(message="go")
        await scene.paused(channel_id)
        for number in range(3):
            await scene.home.people["ann"].channel(channel_id).interject(f"note {number}")
        await scene.home.pass_time(5)
        await scene.paused(channel_id)
        await scene.home.pass_time(5)
        await scene.ended(channel_id)
    first, resumed = shown

    assert first[0].text == "What was said before, in short: in short"
    assert resumed == first
