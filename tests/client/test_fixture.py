"""A channel, written down and decided anew, without a model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.customs import Breaks
from tests.hub.scenes import House, answers, closed, refused
from turnline.agent.agent import Agent
from turnline.agent.scripted import call
from turnline.client.channel import Channel, set_context
from turnline.client.fixture import Parted, export_channel, play_channel
from turnline.core.envelope import JsonObject
from turnline.core.graph import Transition, TransitionGraph, round_robin, sequence
from turnline.core.routing import Handoff
from turnline.core.step_targets import FanOutTarget
from turnline.core.transitions import (
    AgentTarget,
    Always,
    ContextEquals,
    FromSpeaker,
    TerminateTarget,
    ToolCalled,
    TurnFailed,
)
from turnline.errors import BadSpec
from turnline.testing import ScriptedModel

from .stage import begun, played, stage


async def exported(home: House, channel: Channel) -> JsonObject:
    """The fixture, as it reads back from a file."""
    fixture: JsonObject = json.loads(json.dumps(await export_channel(home.hub, channel.channel_id)))
    return fixture


def parted(fixture: JsonObject, **given: Any) -> Parted:
    found = play_channel(fixture, **given)
    assert found is not None
    return found


def desk(*transitions: Transition) -> TransitionGraph:
    return TransitionGraph("user", transitions, TerminateTarget("done"))


def clerk(*script: Any) -> Agent:
    agent = Agent("ada", config=ScriptedModel(*script))

    @agent.tool
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    @agent.tool
    def pass_on() -> Handoff:
        return Handoff(target="bo")

    return agent


TOOLS = desk(
    Transition(FromSpeaker("user"), AgentTarget("ada")), Transition(ToolCalled("refund"), AgentTarget("bo"))
)


async def test_a_conversation_with_tools_is_decided_anew_from_its_file_alone() -> None:
    model = ScriptedModel("noted")
    async with stage(clerk(call("refund", amount=3), "done so"), Agent("bo", config=model)) as home:
        fixture = await exported(home, await played(home, TOOLS))

    assert play_channel(fixture) is None
    assert len(model.requests) == 1


async def test_what_a_tool_call_means_is_worked_out_anew() -> None:
    script = (call("pass_on"), "over to bo")
    async with stage(clerk(*script), Agent("bo", config=ScriptedModel("noted"))) as home:
        fixture = await exported(home, await played(home, TOOLS))
    assert play_channel(fixture) is None
    for line in fixture["channel"]:
        if line["event_type"] == "turn.tool":
            line["event_data"]["entry"]["returned"]["target"] = "user"
    found = parted(fixture)

    assert "'target': 'bo'" in found.expected
    assert "'target': 'user'" in found.found


async def test_todays_graph_that_leads_elsewhere_fails_with_the_first_line_that_parts() -> None:
    agents = [Agent("ada", config=ScriptedModel("a")), Agent("bo", config=ScriptedModel("b"))]
    async with stage(*agents) as home:
        fixture = await exported(home, await played(home, sequence(["user", "ada", "bo"])))
    found = parted(fixture, graph=sequence(["user", "bo", "ada"]))

    assert "the floor goes to ada" in found.expected
    assert "the floor goes to bo" in found.found
    assert str(found).startswith(f"line {found.seq} went another way")
    assert play_channel(fixture, graph=sequence(["user", "ada", "bo"])) is None


async def test_a_graph_that_closes_earlier_or_cannot_answer_is_told() -> None:
    async with stage(Agent("ada", config=ScriptedModel("a", "b"))) as home:
        fixture = await exported(home, await played(home, round_robin(["user", "ada"], max_turns=2)))

    assert "closes with 'max_turns'" in parted(fixture, graph=round_robin(["user", "ada"], max_turns=1)).found
    assert "refused: " in parted(fixture, graph=desk(Transition(Breaks(), AgentTarget("ada")))).found


async def test_writes_failures_interjections_and_closes_play_as_they_were() -> None:
    rules = desk(
        Transition(TurnFailed("ada"), AgentTarget("bo")),
        Transition(ContextEquals("to", "ada"), AgentTarget("ada")),
        Transition(Always(), AgentTarget("user")),
    )
    async with stage(people=["user", "boss"]) as home:
        for name in ("ada", "bo"):
            await home.agent(name)
        channel = await home.open(rules, by="user", message="go")
        await set_context(channel, "to", "ada")
        await home.people["boss"].channel(channel.channel_id).send("I am watching")

        @home["ada"].on_turn
        async def fails(turn: Any) -> str:
            await set_context(turn.channel, "to", "nobody")
            raise ValueError("no")

        home["bo"].on_turn(answers("I take it"))
        await channel.send("now")
        await home.people["user"].wait_for_channel_event(
            channel.channel_id, lambda one: one.event_type == "packet"
        )
        await channel.close("enough")
        fixture = await exported(home, channel)

    kinds = {line["event_type"] for line in fixture["channel"]}
    assert {"turn.failed", "turn.abandoned", "context.set", "channel.closed"} <= kinds
    assert play_channel(fixture) is None


async def test_a_fork_and_a_fan_out_play_from_a_file_too() -> None:
    graph = desk(Transition(FromSpeaker("user"), FanOutTarget(["ada"], step="ask", into="answers")))
    async with stage(Agent("ada", config=ScriptedModel("yes", "no"))) as home:
        channel = await played(home, graph)
        fork = home.people["user"].channel(await home.hub.fork(channel.channel_id, at=4))
        await closed(fork)

        assert play_channel(await exported(home, channel)) is None
        assert play_channel(await exported(home, fork)) is None


async def test_nothing_of_a_providers_own_is_in_a_fixture() -> None:
    async with stage(clerk(call("refund", amount=3), "done")) as home:
        channel = await begun(home, desk(Transition(FromSpeaker("user"), AgentTarget("ada"))))
        await closed(channel)
        fixture = await exported(home, channel)

    assert '"raw"' not in json.dumps(fixture)


@pytest.mark.parametrize(
    "data", [{}, {"version": 2, "channel": []}, {"version": 1, "channel": []}, {"version": 1}]
)
def test_what_is_no_fixture_is_refused(data: JsonObject) -> None:
    with pytest.raises(BadSpec):
        play_channel(data)


async def test_a_run_is_exported_as_a_run() -> None:
    async with stage() as home:
        await home.agent("ada")
        channel = await home.open(
            sequence(["user", "ada"]), by="user", knobs={"flow": {"private": {"_key": "s"}}}
        )

        error = await refused(BadSpec, export_channel(home.hub, channel.channel_id))
        assert "turnline runs export" in str(error)
