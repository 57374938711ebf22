"""Fan-out and nested graphs (P1): a step is a turn, worked on by whoever opened the channel."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.hub.scenes import begin, house, quiet, refused
from turnline.agent.agent import Agent
from turnline.agent.scripted import ScriptedModel, call
from turnline.client.channel import Channel, RunResult
from turnline.client.run import run
from turnline.core.channel import child_id
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.step_targets import FanOutTarget, NestedTarget
from turnline.core.transitions import AgentTarget, FromSpeaker, TerminateTarget, TransitionTarget, TurnFailed
from turnline.core.views import Floor
from turnline.errors import OutOfTurn
from turnline.log.memory import MemoryLog

FAILED = Transition(TurnFailed(), TerminateTarget("step_failed"))


def then_cyd(target: TransitionTarget, step: str = "fan_out") -> TransitionGraph:
    """The user, then a step, then cyd."""
    return TransitionGraph(
        "user",
        [FAILED, Transition(FromSpeaker("user"), target), Transition(FromSpeaker(step), AgentTarget("cyd"))],
        TerminateTarget("done"),
    )


def agent(name: str, *script: Any) -> Agent:
    return Agent(name, config=ScriptedModel(*script))


async def played(graph: TransitionGraph, *agents: Agent) -> RunResult:
    return await run(graph, agents=agents, message="ship it?", timeout=20)


async def test_p1_several_are_asked_at_once_and_their_answers_come_in_the_graphs_order() -> None:
    """Each waits for the other to have begun: one after the other would never end."""
    begun = {"ann": asyncio.Event(), "ben": asyncio.Event()}

    def waits(me: str, other: str) -> Agent:
        one = agent(me, *_asks_then(f"{me} agrees"))

        @one.tool
        async def wait() -> str:
            begun[me].set()
            await begun[other].wait()
            return "both are here"

        return one

    graph = then_cyd(FanOutTarget(["ben", "ann"], into="opinions"))
    result = await played(graph, waits("ann", "ben"), waits("ben", "ann"), agent("cyd", "so be it"))

    assert [line.speaker for line in result.transcript] == ["user", "fan_out", "cyd"]
    assert result.transcript[1].text == "ben: ben agrees\n\nann: ann agrees"
    assert [one["agent"] for one in result.context_vars["opinions"]] == ["ben", "ann"]
    assert result.reason == "done"


def _asks_then(text: str) -> list[Any]:
    return [call("wait"), text]


async def test_one_that_fails_is_a_result_like_any_other_with_collect() -> None:
    graph = then_cyd(FanOutTarget(["ann", "ben"], into="opinions"))
    result = await played(
        graph, agent("ann", "yes"), agent("ben", RuntimeError("out of ideas")), agent("cyd", "ok")
    )

    assert result.context_vars["opinions"] == [
        {"agent": "ann", "text": "yes", "failed": False},
        {"agent": "ben", "text": "(turn_failed)", "failed": True},
    ]
    assert result.reason == "done"


async def test_one_that_fails_fails_the_turn_with_fail() -> None:
    graph = then_cyd(FanOutTarget(["ann", "ben"], on_failure="fail", into="opinions"))
    result = await played(graph, agent("ann", "yes"), agent("ben", RuntimeError("no")), agent("cyd", "ok"))

    assert result.reason == "step_failed"
    assert "opinions" not in result.context_vars


async def test_one_that_is_too_slow_does_not_hold_up_the_others_for_ever() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    slow = agent("ben", *_asks_then("too late"))
    slow.tool(name="wait")(never)
    graph = then_cyd(FanOutTarget(["ann", "ben"], timeout_seconds=0.05, into="opinions"))
    result = await played(graph, agent("ann", "yes"), slow, agent("cyd", "ok"))

    assert result.context_vars["opinions"][1] == {
        "agent": "ben",
        "text": "(no answer within 0.05 s)",
        "failed": True,
    }
    assert result.reason == "done"


async def test_p1_a_nested_graph_hands_its_last_words_on() -> None:
    graph = then_cyd(NestedTarget(sequence(["ann", "ben"]), step="writing", into="written"), "writing")
    result = await played(graph, agent("ann", "draft"), agent("ben", "edited"), agent("cyd", "published"))

    assert [(line.speaker, line.text) for line in result.transcript][1:] == [
        ("writing", "edited"),
        ("cyd", "published"),
    ]
    assert result.context_vars["written"]["reason"] == "sequence_complete"


async def test_f7_children_are_channels_below_the_turn_that_opened_them() -> None:
    async with house(MemoryLog(), "ann", "cyd") as home:
        user = await home.person("user")
        channel = await user.open(
            "workflow",
            ["ann", "cyd"],
            {"graph": then_cyd(FanOutTarget(["ann"])).to_dict()},
            message="ship it?",
        )
        await quiet()
        child = await home["ann"].channel(child_id(channel.channel_id, 2, "0")).info()

        assert (child.parent_id, child.type) == (channel.channel_id, "consulting")


async def test_t3_a_step_that_is_taken_up_again_finds_its_children_and_opens_nothing_twice() -> None:
    """The opener goes away in the middle of the step; meanwhile the answer comes."""
    log = MemoryLog()
    knobs = {"graph": then_cyd(FanOutTarget(["ann"])).to_dict()}
    async with house(log, "ann", "cyd") as home:
        user = await home.person("user")
        opened = await user.open("workflow", ["ann", "cyd"], knobs, message="ship it?", channel_id="c")
        await quiet()
        await user.close()
        await home["ann"].channel(child_id("c", 2, "0")).send("yes")
    async with house(log, "ann", "cyd") as home:
        user = await home.person("user")
        await quiet()
        state = await home.hub.state("c")
        channels = [one.channel_id for one in await home.hub.list_channels()]

        assert opened.channel_id == "c"
        assert state.last_speaker_id == "fan_out"
        assert sorted(channels) == ["c", child_id("c", 2, "0")]


async def test_a_step_whose_floor_came_with_a_private_word_is_worked_on_all_the_same() -> None:
    async with house(MemoryLog(), "ann", "cyd") as home:
        user = await home.person("user")
        graph = TransitionGraph(
            "cyd", [Transition(FromSpeaker("cyd"), FanOutTarget(["ann"]))], TerminateTarget("done")
        )
        channel = await user.open("workflow", ["ann", "cyd"], {"graph": graph.to_dict()})
        await Channel(home["cyd"].seat, channel.channel_id).send("psst", audience=["ann"])
        await quiet()
        working = begin(channel.result(timeout=60))
        await home["ann"].channel(child_id(channel.channel_id, 2, "0")).send("yes")

        assert (await working).reason == "done"


async def test_only_the_opener_of_a_channel_claims_turns_of_its_steps() -> None:
    async with house(MemoryLog(), "ann", "cyd") as home:
        user = await home.person("user")
        knobs = {"graph": then_cyd(FanOutTarget(["ann"])).to_dict()}
        channel = await user.open("workflow", ["ann", "cyd"], knobs)
        here, step = channel.channel_id, "fan_out"

        for client, name in ((home["ann"], step), (user, home["ann"].agent_id), (user, "unheard_of")):
            floor = Floor(speaker=name, turn=1, seq=0)
            await refused(OutOfTurn, client.seat.claim_turn(floor, here, claim_id="mine", alone=False))
