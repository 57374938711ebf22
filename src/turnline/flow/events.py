"""What the world is told of a run, line by line: nothing private is in it (F2).

event_of(envelope) -> RunEvent, or None for a line that is nobody's business
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec import Struct

from turnline.core import event_types as ev
from turnline.core.envelope import Close, Envelope, JsonObject, Speak
from turnline.flow.context import public
from turnline.flow.pauses import end_of, object_of

_ENDS: Final = frozenset({ev.EV_HUMAN_ANSWERED, ev.EV_TIMER_FIRED})


class RunEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a run."""

    seq: int
    type: str
    """`started`, `step_started`, `step_ended`, `waiting`, `resumed`, `step_given_up` or `ended`."""
    at: datetime
    step: str = ""
    signal: str = ""
    next: str = ""
    """The step that has the floor now."""
    updates: JsonObject = {}
    """The public context keys that were set."""
    deletes: list[str] = []
    reason: str = ""
    until: str = ""


def event_of(line: Envelope) -> RunEvent | None:
    """Return what may be told of a line.

    The answer to a question of an agent step, and its expiry, are not told: the line that resumes the turn
    comes with it.
    """
    told = _TOLD.get(line.event_type)
    ends_question = line.event_type in _ENDS and "pause" not in line.event_data
    if told is None or ends_question:
        return None
    type, facts = told
    return RunEvent(seq=line.seq, type=type, at=line.created_at, **facts(line))


def _ended(line: Envelope) -> JsonObject:
    data = line.event_data
    return {
        "step": _step(line.sender_id),
        "signal": str(object_of(data, "routing").get("signal", "")),
        "next": _floor(line),
        "updates": public(object_of(data, "context_updates")),
        "deletes": list(data.get("context_deletes", [])),
        "reason": line.decision.reason if isinstance(line.decision, Close) else "",
    }


def _waiting(line: Envelope) -> JsonObject:
    data, until = line.event_data, end_of(line)
    facts = {"reason": str(data.get("reason", "")), "until": "" if until is None else until.isoformat()}
    return {"step": _step(data.get("agent_id")), **facts}


def _resumed(line: Envelope) -> JsonObject:
    return {}


def _closed(line: Envelope) -> JsonObject:
    return {"reason": str(line.event_data.get("reason", ""))}


def _step(agent_id: object) -> str:
    return str(agent_id or "")


def _floor(line: Envelope) -> str:
    return _step(line.decision.agent_id) if isinstance(line.decision, Speak) else ""


_TOLD: Final[dict[str, tuple[str, Callable[[Envelope], JsonObject]]]] = {
    ev.EV_CHANNEL_OPENED: ("started", lambda line: {"next": _floor(line)}),
    ev.EV_TURN_CLAIMED: ("step_started", lambda line: {"step": _step(line.event_data.get("agent_id"))}),
    ev.EV_PACKET: ("step_ended", _ended),
    ev.EV_TURN_PAUSED: ("waiting", _waiting),
    ev.EV_TURN_RESUMED: ("resumed", _resumed),
    ev.EV_TIMER_FIRED: ("resumed", _resumed),
    ev.EV_HUMAN_ANSWERED: ("resumed", _resumed),
    ev.EV_TURN_FAILED: (
        "step_given_up",
        lambda line: {"step": _step(line.event_data.get("agent_id")), "next": _floor(line)},
    ),
    ev.EV_CHANNEL_CLOSED: ("ended", _closed),
}
"""Event type -> what it is called outside, and what is told of it."""
