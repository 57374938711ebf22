"""`wait`: for a time, until a time, or for an event somebody posts to the run.

A time without an offset is UTC. One that has passed is not waited for. `until` follows the clock that people
read; `for` and `expires` are counted, and a clock that is set changes nothing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from turnline.core import event_types as ev
from turnline.core.claims import Paused
from turnline.core.envelope import Envelope, JsonObject
from turnline.errors import BadStepValue
from turnline.errors.base import short
from turnline.flow.context import from_outside
from turnline.flow.definition.base import MAX_DURATION_SECONDS
from turnline.flow.definition.steps import WaitStep
from turnline.flow.pauses import object_of, timed_out, waited
from turnline.flow.values import render
from turnline.flow.work import StepResult, StepWork

_LONGEST: Final = timedelta(seconds=MAX_DURATION_SECONDS)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}.*")
"""Python also reads `20261224` as a date; here a number is none."""


async def perform(work: StepWork[WaitStep]) -> StepResult | Paused:
    """Return at once what need not be waited for; else pause, and return what came."""
    block = work.step.wait
    match waited(work.history, "time" if block.event is None else "event"):
        case None:
            return _begun(work)
        case Paused() as still:
            return still
        case Envelope(event_type=ev.EV_TIMER_FIRED) if timed_out(work.history, work.now):
            raise work.took_too_long  # Its own `timeout` was shorter.
        case Envelope(event_type=ev.EV_TIMER_FIRED) if block.event is None:
            return StepResult()
        case Envelope(event_type=ev.EV_TIMER_FIRED):
            raise TimeoutError(f"the event {block.event!r} did not come in {block.expires:g} s.")
        case Envelope(event_data=data):
            return _came(work, object_of(data, "data"))


def _begun(work: StepWork[WaitStep]) -> StepResult | Paused:
    block, now = work.step.wait, work.now
    if block.event is not None:
        return Paused(reason="event", key=block.event, seconds=block.expires)
    if block.for_ is not None:
        return Paused(reason="time", seconds=block.for_)
    until = _moment(render(block.until or "", work.public, at="wait.until"), now)
    return StepResult() if until <= now else Paused(reason="time", until=until)


def _came(work: StepWork[WaitStep], data: JsonObject) -> StepResult:
    """The event is there: its data goes into the context."""
    ours, dropped = from_outside(data)
    if dropped:
        work.dropped("event", dropped)
    into = work.step.wait.into
    return StepResult(updates=ours if into is None else {into: ours})


def _moment(text: str, now: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(text.strip()) if _DATE.fullmatch(text.strip()) else None
        until = None if found is None else _in_utc(found)
    except (ValueError, OverflowError):
        until = None
    if until is None or until - now > _LONGEST:
        years = _LONGEST.days // 365
        raise BadStepValue(
            "wait.until",
            found=short(text),
            expected=f"a time in the next {years} years, such as 2026-12-24T18:00:00Z",
        )
    return until


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
