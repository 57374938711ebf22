"""The pauses of an attempt, as its history has them: what a step waited for, and what came (F7).

Rule: a pause is decided once. Whoever is called again while it lasts gives back the one
that is on the log, not another that begins now.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from turnline.core import event_types as ev
from turnline.core.claims import Paused, Reason
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.json import ids_of, moment_of, seconds_of
from turnline.core.state import ends_at

_ENDS: Final = frozenset({ev.EV_TIMER_FIRED, ev.EV_HUMAN_ANSWERED, ev.EV_TURN_RESUMED})


def waited(history: Sequence[Envelope], reason: Reason) -> Envelope | Paused | None:
    """None before the first pause for this reason; that pause while it lasts; then the line that ended it."""
    pauses = {line.seq: line for line in history if _is_pause(line, reason)}
    if not pauses:
        return None
    for line in history:
        if line.event_type in _ENDS and line.event_data.get("pause") in pauses:
            return line
    return _as_written(next(iter(pauses.values())), reason)


def timed_out(history: Sequence[Envelope], now: datetime) -> bool:
    """Return whether the attempt's last pause ended because the step's `timeout` was over."""
    ended = next((line for line in reversed(history) if line.event_type in _ENDS), None)
    if ended is None or ended.event_type != ev.EV_TIMER_FIRED:
        return False
    pause = ended.event_data.get("pause")
    data: JsonObject = next((line.event_data for line in history if line.seq == pause), {})
    until = moment_of(data.get("until"))
    return data.get("times_out") is True and (until is None or now < until)


def end_of(line: Envelope) -> datetime | None:
    """Return when the pause that a line begins ends by itself, as far as the line says."""
    data = line.event_data
    return ends_at(line.created_at, seconds_of(data.get("seconds")), moment_of(data.get("until")))


def last_note(history: Sequence[Envelope], reason: Reason) -> JsonObject:
    """What the step noted when it last paused for this reason; nothing if it never did."""
    for line in reversed(history):
        if _is_pause(line, reason):
            return object_of(line.event_data, "data")
    return {}


def object_of(data: JsonObject, key: str) -> JsonObject:
    """The object under `key`; an empty one if something else is there."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def counted_seconds(history: Sequence[Envelope], ages: Sequence[float]) -> float:
    """Return how many seconds of an attempt the `timeout` of an agent step counts (N1a).

    Time in which a person is asked is not counted, and neither is time in which no process had the step.
    """
    counted, asked = 0.0, set[str]()
    lines = zip(history, ages, strict=True)
    for (line, age), (following, later) in pairwise(lines):
        match line.event_type:
            case ev.EV_HUMAN_REQUESTED:
                asked.add(str(line.event_data.get("request_id")))
            case ev.EV_HUMAN_ANSWERED:
                asked.discard(str(line.event_data.get("request_id")))
            case ev.EV_TURN_PAUSED:
                asked = set(ids_of(line.event_data.get("questions")))
            case ev.EV_TIMER_FIRED if "question" in line.event_data:
                asked.discard(str(line.event_data["question"]))
            case ev.EV_TURN_CLAIMED | ev.EV_TURN_RESUMED | ev.EV_TIMER_FIRED:
                asked.clear()
        if not asked and following.event_type != ev.EV_TURN_CLAIMED:
            counted += age - later
    return counted


def _is_pause(line: Envelope, reason: Reason) -> bool:
    return line.event_type == ev.EV_TURN_PAUSED and line.event_data.get("reason") == reason


def _as_written(line: Envelope, reason: Reason) -> Paused:
    data = line.event_data
    return Paused(
        reason=reason,
        until=end_of(line),
        key=str(data.get("key", "")),
        data=object_of(data, "data"),
    )
