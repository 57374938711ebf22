"""Rules that never fire: shadowed (G201), by their priority (G202), for want of a turn (G203)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnline.core.study.choices import Choices, every
from turnline.core.study.finding import Finding
from turnline.core.study.lint.case import Case
from turnline.core.study.lint.contradictions import never_holds
from turnline.core.study.possible import Rule
from turnline.core.study.wording import told
from turnline.core.transitions import ToolCalled, parts_of

SHADOWED: Final = "G201"
PRIORITY: Final = "G202"
NO_SUCH_TURN: Final = "G203"


def rules_that_never_fire(case: Case) -> Iterator[Finding]:
    """Transitions that are never chosen. Needs all moves, so a graph that is too large has none."""
    if not case.walk.is_complete:
        return
    chosen = {move.index for move in case.walk.moves if move.by == "transition"}
    for rule in case.possible.rules:
        if rule.index in chosen or never_holds(case.possible, rule.when) or _lacks_a_tool(case, rule):
            continue  # What never holds at all has a finding of its own.
        yield _finding(case, rule, _winners(case, rule))


def _lacks_a_tool(case: Case, rule: Rule) -> bool:
    """Whether it waits for a tool that nobody has: a finding of its own, too."""
    known = case.cast.every_tool
    waited = [part.tool_name for part in parts_of(rule.when) if isinstance(part, ToolCalled)]
    return known is not None and not known.issuperset(waited)


def _winners(case: Case, rule: Rule) -> set[int]:
    """The rules that win whenever this one holds; its own index if only `max_turns` stops it."""
    possible, found = case.possible, set[int]()

    def play(choices: Choices, place: tuple[str, int]) -> None:
        failed = choices.of((False, True) if rule.is_about_failure else (False,))
        look = possible.look(*place, choices, failed=failed)
        if look.holds(rule.when):
            winner = possible.winner(look)
            found.add(rule.index if winner is None else winner.index)

    for place in sorted({(move.speaker, move.turn) for move in case.walk.moves}):
        for _ in every(lambda choices: play(choices, place)):  # noqa: B023  Used at once.
            pass
    return found


def _finding(case: Case, rule: Rule, winners: set[int]) -> Finding:
    others = [case.possible.rules[one] for one in sorted(winners - {rule.index})]
    if not others:
        return _no_such_turn(case, rule, is_last=bool(winners))
    names = ", ".join(case.rule(one.index) for one in others)
    if any(rule.priority > one.priority for one in others):
        first = min(one.priority for one in others)
        return Finding(
            code=PRIORITY,
            path=("transitions", rule.index, "priority"),
            message=f"the rule never fires{case.whoever}: a lower priority goes first, and {names} win",
            found=f"priority={rule.priority}",
            expected=f"a priority below {first}",
            fix=f"give it priority={first - 1}, or none and a place before them",
        )
    return Finding(
        code=SHADOWED,
        path=("transitions", rule.index),
        message=f"the rule never fires{case.whoever}: whenever it would, {names} comes first",
        found=told(case.graph.transitions[rule.index].when),
        expected="a turn for which no earlier rule holds",
        fix=f"put it before transitions[{others[0].index}], or make that one narrower, or take it out",
    )


def _no_such_turn(case: Case, rule: Rule, *, is_last: bool) -> Finding:
    limit = case.graph.max_turns
    why = f"max_turns={limit} closes the channel first" if is_last else "no turn ever comes that it is for"
    raised = "" if limit is None else "raise max_turns, "
    return Finding(
        code=NO_SUCH_TURN,
        path=("transitions", rule.index),
        message=f"the rule never fires{case.whoever}: {why}",
        found=told(case.graph.transitions[rule.index].when),
        expected="a condition that a turn of this graph can meet",
        fix=f"let another rule lead to such a turn, {raised}or take the rule out",
    )
