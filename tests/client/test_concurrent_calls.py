"""T3 with calls that run at once: what a call in flight wrote is not kept because another was recorded."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.client.stage import begun, stage
from tests.hub.scenes import add_one, quiet
from turnline.agent.agent import Agent
from turnline.agent.scripted import ScriptedModel, call
from turnline.client.injection import ChannelInject
from turnline.log.memory import MemoryLog


def script(messages: Any) -> Any:
    return [call("slow"), call("fast")] if len(messages) == 1 else "done"


async def test_t3_a_call_in_flight_writes_its_context_once() -> None:
    wrote, restarted, log = asyncio.Event(), asyncio.Event(), MemoryLog()

    async def slow(channel: ChannelInject) -> str:
        assert channel is not None
        await add_one(channel)
        wrote.set()
        await restarted.wait()
        return "slow"

    async def fast(channel: ChannelInject) -> str:
        assert channel is not None
        await wrote.wait()
        await add_one(channel, "recorded")
        return "fast"

    def ada() -> Agent:
        return Agent("ada", config=ScriptedModel(script), tools=[slow, fast])

    async with stage(ada(), log=log) as home:
        channel = await begun(home, channel_id="story")
        while "turn.tool" not in await home.types(channel):
            await quiet(1)
    restarted.set()
    async with stage(ada(), log=log) as home:
        result = await home.people["user"].channel("story").result(timeout=60)

    # The one in flight ran again and counts once; the recorded one did not run again, and still counts.
    assert result.context_vars == {"n": 1, "recorded": 1}
