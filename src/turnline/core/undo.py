"""What has been written into the context since the turn began, so that the turn's part of it can be undone.

    by others       stays, whatever becomes of the turn
    by the turn     undone if the turn is given up (T5)
    recorded        by the turn, in a call whose answer is on the log: kept when the turn is claimed anew (T3)
    once            by the turn, in a function whose result is on the log: kept by a retry or fork too (N4)
    by an attempt   of a call that failed and is retried: undone, because the next attempt makes them again

Applied again in their order, the writes that stay give what is gone back to.

Why it stays in the state: a tool's write is on the channel at once (C3), for other participants, conditions
and remote tools to see, so it cannot wait in the worker for the packet. A turn that resumes or fails must
take back its own part while the others' part stays, and the log alone says which is which: each write names
its claim and its call (`Draft.call`, `causation_id`). The list is bounded by the turn and empty between
turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from turnline.core.envelope import JsonObject
from turnline.core.variables import Variables, applied

OTHERS: Final = ""
RECORDED: Final = "+"
ONCE: Final = "1"
ONCE_MARK: Final = "#"
"""Between the tool call and the key of a `once` that makes a write."""
ATTEMPT: Final = "attempt"
"""The type of a recorded entry that says: this attempt of a call failed, and another one follows."""
_OWN: Final = "*"


class Write(Struct, frozen=True, array_like=True):
    """One accepted `context.set`."""

    by: str
    """`OTHERS`, `RECORDED`, `ONCE`, or the call of the turn that made it."""
    update: JsonObject


def own(call: str) -> str:
    """Who made a write: this call of the turn."""
    return _OWN + call


def has_own(writes: Iterable[Write]) -> bool:
    """Whether the turn itself has written anything."""
    return any(write.by != OTHERS for write in writes)


def recorded(writes: Iterable[Write], call: str | None, *, by: str = RECORDED) -> list[Write]:
    """The writes, with those of `call` (None: of every call) recorded."""
    return [Write(by, one.update) if _is_of(one, call) else one for one in writes]


def without(writes: Iterable[Write], call: str) -> list[Write]:
    """The writes, without those of `call`."""
    return [one for one in writes if not _is_of(one, call)]


def kept(writes: Iterable[Write]) -> list[Write]:
    """What stays when the turn is claimed anew."""
    return [one for one in writes if one.by in (OTHERS, RECORDED, ONCE)]


def others(writes: Iterable[Write]) -> list[Write]:
    """What stays when the turn is given up."""
    return [one for one in writes if one.by == OTHERS]


def written(base: Variables, writes: Iterable[Write]) -> Variables:
    """Return `base` after the writes."""
    for write in writes:
        base = applied(base, write.update)
    return base


def _is_of(write: Write, call: str | None) -> bool:
    if call is None:
        return write.by.startswith(_OWN)
    return write.by == own(call) or write.by.startswith(own(call) + ONCE_MARK)
