"""Forks with agents in them: what a turn in flight had recorded is kept, and paid once."""

from __future__ import annotations

from tests.hub.scenes import closed, types
from turnline.agent.agent import Agent
from turnline.agent.scripted import call
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.step_targets import FanOutTarget
from turnline.core.transitions import FromSpeaker, TerminateTarget
from turnline.testing import ScriptedModel

from .stage import heard, played, stage


async def test_t3_a_recorded_call_of_a_turn_in_flight_is_neither_paid_nor_made_again_in_a_fork() -> None:
    called = list[str]()
    model = ScriptedModel(call("look", where="here"), "a lamp", "a lamp, otherwise")
    ada = Agent("ada", config=model)

    @ada.tool
    def look(where: str) -> str:
        called.append(where)
        return "a lamp stands here"

    async with stage(ada) as home:
        channel = await played(home)
        lines = await home.wal(channel)
        at = next(one.seq for one in lines if one.event_type == "turn.tool")
        fork = home.people["user"].channel(await home.hub.fork(channel.channel_id, at=at))

        assert (await fork.result()).text == "a lamp, otherwise"
        assert called == ["here"]
        assert len(model.requests) == 3
        assert heard(model) == [*heard(model, 0), ("me", ""), ("", "a lamp stands here")]


async def test_a_fork_before_the_turn_shows_the_agent_the_conversation_up_to_there() -> None:
    model = ScriptedModel("one", "another one")
    async with stage(Agent("ada", config=model)) as home:
        channel = await played(home)
        at = next(one.seq for one in await home.wal(channel) if one.event_type == "text")
        fork = home.people["user"].channel(await home.hub.fork(channel.channel_id, at=at))

        assert (await fork.result()).text == "another one"
        assert heard(model) == heard(model, 0) == [("user", "go")]


async def test_p1_a_fan_out_in_progress_asks_anew_on_channels_below_the_fork() -> None:
    ada = Agent("ada", config=ScriptedModel("yes", "no"))
    graph = TransitionGraph(
        "user",
        [Transition(FromSpeaker("user"), FanOutTarget(["ada"], step="ask", into="answers"))],
        TerminateTarget("asked"),
    )
    async with stage(ada) as home:
        channel = await played(home, graph)
        lines = await home.wal(channel)
        at = next(one.seq for one in lines if one.event_type == "turn.claimed")
        fork = home.people["user"].channel(await home.hub.fork(channel.channel_id, at=at))
        assert await closed(fork) == "asked"

        assert (await fork.state()).context_vars["answers"] == [
            {"agent": "ada", "text": "no", "failed": False}
        ]
        assert types(await home.wal(fork))[at:] == ["channel.forked", *types(lines)[at - 1 :]]
        below = [one for one in await home.hub.list_channels() if one.parent_id == fork.channel_id]
        assert len(below) == 1
