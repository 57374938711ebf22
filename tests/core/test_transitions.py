"""W4: what each condition means, where each target leads. A condition sees the envelope as counted (W2)."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.adapters import DiscussionAdapter
from turnline.core.channel import ChannelSpec, Participant
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.state import State
from turnline.core.step_targets import FanOutTarget
from turnline.core.study.drawing import graph_picture
from turnline.core.transitions import (
    AgentTarget,
    AllOf,
    Always,
    AnyOf,
    AtTurn,
    Condition,
    ContextEquals,
    ContextIn,
    ContextThreshold,
    Expr,
    FromSpeaker,
    Not,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    SignalIs,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TransitionDecision,
    TransitionTarget,
    TurnFailed,
    parts_of,
)
from turnline.core.views import WindowedSummary
from turnline.errors import BadExpression, BadGraph, BadSpec, BadTarget

from .customs import Both, LongText, PlainCondition
from .scenes import invited, line, packs, says, workflow

TRUE, FALSE = Always(), Not(Always())
FAILED = line(ev.HUB, ev.EV_TURN_FAILED, {"agent_id": "bob"})


def holds(condition: Condition, envelope: Envelope | None = None, **variables: Any) -> bool:
    state = State(turn_count=3, context_vars=variables)
    return condition.evaluate(state, envelope or line("alice"))


def routed(routing: JsonObject, event_type: str = ev.EV_PACKET) -> Envelope:
    return line("alice", event_type, {"routing": routing})


def test_w4_always_holds() -> None:
    assert holds(Always())


def test_w4_from_speaker_is_about_the_sender() -> None:
    assert holds(FromSpeaker("alice"))
    assert not holds(FromSpeaker("bob"))


def test_w4_a_failed_turn_is_from_whoever_it_was() -> None:
    """The hub writes that a turn failed; the turn was still bob's."""
    assert holds(FromSpeaker("bob"), FAILED)
    assert not holds(FromSpeaker(ev.HUB), FAILED)


def test_w4_tool_called_reads_the_packets_routing() -> None:
    assert holds(ToolCalled("escalate"), routed({"kind": "text", "tool": "escalate"}))
    assert not holds(ToolCalled("escalate"), routed({"kind": "text", "tool": "resolve"}))
    assert not holds(ToolCalled("escalate"), routed({"kind": "text"}))


def test_w4_signal_is_reads_the_packets_routing() -> None:
    assert holds(SignalIs("approved"), routed({"kind": "signal", "signal": "approved"}))
    assert not holds(SignalIs("approved"), routed({"kind": "signal", "signal": "rejected"}))


def test_t4_only_a_packet_routes() -> None:
    """A text is what somebody typed; what it carries beside the text means nothing."""
    assert not holds(ToolCalled("escalate"), routed({"tool": "escalate"}, ev.EV_TEXT))
    assert not holds(SignalIs("approved"), routed({"signal": "approved"}, ev.EV_TEXT))


def test_w4_turn_failed_is_about_anybody_or_one() -> None:
    assert holds(TurnFailed(), FAILED)
    assert holds(TurnFailed("bob"), FAILED)
    assert not holds(TurnFailed("alice"), FAILED)
    assert not holds(TurnFailed())


def test_w4_at_turn_counts_the_turn_in_question() -> None:
    assert holds(AtTurn(3))
    assert not holds(AtTurn(2))


def test_w4_context_equals() -> None:
    assert holds(ContextEquals("route", "security"), route="security")
    assert not holds(ContextEquals("route", "security"), route="billing")


def test_w4_a_missing_context_variable_is_none() -> None:
    assert holds(ContextEquals("route"))
    assert holds(ContextEquals("route", value=None), route=None)
    assert holds(ContextIn("route", [None, "x"]))
    assert not holds(ContextEquals("route", "security"))
    assert not holds(ContextEquals("route"), route="security")


def test_w4_context_in() -> None:
    assert holds(ContextIn("tier", ["gold", "silver"]), tier="silver")
    assert not holds(ContextIn("tier", ["gold", "silver"]), tier="bronze")


@pytest.mark.parametrize(
    ("op", "below", "equal", "above"),
    [
        (">=", False, True, True),
        (">", False, False, True),
        ("<=", True, True, False),
        ("<", True, False, False),
    ],
)
def test_w4_context_threshold(op: str, below: bool, equal: bool, above: bool) -> None:
    condition = ContextThreshold("score", 5, op)

    assert [holds(condition, score=value) for value in (4, 5, 6.5)] == [below, equal, above]


@pytest.mark.parametrize("value", ["9", None, True, [9]])
def test_w4_a_threshold_holds_for_numbers_only(value: object) -> None:
    assert not holds(ContextThreshold("score", 0), score=value)


def test_w4_a_threshold_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(BadGraph, match="op"):
        ContextThreshold("score", 5, "==")
    with pytest.raises(BadGraph, match="threshold"):
        ContextThreshold("score", "5")  # type: ignore[arg-type]


def test_w4_expr_reads_the_context_variables() -> None:
    condition = Expr("score > 80 and tier == 'gold'")

    assert holds(condition, score=90, tier="gold")
    assert not holds(condition, score=90)


def test_w4_an_expression_that_does_not_parse_is_refused_when_the_graph_is_written() -> None:
    with pytest.raises(BadExpression):
        Expr("score >")


@pytest.mark.parametrize("kind", [AllOf, AnyOf])
def test_w4_a_combination_takes_conditions_or_a_list_of_them(kind: type[AllOf | AnyOf]) -> None:
    assert kind(TRUE, FALSE) == kind([TRUE, FALSE]) == kind(conditions=(TRUE, FALSE))  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [(), ("alice",), (TRUE, None), ([],)])
def test_w4_a_combination_of_nothing_or_of_something_else_is_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(BadGraph):
        AllOf(*parts)
    with pytest.raises(BadGraph):
        AnyOf(*parts)


@pytest.mark.parametrize(("a", "b"), [(TRUE, TRUE), (TRUE, FALSE), (FALSE, TRUE), (FALSE, FALSE)])
def test_w4_all_any_not(a: Condition, b: Condition) -> None:
    assert holds(AllOf(a, b)) == (holds(a) and holds(b))
    assert holds(AnyOf(a, b)) == (holds(a) or holds(b))
    assert holds(Not(a)) != holds(a)


def test_w4_not_needs_a_condition() -> None:
    with pytest.raises(BadGraph):
        Not("alice")  # type: ignore[arg-type]


def test_w4_the_operators_make_the_combinations() -> None:
    a, b, c = FromSpeaker("a"), FromSpeaker("b"), FromSpeaker("c")

    assert (a & b) == AllOf(a, b)
    assert (a | b) == AnyOf(a, b)
    assert ~a == Not(a)
    assert (a & b & c) == AllOf(a, b, c)
    assert (a | (b | c)) == AnyOf(a, b, c)
    assert (a | b & c) == AnyOf(a, AllOf(b, c))


def test_w4_a_users_own_condition_combines() -> None:
    """By inheriting the operators, or by standing on the other side of somebody who has them."""
    own, plain = LongText(3), PlainCondition()

    assert (own & TRUE) == AllOf(own, TRUE)
    assert (plain & TRUE) == AllOf(plain, TRUE)
    assert (plain | own) == AnyOf(plain, own)
    assert holds(~own)


def test_the_parts_of_a_condition_are_found_at_any_depth() -> None:
    tool, failed = ToolCalled("escalate"), TurnFailed()

    found = list(parts_of(AllOf(Not(AnyOf(tool, TRUE)), Both([failed]))))

    assert tool in found
    assert failed in found


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
STEP = Participant("x", "x", "step", played_by="ann")


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


def test_n8_round_robin_continues_after_a_step_where_it_was() -> None:
    """A fan-out comes after each turn; the order of the others is ann, cat, dog."""
    asks = Transition(Not(FromSpeaker("x")), AgentTarget("x"))
    graph = TransitionGraph("ann", [asks, Transition(Always(), RoundRobinTarget())], TerminateTarget())
    scene = workflow(graph, USER, "ann", "cat", "dog", STEP, expectations=[])
    speakers = []
    for _ in range(8):
        speakers.append(scene.state.expected_next_speaker)
        scene.accept(packs(scene.state.expected_next_speaker or ""))

    assert speakers == ["ann", "x", "cat", "x", "dog", "x", "ann", "x"]


@pytest.mark.parametrize(
    "target",
    [
        AgentTarget("user"),
        RoundRobinTarget(["ann", "user"]),
        RevertToInitiatorTarget(),
        FanOutTarget(["user"], step="x"),
    ],
)
def test_n9_a_graph_that_can_give_the_floor_to_one_who_takes_no_turns_is_not_opened(target: Any) -> None:
    rule = Transition(FromSpeaker("ann"), target)

    with pytest.raises(BadGraph, match=r"transitions\.0\.then is 'user', which takes no turns"):
        workflow(TransitionGraph("ann", [rule], TerminateTarget()), USER, "ann", STEP)
    with pytest.raises(BadGraph, match="default_target is 'user'"):
        workflow(TransitionGraph("ann", [], target), USER, "ann", STEP)


def test_n9_one_who_takes_no_turns_may_come_first_only_with_the_message() -> None:
    graph = TransitionGraph("user", [Transition(FromSpeaker("user"), AgentTarget("ann"))], TerminateTarget())

    assert workflow(graph, USER, "ann", message="Go.").state.expected_next_speaker == "ann"
    with pytest.raises(BadGraph, match="initial_speaker is 'user'"):
        workflow(graph, USER, "ann")


def test_n9_nobody_hands_the_floor_to_one_who_takes_no_turns() -> None:
    scene = workflow(TransitionGraph("ann", [], TerminateTarget()), USER, "ann", "cat", expectations=[])

    refused = scene.refusal(packs("ann", "handoff", target="user"), BadTarget)

    assert "ann, cat" in str(refused)


def test_a_step_cannot_have_the_name_of_a_participant() -> None:
    step = Participant("cat", "cat", "step", played_by="ann")

    with pytest.raises(BadSpec, match="a step 'cat' beside a participant of that name"):
        workflow(TransitionGraph("ann", [], TerminateTarget()), "ann", Participant("c1", "cat"), step)


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
