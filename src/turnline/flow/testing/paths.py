"""Steps by their path: `approve`, or inside another step `contacts/each/approve`.

step/each/step       inside a `for_each`, for all items; `step/0/step` for the first one
step/branch/step     inside a `parallel`
step/flow/step       inside the run of another flow
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from turnline.core.channel import child_id
from turnline.core.envelope import JsonObject
from turnline.core.state import State
from turnline.flow.definition.flow import Flow, inner_steps
from turnline.flow.definition.steps import ForEachStep, Step, WorkflowStep
from turnline.flow.work import StepChildren, StepWork

SEPARATOR: Final = "/"
EACH: Final = "each"

Spellings = tuple[str, ...]
"""One place of a path, the most exact first: `("0", "each")`."""


def step_at(path: str, flow: Flow, flows: Mapping[str, Flow]) -> Step | None:
    """Return the step that `path` leads to; None if there is none."""
    steps: Sequence[Step] = flow.steps
    *outer, name = path.split(SEPARATOR)
    if len(outer) % 2:
        return None
    for step_id, inner in zip(outer[::2], outer[1::2], strict=True):
        step = _named(steps, step_id)
        if step is None:
            return None
        inside = _inside(step, flows)
        place = EACH if isinstance(step, ForEachStep) and inner.isdecimal() else inner
        if place not in inside:
            return None
        steps = inside[place]
    return _named(steps, name)


def known_paths(flow: Flow, flows: Mapping[str, Flow]) -> list[str]:
    """Return the paths of all steps; a flow that starts itself is followed once."""
    return list(_paths(flow.steps, flows, "", frozenset({flow.name})))


class Places:
    """Where in the flow the runs of a case are: its own, and those below it."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[Spellings, ...]] = {}

    def paths(self, run_id: str, step: str) -> list[str]:
        """The paths of a step of a run, the most exact first."""
        return [SEPARATOR.join((*way, step)) for way in product(*self._at.get(run_id, ()))]

    def watched(self, work: StepWork[Any]) -> StepChildren:
        """The work's children, which are known here from when they are opened."""
        return _Watched(work.children, self, work)

    def note(self, work: StepWork[Any], place: str, *spellings: str) -> None:
        """Note that the work's step opens a run at `place`."""
        above = self._at.get(work.run_id, ())
        self._at[child_id(work.run_id, work.turn, place)] = (*above, (work.step.id,), spellings)


class _Watched:
    """See `work.StepChildren`."""

    def __init__(self, children: StepChildren, places: Places, work: StepWork[Any]) -> None:
        self._children = children
        self._places = places
        self._work = work
        self.converse = children.converse
        self.id_of = children.id_of
        self.last_words = children.last_words

    async def run_inner(self, place: str, inner: str, context: JsonObject) -> None:
        spellings = (inner,) if place == inner else (place, inner)
        self._places.note(self._work, place, *spellings)
        await self._children.run_inner(place, inner, context)

    async def run_flow(self, place: str, flow: str, input: JsonObject | None) -> None:
        self._places.note(self._work, place, flow)
        await self._children.run_flow(place, flow, input)

    async def state(self, place: str) -> State | None:
        return await self._children.state(place)


def _named(steps: Sequence[Step], name: str) -> Step | None:
    return next((step for step in steps if step.id == name), None)


def _inside(step: Step, flows: Mapping[str, Flow]) -> dict[str, Sequence[Step]]:
    if isinstance(step, WorkflowStep):
        name = step.workflow.name
        return {name: flows[name].steps} if name in flows else {}
    return inner_steps(step)


def _paths(
    steps: Sequence[Step], flows: Mapping[str, Flow], before: str, seen: frozenset[str]
) -> Iterator[str]:
    for step in steps:
        yield before + step.id
        starts_flow = isinstance(step, WorkflowStep)
        for place, inside in _inside(step, flows).items():
            if not starts_flow or place not in seen:
                beyond = seen | {place} if starts_flow else seen
                yield from _paths(inside, flows, f"{before}{step.id}/{place}/", beyond)
