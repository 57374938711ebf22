"""One case: played on a stage of its own, and compared with what was expected.

Rule: all problems of a case are told. Only a case that could not be played to its end is
not compared, because what it came to means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from turnline.flow.body import INVALID_INPUT, checked_body
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import HumanStep, Step, WaitStep
from turnline.flow.finding import listed, nearest
from turnline.flow.testing.clock import JumpingClock
from turnline.flow.testing.definition import Answers, Case, Expected, ExpectedError, Expires, Happens, Stub
from turnline.flow.testing.paths import known_paths, step_at
from turnline.flow.testing.problem import ABSENT, Problem, differing, lacking, shown
from turnline.flow.testing.stage import Played, staged
from turnline.flow.testing.stubs import Stubs
from turnline.flow.verdict import RunError, Verdict
from turnline.flow.work import Data, Services
from turnline.hub.timers import Clock

OpenData = Callable[[Clock], AbstractAsyncContextManager[Data | None]]
"""Opens a database that is empty, and gone when it is closed. See `data.in_memory`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What cases are played in."""

    services: Services
    open_data: OpenData
    status_of: Callable[[RunError], int]
    """The HTTP status of a run that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """How a case ended."""

    problems: tuple[Problem, ...]
    path: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problems


async def run_case(case: Case, around: Surroundings) -> CaseResult:
    """Play the case, unless something it says cannot be, and compare."""
    flows = around.services.flows
    flow = flows.get(case.spec.flow)
    if flow is None:
        return CaseResult(problems=(_unknown("flow", case.spec.flow, flows),))
    wrong = tuple(_mistakes(case, flow, around))
    if wrong:
        return CaseResult(problems=wrong)
    played = await _played(case, flow, around)
    problems = played.problems or tuple(compared(case.spec.expect, played, around.status_of))
    return CaseResult(problems=problems, path=played.path)


def compared(expect: Expected, played: Played, status_of: Callable[[RunError], int]) -> Iterator[Problem]:
    """Everything that is not as expected."""
    verdict = played.verdict
    if verdict.status != expect.outcome:
        because = "" if verdict.error is None else f": {_told(verdict.error)}"
        yield Problem(what="status", found=f"{verdict.status}{because}", expected=expect.outcome)
    if expect.path is not None and expect.path != list(played.path):
        yield Problem(what="path", found=shown(list(played.path)), expected=shown(expect.path))
    if expect.data is not None:
        yield from lacking(expect.data, verdict.data, "data")
    if expect.data_exactly is not None:
        yield from differing(expect.data_exactly, verdict.data, "data")
    if expect.context is not None:
        yield from lacking(expect.context, played.context, "context")
    if expect.error is not None:
        yield from _errors(expect.error, verdict.error)
    if expect.http_status is not None:
        status = verdict.http_status if verdict.error is None else status_of(verdict.error)
        yield from lacking(expect.http_status, status, "http_status")


async def _played(case: Case, flow: Flow, around: Surroundings) -> Played:
    body, wrong = checked_body(flow, case.spec.given)
    if wrong:
        error = RunError(type=INVALID_INPUT, message="; ".join(map(str, wrong)))
        refused = Verdict(status="failed", data={}, error=error)
        return Played(verdict=refused, path=(), context={}, problems=())
    stubs, clock = Stubs(case.spec.stub), JumpingClock()
    async with (
        around.open_data(clock) as data,
        staged(replace(around.services, data=data), stubs, clock) as stage,
    ):
        return await stage.play(flow, body, user=case.spec.user)


def _mistakes(case: Case, flow: Flow, around: Surroundings) -> Iterator[Problem]:
    """What the case says that cannot be: steps that are not there, stubs of the wrong kind."""
    flows, own = around.services.flows, [step.id for step in flow.steps]
    for path, stubs in case.spec.stub.items():
        step = step_at(path, flow, flows)
        if step is None:
            yield _unknown("step", path, known_paths(flow, flows), where="stub")
            continue
        for stub in stubs:
            yield from _misfits(path, step, stub)
    for path in case.spec.expect.path or ():
        if path not in own:
            yield _unknown("step", path, own, where="expect.path")


def _misfits(path: str, step: Step, stub: Stub) -> Iterator[Problem]:
    what = f"stub {path}"
    match stub:
        case Answers() | Expires() if not isinstance(step, HumanStep):
            yield Problem(
                what=what, found=f"an answer to a step of kind {step.kind}", expected="a human step"
            )
        case Expires() if isinstance(step, HumanStep) and step.human.expires is None:
            yield Problem(what=what, found="expired", expected="a step that has `expires`; it waits for ever")
        case Happens() if not (isinstance(step, WaitStep) and step.wait.event is not None):
            yield Problem(
                what=what, found=f"an event for a step of kind {step.kind}", expected="a wait for one"
            )


def _errors(expected: ExpectedError, found: RunError | None) -> Iterator[Problem]:
    if found is None:
        yield Problem(what="error", found=ABSENT, expected=shown(expected.model_dump(exclude_none=True)))
        return
    for name in ("type", "step"):
        wanted = getattr(expected, name)
        if wanted is not None:
            yield from lacking(wanted, getattr(found, name), f"error.{name}")
    if expected.message is not None and expected.message not in found.message:
        wanted = f"a text with {shown(expected.message)}"
        yield Problem(what="error.message", found=shown(found.message), expected=wanted)


def _told(error: RunError) -> str:
    at = f" at step {error.step}" if error.step else ""
    return f"{error.type}{at}: {error.message}"


def _unknown(what: str, name: str, known: Collection[str], *, where: str = "") -> Problem:
    fix = nearest(name, known)
    return Problem(what=where or what, found=f"{name!r}, which is no {what}", expected=listed(known), fix=fix)
