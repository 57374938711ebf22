"""No finding is contradicted by a conversation: random graphs, random turns, the channel's own rules."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

from hypothesis import given, settings, strategies as st

from turnline.core.graph import TransitionGraph
from turnline.core.step_targets import names_in
from turnline.core.study.cast import cast_of
from turnline.core.study.exploration import Walk, cycle_in, explore
from turnline.core.study.finding import Finding
from turnline.core.study.lint import lint
from turnline.core.study.possible import Possible
from turnline.core.study.proof import variables_of
from turnline.core.study.simulation import ScriptTurn, simulate
from turnline.core.transitions import AtTurn, parts_of
from turnline.errors import Refused

from .graphs import KEYS, NAMES, OUTSIDER, VALUES, graphs, led_to, played

NEVER_FIRES = {"G103", "G201", "G202", "G203"}
CONVERSATIONS = 6

openers = st.sampled_from([*NAMES, OUTSIDER])
seeds = st.integers(0, 2**32)


def contradicted(finding: Finding, speaker: str, kind: str, index: int | None, to: str | None) -> bool:
    """Whether one decision shows that a finding is not so."""
    match finding.code:
        case code if code in NEVER_FIRES:
            return len(finding.path) <= 3 and kind == "transition" and index == finding.path[1]
        case "G204":
            return kind == "default"
        case "G205":
            return kind in ("transition", "default") and to == finding.found
    return False


@settings(max_examples=300, deadline=None)
@given(graph=graphs, opener=openers, seed=seeds, is_told=st.booleans())
def test_what_never_happens_never_happens(
    graph: TransitionGraph, opener: str, seed: int, is_told: bool
) -> None:
    members = [opener, *(one for one in NAMES if one != opener)] if is_told else None
    findings = lint(graph, participants=members, opener=opener if is_told else None)
    # Without the participants, a graph is judged by the turns of those whom it names.
    judged = set(members or names_in(graph))

    random = Random(seed)
    for _ in range(CONVERSATIONS):
        for speaker, decision in played(graph, opener, random):
            by, to = decision.by, led_to(decision)
            if speaker not in judged:
                continue
            assert [one for one in findings if contradicted(one, speaker, by.kind, by.index, to)] == []


@settings(max_examples=200, deadline=None)
@given(graph=graphs, opener=openers, seed=seeds)
def test_an_exploration_leaves_nothing_out(graph: TransitionGraph, opener: str, seed: int) -> None:
    members = [opener, *(one for one in NAMES if one != opener)]
    found = explore(graph, participants=members, opener=opener, handoffs=True)

    random = Random(seed)
    for _ in range(CONVERSATIONS):
        turns = list(played(graph, opener, random))
        assert {speaker for speaker, _ in turns} <= set(found.reachable)
        assert found.longest_run is None or len(turns) <= found.longest_run
        ended = [decision for _, decision in turns if led_to(decision) is None]
        assert {one.reason for one in ended} <= set(found.close_reasons)  # type: ignore[union-attr]


@settings(max_examples=200, deadline=None)
@given(graph=graphs, seed=seeds)
def test_a_cycle_that_nothing_ends_is_ended_by_no_rule(graph: TransitionGraph, seed: int) -> None:
    graph = replace(graph, max_turns=None)
    if not [one for one in lint(graph, participants=NAMES, opener=NAMES[0]) if one.code == "G302"]:
        return

    random = Random(seed)
    for _ in range(CONVERSATIONS):
        assert all(led_to(one) for _, one in played(graph, NAMES[0], random, rules_only=True))


def looks_at_turns(graph: TransitionGraph) -> bool:
    return any(isinstance(part, AtTurn) for one in graph.transitions for part in parts_of(one.when))


@settings(max_examples=200, deadline=None)
@given(graph=graphs)
def test_a_cycle_without_max_turns_can_be_gone_round(graph: TransitionGraph) -> None:
    graph = replace(graph, max_turns=None)
    cast = cast_of(graph, participants=NAMES, opener=NAMES[0])
    possible = Possible(graph, cast)
    loop = cycle_in(Walk(possible, ways={"turn"}))
    codes = {one.code for one in lint(graph, participants=NAMES, opener=NAMES[0])}

    assert bool(loop) == bool(codes & {"G302", "G303"})
    if not loop or looks_at_turns(graph):
        return
    turns = []
    for move in loop:
        variables = next(variables_of(possible, [move]))
        sign, gone = move.signs[0], [key for key in KEYS if key not in variables]
        tools = [] if sign.tool is None else [sign.tool]
        turns.append(
            ScriptTurn(move.speaker, tools=tools, signal=sign.signal, context=variables, delete=gone)
        )
    went = simulate(
        replace(graph, initial_speaker=loop[0].speaker), turns * 5, participants=NAMES, opener=NAMES[0]
    )
    assert (went.speaker, len(went.changes)) == (loop[0].speaker, 5 * len(loop))


@settings(max_examples=300, deadline=None)
@given(graph=graphs)
def test_stuck_routing_can_be_shown(graph: TransitionGraph) -> None:
    """With some context variables, whoever is stuck says anything and is asked again, by that very rule."""
    graph = replace(graph, max_turns=None)
    stuck = [one for one in lint(graph, participants=NAMES, opener=NAMES[0]) if one.code == "G301"]
    if looks_at_turns(graph):
        return
    for finding in stuck:
        who = re.findall(r"own turn '(\w+)'", finding.message)[0]
        values = [*VALUES, 3, -1, 2, 6, "else", "anything else"]
        contexts = (dict(zip(KEYS, pair, strict=True)) for pair in product(values, repeat=len(KEYS)))
        assert any(is_stuck(graph, who, int(finding.path[1]), variables) for variables in contexts)


def is_stuck(graph: TransitionGraph, who: str, index: int, variables: dict[str, Any]) -> bool:
    graph = replace(graph, initial_speaker=who)
    try:
        went = simulate(graph, [who] * 3, participants=NAMES, opener=NAMES[0], context_vars=variables)
    except Refused:
        return False
    return [one.decision.by.index for one in went.changes] == [index] * 3
