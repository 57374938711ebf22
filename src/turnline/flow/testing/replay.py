"""Playing a fixture again: what came from outside is taken from it, everything else is performed (F14).

Agents go through their round with the replies that were recorded, so what is made of an
answer is tested too; people answer as they did. Nodes, routers and data models work.

Rule 1: the flow is the project's, as it is now; where there is none of that name, the recorded one.

Rule 2: two ids (UUIDs) count as the same, and so do two times: both are new in every run.
What else may differ is named in the fixture's `ignore`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from turnline.core.envelope import JsonObject
from turnline.errors.flows import BadDocuments
from turnline.flow.compile import ERRORS
from turnline.flow.definition.base import Json
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import AgentStep, HumanStep, Step
from turnline.flow.testing.case import Surroundings
from turnline.flow.testing.clock import JumpingClock
from turnline.flow.testing.definition import Answers, DoesNotParse, Expires, Gives, Raises, TakesTooLong
from turnline.flow.testing.fixture import VERSION, Fixture, RecordedStep, export_run
from turnline.flow.testing.paths import step_at
from turnline.flow.testing.problem import ABSENT, Problem, differing, shown
from turnline.flow.testing.stage import RUN_ID, Played, staged
from turnline.flow.testing.stubs import AnyStub, Said, Stubs, is_outside
from turnline.flow.verdict import Verdict

ANYBODY: Final = "somebody"
"""Who asks, where somebody had to."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}", re.IGNORECASE)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_RECORD_ANEW: Final = "if it is right now, record the run anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of a fixture."""

    verdict: Verdict
    problems: tuple[Problem, ...]
    """The first step that went another way, and in what; then how the run ended, if that differs."""
    path: tuple[str, ...]


def read_fixture(data: Json) -> Fixture:
    """Return the fixture that `data` is. Raises `BadDocuments`."""
    try:
        fixture = msgspec.convert(data, Fixture)
    except msgspec.ValidationError as error:
        raise _no_fixture(str(error)) from None
    if fixture.version != VERSION:
        raise _no_fixture(f"it is of version {fixture.version}; expected {VERSION}")
    return fixture


async def replay(data: JsonObject, around: Surroundings) -> Replayed:
    """Play the run again, and compare. Raises `BadDocuments`."""
    fixture = read_fixture(data)
    recorded = _flow(fixture.flow)
    others = {name: _flow(one) for name, one in fixture.flows.items()}
    flows = {**others, recorded.name: recorded, **around.services.flows}
    flow = flows[recorded.name]
    stubs = Stubs(_stubs(fixture, flow, flows), missing=lambda _: _RECORD_ANEW)
    clock = JumpingClock()
    async with around.open_data(clock) as opened:
        services = replace(around.services, flows=flows, data=opened)
        async with staged(services, stubs, clock) as stage:
            user = ANYBODY if fixture.has_user else None
            played = await stage.play(flow, fixture.input, user=user)
            again = None if played.problems else read_fixture(await export_run(stage.runs, RUN_ID))
    problems = played.problems if again is None else tuple(_differences(fixture, again, played))
    return Replayed(verdict=played.verdict, problems=problems, path=played.path)


def _flow(pinned: JsonObject) -> Flow:
    try:
        return Flow.model_validate(pinned)
    except ValidationError as error:
        raise _no_fixture(f"its flow has {error.error_count()} mistakes") from None


def _no_fixture(because: str) -> BadDocuments:
    return BadDocuments(f"this is no recorded run that can be played: {because}.", findings=[])


def _stubs(fixture: Fixture, flow: Flow, flows: Mapping[str, Flow]) -> dict[str, list[AnyStub]]:
    """What came from outside, by the exact path of the step that got it."""
    stubs: dict[str, list[AnyStub]] = {}
    for one in fixture.steps:
        step = step_at(one.path, flow, flows)
        if step is not None and is_outside(step):
            stubs.setdefault(one.path, []).append(_stub(step, one))
    return stubs


def _stub(step: Step, one: RecordedStep) -> AnyStub:
    if isinstance(step, HumanStep):
        if one.answer is not None:
            return Answers(answer=one.answer)
        if step.human.expires is not None:
            return Expires(expired=True)
    if isinstance(step, AgentStep) and one.replies and not _has_failed(one):
        return Said(entries=(*one.replies, *one.tools))
    return _as_it_ended(one)


def _as_it_ended(one: RecordedStep) -> Gives | Raises | DoesNotParse | TakesTooLong:
    if not _has_failed(one):
        return Gives(updates=one.updates, deletes=one.deletes, signal=one.signal)
    if one.signal == "timeout":
        return TakesTooLong(timeout=True)
    said = "as it was recorded"
    return DoesNotParse(parse_error=said) if one.signal == "parse_error" else Raises(error=said)


def _has_failed(one: RecordedStep) -> bool:
    return one.signal in ERRORS and not one.updates


def _differences(before: Fixture, now: Fixture, played: Played) -> Iterator[Problem]:
    ignore = frozenset(before.ignore)
    for number, (was, found) in enumerate(zip_longest(before.steps, now.steps), 1):
        problems = list(_step_differences(was, found, f"step {number}", ignore))
        if problems:
            yield from (replace(one, fix=_RECORD_ANEW) for one in problems)
            break
    if (before.status, before.error_type, before.error_step) != (now.status, now.error_type, now.error_step):
        yield Problem(what="the end", found=_ended(now, played.verdict), expected=_ended(before, None))
    yield from differing(_steady(before.data, ignore), _steady(now.data, ignore), "data")


def _step_differences(
    was: RecordedStep | None, found: RecordedStep | None, what: str, ignore: frozenset[str]
) -> Iterator[Problem]:
    """What is different about a step: which one it is, or how it ended."""
    if was is None or found is None or was.path != found.path:
        yield Problem(
            what=what,
            found=ABSENT if found is None else found.path,
            expected=ABSENT if was is None else was.path,
        )
        return
    at = f"{what} ({was.path})"
    if was.signal != found.signal:
        yield Problem(what=f"{at}, signal", found=shown(found.signal), expected=shown(was.signal))
    if sorted(was.deletes) != sorted(found.deletes):
        yield Problem(what=f"{at}, deletes", found=shown(found.deletes), expected=shown(was.deletes))
    yield from differing(_steady(was.updates, ignore), _steady(found.updates, ignore), f"{at}, updates")


def _steady(value: Json, ignore: frozenset[str] = frozenset()) -> Any:
    """The value without what is new in every run."""
    match value:
        case dict():
            return {key: _steady(item, ignore) for key, item in value.items() if key not in ignore}
        case list():
            return [_steady(item, ignore) for item in value]
        case str() if _UUID.fullmatch(value):
            return "(an id)"
        case str() if _TIME.fullmatch(value):
            return "(a time)"
    return value


def _ended(fixture: Fixture, verdict: Verdict | None) -> str:
    at = f" at step {fixture.error_step}" if fixture.error_step else ""
    why = f": {fixture.error_type}{at}" if fixture.error_type else ""
    said = "" if verdict is None or verdict.error is None else f" ({verdict.error.message})"
    return f"{fixture.status}{why}{said}"
