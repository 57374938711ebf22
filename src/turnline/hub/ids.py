"""Where ids come from: unique, and sorting by the time they were made."""

from __future__ import annotations

import secrets
from base64 import b32hexencode
from collections.abc import Callable
from typing import Final

from turnline.hub.clock import Clock

NewId = Callable[[], str]

_CHANCE_BITS: Final = 80
_SECRET_BYTES: Final = 16
_BYTES: Final = 16


def sortable_ids(clock: Clock) -> NewId:
    """Return a source of 26-character ids: milliseconds, then chance. Ids of one source strictly grow."""
    last = 0

    def new_id() -> str:
        nonlocal last
        milliseconds = int(clock.now().timestamp() * 1000)
        value = (milliseconds << _CHANCE_BITS) | secrets.randbits(_CHANCE_BITS)
        # Two ids of one millisecond, or a clock set back: count on from the last one.
        last = value if value > last else last + 1
        # The hex alphabet of base 32 sorts as the bytes do.
        return b32hexencode(last.to_bytes(_BYTES, "big")).rstrip(b"=").decode().lower()

    return new_id


def secret_id() -> str:
    """Return an id of 128 random bits. A sortable id can be computed from its neighbour; this one cannot."""
    return secrets.token_hex(_SECRET_BYTES)
