"""W1, W5: a graph is data, and what reads back is equal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from turnline.core.envelope import JsonObject
from turnline.core.graph import (
    MAX_COST,
    MAX_TRANSITIONS,
    Transition,
    TransitionGraph,
    cost_of,
    round_robin,
    sequence,
)
from turnline.core.step_targets import FanOutTarget, NestedTarget
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
    TransitionTarget,
    TurnFailed,
    conditions,
    targets,
)
from turnline.errors import BadExpression, BadGraph, UnknownName

from .customs import Both, HighestRankedReviewer, LongText, PlainCondition, PlainTarget
from .strategies import json_values

FROM, TOOL = FromSpeaker("alice"), ToolCalled("escalate")
SIMPLE: list[Condition] = [
    Always(),
    FROM,
    TOOL,
    SignalIs("approved"),
    TurnFailed(),
    TurnFailed("alice"),
    AtTurn(2),
    ContextEquals("route"),
    ContextEquals("route", "security"),
    ContextEquals("route", {"$": "condition", "name": "always", "args": {}}),
    ContextIn("tier", ["gold", None, 3]),
    ContextThreshold("score", 0.5, "<"),
    Expr("score > 80"),
    LongText(3),
    PlainCondition({"$": "data", "holds": [True, {"$": 1}]}),
]
NESTED: list[Condition] = [
    AllOf(Not(FROM)),
    AllOf(Not(FROM), AnyOf(TOOL, Not(AllOf(ContextEquals("a"), Not(Always()))))),
    FROM & TOOL,
    FROM | TOOL & ~ContextEquals("done", True),
    ~(FROM | TOOL),
    Both([FROM, Not(Both([TOOL]))]),
    Not(PlainCondition()),
]
TARGETS: list[TransitionTarget] = [
    AgentTarget("alice"),
    RoundRobinTarget(),
    RoundRobinTarget(["bob", "alice"]),
    StayTarget(),
    RevertToInitiatorTarget(),
    TerminateTarget(),
    TerminateTarget("done"),
    FanOutTarget(["bob", "alice"], step="opinions", into="opinions"),
    NestedTarget(TransitionGraph("alice", [], TerminateTarget("done")), step="inner"),
    HighestRankedReviewer(["lead", "peer"]),
    PlainTarget("done"),
]
JSON = json_values(keys=st.text(max_size=4) | st.sampled_from(["$", "name", "args", "value"]))
NAMES = st.sampled_from(["alice", "bob", "carol"])
CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    st.sampled_from(SIMPLE)
    | st.builds(FromSpeaker, NAMES)
    | st.builds(ContextEquals, st.text(), JSON)
    | st.builds(ContextIn, st.text(), st.lists(JSON, max_size=3))
    | st.builds(PlainCondition, st.dictionaries(st.text(max_size=3), JSON, max_size=3)),
    lambda inner: (
        st.builds(Not, inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(*parts))
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(*parts))
        | st.builds(Both, st.lists(inner, max_size=3))
    ),
    max_leaves=6,
)
TRANSITIONS = st.builds(Transition, CONDITIONS, st.sampled_from(TARGETS), st.integers(-5, 5))
GRAPHS = st.builds(
    TransitionGraph,
    NAMES,
    st.lists(TRANSITIONS, max_size=4),
    st.sampled_from(TARGETS),
    st.none() | st.integers(1, 50),
)


def again(graph: TransitionGraph) -> TransitionGraph:
    """`graph` after a restart: as data, as JSON, as data, as a graph."""
    return TransitionGraph.loads(json.loads(json.dumps(graph.to_dict())))


def with_transition(when: Condition, then: TransitionTarget) -> TransitionGraph:
    return TransitionGraph("alice", [Transition(when, then, -3)], TerminateTarget("over"), 7)


@pytest.mark.parametrize("condition", [*SIMPLE, *NESTED], ids=repr)
def test_w1_every_condition_reads_back_equal(condition: Condition) -> None:
    graph = with_transition(condition, StayTarget())

    assert again(graph) == graph
    assert again(graph).transitions[0].when == condition


@pytest.mark.parametrize("target", TARGETS, ids=repr)
def test_w1_every_target_reads_back_equal(target: TransitionTarget) -> None:
    graph = with_transition(Always(), target)

    assert again(graph) == graph
    assert TransitionGraph.loads(TransitionGraph("alice", [], target).to_dict()).default_target == target


def test_w1_no_built_in_is_missing_above() -> None:
    tested = {type(one) for one in [*SIMPLE, *NESTED, *TARGETS]}
    built_in = {
        cls
        for registry in (conditions, targets)
        for cls in registry._classes.values()
        if cls.__module__.startswith("turnline.")
    }

    assert built_in <= tested


@given(GRAPHS)
@settings(max_examples=100, deadline=None)
def test_w1_any_graph_reads_back_equal(graph: TransitionGraph) -> None:
    assert again(graph) == graph
    assert TransitionGraph.loads(graph.dumps()) == graph


def test_w1_different_graphs_are_not_equal() -> None:
    graph = with_transition(AllOf(Not(FROM)), StayTarget())

    assert graph != with_transition(AllOf(FROM), StayTarget())
    assert graph != with_transition(AllOf(Not(FROM)), RoundRobinTarget())


def test_w1_priority_and_max_turns_may_be_left_out() -> None:
    data = {
        "initial_speaker": "alice",
        "transitions": [{"when": {"name": "always", "args": {}}, "then": {"name": "stay", "args": {}}}],
        "default_target": {"name": "terminate", "args": {}},
    }

    assert TransitionGraph.loads(data) == TransitionGraph(
        "alice", [Transition(Always(), StayTarget())], TerminateTarget()
    )


GOOD = sequence(["alice", "bob"]).to_dict()
BAD_TRANSITION: JsonObject = {"when": {"name": "always", "args": {}}}


@pytest.mark.parametrize(
    "data",
    [
        {},
        "not json",
        "[]",
        GOOD | {"max_turn": 5},
        GOOD | {"initial_speaker": ""},
        GOOD | {"initial_speaker": None},
        GOOD | {"transitions": {}},
        GOOD | {"transitions": [BAD_TRANSITION]},
        GOOD | {"transitions": [BAD_TRANSITION | {"then": {"name": "stay", "args": {}}, "priority": "high"}]},
        GOOD | {"transitions": [BAD_TRANSITION | {"then": {"name": "stay", "args": {}}, "prio": 1}]},
        GOOD | {"default_target": None},
        {key: value for key, value in GOOD.items() if key != "default_target"},
    ],
)
def test_w1_what_is_not_a_graph_is_refused(data: JsonObject | str) -> None:
    with pytest.raises(BadGraph):
        TransitionGraph.loads(data)


def test_w1_an_unregistered_condition_is_refused_with_the_known_names() -> None:
    unheard_of = {"when": {"name": "full_moon", "args": {}}, "then": {"name": "stay", "args": {}}}

    with pytest.raises(UnknownName) as unknown:
        TransitionGraph.loads(GOOD | {"transitions": [unheard_of]})

    assert {"always", "from_speaker", "long_text"} <= set(unknown.value.known)


@pytest.mark.parametrize("max_turns", [0, -1, True, 2.0, "5"])
def test_w3_max_turns_is_a_whole_number_from_one_on(max_turns: Any) -> None:
    with pytest.raises(BadGraph) as refused:
        TransitionGraph("alice", [], StayTarget(), max_turns)

    assert refused.value.field == "max_turns"


def test_a_transition_needs_a_condition_and_a_target() -> None:
    with pytest.raises(BadGraph, match=r"Transition\.when"):
        Transition("alice", StayTarget())  # type: ignore[arg-type]
    with pytest.raises(BadGraph, match=r"Transition\.then"):
        Transition(Always(), "alice")  # type: ignore[arg-type]
    with pytest.raises(BadGraph, match=r"transitions\[0\]"):
        TransitionGraph("alice", ["bob"], StayTarget())  # type: ignore[list-item]


@pytest.mark.parametrize("steps", ["alice", [], ()])
@pytest.mark.parametrize("factory", [TransitionGraph.sequence, TransitionGraph.round_robin])
def test_w5_a_factory_takes_a_list_of_names(factory: Any, steps: Any) -> None:
    with pytest.raises(BadGraph):
        factory(steps)


def test_w5_sequence_is_the_seeds_graph() -> None:
    assert TransitionGraph.sequence(["a", "b", "c"]) == TransitionGraph(
        "a",
        [Transition(FromSpeaker("a"), AgentTarget("b")), Transition(FromSpeaker("b"), AgentTarget("c"))],
        TerminateTarget("sequence_complete"),
    )


def test_w5_round_robin_has_the_seeds_default() -> None:
    """No turn reaches it: there is always a next one."""
    assert TransitionGraph.round_robin(["a", "b"], max_turns=6) == TransitionGraph(
        "a",
        [Transition(Always(), RoundRobinTarget(["a", "b"]))],
        TerminateTarget("round_robin_complete"),
        max_turns=6,
    )


def test_w5_both_factories_are_functions_too() -> None:
    assert sequence(["a", "b", "a"]) == TransitionGraph.sequence(["a", "b", "a"])
    assert round_robin(participants=["a", "b"], max_turns=4) == TransitionGraph.round_robin(
        participants=["a", "b"], max_turns=4
    )


def test_a_graph_of_too_many_transitions_is_refused() -> None:
    assert MAX_TRANSITIONS == 2_000
    rules = [Transition(Always(), AgentTarget("b"))] * (MAX_TRANSITIONS + 1)

    with pytest.raises(BadGraph, match="MAX_TRANSITIONS"):
        TransitionGraph("a", rules, TerminateTarget())


def test_a_graph_that_costs_too_much_is_refused_before_any_expression_is_compiled() -> None:
    def graph(count: int) -> JsonObject:
        bad = {"name": "expr", "args": {"expression": "a + + + b ("}}
        many = {"name": "any_of", "args": {"conditions": [{"$": "condition", **bad}] * count}}
        rule = {"when": many, "then": targets.to_dict(AgentTarget("b"))}
        default = targets.to_dict(TerminateTarget())
        return {"initial_speaker": "a", "transitions": [rule], "default_target": default}

    with pytest.raises(BadExpression):
        TransitionGraph.loads(graph(1))
    with pytest.raises(BadGraph, match="MAX_COST"):
        TransitionGraph.loads(graph(MAX_COST // 7 + 1))


def test_the_cost_of_a_graph_counts_its_conditions_words_and_signs_and_those_of_nested_graphs() -> None:
    rule = Transition(Expr("a > 5 and b") & FromSpeaker("a"), AgentTarget("b"))
    inner = TransitionGraph("a", [rule], TerminateTarget())
    outer = TransitionGraph("a", [], NestedTarget(inner))

    assert cost_of(inner.to_dict()) == 5 + 3 + 2  # Words and signs; conditions; targets.
    assert cost_of(outer.to_dict()) == cost_of(inner.to_dict()) + 1
