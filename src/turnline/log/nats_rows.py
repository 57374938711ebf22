"""The index of channels on a `NatsLog` (Y7): rows in memory, read from the headers of appends.

    an append's headers              the row without labels: no text about a person
    <stream>_index.row.<channel>     a row that was written alone, for the seq that it names

Rule 1: a row counts for the append that it came with. Of a channel whose last append has none, a row
that was written alone for the same seq counts.

Rule 2: labels are read from line 1 of the channels that a page shows, or that its filter of labels asks
about, and then kept. A channel without labels says so in its headers.

Costs. The first page of a process reads the headers of the last append of every channel, and keeps a row
for each in memory (about 1 KB). Each page after that asks the leader where the log ends, reads the headers
of the appends since, unless the tail has, and looks at rows from the newest on until it is full: a filter
that few channels pass looks at all of them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow, age, matches
from turnline.core.codec import unseal
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_FORKED
from turnline.errors import CorruptRecord
from turnline.log.nats_message import (
    TOMBSTONE,
    Message,
    RowHeaders,
    channel_of,
    is_hidden,
    row_alone_in,
    row_in,
    summary_of,
    token,
    unpack,
)
from turnline.log.nats_reader import Reader

SUFFIX: Final = "-fork"
"""What the id of a fork ends with (`log.forks`)."""
FirstLine = Callable[[str], Awaitable[Envelope | None]]
"""Read a channel's first line."""


class _Entry(Struct, frozen=True, kw_only=True):
    """What is known of a channel."""

    position: int
    seq: int
    row: RowHeaders | None
    is_pruned: bool = False


class RowCache:
    """The rows of a log, in one process."""

    def __init__(self, log: Reader, index: Reader, first_line: FirstLine) -> None:
        self._log = log
        self._index = index
        self._first_line = first_line
        self._entries: dict[str, _Entry] = {}
        self._alone: dict[str, _Entry] = {}
        self._labels: dict[str, dict[str, str]] = {}
        self._by_age: list[tuple[datetime, str]] = []
        """Of every row that was ever seen, oldest first; one that no longer counts is passed over."""
        self._position = 0
        """Every append up to here is known."""
        self._alone_position = 0
        self._reading = asyncio.Lock()

    async def rows(self, where: ChannelFilter, *, after: ChannelRow | None, limit: int) -> list[ChannelRow]:
        """See `Index.rows`."""
        await self._catch_up()
        place = len(self._by_age) if after is None else bisect_left(self._by_age, age(after))
        found: list[ChannelRow] = []
        while place > 0 and len(found) < limit:
            created_at, channel_id = key = self._by_age[place - 1]
            row = await self._matching(channel_id, where)
            if row is not None and row.created_at == created_at:
                found.append(row)
            place = bisect_left(self._by_age, key)  # Others may have come meanwhile.
        return found

    async def row(self, channel_id: str) -> ChannelRow | None:
        """See `Index.row`."""
        await self._catch_up()
        return await self._matching(channel_id, ChannelFilter())

    async def without_row(self, *, after: str, limit: int) -> list[str]:
        """See `Index.without_row`."""
        await self._catch_up()
        names = (name for name, entry in self._entries.items() if name > after and not entry.is_pruned)
        missing = (name for name in names if not name.startswith("_") and self._current(name) is None)
        return sorted(missing)[:limit]

    async def forks(self) -> dict[str, str]:
        """Return the channels that were forked, each with a fork of it."""
        await self._catch_up()
        rows = ((name, self._current(name)) for name in self._entries if name.endswith(SUFFIX))
        return {current.row.origin: name for name, current in rows if current and current.row.origin}

    def note(self, message: Message, *, behind: int) -> None:
        """Take note of an append that a tail tells, the next one behind a position."""
        if 0 < behind <= self._position:
            self._add(message)
            self._position = max(self._position, message.position)

    async def _catch_up(self) -> None:
        async with self._reading:
            end = await self._log.end()
            if end > self._position:
                async with aclosing(self._appends(end)) as messages:
                    async for message in messages:
                        self._add(message)
                self._position = max(self._position, end)
            await self._read_alone()

    async def _appends(self, end: int) -> AsyncGenerator[Message]:
        """Yield what is not known yet; at first only the last append of each channel."""
        matching = f"{self._log.stream}.*"
        if self._position:
            scan = self._log.scan(matching, after=self._position, headers_only=True)
        else:
            scan = self._log.scan_newest(matching)
        async with aclosing(self._log.up_to(end, scan)) as messages:
            async for message in messages:
                yield message

    async def _read_alone(self) -> None:
        matching = f"{self._index.stream}.row.*"
        last = await self._index.last(matching)
        if last is None or last.position <= self._alone_position:
            return
        scan = self._index.scan(matching, after=self._alone_position, headers_only=False)
        async with aclosing(self._index.up_to(last.position, scan)) as messages:
            async for message in messages:
                self._add_alone(message)
                self._alone_position = message.position

    def _add(self, message: Message) -> None:
        channel_id = channel_of(message.subject)
        known = self._entries.get(channel_id)
        if known is not None and known.position >= message.position:
            return
        if is_hidden(message):
            entry = _Entry(position=message.position, seq=0, row=None, is_pruned=True)
            self._entries[channel_id] = entry
            self._alone.pop(channel_id, None)
            self._labels.pop(channel_id, None)
            return
        row = row_in(message)
        try:
            seq = summary_of(message).last
        except ValueError:  # Damaged: it has no row, and the channel says so where it is read.
            seq = 0
        self._entries[channel_id] = _Entry(position=message.position, seq=seq, row=row)
        self._sort_in(row)

    def _add_alone(self, message: Message) -> None:
        found = row_alone_in(message)
        if found is not None:
            seq, row = found
            self._alone[row.row.channel_id] = _Entry(position=message.position, seq=seq, row=row)
            self._sort_in(row)

    def _sort_in(self, row: RowHeaders | None) -> None:
        if row is None:
            return
        key = age(row.row)
        place = bisect_left(self._by_age, key)
        if place == len(self._by_age) or self._by_age[place] != key:
            insort(self._by_age, key)

    def _current(self, channel_id: str) -> RowHeaders | None:
        """Return the row that counts (Rule 1)."""
        entry, alone = self._entries.get(channel_id), self._alone.get(channel_id)
        if entry is None:
            return None
        return alone.row if alone is not None and alone.seq == entry.seq else entry.row

    async def _matching(self, channel_id: str, where: ChannelFilter) -> ChannelRow | None:
        """Return the channel's row with its labels, if it is one that `where` asks for."""
        current = self._current(channel_id)
        if current is None or not matches(current.row, replace(where, labels={})):
            return None
        if not current.has_labels:
            return None if where.labels else current.row
        if channel_id not in self._labels:
            self._labels[channel_id] = await read_labels(channel_id, self._first_line)
        row = replace(current.row, labels=self._labels[channel_id])
        return row if where.labels.items() <= row.labels.items() else None


async def first_line(log: Reader, channel_id: str) -> Envelope | None:
    """Return a channel's first line; None if there is none that can be read."""
    subject = f"{log.stream}.{token(channel_id)}"
    message = await log.following(subject, after=0)
    if message is not None and TOMBSTONE in message.headers:
        message = await log.following(subject, after=message.position)
    if message is None:
        return None
    try:
        previous, records = unpack(channel_id, message, seq=1)
        return unseal(channel_id, records[0], previous=previous, seq=1)
    except (CorruptRecord, IndexError):
        return None


async def read_labels(channel_id: str, first_line: FirstLine) -> dict[str, str]:
    """Return a channel's labels, as line 1 has them; those of a fork are its origin's."""
    seen = set[str]()
    while channel_id not in seen:
        seen.add(channel_id)
        line = await first_line(channel_id)
        if line is None:
            break
        if line.event_type != EV_CHANNEL_FORKED:
            return _labels_in(line.event_data.get("labels"))
        origin = line.event_data.get("forked_from")
        channel_id = str(origin.get("channel", "")) if isinstance(origin, dict) else ""
    return {}


def _labels_in(found: object) -> dict[str, str]:
    try:
        return msgspec.convert(found or {}, dict[str, str])
    except msgspec.ValidationError:
        return {}
