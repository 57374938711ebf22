"""Proof: a move, made on the router itself.

What may happen is worked out with conditions that may answer either way. Whoever says that
something *will* happen shows it first: with context variables that have values, and with the
router that will route the channel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice, product
from typing import Any, Final

from turnline.core.envelope import Decision, Speak
from turnline.core.study.possible import PLAIN, Move, Possible, Sign, envelope_of, state_of
from turnline.core.study.values import ELSE
from turnline.core.transitions import Expr
from turnline.errors import Refused

MOST_TRIES: Final = 2_000
"""How many sets of context variables are tried for expressions."""

Variables = dict[str, Any]

_LITERAL: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"|(-?\d+(?:\.\d+)?)")


def is_shown(possible: Possible, move: Move) -> bool:
    """Whether the router really answers like this, for some context variables."""
    return next(variables_of(possible, [move]), None) is not None


def variables_of(possible: Possible, moves: Iterable[Move]) -> Iterator[Variables]:
    """Context variables with which all of these moves are made, as they are; perhaps none."""
    each = list(moves)
    if any(move.is_guess for move in each):
        return
    for variables in islice(_variables(each), MOST_TRIES):
        if all(_agrees(possible, move, variables) for move in each):
            yield variables


def routed(possible: Possible, speaker: str, turn: int, variables: Variables, sign: Sign = PLAIN) -> Decision:
    """Return what the router decides after such a turn."""
    state = state_of(possible.cast.spec, turn, variables)
    return possible.router.route(state, envelope_of(speaker, sign, failed=False))


def _agrees(possible: Possible, move: Move, variables: Variables) -> bool:
    possible.budget.spend(1 + len(possible.rules))
    try:
        decision = routed(possible, move.speaker, move.turn, variables, move.signs[0])
    except Refused:
        return False
    by = decision.by
    to = decision.agent_id if isinstance(decision, Speak) else None
    return (by.kind, by.index, to) == (move.by, move.index, move.to)


def _variables(moves: list[Move]) -> Iterator[Variables]:
    """Context variables that look right, the most likely ones first."""
    choices: dict[str, list[Any]] = {}
    for move in moves:
        for key, values in move.values.items():
            there = choices.get(key)
            choices[key] = [one for one in values if there is None or _has(there, one)]
    texts = {text for move in moves for text in move.texts}
    for text in sorted(texts):
        for key in sorted(Expr(text).compiled.names):
            choices.setdefault(key, list(_likely(text)))
    for values in product(*choices.values()):
        yield {key: one for key, one in zip(choices, values, strict=True) if one is not None}


def _likely(text: str) -> Iterator[Any]:
    """Values that an expression may be about."""
    yield from (None, True, False, ELSE, 0)
    for single, double, number in _LITERAL.findall(text):
        if number:
            value = float(number) if "." in number else int(number)
            yield from (value, value + 1, value - 1)
        else:
            yield single or double


def _has(values: Iterable[Any], value: Any) -> bool:
    return any(type(one) is type(value) and one == value for one in values)
