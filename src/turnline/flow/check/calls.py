"""Flows that call flows: calls without an end, and more of them than a run may have.

Rule 1: a call is certain if every way to END or FAIL leads through it: its step has no `when`, and is in no
`for_each`, whose list may be empty. A circle of certain calls is an error: each run of it fails.

Rule 2: a circle that a condition can leave is a warning, because only `limits.max_depth` and
`limits.max_runs` end it where the condition does not.

Rule 3: without a circle, depth and number of runs are counted. The number counts certain calls only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from turnline.core.study.finding import Path
from turnline.flow.check.paths import edges_of, reachable
from turnline.flow.check.problem import Problem, Scope, inside, outermost
from turnline.flow.definition.flow import END, FAIL, Flow
from turnline.flow.definition.steps import ChannelStep, ForEachStep, WorkflowStep

ENDLESS: Final = "TL601"
CIRCLE: Final = "TL602"
TOO_MUCH: Final = "TL603"


@dataclass(frozen=True, slots=True)
class _Call:
    """A step that opens a channel: a run of another flow, or the conversation of a `channel` step."""

    flow: str
    """Empty for a conversation."""
    path: Path
    depth: int
    """How deep the channel is below the run, inner steps included."""
    is_certain: bool


class Calls:
    """The calls of a project's flows; each flow is looked at once."""

    def __init__(self, flows: Mapping[str, Flow]) -> None:
        self._calls = {name: _calls(flow) for name, flow in flows.items()}
        self._depths: dict[str, int] = {"": 0}
        self._numbers: dict[str, int] = {"": 0}

    def of(self, name: str) -> list[_Call]:
        return self._calls.get(name, [])

    def reached(self, start: str, *, certain_only: bool = False) -> set[str]:
        """Return the flows whose runs a run of `start` can start, or certainly starts, at any depth."""
        reached, pending = set[str](), [start]
        while pending:
            calls = self.of(pending.pop())
            names = {one.flow for one in calls if one.is_certain or not certain_only} - reached
            reached |= names
            pending += names
        return reached

    def depth(self, name: str) -> int:
        """Return how deep a run of a flow goes below itself. There is no circle below it."""
        if name not in self._depths:
            self._depths[name] = max((one.depth + self.depth(one.flow) for one in self.of(name)), default=0)
        return self._depths[name]

    def number(self, name: str) -> int:
        """Return how many runs a run certainly starts below itself. There is no circle below it."""
        if name not in self._numbers:
            certain = [one.flow for one in self.of(name) if one.is_certain and one.flow]
            self._numbers[name] = sum(1 + self.number(one) for one in certain)
        return self._numbers[name]


def nested_calls(flow: Flow, known: Calls) -> Iterator[Problem]:
    """Find calls that never end, and calls beyond the limits of `flow`."""
    for call in known.of(flow.name):
        if flow.name not in known.reached(call.flow) | {call.flow}:
            continue
        is_endless = flow.name in known.reached(call.flow, certain_only=True) | {call.flow}
        yield _endless(flow, call) if call.is_certain and is_endless else _circle(flow, call)
    if not any(one in known.reached(one) for one in {flow.name} | known.reached(flow.name)):
        yield from _beyond_limits(flow, known)


def _calls(flow: Flow) -> list[_Call]:
    found, pending = list[_Call](), [(outermost(flow), 1, True)]
    while pending:
        scope, depth, is_certain = pending.pop(0)
        for place, step in enumerate(scope.steps):
            certain = is_certain and _is_certain(scope, place)
            if isinstance(step, WorkflowStep):
                path = (*scope.at(place), "workflow", "name")
                found.append(_Call(step.workflow.name, path, depth, certain))
            elif isinstance(step, ChannelStep):
                found.append(_Call("", scope.at(place), depth, certain))
            is_each = isinstance(step, ForEachStep)
            pending += [(inner, depth + 1, certain and not is_each) for inner in inside(scope, place)]
    return found


def _is_certain(scope: Scope, place: int) -> bool:
    """Return whether every way leads through a step."""
    step, edges = scope.steps[place], edges_of(scope.steps)
    if step.when is not None or step.id not in reachable(scope.steps):
        return False
    seen, pending = {step.id}, [scope.steps[0].id]
    while pending:
        one = pending.pop()
        if one in (END, FAIL):
            return False
        if one in edges and one not in seen:
            seen.add(one)
            pending += edges[one]
    return True


def _beyond_limits(flow: Flow, known: Calls) -> Iterator[Problem]:
    """Tell of a tree that is deeper, or larger, than the limits of the flow at its top."""
    limits, calls = flow.spec.limits, known.of(flow.name)
    depth = known.depth(flow.name)
    if depth > limits.max_depth:
        path = next(one.path for one in calls if one.depth + known.depth(one.flow) == depth)
        yield _too_much(path, f"runs {depth} deep", "max_depth", limits.max_depth)
    number = known.number(flow.name)
    if number > limits.max_runs:
        yield _too_much(calls[0].path, f"{number} runs of other flows", "max_runs", limits.max_runs)


def _endless(flow: Flow, call: _Call) -> Problem:
    return Problem(
        code=ENDLESS,
        path=call.path,
        message=f"flow {flow.name!r} calls itself {_through(flow, call)}each time it runs: each run fails",
        found=call.flow,
        expected="a way to END that does not lead through this step",
        fix="give the step a `when`, or put a router before it",
    )


def _circle(flow: Flow, call: _Call) -> Problem:
    limits = flow.spec.limits
    ends = f"limits.max_depth, {limits.max_depth}, and limits.max_runs, {limits.max_runs}"
    return Problem(
        code=CIRCLE,
        path=call.path,
        message=f"flow {flow.name!r} can call itself {_through(flow, call)}without an end of its own",
        found=call.flow,
        expected=f"an end before {ends}",
        fix="check that the condition before the call becomes false, or call another flow",
        severity="warning",
    )


def _through(flow: Flow, call: _Call) -> str:
    return "" if call.flow == flow.name else f"through flow {call.flow!r} "


def _too_much(path: Path, found: str, limit: str, value: int) -> Problem:
    return Problem(
        code=TOO_MUCH,
        path=path,
        message=f"this call leads to {found}, and limits.{limit} is {value}: each run that gets there fails",
        found=found,
        expected=f"at most {value}",
        fix=f"nest fewer flows, or write a higher limits: {{{limit}: ...}} beside steps:",
    )
