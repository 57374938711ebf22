"""A problem: what a lint has found in a flow, and where in its definition that stands.

A lint knows the definition only, so it points with a path; `flow.document` knows which
line of which file that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turnline.core.study.finding import Finding, Path
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import ForEachStep, ParallelStep, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Finding):
    """One thing that is wrong with a flow; its `path` is as documents spell it: `("spec", "steps", 3)`."""

    of_key: bool = False
    """Whether it is about the key at `path`, not about its value."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A list of steps that lead to each other, and to no step of another list."""

    path: Path
    steps: Sequence[Step]

    def at(self, place: int) -> Path:
        """The path of one of its steps."""
        return (*self.path, place)


def outermost(flow: Flow) -> Scope:
    return Scope(("spec", "steps"), flow.steps)


def inside(scope: Scope, place: int) -> list[Scope]:
    """The lists of steps inside a step."""
    step, path = scope.steps[place], scope.at(place)
    match step:
        case ForEachStep(for_each=block):
            return [Scope((*path, "for_each", "steps"), block.steps)]
        case ParallelStep(parallel=block):
            branches = (*path, "parallel", "branches")
            return [Scope((*branches, name), steps) for name, steps in block.branches.items()]
    return []


def scopes(flow: Flow) -> Iterator[Scope]:
    """Every list of steps of a flow, from the outside in."""
    pending = [outermost(flow)]
    while pending:
        scope = pending.pop(0)
        yield scope
        for place in range(len(scope.steps)):
            pending += inside(scope, place)


def every_step(flow: Flow) -> Iterator[tuple[Path, Step]]:
    """Every step of a flow, and where it stands."""
    for scope in scopes(flow):
        for place, step in enumerate(scope.steps):
            yield scope.at(place), step
