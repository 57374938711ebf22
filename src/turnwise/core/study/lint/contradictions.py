"""Conditions that no turn can meet (G103)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnwise.core.conditions import AllOf, AnyOf, AtTurn, Condition, parts_of
from turnwise.core.study.cast import OTHER
from turnwise.core.study.choices import Choices, TooMany, every
from turnwise.core.study.finding import Finding, Path
from turnwise.core.study.lint.case import Case
from turnwise.core.study.possible import PLAIN, Look, Possible, Sign
from turnwise.core.study.wording import told

CONTRADICTION: Final = "G103"
_MOST_WAYS: Final = 20_000


def contradictions(case: Case) -> Iterator[Finding]:
    """Conditions, or parts of them, that hold of no turn whatsoever."""
    for index, rule in enumerate(case.possible.rules):
        yield from _inside(case.possible, rule.when, ("transitions", index, "when"))


def never_holds(possible: Possible, condition: Condition) -> bool:
    """Whether there is no turn of which it holds: by whomever, whenever, with whatever tools."""
    try:
        return not any(every(lambda choices: _holds(possible, condition, choices), bound=_MOST_WAYS))
    except TooMany:
        return False


def _inside(possible: Possible, condition: Condition, path: Path) -> Iterator[Finding]:
    if never_holds(possible, condition):
        yield Finding(
            code=CONTRADICTION,
            path=path,
            message=f"the condition never holds, whoever speaks and whatever is set: {told(condition)}",
            found=told(condition),
            expected="a condition that some turn can meet",
            fix="use AnyOf where one of several is enough, or take out the part that rules out the others",
        )
        return
    if isinstance(condition, AllOf | AnyOf):
        for place, part in enumerate(condition.conditions):
            yield from _inside(possible, part, (*path, "args", "conditions", place))


def _holds(possible: Possible, condition: Condition, choices: Choices) -> bool:
    speakers = list(dict.fromkeys([*possible.cast.everyone, OTHER]))
    failed = choices.of((False, True))
    signs = (PLAIN, *(Sign(tool=one) for one in possible.tools), *(Sign(signal=s) for s in possible.signals))
    look = Look(
        choices.of(speakers),
        choices.of(_turns(condition)),
        failed=failed,
        signs=(PLAIN,) if failed else signs,
        values=possible.values,
        choices=choices,
    )
    return look.holds(condition)


def _turns(condition: Condition) -> list[int]:
    """Turns that the condition tells apart; the first turn is 1."""
    named = [part.turn for part in parts_of(condition) if isinstance(part, AtTurn)]
    return sorted({1, *(one + more for one in named for more in (0, 1) if one + more >= 1)})
