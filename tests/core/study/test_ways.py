"""The ways on: who is told apart by the graph alone, and which turns are, as long as that is cheap."""

from __future__ import annotations

from turnline.core.graph import Transition, TransitionGraph
from turnline.core.study.cast import cast_of
from turnline.core.study.ways import MOST_LOOKS, Ways
from turnline.core.transitions import (
    AgentTarget,
    Always,
    AtTurn,
    Condition,
    ContextEquals,
    FromSpeaker,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TurnFailed,
)

OVER = TerminateTarget("over")


def sources(*rules: tuple[Condition, str], first: str = "ann") -> list[list[str]]:
    """From whose turns each rule leads, and the default."""
    graph = TransitionGraph(first, [Transition(when, AgentTarget(then)) for when, then in rules], OVER)
    ways = Ways(graph, cast_of(graph))
    return [ways.sources(way) for way in ways.all]


def test_who_is_sure_to_lead_elsewhere_never_comes_to_a_later_rule() -> None:
    assert sources((FromSpeaker("ann"), "ben"), (ToolCalled("look"), "eve")) == [
        ["ann"],
        ["ben", "eve"],
        ["ben", "eve"],
    ]
    assert sources((Always(), "ben"), (ToolCalled("look"), "eve")) == [["ann", "ben"], [], []]


def test_a_rule_that_names_its_speaker_leads_from_there_even_where_an_earlier_one_takes_the_turn() -> None:
    assert sources((FromSpeaker("ann"), "ben"), (FromSpeaker("ann"), "eve"))[1] == ["ann"]


def test_t5_a_turn_that_failed_is_not_taken_by_rules_that_speak_of_no_failure() -> None:
    assert sources((FromSpeaker("ann"), "ben"), (TurnFailed(), "ben")) == [["ann"], ["ann", "ben"], ["ben"]]


def test_a_rule_tried_earlier_takes_the_turn_wherever_it_stands() -> None:
    late = Transition(ToolCalled("look"), AgentTarget("eve"), priority=1)
    sure = Transition(FromSpeaker("ann"), AgentTarget("ben"))
    graph = TransitionGraph("ann", [late, sure], OVER)
    ways = Ways(graph, cast_of(graph))

    assert [(way.index, ways.sources(way)) for way in ways.all] == [
        (1, ["ann"]),
        (0, ["ben", "eve"]),
        (None, ["ben", "eve"]),
    ]


def test_a_turn_is_told_from_others() -> None:
    assert sources((AtTurn(1), "ben"), (AtTurn(2), "ann"), (AtTurn(3) & ToolCalled("look"), "ben")) == [
        ["ann"],
        ["ben"],
        ["ann"],
        ["ann", "ben"],
    ]


def test_a_turn_too_far_off_is_one_condition_among_others() -> None:
    assert sources((AtTurn(1), "ben"), (AtTurn(MOST_LOOKS), "ann")) == [["ann", "ben"]] * 3


def test_what_a_condition_asks_beside_the_speaker_may_always_hold() -> None:
    """Exploring would know that both cannot be; it may also take as long as there are variables."""
    to = ContextEquals("to", "x") & ContextEquals("to", "y")

    assert sources((to, "ben")) == [["ann", "ben"], ["ann", "ben"]]


def test_those_whom_nothing_names_have_the_floor_where_their_order_is_known() -> None:
    graph = TransitionGraph("ann", [Transition(ToolCalled("on"), RoundRobinTarget())], StayTarget())

    assert list(Ways(graph, cast_of(graph)).speakers) == ["ann"]
    known = cast_of(graph, participants=["bo", "ann", "eve"], opener="bo")
    assert list(Ways(graph, known).speakers) == ["ann", "eve", "bo"]
