"""The pauses of an attempt, as its history has them: what a step waited for, and what came (F7).

Rule: a pause is decided once. Whoever is called again while it lasts gives back the one
that is on the log, not another that begins now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_HUMAN_ANSWERED, EV_TIMER_FIRED, EV_TURN_PAUSED, EV_TURN_RESUMED
from turnline.core.pauses import moment_of
from turnline.flow.work import Paused

Reason = Literal["retry", "time", "person", "event", "children"]
_ENDS: Final = frozenset({EV_TIMER_FIRED, EV_HUMAN_ANSWERED, EV_TURN_RESUMED})


def waited(history: Sequence[Envelope], reason: Reason) -> Envelope | Paused | None:
    """None before the first pause for this reason; that pause while it lasts; then the line that ended it."""
    pauses = {line.seq: line for line in history if _is_pause(line, reason)}
    if not pauses:
        return None
    for line in history:
        if line.event_type in _ENDS and line.event_data.get("pause") in pauses:
            return line
    return _as_written(next(iter(pauses.values())).event_data, reason)


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


def _is_pause(line: Envelope, reason: Reason) -> bool:
    return line.event_type == EV_TURN_PAUSED and line.event_data.get("reason") == reason


def _as_written(data: JsonObject, reason: Reason) -> Paused:
    return Paused(
        reason=reason,
        until=moment_of(data.get("until")),
        key=str(data.get("key", "")),
        data=object_of(data, "data"),
    )
