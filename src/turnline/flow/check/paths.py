"""The paths through a flow: steps nobody comes to, cycles, signals that nobody takes (F4, F15).

Rule 1: a path is one that a step's signals can take. A step whose signals the definition
does not show (a Python function) can give any signal it has a route for.

Rule 2: an error that no route takes ends the run, as it should: it is no finding. Neither
is a catch-all (`routes.default`) that everything has a route around.

Rule 3: `limits.max_steps` ends every cycle, whether it is written down or not. So a cycle
is an error only if there is no other way out of it: then each run that comes to it fails.
One that can be left is a warning where neither `limits.max_steps` nor `limits.timeout` is
written down, because then nobody has said how long it may go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from turnline.core.study.finding import Path
from turnline.flow.check.problem import Problem, Scope, every_step, scopes
from turnline.flow.check.signals import EXPIRED, Signals, signals_of, targets
from turnline.flow.compile import ERRORS, NOWHERE, UNHANDLED, route
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import (
    AgentStep,
    ApiCallStep,
    HumanStep,
    ModelOpStep,
    RouterStep,
    Step,
    WaitStep,
)
from turnline.flow.finding import listed, nearest
from turnline.flow.work import DEFAULT

UNREACHABLE: Final = "TL101"
ENDLESS: Final = "TL102"
UNLIMITED: Final = "TL103"
UNROUTED: Final = "TL104"
NEVER_GIVEN: Final = "TL105"
NO_STATUS: Final = "TL108"
_FAILURES: Final = {UNHANDLED, NOWHERE}

Edges = Mapping[str, set[str]]
"""Step -> what it can lead to: steps, END, FAIL, UNHANDLED, NOWHERE."""


def unreachable_steps(flow: Flow) -> Iterator[Problem]:
    """Steps that no path leads to."""
    for scope in scopes(flow):
        reached = reachable(scope.steps)
        for place, step in enumerate(scope.steps):
            if step.id not in reached:
                yield Problem(
                    code=UNREACHABLE,
                    path=scope.at(place),
                    message=f"no path leads to step {step.id!r}",
                    fix=f"route a signal to {step.id!r}, or take the step out",
                )


def cycles(flow: Flow) -> Iterator[Problem]:
    """Cycles that nothing but a limit ends, and cycles without one."""
    limited = {"max_steps", "timeout"} & flow.spec.limits.model_fields_set
    for scope in scopes(flow):
        edges = edges_of(scope.steps)
        for cycle in cycles_in(edges, reachable(scope.steps)):
            left = {target for step in cycle for target in edges[step]} - set(cycle) - _FAILURES
            if not left:
                yield _endless(scope, cycle)
            elif not limited:
                yield _unlimited(scope, cycle, flow.spec.limits.max_steps)


def unrouted_signals(flow: Flow) -> Iterator[Problem]:
    """Signals that a step's definition shows and that nothing takes."""
    for scope in scopes(flow):
        for place, step in enumerate(scope.steps):
            for signal in sorted(signals_of(step).given):
                if route(scope.steps, place, signal) in _FAILURES:
                    yield _unrouted(scope.at(place), step, signal)
            yield from _untaken_expiry(scope, place)


def routes_never_taken(flow: Flow) -> Iterator[Problem]:
    """Routes for signals that a step can never give."""
    for scope in scopes(flow):
        for place, step in enumerate(scope.steps):
            said = signals_of(step)
            if not said.is_open:
                yield from _never_given(scope.at(place), step, said)


def statuses_never_given(flow: Flow) -> Iterator[Problem]:
    """Steps whose retry names HTTP statuses, and that make no request."""
    for path, step in every_step(flow):
        if step.retry is None or step.retry.statuses is None or isinstance(step, ApiCallStep | AgentStep):
            continue
        yield Problem(
            code=NO_STATUS,
            path=(*path, "retry", "statuses"),
            of_key=True,
            message=f"step {step.id!r} is of kind {step.kind}, which never has an HTTP status",
            found="statuses",
            expected="an api_call or agent step",
            fix="name signals in retry.on, or take statuses out",
            severity="warning",
        )


def reachable(steps: Sequence[Step]) -> set[str]:
    """Return the ids of the steps that some path leads to."""
    edges = edges_of(steps)
    reached, pending = set[str](), [steps[0].id]
    while pending:
        step = pending.pop()
        if step in edges and step not in reached:
            reached.add(step)
            pending += edges[step]
    return reached


def edges_of(steps: Sequence[Step]) -> Edges:
    return {step.id: targets(steps, place) for place, step in enumerate(steps)}


def cycles_in(edges: Edges, among: set[str]) -> list[list[str]]:
    """The cycles among these steps, the larger ones with the smaller ones inside them, in their order.

    Kosaraju: steps in the order in which a walk leaves them, then walked backwards.
    """
    sources: dict[str, set[str]] = {step: set() for step in edges}
    for step in among:
        for target in edges[step] & among:
            sources[target].add(step)
    found = list[list[str]]()
    seen = set[str]()
    for step in reversed(_left_in_order(edges, among)):
        together = _walked(sources, step, seen)
        if len(together) > 1 or step in edges[step] & together:
            found.append([one for one in edges if one in together])
    places = {step: place for place, step in enumerate(edges)}
    return sorted(found, key=lambda cycle: places[cycle[0]])


def _left_in_order(edges: Edges, among: set[str]) -> list[str]:
    order, seen = list[str](), set[str]()
    for start in (step for step in edges if step in among):
        pending = [(start, False)]
        while pending:
            step, is_left = pending.pop()
            if is_left:
                order.append(step)
            elif step not in seen:
                seen.add(step)
                pending.append((step, True))
                pending += [(target, False) for target in edges[step] & among]
    return order


def _walked(edges: Edges, start: str, seen: set[str]) -> set[str]:
    walked, pending = set[str](), [start]
    while pending:
        step = pending.pop()
        if step not in seen:
            seen.add(step)
            walked.add(step)
            pending += edges[step]
    return walked


def _endless(scope: Scope, cycle: Sequence[str]) -> Problem:
    return Problem(
        code=ENDLESS,
        path=_first(scope, cycle),
        message=f"nothing leads out of the cycle of {_named(cycle)}: each run that comes to it fails",
        expected="a route from one of them to a step outside, to END or to FAIL",
        fix=f"give step {cycle[-1]!r} a route that leads out",
    )


def _unlimited(scope: Scope, cycle: Sequence[str], most: int) -> Problem:
    return Problem(
        code=UNLIMITED,
        path=_first(scope, cycle),
        message=f"the cycle of {_named(cycle)} has no limit of its own",
        found=f"the default, {most} steps",
        expected="limits.max_steps or limits.timeout",
        fix=f"write limits: {{max_steps: {most}}}, or what it may take, beside steps:",
        severity="warning",
    )


def _first(scope: Scope, cycle: Sequence[str]) -> Path:
    return scope.at([step.id for step in scope.steps].index(cycle[0]))


def _named(cycle: Sequence[str]) -> str:
    if len(cycle) == 1:
        return f"step {cycle[0]!r}"
    return f"steps {', '.join(map(repr, cycle[:-1]))} and {cycle[-1]!r}"


def _unrouted(path: Path, step: Step, signal: str) -> Problem:
    known = [*step.routes]
    place = next((i for i, one in enumerate(_conditions(step)) if one == signal), None)
    where = () if place is None else ("router", "conditions", place, "signal")
    near = nearest(signal, known)
    return Problem(
        code=UNROUTED,
        path=(*path, *where),
        message=f"nothing takes the signal {signal!r} of step {step.id!r}: the run fails there",
        found=signal,
        expected=f"one of the routes ({listed(known)})",
        fix=near or f"add {signal}: (a step's id, END or FAIL) to the step's routes",
        # Who reads a row by its id often knows that it is there.
        severity="warning" if isinstance(step, ModelOpStep) else "error",
    )


def _conditions(step: Step) -> list[str]:
    return [one.signal for one in step.router.conditions] if isinstance(step, RouterStep) else []


def _untaken_expiry(scope: Scope, place: int) -> Iterator[Problem]:
    """A wait that can run out, and nothing is said about what then."""
    step = scope.steps[place]
    match step:
        case HumanStep(human=block) if block.expires is not None:
            signal, where = EXPIRED, ("human", "expires")
        case WaitStep(wait=block) if block.event is not None and block.expires is not None:
            signal, where = "timeout", ("wait", "expires")
        case _:
            return
    if not {signal, "timeout", "error"} & step.routes.keys():
        yield Problem(
            code=UNROUTED,
            path=(*scope.at(place), *where),
            message=f"when step {step.id!r} has waited too long, the run fails",
            expected=f"a route for {signal!r}",
            fix=f"add {signal}: (a step's id, END or FAIL) to the step's routes",
            severity="warning",
        )


_SIGNAL_FROM: Final = {
    "agent": "agent.output.signal_from",
    "api_call": "api_call.output.signal_from",
    "human": "human.signal_from",
    "mcp": "mcp.output.signal_from",
}


def _never_given(path: Path, step: Step, said: Signals) -> Iterator[Problem]:
    known = said.given | set(ERRORS)
    for signal in sorted(step.routes.keys() - known - {DEFAULT}):
        yield Problem(
            code=NEVER_GIVEN,
            path=(*path, "routes", signal),
            of_key=True,
            message=f"step {step.id!r} never gives the signal {signal!r}",
            found=signal,
            expected=listed(known),
            fix=nearest(signal, known) or _to_give(step, signal),
            severity="warning",
        )


def _to_give(step: Step, signal: str) -> str:
    if isinstance(step, HumanStep) and signal == EXPIRED:
        return "set human.expires, or take the route out"
    setting = _SIGNAL_FROM.get(step.kind)
    return (
        f"set {setting} to the field that says it, or take the route out" if setting else "take the route out"
    )
