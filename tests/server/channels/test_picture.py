"""A channel's graph as nodes and edges: every kind of target, and what cannot be drawn."""

from __future__ import annotations

from typing import Any

from turnwise.core.channel import ChannelSpec, Participant
from turnwise.core.conditions import Always, ContextEquals, FromSpeaker, ToolCalled
from turnwise.core.envelope import JsonObject
from turnwise.core.graph import Transition, TransitionGraph, round_robin
from turnwise.core.state import State, WorkflowState
from turnwise.core.step_targets import FanOutTarget
from turnwise.core.targets import (
    AgentTarget,
    RevertToInitiatorTarget,
    StayTarget,
    TerminateTarget,
    TransitionTarget,
)
from turnwise.server.channels.picture import ANYONE, picture

MEMBERS = [Participant(f"{name}-1", name) for name in ("ann", "ben", "eve")]


def drawn(graph: TransitionGraph, **knobs: Any) -> JsonObject:
    spec = ChannelSpec(channel_id="c", type="workflow", creator_id="ann-1", participants=MEMBERS, knobs=knobs)
    return picture(WorkflowState(spec=spec, graph_data=graph.to_dict()))


def edges(found: JsonObject) -> list[tuple[str, str, str]]:
    return [(one["source"], one["target"], one["label"]) for one in found["edges"]]


def one_rule(then: TransitionTarget) -> TransitionGraph:
    return TransitionGraph("ann", [Transition(FromSpeaker("ann"), then)], TerminateTarget("over"))


def test_a_rule_leads_from_its_speaker_and_says_what_else_it_asks_for() -> None:
    when = FromSpeaker("ann") & ContextEquals("topic", "bills")
    found = drawn(TransitionGraph("ann", [Transition(when, AgentTarget("ben"))], TerminateTarget("over")))

    assert edges(found) == [("ann-1", "ben-1", "topic = bills"), (ANYONE, "*end:over", "otherwise")]
    assert found["rules"] == [{"text": "from ann and topic = bills", "target": "ben"}]
    labels = {node["label"]: node for node in found["nodes"]}
    assert labels.keys() == {"ann", "ben", "anyone", "over"}
    assert labels["ann"]["first"] is True
    assert labels["over"]["reason"] == "over"


def test_a_rule_of_no_speaker_leads_from_anyone() -> None:
    graph = TransitionGraph("ann", [Transition(ToolCalled("look"), AgentTarget("eve"))], TerminateTarget("x"))

    assert edges(drawn(graph))[0] == (ANYONE, "eve-1", "tool look")


def test_a_rule_of_several_speakers_leads_from_each() -> None:
    when = FromSpeaker("ann") | FromSpeaker("ben")
    graph = TransitionGraph("ann", [Transition(when, AgentTarget("eve"))], TerminateTarget("x"))

    assert edges(drawn(graph))[:2] == [("ann-1", "eve-1", ""), ("ben-1", "eve-1", "")]


def test_targets_that_name_nobody_lead_where_they_lead() -> None:
    assert edges(drawn(one_rule(StayTarget())))[0] == ("ann-1", "ann-1", "")
    assert edges(drawn(one_rule(RevertToInitiatorTarget())))[0] == ("ann-1", "ann-1", "")
    assert edges(drawn(one_rule(FanOutTarget(["ben"], step="ask"))))[0] == ("ann-1", "step-ask", "")


def test_going_round_leads_from_each_to_the_next() -> None:
    found = edges(drawn(round_robin(["ann", "ben", "eve"], max_turns=9)))

    assert found[:3] == [("ann-1", "ben-1", ""), ("ben-1", "eve-1", ""), ("eve-1", "ann-1", "")]


def test_of_a_run_the_ways_out_that_nobody_wrote_are_left_out() -> None:
    graph = TransitionGraph(
        "ann",
        [Transition(FromSpeaker("ann"), AgentTarget("ben")), Transition(Always(), TerminateTarget("failed"))],
        TerminateTarget("unrouted"),
    )

    assert edges(drawn(graph, flow={"name": "lead"})) == [("ann-1", "ben-1", "")]


def test_without_a_graph_or_with_one_nobody_can_read_the_participants_are_drawn() -> None:
    spec = ChannelSpec(channel_id="c", creator_id="ann-1", participants=MEMBERS)
    broken = WorkflowState(spec=spec, graph_data={"initial_speaker": "ann", "transitions": [{"when": 1}]})

    for state in (State(spec=spec), broken):
        found = picture(state)
        assert [node["label"] for node in found["nodes"]] == ["ann", "ben", "eve"]
        assert found["edges"] == []
