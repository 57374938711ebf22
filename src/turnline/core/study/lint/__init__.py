"""Lint: the traps of a graph, as findings with codes.

    for finding in lint(graph, participants=["user", "drafter", "reviewer"]):
        print(finding)

Rule: a finding never lies. What never happens is told only if everything that may happen was
looked at (`exploration`); what happens, only if the router itself does it (`proof`). A graph
is judged by the turns of those who take part: `participants`, or those it names.

    G101  a name that nobody has                  names
    G102  a tool that nobody has                  names
    G103  a condition that never holds            contradictions
    G104  the floor for one who takes no turns    names
    G201  a rule that others always come before   order
    G202  a priority that puts a rule too late    order
    G203  a rule for turns that never come        order
    G204  a default that is never taken (warning) reach
    G205  somebody who never gets the floor       reach
    G301  stuck routing                           loops
    G302  a cycle that nothing ends               loops
    G303  a cycle without max_turns (warning)     loops
    G304  a first thinker that is skipped (warning)  kickoff
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from turnline.core.channel import Participant
from turnline.core.graph import TransitionGraph
from turnline.core.step_targets import NestedTarget
from turnline.core.study.cast import Cast, Tools, cast_of
from turnline.core.study.choices import TooMany
from turnline.core.study.exploration import Walk
from turnline.core.study.finding import Finding, Path
from turnline.core.study.lint.case import Case, Lint
from turnline.core.study.lint.contradictions import contradictions
from turnline.core.study.lint.kickoff import skipped_thinker
from turnline.core.study.lint.loops import cycles, stuck_routing
from turnline.core.study.lint.names import floors_without_turns, unknown_names, unknown_tools
from turnline.core.study.lint.order import rules_that_never_fire
from turnline.core.study.lint.reach import default_never_taken, never_on_the_floor
from turnline.core.study.possible import BOUND, Possible

_LINTS: Final[Sequence[Lint]] = (
    unknown_names,
    unknown_tools,
    floors_without_turns,
    contradictions,
    rules_that_never_fire,
    default_never_taken,
    never_on_the_floor,
    stuck_routing,
    cycles,
    skipped_thinker,
)


def lint(
    graph: TransitionGraph,
    *,
    participants: Iterable[str | Participant] | None = None,
    opener: str | None = None,
    tools: Tools | None = None,
    handoffs: bool = True,
    bound: int = BOUND,
) -> tuple[Finding, ...]:
    """Return what is wrong with a graph, in the order of the codes.

    `participants` are names, or `Participant`s, which also say who is a person; `opener` is who
    opens the channel. `tools` are the tools there are, or who has which. Say `handoffs=False` if no
    tool returns a `Handoff`: then only rules move the floor. What is not given is not assumed.
    """
    given = None if participants is None else list(participants)
    cast = cast_of(graph, participants=given, opener=opener, tools=tools, handoffs=handoffs)
    possible = Possible(graph, cast, bound=bound)
    case = Case(possible, Walk(possible))
    found: list[Finding] = []
    for each in _LINTS:
        with suppress(TooMany):  # What was found until then is so all the same.
            for finding in each(case):
                found.append(finding)
    return tuple(found + list(_nested(graph, cast, given, bound)))


def _nested(
    graph: TransitionGraph, cast: Cast, given: Sequence[str | Participant] | None, bound: int
) -> Iterator[Finding]:
    """What is wrong with the graphs inside."""
    thens: list[tuple[Path, object]] = [
        (("transitions", index, "then"), one.then) for index, one in enumerate(graph.transitions)
    ]
    for path, target in (*thens, (("default_target",), graph.default_target)):
        if isinstance(target, NestedTarget) and isinstance(target.graph, dict):
            inner = TransitionGraph.loads(target.graph)
            for finding in lint(
                inner, participants=given, tools=cast.tools, handoffs=cast.handoffs, bound=bound
            ):
                yield replace(finding, path=(*path, "args", "graph", *finding.path))
