"""Conditions that no turn can meet (G103)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from turnline.core.study.cast import OTHER
from turnline.core.study.choices import Choices, TooMany, every
from turnline.core.study.finding import Finding, Path
from turnline.core.study.lint.case import Case
from turnline.core.study.possible import PLAIN, Possible, Sign
from turnline.core.study.wording import told
from turnline.core.transitions import AllOf, AnyOf, AtTurn, Condition, FromSpeaker, TurnFailed, parts_of

CONTRADICTION: Final = "G103"


def contradictions(case: Case) -> Iterator[Finding]:
    """Conditions, or parts of them, that hold of no turn whatsoever."""
    for index, rule in enumerate(case.possible.rules):
        yield from _inside(case.possible, rule.when, ("transitions", index, "when"))


def never_holds(possible: Possible, condition: Condition) -> bool:
    """Whether there is no turn of which it holds: by whomever, whenever, with whatever tools."""
    try:
        # Nobody that it does not name is told from the others.
        named = {part.agent_id for part in parts_of(condition) if isinstance(part, FromSpeaker | TurnFailed)}
        speakers = [*sorted(one for one in named if one is not None), OTHER]
        return not any(every(lambda choices: _holds(possible, condition, speakers, choices)))
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


def _holds(possible: Possible, condition: Condition, speakers: Sequence[str], choices: Choices) -> bool:
    failed = choices.of((False, True))
    signs = (PLAIN, *(Sign(tool=one) for one in possible.tools), *(Sign(signal=s) for s in possible.signals))
    speaker, turn = choices.of(speakers), choices.of(_turns(condition))
    look = possible.look_among(speaker, turn, (PLAIN,) if failed else signs, choices, failed=failed)
    return look.holds(condition)


def _turns(condition: Condition) -> list[int]:
    """Turns that the condition tells apart; the first turn is 1."""
    named = [part.turn for part in parts_of(condition) if isinstance(part, AtTurn)]
    return sorted({1, *(one + more for one in named for more in (0, 1) if one + more >= 1)})
