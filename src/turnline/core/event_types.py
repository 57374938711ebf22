"""The event types an envelope can have, and who may write them.

A type is one of the names below, or an application's own with a prefix
(`acme.note`): kept and delivered, never folded.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

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
_HUB_WRITES: Final = ("channel", "turn", "expectation", "timer", "participant", "audit")
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
