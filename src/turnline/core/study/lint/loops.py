"""Conversations that go round and round: stuck routing (G301), cycles (G302, G303)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from turnline.core.study.exploration import Walk, cycle_in
from turnline.core.study.finding import Finding
from turnline.core.study.lint.case import Case
from turnline.core.study.possible import PLAIN, Move, Rule
from turnline.core.study.proof import variables_of
from turnline.core.transitions import (
    ContextEquals,
    ContextIn,
    ContextThreshold,
    Expr,
    FromSpeaker,
    StayTarget,
    parts_of,
)

STUCK: Final = "G301"
ENDLESS: Final = "G302"
UNLIMITED: Final = "G303"
_MOST_PAIRS: Final = 200


def stuck_routing(case: Case) -> Iterator[Finding]:
    """Rules about context variables that bring the floor to somebody, and bring it back after its turn."""
    for rule in case.possible.rules:
        stuck = None if isinstance(rule.then, StayTarget) else _stuck(case, rule)
        if stuck is not None:
            yield _stuck_finding(case, rule, stuck)


def cycles(case: Case) -> Iterator[Finding]:
    """Cycles that nothing ends, and cycles that nothing has to end."""
    if case.graph.max_turns is not None:
        return
    people = [one for one in case.cast.everyone if case.cast.is_person(one)]
    walk = Walk(case.possible, ways={"turn"})
    loop = cycle_in(walk, without=people)
    if not loop:
        return
    names = [case.cast.spec.name_of(move.speaker) for move in loop]
    way = " -> ".join([*names, names[0]])
    can_end = not walk.is_complete or any(move.to is None for move in walk.moves)
    if can_end or set(walk.reached) & set(people):
        yield _cycle(UNLIMITED, f"{way} can go on for ever: there is no max_turns", names)
    else:
        yield _cycle(ENDLESS, f"{way} goes on for ever: no rule closes the channel, and no max_turns", names)


def _cycle(code: str, message: str, names: Sequence[str]) -> Finding:
    return Finding(
        code=code,
        path=("max_turns",),
        message=message,
        found="max_turns=None",
        expected="a number of turns after which it is enough",
        fix=f"set max_turns, e.g. max_turns={max(10, 4 * len(names))}",
        severity="error" if code == ENDLESS else "warning",
    )


def _stuck(case: Case, rule: Rule) -> tuple[Move, dict[str, object]] | None:
    """The turn after which the rule fires once more, and the context variables with which it does."""
    keys = _keys(rule)
    mine = [one for one in case.walk.moves if one.index == rule.index and one.by == "transition"]
    into = [one for one in mine if one.way == "turn" and one.to is not None and one.to != one.speaker]
    last = case.possible.horizon + 1
    back = [
        replace(one, signs=(PLAIN,))
        for one in mine
        if one.way == "turn" and one.to == one.speaker and one.turn == last and PLAIN in one.signs
    ]
    back = [one for one in back if keys and not _names(rule, one.speaker)]
    pairs = [(first, again) for again in back for first in into if first.to == again.speaker]
    for first, again in pairs[:_MOST_PAIRS]:
        variables = next(variables_of(case.possible, [first, again]), None)
        if variables is not None:
            return again, {key: variables[key] for key in keys if key in variables}
    return None


def _stuck_finding(case: Case, rule: Rule, stuck: tuple[Move, dict[str, object]]) -> Finding:
    move, variables = stuck
    name = case.cast.spec.name_of(move.speaker)
    while_set = " and ".join(f"{key} is {value!r}" for key, value in variables.items()) or "nothing is set"
    keys = ", ".join(repr(key) for key in _keys(rule))
    return Finding(
        code=STUCK,
        path=("transitions", rule.index),
        message=f"after its own turn {name!r} gets the floor again, for as long as {while_set}",
        found=case.rule(rule.index),
        expected=f"a rule for the turns of {name!r} before it",
        fix=f"put a rule with FromSpeaker({name!r}) before it, or add & ~FromSpeaker({name!r}) to it, "
        f"and let {name!r} clear {keys} if it is to be asked again",
    )


def _names(rule: Rule, speaker: str) -> bool:
    """Whether the rule says itself that it is for the turns of `speaker`."""
    return any(isinstance(part, FromSpeaker) and part.agent_id == speaker for part in parts_of(rule.when))


def _keys(rule: Rule) -> list[str]:
    """The context variables that a rule looks at."""
    found: list[str] = []
    for part in parts_of(rule.when):
        if isinstance(part, ContextEquals | ContextIn | ContextThreshold):
            found.append(part.key)
        elif isinstance(part, Expr):
            found += sorted(part.compiled.names)
    return list(dict.fromkeys(found))
