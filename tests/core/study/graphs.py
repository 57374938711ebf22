"""Random graphs, and random conversations on them that know nothing of what was worked out."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import strategies as st

from turnline.core.envelope import Decision, Speak
from turnline.core.graph import Transition, TransitionGraph
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
)
from turnline.errors import Refused

from ..customs import HighestRankedReviewer, PlainCondition
from ..scenes import Scene, fails, packs, workflow

NAMES = ["ann", "ben", "cat"]
OUTSIDER = "zoe"
TOOLS = ["search", "close"]
SIGNALS = ["ok", "error"]
KEYS = ["route", "score"]
VALUES: list[Any] = [None, True, False, 0, 1, 2.5, 5, "ann", "done", ["x"]]

name = st.sampled_from(NAMES)
key = st.sampled_from(KEYS)
value = st.sampled_from(VALUES)
number = st.sampled_from([0, 1, 2.5, 5])

leaf: st.SearchStrategy[Condition] = st.one_of(
    st.builds(FromSpeaker, name),
    st.builds(FromSpeaker, name),
    st.builds(ContextEquals, key, value),
    st.builds(ContextEquals, key, value),
    st.builds(ContextIn, key, st.lists(value, min_size=1, max_size=3)),
    st.builds(ContextThreshold, key, number, st.sampled_from([">", ">=", "<", "<="])),
    st.builds(ToolCalled, st.sampled_from(TOOLS)),
    st.builds(SignalIs, st.sampled_from(SIGNALS)),
    st.builds(AtTurn, st.integers(0, 4)),
    st.builds(TurnFailed, st.none() | name),
    st.builds(Expr, st.sampled_from(["route == 'done'", "score > 2", "score and route != 'ann'"])),
    st.builds(PlainCondition, st.sampled_from([{}, {"holds": True}])),
    st.just(Always()),
)
condition: st.SearchStrategy[Condition] = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(*parts)),
        st.builds(Not, inner),
    ),
    max_leaves=4,
)
target: st.SearchStrategy[TransitionTarget] = st.one_of(
    st.builds(AgentTarget, name),
    st.builds(AgentTarget, name),
    st.builds(TerminateTarget, st.sampled_from(["done", "enough"])),
    st.builds(TerminateTarget, st.sampled_from(["done", "enough"])),
    st.just(StayTarget()),
    st.just(RevertToInitiatorTarget()),
    st.builds(RoundRobinTarget, st.just([]) | st.permutations(NAMES)),
    st.builds(HighestRankedReviewer, st.lists(name, min_size=1, max_size=1)),
)
graphs = st.builds(
    TransitionGraph,
    name,
    st.lists(st.builds(Transition, condition, target, st.sampled_from([0, 0, 0, 1, -1, 100])), max_size=6),
    target,
    st.none() | st.integers(1, 6),
)


def opened(graph: TransitionGraph, opener: str) -> Scene[Any]:
    """A channel with the graph, among everybody; the opener first."""
    return workflow(graph, opener, *(one for one in NAMES if one != opener))


def played(
    graph: TransitionGraph, opener: str, random: Random, *, turns: int = 15, rules_only: bool = False
) -> Iterator[tuple[str, Decision]]:
    """Who spoke and what was decided, on one random conversation."""
    scene = opened(graph, opener)
    for _ in range(turns):
        speaker = scene.state.expected_next_speaker
        if speaker is None:
            return
        try:
            lines = scene.accept(_draft(speaker, random, rules_only=rules_only))
        except Refused:  # A class of the user's own led nowhere.
            continue
        decision = next(line.decision for line in lines if line.decision is not None)
        yield speaker, decision


def _draft(speaker: str, random: Random, *, rules_only: bool) -> Any:
    if not rules_only and random.random() < 0.1:
        return fails(speaker)
    if not rules_only and random.random() < 0.15:
        return packs(speaker, "handoff", target=random.choice(NAMES))
    updates = {one: random.choice([*VALUES, 3, -1, 2, "else"]) for one in KEYS if random.random() < 0.7}
    if random.random() < 0.2:
        return packs(speaker, "signal", signal=random.choice(SIGNALS), updates=updates)
    if random.random() < 0.3:
        return packs(speaker, updates=updates, tool=random.choice(TOOLS))
    return packs(speaker, updates=updates)


def led_to(decision: Decision) -> str | None:
    return decision.agent_id if isinstance(decision, Speak) else None
