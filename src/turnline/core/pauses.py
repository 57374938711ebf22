"""Pauses: a turn that waits without anybody working on it (F7).

    turn.paused {"reason", "seconds", "until", "key", "data"}     the worker lets go of the turn
    timer.fired, human.answered, turn.resumed                     {"pause": seq} ends it, once

`seconds` are counted from the line, by the hub's timers. `until` is a time of day, and is compared with the
time that people read.

A stuck turn is paused as well: only an operator's `turn.resumed` ends that, and gives the floor again.

Rule: whatever ends a pause names it. A second answer, a timer that comes too late,
an answer after the timer: each finds that the pause is over, and is refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from turnline.core import claims, event_types as ev
from turnline.core.batch import Batch
from turnline.core.envelope import Basis, JsonObject, Speak
from turnline.core.state import STUCK, Pause, State
from turnline.core.variables import is_number
from turnline.errors import BadDraft, ClaimLost, NotDue

MAX_SECONDS: Final = 100 * 365 * 86_400.0
"""Of a pause, a TTL, an ack timeout, an expectation: a hundred years."""


def pause(batch: Batch[Any]) -> None:
    """The worker lets go: the turn waits."""
    state, draft = batch.state, batch.draft
    if draft.claim is None or state.claim is None:
        raise ClaimLost(state.channel_id, claim=draft.claim, live=None)
    claims.check_claim(state, draft)
    until, seconds = draft.event_data.get("until"), draft.event_data.get("seconds")
    if until is not None and moment_of(until) is None:
        raise BadDraft(
            "event_data.until", found=repr(until)[:80], expected="a time with its offset, as ISO text"
        )
    if seconds is not None and seconds_of(seconds) is None:
        expected = f"a number from 0 to {MAX_SECONDS:g}"
        raise BadDraft("event_data.seconds", found=repr(seconds)[:80], expected=expected)
    batch.accept()


def resume(batch: Batch[Any]) -> None:
    """What the turn waited for has come."""
    state, draft = batch.state, batch.draft
    live = state.pause
    if live is None or draft.event_data.get("pause") != live.seq:
        raise NotDue(state.channel_id, timer=f"the pause {draft.event_data.get('pause')}")
    if live.reason == STUCK and draft.event_type != ev.EV_TURN_RESUMED:
        raise NotDue(state.channel_id, timer=f"the stuck turn {live.seq}")
    if draft.event_type == ev.EV_TIMER_FIRED and not _can_have_ended(live, batch.accepted_at):
        raise NotDue(state.channel_id, timer=f"the pause {live.seq}")
    floor = state.expected_next_speaker or ""
    batch.accept(decision=Speak(floor, Basis(kind="retry")) if live.reason == STUCK else None)


def stick(batch: Batch[Any], error: JsonObject) -> None:
    """Pause the turn until an operator retries it; what it recorded stays (N3)."""
    turn: JsonObject = {"agent_id": batch.state.expected_next_speaker, "turn": batch.state.turn}
    batch.write(ev.EV_TURN_PAUSED, turn | {"reason": STUCK, "data": {"error": error}})


def refuse_while_paused(state: State) -> None:
    """Nobody works on a turn that waits."""
    if state.pause is not None:
        raise NotDue(state.channel_id, timer=f"the turn paused at {state.pause.seq}")


def _can_have_ended(pause: Pause, now: datetime) -> bool:
    """Return whether a timer may end the pause. How many seconds have passed is known to the hub alone."""
    return pause.seconds is not None or (pause.moment is not None and pause.moment <= now)


def seconds_of(value: object) -> float | None:
    """Return the seconds that a line says; None for anything else."""
    return float(value) if is_number(value) and 0 <= value <= MAX_SECONDS else None


def moment_of(text: object) -> datetime | None:
    """The time that an ISO text with an offset names; None for anything else."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None
