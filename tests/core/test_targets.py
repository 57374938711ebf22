"""W4: where each target leads."""

from __future__ import annotations

import pytest

from turnline.core import event_types as ev
from turnline.core.adapters import DiscussionAdapter
from turnline.core.channel import ChannelSpec, Participant
from turnline.core.conditions import Always
from turnline.core.envelope import Envelope
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.state import State
from turnline.core.study.drawing import graph_picture
from turnline.core.targets import (
    AgentTarget,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    TransitionDecision,
    TransitionTarget,
)
from turnline.core.views import WindowedSummary

from .scenes import invited, line, packs, says, workflow

STATE = State(participant_order=["alice", "bob", "carol"], creator_id="carol")


def leads(target: TransitionTarget, envelope: Envelope) -> str | None:
    return target.resolve(STATE, envelope).next_speaker


def test_w4_agent_target_leads_to_its_agent() -> None:
    assert leads(AgentTarget("bob"), line("alice")) == "bob"


def test_w4_stay_leads_to_the_same_speaker() -> None:
    assert leads(StayTarget(), line("bob")) == "bob"


def test_w4_stay_after_a_failed_turn_leads_to_whoever_failed() -> None:
    assert leads(StayTarget(), line(ev.HUB, ev.EV_TURN_FAILED, {"agent_id": "bob"})) == "bob"


def test_w4_revert_leads_to_whoever_opened_the_channel() -> None:
    assert leads(RevertToInitiatorTarget(), line("alice")) == "carol"


def test_w4_terminate_closes_with_its_reason() -> None:
    assert TerminateTarget("done").resolve(STATE, line("alice")) == TransitionDecision(close_reason="done")
    assert TerminateTarget().resolve(STATE, line("alice")).close_reason == "terminated"


@pytest.mark.parametrize(("speaker", "following"), [("alice", "bob"), ("bob", "carol"), ("carol", "alice")])
def test_w4_round_robin_follows_the_participants(speaker: str, following: str) -> None:
    assert leads(RoundRobinTarget(), line(speaker)) == following


@pytest.mark.parametrize(("speaker", "following"), [("carol", "alice"), ("alice", "carol")])
def test_w4_round_robin_follows_its_own_list_if_given(speaker: str, following: str) -> None:
    assert leads(RoundRobinTarget(["carol", "alice"]), line(speaker)) == following


def test_w4_round_robin_after_somebody_outside_the_list_begins_at_its_head() -> None:
    assert leads(RoundRobinTarget(["carol", "alice"]), line("bob")) == "carol"


# --- N8: whose turn comes round ---

USER = Participant("user", "user", "human", takes_turns=False)
STEP = Participant("step-x", "x", "step")


def in_turn(*members: str | Participant, turns: int) -> list[str]:
    """Who speaks, one after the other, under a bare round robin."""
    graph = TransitionGraph("ann", [Transition(Always(), RoundRobinTarget())], TerminateTarget())
    scene = workflow(graph, *members, expectations=[])
    speakers = []
    for _ in range(turns):
        speaker = scene.state.expected_next_speaker or ""
        speakers.append(speaker)
        scene.accept(packs(speaker))
    return speakers


def test_round_robin_skips_participants_that_take_no_turns_and_steps() -> None:
    assert in_turn(USER, "ann", "cat", STEP, "dog", turns=5) == ["ann", "cat", "dog", "ann", "cat"]


def test_the_participant_order_keeps_everybody() -> None:
    graph = TransitionGraph("ann", [Transition(Always(), RoundRobinTarget())], TerminateTarget())

    assert workflow(graph, USER, "ann", "cat").state.participant_order == ["user", "ann", "cat"]


def test_an_order_that_is_given_may_name_a_participant_that_takes_no_turns() -> None:
    order = RoundRobinTarget(["ann", "user"])
    graph = TransitionGraph("ann", [Transition(Always(), order)], TerminateTarget())
    scene = workflow(graph, USER, "ann", "cat", expectations=[])
    scene.accept(packs("ann"))

    assert scene.state.expected_next_speaker == "user"


def test_a_discussion_skips_participants_that_take_no_turns() -> None:
    scene = invited(DiscussionAdapter(), USER, "ann", "cat")
    scene.accept(says("user"))
    order = [scene.state.expected_next_speaker]
    for speaker in ("ann", "cat"):
        scene.accept(says(speaker))
        order.append(scene.state.expected_next_speaker)

    assert order == ["ann", "cat", "ann"]


def test_the_default_view_counts_participants_that_take_turns() -> None:
    spec = ChannelSpec(participants=[USER, STEP, *(Participant(one, one) for one in "abc")])

    assert WindowedSummary().window(spec) == 6


def test_the_lint_and_the_drawing_skip_them_too() -> None:
    graph = TransitionGraph("ann", [Transition(Always(), RoundRobinTarget())], TerminateTarget(), max_turns=9)
    members = [USER, Participant("ann", "ann"), Participant("cat", "cat")]
    drawn = graph_picture(graph, participants=members, opener="user")

    assert {(one.source, one.target) for one in drawn.edges if "user" in (one.source, one.target)} == set()
