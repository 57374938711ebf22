"""Envelopes for tests of a log: made from a channel and a seq, and appended whoever else is writing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow, ChannelState
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CHANNEL_INVITE, EV_PAYLOAD_ERASED, EV_TEXT
from turnline.errors import LogConflict
from turnline.log.base import Log

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
E = TypeVar("E", bound=Exception)
MAX_ATTEMPTS: Final = 10_000
"""Of one append that others keep overtaking."""


async def refusal(kind: type[E], awaitable: Awaitable[object]) -> E:
    """Return the error of this kind that `awaitable` raises."""
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


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


def erased_line(channel_id: str, seq: int, *ranges: tuple[int, int]) -> Envelope:
    """Return the envelope that says that the content of lines was erased: from, to."""
    return Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id=f"{channel_id}-{seq}",
        channel_id=channel_id,
        seq=seq,
        sender_id="hub",
        event_type=EV_PAYLOAD_ERASED,
        event_data={"lines": [list(one) for one in ranges], "by": "operator", "reason": "requested"},
        created_at=NOON,
    )


def row(channel_id: str, *, seq: int = 1, created_at: datetime = NOON, **fields: Any) -> ChannelRow:
    """Return what an index says of a channel that says little."""
    said: dict[str, Any] = {"type": "workflow", "status": ChannelState.ACTIVE, "updated_at": created_at}
    return ChannelRow(channel_id=channel_id, seq=seq, created_at=created_at, **(said | fields))


def first_line(of: ChannelRow) -> Envelope:
    """Return the first line of the channel that the row is of, with its labels."""
    data: JsonObject = {"channel_id": of.channel_id, "type": of.type, "labels": dict(of.labels)}
    return replace(line(of.channel_id, 1, data=data), event_type=EV_CHANNEL_INVITE)


async def add_channel(log: Log, of: ChannelRow) -> None:
    """Append a channel of one line, or of two if it is closed, with its row."""
    said = [first_line(of), closing_line(of.channel_id, 2)] if of.is_closed else [first_line(of)]
    await log.append(of.channel_id, said, after=0, row=of)


async def pages(log: Log, where: ChannelFilter, *, limit: int) -> list[ChannelRow]:
    """Return all rows that `where` asks for, page by page."""
    found: list[ChannelRow] = []
    while page := await log.rows(where, after=found[-1] if found else None, limit=limit):
        found += page
    return found


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
