"""What is on a log, counted."""

from __future__ import annotations

import heapq
from collections import Counter
from contextlib import aclosing
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord
from turnline.log.base import closes
from turnline.log.chain import Chain
from turnline.log.records import Records
from turnline.log.verify import Progress

LARGEST: Final = 10
"""Channels that are listed."""


class ChannelSize(Struct, frozen=True, order=True):
    """How much is on a channel."""

    bytes: int
    records: int
    channel_id: str


class LogStats(Struct, frozen=True, kw_only=True):
    """What is on a log."""

    address: str
    open: int
    closed: int
    pruned: int
    """Channels of which only a tombstone is left."""
    damaged: list[str]
    """Channels that could not be read to their end; what stands before the damage counts."""
    records: int
    bytes: int
    """Of the envelopes; what a backend needs besides is among the facts."""
    oldest: datetime | None
    newest: datetime | None
    largest: list[ChannelSize]
    event_types: dict[str, int]
    """The most frequent first."""
    facts: dict[str, str] = field(default_factory=dict)


async def stats(records: Records, *, progress: Progress = lambda channels, done: None) -> LogStats:
    """Count everything. Raises `LogUnavailable`."""
    counted = _Counted()
    async for channel_id in records.channels():
        await _count(records, channel_id, counted)
        progress(counted.open + counted.closed, counted.records)
    return LogStats(
        address=records.address,
        open=counted.open,
        closed=counted.closed,
        pruned=len([one async for one in records.tombstones()]),
        damaged=counted.damaged,
        records=counted.records,
        bytes=counted.bytes,
        oldest=counted.oldest,
        newest=counted.newest,
        largest=sorted(counted.largest, reverse=True),
        event_types=dict(counted.types.most_common()),
        facts=await records.facts(),
    )


class _Counted:
    def __init__(self) -> None:
        self.open = self.closed = self.records = self.bytes = 0
        self.damaged: list[str] = []
        self.oldest: datetime | None = None
        self.newest: datetime | None = None
        self.largest: list[ChannelSize] = []
        self.types: Counter[str] = Counter()

    def add(self, envelope: Envelope) -> None:
        at = envelope.created_at
        self.types[envelope.event_type] += 1
        self.oldest = at if self.oldest is None else min(self.oldest, at)
        self.newest = at if self.newest is None else max(self.newest, at)

    def end(self, size: ChannelSize, last: Envelope | None) -> None:
        if last is not None and closes(last.event_type):
            self.closed += 1
        else:
            self.open += 1
        self.records += size.records
        self.bytes += size.bytes
        heapq.heappush(self.largest, size)
        if len(self.largest) > LARGEST:
            heapq.heappop(self.largest)


async def _count(records: Records, channel_id: str, counted: _Counted) -> None:
    chain, size, last = Chain(channel_id), 0, None
    try:
        async with aclosing(records.read(channel_id)) as found:
            async for record in found:
                last = chain.add(record)
                size += record.size
                counted.add(last)
    except CorruptRecord:
        counted.damaged.append(channel_id)
    counted.end(ChannelSize(size, chain.seq, channel_id), last)
