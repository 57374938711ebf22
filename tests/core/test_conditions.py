"""W4: what each condition means. The state a condition sees includes the envelope (W2)."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.conditions import (
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
    SignalIs,
    ToolCalled,
    TurnFailed,
    parts_of,
)
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.state import State
from turnline.errors import BadExpression, BadGraph

from .customs import Both, LongText, PlainCondition
from .scenes import line

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
