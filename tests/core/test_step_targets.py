"""Targets that are steps: what they are as data, and where the floor goes."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.channel import Participant
from turnline.core.envelope import Speak
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.step_targets import FanOutTarget, NestedTarget, names_in, step_participants, steps_of
from turnline.core.transitions import (
    AgentTarget,
    FromSpeaker,
    Not,
    RoundRobinTarget,
    TerminateTarget,
    TransitionTarget,
    TurnFailed,
)
from turnline.errors import BadGraph

from .scenes import says, workflow

DONE = TerminateTarget("done")


def after_alice(target: TransitionTarget) -> TransitionGraph:
    return TransitionGraph("alice", [Transition(FromSpeaker("alice"), target)], DONE)


@pytest.mark.parametrize(
    "target",
    [
        FanOutTarget(["bob", "carol"]),
        FanOutTarget(["bob"], step="votes", on_failure="fail", timeout_seconds=2.5, into="votes"),
        NestedTarget(sequence(["bob", "carol"])),
        NestedTarget(after_alice(FanOutTarget(["bob"], step="inner")), step="outer", into="result"),
    ],
)
def test_w1_a_graph_with_steps_reads_back_equal(target: TransitionTarget) -> None:
    graph = after_alice(target)

    assert TransitionGraph.loads(graph.to_dict()) == graph == TransitionGraph.loads(graph.dumps())


def test_the_floor_goes_to_the_step() -> None:
    graph = after_alice(FanOutTarget(["bob"], step="votes"))
    step = Participant("votes", "votes", "step", played_by="alice")
    scene = workflow(graph, "alice", "bob", step)

    (said,) = scene.accept(says("alice"))

    assert isinstance(said.decision, Speak)
    assert said.decision.agent_id == "votes"
    assert said.decision.by.target == repr(FanOutTarget(["bob"], step="votes"))


def test_the_steps_of_a_graph_are_participants_that_nobody_invites() -> None:
    graph = TransitionGraph(
        "alice",
        [Transition(FromSpeaker("alice"), FanOutTarget(["bob"], step="a"))],
        NestedTarget(sequence(["bob"])),
    )

    assert step_participants(graph.to_dict(), "alice") == [
        Participant("a", "a", "step", played_by="alice"),
        Participant("nested", "nested", "step", played_by="alice"),
    ]


@pytest.mark.parametrize("data", [None, {}, "graph", sequence(["a", "b"]).to_dict(), {"transitions": 5}])
def test_a_graph_without_steps_has_none(data: Any) -> None:
    assert step_participants(data, "alice") == []


def test_two_steps_of_one_name_are_an_error_unless_they_do_the_same() -> None:
    one, other = FanOutTarget(["bob"], step="ask"), FanOutTarget(["carol"], step="ask")
    twice = TransitionGraph(
        "alice", [Transition(FromSpeaker("alice"), one), Transition(FromSpeaker("bob"), one)], DONE
    )
    both = TransitionGraph("alice", [Transition(FromSpeaker("alice"), one)], other)

    assert list(steps_of(twice)) == ["ask"]
    with pytest.raises(BadGraph, match="two of them"):
        steps_of(both)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FanOutTarget([]),
        lambda: FanOutTarget(["bob"], on_failure="ignore"),
        lambda: FanOutTarget(["bob"], step="not a name"),
        lambda: NestedTarget({"initial_speaker": "bob"}),
    ],
)
def test_a_step_that_cannot_be_is_refused_when_it_is_written(make: Any) -> None:
    with pytest.raises(BadGraph):
        make()


def test_everybody_a_graph_names_is_found_however_deep() -> None:
    graph = TransitionGraph(
        "ann",
        [
            Transition(Not(FromSpeaker("ben")) & TurnFailed("cyd"), RoundRobinTarget(["dan", "ann"])),
            Transition(FromSpeaker("ann"), FanOutTarget(["eve", "fay"])),
        ],
        AgentTarget("gil"),
    )

    assert names_in(graph) == ["ann", "ben", "cyd", "dan", "eve", "fay", "gil"]
