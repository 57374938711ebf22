"""What a line may say: the event types, who may write them, and the data of what somebody says.

A type is one of the names below, or an application's own with a prefix
(`acme.note`): kept and delivered, never folded.

The packet is the one draft that records a round or a step.

    {"body": "...", "routing": {"kind": ...}, "context_updates": {...}, "context_deletes": [...],
     "usage": {...}}

A text and a packet with files have `parts` in the place of `text` and `body` (`core.parts`).
"format": "json" says that the body is the JSON of an answer that has a type (A2).

A step of a flow may also keep private keys for the run: "private_updates", "private_deletes" (F2).

    kind      also in routing
    text      tool (a tool that succeeded and that some transition waits for), reason
    handoff   target, tool, reason
    finish    reason, summary, tool
    signal    signal, reason
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from turnline.core.envelope import JsonObject
from turnline.core.parts import check_parts, text_of
from turnline.core.variables import check_keys
from turnline.errors import BadDraft, ReservedEventType

HUB: Final = "hub"
"""The sender of everything the hub writes. No participant can have this id."""

MAX_NAME_CHARACTERS: Final = 256

EV_TEXT: Final = "text"
EV_PACKET: Final = "packet"
EV_CONTEXT_SET: Final = "context.set"

EV_CHANNEL_INVITE: Final = "channel.invite"
EV_CHANNEL_INVITE_ACK: Final = "channel.ack"
EV_CHANNEL_INVITE_REJECT: Final = "channel.reject"
EV_CHANNEL_OPENED: Final = "channel.opened"
EV_CHANNEL_FORKED: Final = "channel.forked"
EV_CHANNEL_CHILD: Final = "channel.child"
EV_CHANNEL_CLOSED: Final = "channel.closed"
EV_CHANNEL_EXPIRED: Final = "channel.expired"

EV_TURN_CLAIMED: Final = "turn.claimed"
EV_TURN_RELEASED: Final = "turn.released"
EV_TURN_RENEWED: Final = "turn.renewed"
EV_TURN_MODEL: Final = "turn.model"
EV_TURN_TOOL: Final = "turn.tool"
EV_TURN_ONCE: Final = "turn.once"
EV_TURN_PAUSED: Final = "turn.paused"
EV_TURN_RESUMED: Final = "turn.resumed"
EV_TURN_ABANDONED: Final = "turn.abandoned"
EV_TURN_FAILED: Final = "turn.failed"

EV_EXPECTATION_VIOLATED: Final = "expectation.violated"
EV_TIMER_FIRED: Final = "timer.fired"

EV_TASK_STARTED: Final = "task.started"
EV_TASK_PROGRESS: Final = "task.progress"
EV_TASK_COMPLETED: Final = "task.completed"
EV_TASK_FAILED: Final = "task.failed"

EV_HUMAN_REQUESTED: Final = "human.requested"
EV_HUMAN_ANSWERED: Final = "human.answered"

EV_PAYLOAD_ERASED: Final = "payload.erased"
"""The content of earlier lines is gone. The only type that may follow `channel.closed` (Y1)."""

EV_LOG_SEALED: Final = "log.sealed"
"""Where channels ended when it was written (Y4)."""
EV_LOG_REPAIRED: Final = "log.repaired"
"""Lines of a system channel were damaged and are replaced (Y5)."""
EV_LINE_LOST: Final = "log.line_lost"
"""Stands in the place of a damaged line of a system channel."""

SUBSTANTIVE: Final = frozenset({EV_TEXT, EV_PACKET})
"""What somebody says. Accepted from whoever has the floor, it is a turn."""

_PARTICIPANTS_WRITE: Final = frozenset(
    {
        *SUBSTANTIVE,
        EV_CONTEXT_SET,
        EV_TASK_STARTED,
        EV_TASK_PROGRESS,
        EV_TASK_COMPLETED,
        EV_TASK_FAILED,
        EV_HUMAN_REQUESTED,
        EV_HUMAN_ANSWERED,
    }
)
_HUB_WRITES: Final = ("channel", "turn", "expectation", "timer", "participant", "payload", "audit", "log")
_FAMILIES: Final = ("context", "task", "human")


def is_name(value: object) -> bool:
    """Whether `value` is text that reads back: printable, of one line, not endless."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARACTERS and value.isprintable()


def check_event_type(event_type: str, sender: str) -> None:
    """Refuse a type that `sender` may not write (E3, E4)."""
    if not is_name(event_type):
        raise BadDraft("event_type", found=repr(event_type)[:80], expected="printable text of one line")
    if sender == HUB or event_type in _PARTICIPANTS_WRITE:
        return
    family, dot, rest = event_type.partition(".")
    if family in _HUB_WRITES:
        raise ReservedEventType(event_type, sender=sender)
    if not dot or not family or not rest or family in _FAMILIES:
        near = get_close_matches(event_type, sorted(_PARTICIPANTS_WRITE), n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise BadDraft(
            "event_type",
            found=f"{event_type!r}{hint}",
            expected="a known type, or your own with your application's prefix, such as 'acme.note'",
        )


_KEYS: Final = frozenset(
    {"body", "parts", "format", "routing", "context_updates", "context_deletes", "usage"}
)
JSON: Final = "json"
_PRIVATE: Final = frozenset({"private_updates", "private_deletes"})
_ROUTING: Final = {
    "text": ({"kind", "tool", "reason"}, ""),
    "handoff": ({"kind", "target", "tool", "reason"}, "target"),
    "finish": ({"kind", "reason", "summary", "tool"}, ""),
    "signal": ({"kind", "signal", "reason"}, "signal"),
}
"""kind -> the keys it may have, and the one it must have."""


def check_text(data: JsonObject) -> None:
    """Refuse the data of a `text` that has no text and no parts, or both."""
    if "parts" in data:
        _check_parts(data, "text")
    elif not isinstance(data.get("text"), str):
        raise BadDraft("event_data.text", found=_kind(data.get("text")), expected="text")


def check_packet(data: JsonObject, *, keys: frozenset[str] = _KEYS) -> None:
    """Refuse the data of a `packet` that is not one."""
    unknown = data.keys() - keys
    if unknown:
        raise BadDraft(
            "event_data", found=f"with {sorted(unknown)}", expected=f"only {', '.join(sorted(keys))}"
        )
    if "parts" in data:
        _check_parts(data, "body")
    if not isinstance(data.get("body", ""), str):
        raise BadDraft("event_data.body", found=_kind(data["body"]), expected="text")
    if data.get("format", JSON) != JSON:
        raise BadDraft("event_data.format", found=repr(data["format"])[:80], expected=repr(JSON))
    updates = data.get("context_updates", {})
    if not isinstance(updates, dict):
        raise BadDraft("event_data.context_updates", found=_kind(updates), expected="an object")
    check_keys(updates, "event_data.context_updates")
    deletes = data.get("context_deletes", [])
    if not isinstance(deletes, list) or not all(isinstance(key, str) for key in deletes):
        raise BadDraft("event_data.context_deletes", found=_kind(deletes), expected="a list of keys")
    check_keys(deletes, "event_data.context_deletes")
    if not isinstance(data.get("usage", {}), dict):
        raise BadDraft("event_data.usage", found=_kind(data["usage"]), expected="an object")
    _check_routing(data.get("routing", {"kind": "text"}))


def check_step_packet(data: JsonObject) -> None:
    """Refuse the packet of a step that is not one; what is private has a `_`, as nothing else has."""
    check_packet(data, keys=_KEYS | _PRIVATE)
    for field in sorted(_PRIVATE & data.keys()):
        expected = dict if field == "private_updates" else list
        named = data[field]
        if not isinstance(named, expected) or not all(
            isinstance(k, str) and k.startswith("_") for k in named
        ):
            raise BadDraft(
                f"event_data.{field}", found=repr(type(named)), expected="keys that start with '_'"
            )


def has_parts(data: JsonObject) -> bool:
    """Return whether the data of a draft may refer to files."""
    places = (data, data.get("entry")) if isinstance(data, dict) else ()
    return any(isinstance(one, dict) and "parts" in one for one in places)


def body_of(event_type: str, data: JsonObject) -> str:
    """What somebody said, as text."""
    if "parts" in data:
        return text_of(data)
    return str(data.get("body" if event_type == "packet" else "text", ""))


def _check_parts(data: JsonObject, other: str) -> None:
    if other in data:
        raise BadDraft("event_data", found=f"with `parts` and `{other}`", expected="one of them")
    check_parts(data["parts"])


def _check_routing(routing: object) -> None:
    if not isinstance(routing, dict) or routing.get("kind") not in _ROUTING:
        found = repr(routing)[:80]
        raise BadDraft(
            "event_data.routing",
            found=found,
            expected=f"an object whose kind is one of {', '.join(_ROUTING)}",
        )
    allowed, required = _ROUTING[routing["kind"]]
    if routing.keys() - allowed:
        raise BadDraft(
            "event_data.routing", found=f"with {sorted(routing)}", expected=f"only {sorted(allowed)}"
        )
    for key, value in routing.items():
        if not isinstance(value, str):
            raise BadDraft(f"event_data.routing.{key}", found=_kind(value), expected="text")
    if required and not routing.get(required):
        raise BadDraft(f"event_data.routing.{required}", found="missing", expected="text")


def _kind(value: object) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"
