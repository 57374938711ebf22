"""Envelopes for tests of a log: made from a channel and a seq, and appended whoever else is writing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_TEXT
from turnline.errors import LogConflict
from turnline.log.base import Log

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
MAX_ATTEMPTS: Final = 10_000
"""Of one append that others keep overtaking."""


def line(
    channel_id: str,
    seq: int,
    *,
    envelope_id: str = "",
    data: JsonObject | None = None,
    sender_id: str = "alice",
) -> Envelope:
    """Return an envelope that says little. Two with the same arguments are equal."""
    return Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id=envelope_id or f"{channel_id}-{seq}",
        channel_id=channel_id,
        seq=seq,
        sender_id=sender_id,
        event_type=EV_TEXT,
        event_data={"text": f"line {seq}"} if data is None else data,
        created_at=NOON,
    )


def closing_line(channel_id: str, seq: int) -> Envelope:
    """Return the envelope that closes a channel."""
    return Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id=f"{channel_id}-{seq}",
        channel_id=channel_id,
        seq=seq,
        sender_id="hub",
        event_type=EV_CHANNEL_CLOSED,
        event_data={"reason": "done"},
        created_at=NOON,
    )


async def lines(log: Log, channel_id: str, *, after: int = 0) -> list[Envelope]:
    return [envelope async for envelope in log.read(channel_id, after=after)]


async def say(log: Log, channel_id: str, envelope_id: str, *, sender_id: str = "alice") -> int:
    """Append one envelope behind whatever is last by then; return its seq."""
    after = 0
    for _ in range(MAX_ATTEMPTS):
        try:
            said = line(channel_id, after + 1, envelope_id=envelope_id, sender_id=sender_id)
            await log.append(channel_id, [said], after=after)
        except LogConflict as conflict:
            after = conflict.found
        else:
            return after + 1
    raise AssertionError(f"{envelope_id!r} was overtaken {MAX_ATTEMPTS} times on channel {channel_id!r}")


async def until(log: Log, channel_id: str, seq: int, *, after: int = 0) -> AsyncIterator[int]:
    """Follow the log's tail until `channel_id` has reached `seq`; yield the seqs told on the way."""
    async for head in log.tail(after=after):
        if head.channel_id == channel_id:
            yield head.seq
            if head.seq >= seq:
                return
