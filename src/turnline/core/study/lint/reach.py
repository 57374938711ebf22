"""What is never come to: the default (G204), a participant (G205)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnline.core.graph import TransitionGraph
from turnline.core.step_targets import FanOutTarget
from turnline.core.study.finding import Finding, Path
from turnline.core.study.lint.case import Case
from turnline.core.study.lint.names import names_with_paths
from turnline.core.study.wording import target_told
from turnline.core.transitions import TerminateTarget

NO_DEFAULT: Final = "G204"
NO_FLOOR: Final = "G205"


def default_never_taken(case: Case) -> Iterator[Finding]:
    """A default that some rule always comes before."""
    walk, graph = case.walk, case.graph
    if not walk.is_complete or _is_factory_made(graph) or any(one.by == "default" for one in walk.moves):
        return
    ends = ", ".join(repr(one) for one in walk.close_reasons if one != "turn_failed") or "no reason at all"
    yield Finding(
        code=NO_DEFAULT,
        path=("default_target",),
        message=f"the default is never taken{case.whoever}: a rule always holds. It closes with {ends}",
        found=target_told(graph.default_target),
        expected="a turn for which no rule holds",
        fix="do not wait for its reason"
        if isinstance(graph.default_target, TerminateTarget)
        else "take out the rule that stands for it, or say with the default what that rule says",
        severity="warning",
    )


def never_on_the_floor(case: Case) -> Iterator[Finding]:
    """Participants whom no rule that can fire gives the floor."""
    if not case.walk.is_complete:
        return
    told, reached = set[str](), _reached(case)
    for path, name in names_with_paths(case):
        spec = case.cast.spec
        agent_id = spec.resolve(name)
        if agent_id in told or agent_id in reached or not _should_be(case, path):
            continue
        told.add(agent_id)
        yield Finding(
            code=NO_FLOOR,
            path=path,
            message=f"no rule that can fire gives {spec.name_of(agent_id)!r} the floor{case.whoever}",
            found=name,
            expected="a rule that fires and leads there",
            fix=f"let a rule that can fire lead to {name!r}, or take it out of the graph",
        )


def _should_be(case: Case, path: Path) -> bool:
    """Whether the graph itself has to lead there. Whom a condition names may be handed the floor."""
    return not case.cast.handoffs or "then" in path or path[0] == "default_target"


def _reached(case: Case) -> set[str]:
    """Who gets the floor from a rule, or is asked by a step that does."""
    led = {case.possible.initial}
    led |= {move.to for move in case.walk.moves if move.to is not None}
    for target in (*(rule.then for rule in case.possible.rules), case.possible.default):
        if isinstance(target, FanOutTarget) and target.step in led:
            led.update(target.agents)
    return led


def _is_factory_made(graph: TransitionGraph) -> bool:
    """Whether `round_robin` made it, which has to give some default."""
    rules = graph.transitions
    order = tuple(getattr(rules[0].then, "participants", ())) if len(rules) == 1 else ()
    return bool(order) and graph == TransitionGraph.round_robin(order, graph.max_turns)
