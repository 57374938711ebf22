"""Lint: the traps of the seeds are found, the cookbook is clean, and each family has its edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.patterns import PATTERNS
from turnline.core.channel import Participant
from turnline.core.graph import Transition, TransitionGraph, round_robin, sequence
from turnline.core.step_targets import FanOutTarget, NestedTarget
from turnline.core.study.lint import lint
from turnline.core.transitions import (
    AgentTarget,
    AllOf,
    Always,
    AtTurn,
    Condition,
    ContextEquals,
    ContextIn,
    ContextThreshold,
    Expr,
    FromSpeaker,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    SignalIs,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TransitionTarget,
    TurnFailed,
)

from ..cookbook import COOKBOOK, played

OVER = TerminateTarget("over")
PERSON = Participant("ann", "ann", "human")


def codes(graph: TransitionGraph, **given: Any) -> list[str]:
    return [one.code for one in lint(graph, **given)]


def graph(*rules: Transition, default: TransitionTarget = OVER, max_turns: int | None = 9) -> TransitionGraph:
    return TransitionGraph("ann", rules, default, max_turns)


def to(name: str, *conditions: Condition, priority: int = 0) -> Transition:
    return Transition(
        AllOf(*conditions) if len(conditions) > 1 else conditions[0], AgentTarget(name), priority
    )


# --- The seeds ---

TRAPS: dict[str, tuple[str, TransitionGraph, dict[str, Any]]] = {
    "stuck routing (002, 004)": (
        "G301",
        graph(to("sec", ContextEquals("route", "sec")), to("gen", FromSpeaker("ann"))),
        {},
    ),
    "priority=100 on the rule that ends it (004)": (
        "G202",
        graph(
            Transition(ContextEquals("approved", True), TerminateTarget("approved"), priority=100),
            to("ben", FromSpeaker("ann")),
            to("ann", FromSpeaker("ben")),
        ),
        {},
    ),
    "the kick-off is the first thinker's turn (004)": (
        "G304",
        sequence(["researcher", "writer", "editor"]),
        {"participants": ["researcher", "writer", "editor"], "opener": "researcher"},
    ),
    "a round robin without max_turns (004)": ("G302", round_robin(["ann", "ben"]), {}),
    "the default of a feedback loop is dead (004)": ("G204", PATTERNS["feedback_loop"].graph, {}),
    "the more specific rule comes too late (002)": (
        "G201",
        graph(to("gen", FromSpeaker("ann")), to("sec", FromSpeaker("ann"), ContextEquals("domain", "sec"))),
        {},
    ),
    "initial_speaker must match a participant (002)": (
        "G101",
        sequence(["alise", "bob"]),
        {"participants": ["alice", "bob"]},
    ),
    "only the first routing tool is on the packet (002)": (
        "G103",
        graph(to("ben", ToolCalled("ask"), ToolCalled("escalate"))),
        {},
    ),
    "a loop that only the agents can end (002: order check)": (
        "G303",
        graph(
            Transition(ContextEquals("done", True), OVER), to("ben", FromSpeaker("ann")), max_turns=None,
            default=AgentTarget("ann"),
        ),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_each_trap_of_the_seeds_is_found(trap: str) -> None:
    code, bad, given = TRAPS[trap]

    assert code in codes(bad, **given)


@pytest.mark.parametrize("file", COOKBOOK, ids=lambda path: path.stem)
def test_each_cookbook_graph_is_clean(file: Path) -> None:
    """On its own, and with its agents and tools, opened by the user, as `run` opens it."""
    graph, options = played(file)
    members = [Participant("user", "user", "human"), *(one.name for one in options["agents"])]
    tools = {one.name: [tool.name for tool in one.tools] for one in options["agents"]}

    assert lint(graph) == ()
    assert lint(graph, participants=members, opener="user", tools=tools) == ()


@pytest.mark.parametrize("name", PATTERNS)
def test_the_graphs_of_the_transcripts_have_no_other_findings_than_these(name: str) -> None:
    known = {"feedback_loop": ["G204"], "failed_turn": ["G302"]}

    assert codes(PATTERNS[name].graph) == known.get(name, [])


# --- Names ---


def test_g101_points_at_each_place_and_offers_the_nearest_name() -> None:
    bad = graph(
        to("bne", FromSpeaker("ann"), ContextEquals("x", 1)), default=RoundRobinTarget(["ann", "bne"])
    )
    first, second = (one for one in lint(bad, participants=["ann", "ben"]) if one.code == "G101")

    assert first.where == "transitions[0].then.args.agent_id"
    assert second.where == "default_target.args.participants[1]"
    assert first.fix == "did you mean 'ben'?"


def test_g101_ids_names_and_steps_are_all_known() -> None:
    asks = graph(
        Transition(FromSpeaker("a-1"), FanOutTarget(["ben"], step="all")), to("ann", FromSpeaker("all"))
    )

    assert "G101" not in codes(asks, participants=[Participant("a-1", "ann"), "ben"])


def test_g102_is_told_only_where_the_tools_are_known() -> None:
    waits = graph(to("ben", ToolCalled("ask")))

    assert "G102" not in codes(waits)
    assert "G102" not in codes(waits, tools={"ben": ["ask"]})
    assert "G102" not in codes(waits, tools={"ben": ["look"]}), "nobody knows what ann has"
    assert "G102" in codes(waits, tools={"ann": [], "ben": ["look"]})
    ends = graph(to("ben", ToolCalled("ask")), to("user", FromSpeaker("ben")))
    assert "G102" in codes(ends, tools={"ann": [], "ben": []}), "a person has no tools"
    (found,) = (one for one in lint(waits, tools=["aks"]) if one.code == "G102")
    assert (found.where, found.fix) == ("transitions[0].when", "did you mean 'aks'?")


# --- Contradictions ---


@pytest.mark.parametrize(
    "never",
    [
        ContextEquals("k", 1) & ContextEquals("k", 2),
        ContextEquals("k", "x") & ~ContextEquals("k", "x"),
        ContextEquals("k") & ContextThreshold("k", 0),
        ContextIn("k", ["a", "b"]) & ContextEquals("k", "c"),
        ContextThreshold("k", 5) & ContextThreshold("k", 3, "<"),
        ContextThreshold("k", 5, ">") & ContextThreshold("k", 5, "<="),
        FromSpeaker("ann") & FromSpeaker("ben"),
        FromSpeaker("ann") & ~FromSpeaker("ann"),
        ToolCalled("a") & SignalIs("b"),
        TurnFailed() & ToolCalled("a"),
        AtTurn(1) & AtTurn(2),
        AtTurn(0),
        Expr("x > 1") & ~Expr("x > 1"),
        ~Always(),
    ],
    ids=str,
)
def test_g103_what_cannot_be_is_found(never: Condition) -> None:
    assert "G103" in codes(graph(Transition(never, OVER)))


@pytest.mark.parametrize(
    "sometimes",
    [
        ContextEquals("k", 1) & ~ContextThreshold("k", 0),  # True equals 1, and is no number.
        ContextEquals("k", True) & ContextThreshold("k", 1),
        ContextThreshold("k", 5) & ContextThreshold("k", 5, "<="),
        ContextThreshold("k", 2**53, ">") & ContextThreshold("k", 2**53 + 2, "<"),
        ContextThreshold("k", 1e308, ">"),
        ContextThreshold("k", -1e308, "<"),
        ContextEquals("k", "anything else") | ContextEquals("k", ["x"]),
        ContextEquals("k", 1) & ContextEquals("other", 2),
        Expr("x > 1") & Expr("x < 0"),  # Nobody reads expressions here.
        AllOf(~FromSpeaker("ann"), ~FromSpeaker("ben")),
        TurnFailed("ann") & AtTurn(3),
    ],
    ids=str,
)
def test_g103_what_can_be_is_not(sometimes: Condition) -> None:
    assert "G103" not in codes(graph(Transition(sometimes, OVER)))


def test_g103_points_into_the_condition() -> None:
    half = ContextEquals("a", 1) | (ContextEquals("b", 1) & ContextEquals("b", 2))
    (found,) = (one for one in lint(graph(Transition(half, OVER))) if one.code == "G103")

    assert found.where == "transitions[0].when.args.conditions[1]"


# --- Order and reach ---


def test_g201_and_g202_name_the_rules_that_win() -> None:
    first = Transition(Always(), AgentTarget("ben"))
    shadowed, late = to("ann", FromSpeaker("ben")), to("ann", FromSpeaker("ben"), priority=7)

    (found,) = (one for one in lint(graph(first, shadowed)) if one.code == "G201")
    assert (found.where, "transitions[0] (always)" in found.message) == ("transitions[1]", True)
    (found,) = (one for one in lint(graph(late, first)) if one.code == "G202")
    assert (found.where, found.expected) == ("transitions[0].priority", "a priority below 0")


def test_a_rule_that_several_cover_together_is_shadowed() -> None:
    halves = [to("ben", ContextThreshold("n", 5)), to("ben", ContextThreshold("n", 5, "<"))]
    number = to("ann", ContextThreshold("n", 5, "<=") | ContextThreshold("n", 5, ">"))

    assert "G201" in codes(graph(*halves, number, to("ben", ContextEquals("n", "x"))))


def test_a_rule_that_somebody_could_meet_is_not_shadowed() -> None:
    rules = [to("ben", FromSpeaker("ann")), to("ann", ContextEquals("x", 1))]

    assert "G201" not in codes(graph(*rules, to("ann", ContextEquals("x", 2) | FromSpeaker("ben"))))


def test_g203_a_rule_for_a_turn_beyond_max_turns() -> None:
    def with_limit(limit: int) -> list[str]:
        return codes(graph(to("ben", AtTurn(3)), default=AgentTarget("ann"), max_turns=limit))

    assert ("G203" in with_limit(2), "G203" in with_limit(3), "G203" in with_limit(4)) == (True, True, False)


def test_g204_is_no_finding_of_a_round_robin_or_of_a_custom_class() -> None:
    assert codes(round_robin(["ann", "ben"], 4)) == []
    assert codes(TransitionGraph("ann", [Transition(Always(), OVER)], OVER)) == ["G204"]


def test_g205_whom_a_condition_names_may_be_handed_the_floor() -> None:
    back = graph(to("ann", FromSpeaker("ben")))

    assert "G205" not in codes(back)
    assert "G205" in codes(back, handoffs=False)


def test_g205_whom_a_step_asks_is_reached_with_the_step() -> None:
    asked = Transition(FromSpeaker("ann"), FanOutTarget(["ben"], step="all"))
    never = Transition(AtTurn(50), FanOutTarget(["ben"], step="all"))

    assert "G205" not in codes(graph(asked), handoffs=False)
    assert "G205" in codes(graph(never), handoffs=False)


# --- Loops ---


@pytest.mark.parametrize(
    "rules",
    [
        [Transition(FromSpeaker("sec"), OVER), to("sec", ContextEquals("route", "sec"))],
        [to("sec", ContextEquals("route", "sec"), ~FromSpeaker("sec"))],
        [to("sec", ContextEquals("route", "sec"), FromSpeaker("ann") | FromSpeaker("sec"))],  # It says so.
        [Transition(ContextEquals("route", "sec"), StayTarget()), to("sec", FromSpeaker("ann"))],
        [to("sec", FromSpeaker("ann"))],
    ],
    ids=["terminate first", "exempted", "on purpose", "stay", "no context"],
)
def test_g301_is_not_told_of_a_graph_that_has_minded_it(rules: list[Transition]) -> None:
    assert "G301" not in codes(graph(*rules))


@pytest.mark.parametrize(
    "when",
    [ContextIn("route", ["sec", "x"]), ContextThreshold("risk", 5), Expr("risk > 80 and route == 'sec'")],
    ids=str,
)
def test_g301_is_told_of_every_condition_on_context_variables(when: Condition) -> None:
    assert "G301" in codes(graph(to("sec", when)))


def test_g301_also_of_a_step_and_of_the_opener() -> None:
    asks = graph(Transition(ContextEquals("ask", True), FanOutTarget(["ben"], step="all")))
    back = graph(
        Transition(ContextEquals("ask", True), RevertToInitiatorTarget()), default=AgentTarget("ben")
    )

    assert "G301" in codes(asks)
    assert "G301" in codes(back, participants=["ann", "ben"], opener="ann")


def test_g302_and_g303_leave_a_person_alone() -> None:
    chat = graph(to("bot", FromSpeaker("ann")), default=AgentTarget("ann"), max_turns=None)

    assert "G302" in codes(chat, participants=["ann", "bot"], opener="bot")
    assert codes(chat, participants=[PERSON, "bot"], opener="ann") == []


def test_g302_and_g303_are_not_told_with_max_turns() -> None:
    assert codes(graph(default=StayTarget(), max_turns=3)) == []
    assert codes(graph(default=StayTarget(), max_turns=None)) == ["G302"]


def test_g304_a_person_may_open_and_speak_first() -> None:
    assert codes(sequence(["ann", "ben"]), participants=[PERSON, "ben"], opener="ann") == []


# --- The whole ---


def test_the_graph_inside_a_target_is_linted_too() -> None:
    outer = graph(Transition(FromSpeaker("ann"), NestedTarget(round_robin(["ben", "cat"]), step="talk")))
    (found,) = lint(outer)

    assert (found.code, found.where) == ("G302", "transitions[0].then.args.graph.max_turns")


def test_beyond_the_bound_nothing_is_said_that_needs_everything() -> None:
    dead = graph(Transition(Always(), OVER), to("ben", FromSpeaker("ann")))

    assert set(codes(dead)) == {"G201", "G204", "G205"}
    assert codes(dead, bound=1) == []


def test_a_finding_reads_like_those_of_flows() -> None:
    assert str(lint(round_robin(["ann", "ben"]))[0]).splitlines() == [
        "max_turns: G302 ann -> ben -> ann goes on for ever: no rule closes the channel, and no max_turns",
        "    found: max_turns=None",
        "    expected: a number of turns after which it is enough",
        "    do: set max_turns, e.g. max_turns=10",
    ]
