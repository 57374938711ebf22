"""Forks: a log on which a channel can have another one's past, without a copy of it.

    on the log        what is read
    story  1..9       story     1..9
    x-fork 1..3       x-fork    1..4 of story, then its own three as 5..7

Rule 1: a fork's first line on the log is `channel.forked`, which names the channel and the line it
goes on from. Whoever reads the fork reads that channel up to there under the fork's own id, then
the fork's own lines, numbered on. What is on the log stays gapless from 1.

Rule 2: only an id that ends in `-fork` can be a fork's, so that no other channel pays for a look at
its first line.

Rule 3: a fork never writes to the channel it came from. One whose past cannot be read cannot be
read itself, and says why (E5).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow, ForkedFrom
from turnline.core.codec import erased_lines
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_FORKED, EV_PAYLOAD_ERASED
from turnline.errors import CorruptRecord, DuplicateEnvelope, LogConflict, LogUnavailable
from turnline.log.base import (
    Blob,
    Erases,
    Head,
    JoinsTransactions,
    Log,
    Prunes,
    Snapshots,
    Tombstone,
    check_append,
)
from turnline.log.joined import SharedDatabase, Transaction

SUFFIX: Final = "-fork"
_REMEMBERED: Final = 4096
"""How many channels' origins are kept in memory. One that was forgotten is read again."""

T = TypeVar("T")


class ForkingLog:
    """A log around another one: see `turnline.log.base.Log` and `Snapshots`."""

    def __init__(self, inner: Log) -> None:
        self.address = inner.address
        self.durability = inner.durability
        self._inner = inner
        self._snapshots = inner if isinstance(inner, Snapshots) else None
        self._origins: OrderedDict[str, ForkedFrom | None] = OrderedDict()

    async def origin(self, channel_id: str) -> ForkedFrom | None:
        """Return what the channel is a fork of; None for one that is none."""
        if not channel_id.endswith(SUFFIX):
            return None
        if channel_id not in self._origins:
            async with reading(self._inner.read(channel_id)) as lines:
                first = await anext(lines, None)
            if first is None:
                return None
            self._remember(channel_id, first)
        self._origins.move_to_end(channel_id)
        return self._origins[channel_id]

    async def past(self, channel_id: str, origin: ForkedFrom, *, after: int = 0) -> AsyncIterator[Envelope]:
        """Yield the lines that the fork `channel_id` has from its origin, behind `after`.

        Raises `CorruptRecord` where they are not all there.
        """
        seq = after
        try:
            async with reading(self.read(origin.channel, after=after)) as lines:
                async for line in lines:
                    if line.seq > origin.seq:
                        break
                    seq = line.seq
                    yield _inherited(line, channel_id, origin)
        except CorruptRecord as error:
            because = f"it is a fork of {origin.channel!r}, which cannot be read there ({error.because})"
            raise CorruptRecord(channel_id, seq=error.seq, because=because) from error
        if seq < origin.seq:
            because = f"it is a fork of {origin.channel!r} at {origin.seq}, which has no such line"
            raise CorruptRecord(channel_id, seq=seq + 1, because=because)

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        origin = await self._origin_of(channel_id, envelopes)
        if origin is None:
            await self._inner.append(channel_id, envelopes, after=after, row=row)
            return
        own = await self._own(channel_id, origin, envelopes, after)
        try:
            await self._inner.append(channel_id, own, after=after - origin.seq, row=row)
        except LogConflict as conflict:
            raise _shifted(conflict, after, origin) from conflict

    def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        if channel_id.endswith(SUFFIX):
            return self._read_on(channel_id, after)
        return self._inner.read(channel_id, after=after)

    async def _read_on(self, channel_id: str, after: int) -> AsyncIterator[Envelope]:
        origin = await self.origin(channel_id)
        before = 0 if origin is None else origin.seq
        if origin is not None and after < before:
            async with reading(self.past(channel_id, origin, after=after)) as lines:
                async for line in lines:
                    yield line
        async with reading(self._inner.read(channel_id, after=max(after - before, 0))) as lines:
            async for line in lines:
                yield replace(_shift_lines(line, before), seq=line.seq + before) if before else line

    async def find(self, channel_id: str, envelope_id: str) -> Envelope | None:
        found, origin = await self._inner.find(channel_id, envelope_id), await self.origin(channel_id)
        if origin is None:
            return found
        if found is not None:
            return replace(found, seq=found.seq + origin.seq)
        found = await self.find(origin.channel, envelope_id)
        return None if found is None or found.seq > origin.seq else _inherited(found, channel_id, origin)

    async def head(self, channel_id: str) -> Head | None:
        head = await self._inner.head(channel_id)
        return None if head is None else await self._numbered_on(head)

    async def channels(
        self, *, closed: bool | None = None, after: str = "", limit: int | None = None
    ) -> list[Head]:
        heads = await self._inner.channels(closed=closed, after=after, limit=limit)
        return [await self._numbered_on(head) for head in heads]

    async def rows(
        self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
    ) -> list[ChannelRow]:
        return await self._inner.rows(where, after=after, limit=limit)

    async def row(self, channel_id: str) -> ChannelRow | None:
        return await self._inner.row(channel_id)

    async def without_row(self, *, after: str = "", limit: int) -> list[str]:
        return await self._inner.without_row(after=after, limit=limit)

    async def end(self) -> int:
        return await self._inner.end()

    async def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        async with reading(self._inner.tail(after=after)) as heads:
            async for head in heads:
                yield await self._numbered_on(head)

    async def close(self) -> None:
        await self._inner.close()

    async def erase(
        self,
        channel_id: str,
        note: Envelope,
        *,
        after: int,
        row: ChannelRow | None,
        blobs: Sequence[Blob] = (),
    ) -> None:
        """Erase lines of the channel's own. Those that a fork has from its origin are the origin's."""
        origin = await self.origin(channel_id)
        before = 0 if origin is None else origin.seq
        inner = self._inner
        if not isinstance(inner, Erases):
            raise LogUnavailable(self.address, because="it cannot erase")
        own = replace(_shift_lines(note, -before), seq=note.seq - before)
        await inner.erase(channel_id, own, after=after - before, row=row, blobs=blobs)

    async def finish_erasing(self, channel_id: str) -> None:
        if isinstance(self._inner, Erases):
            await self._inner.finish_erasing(channel_id)

    # What is pruned and restored are a channel's own lines: see `Prunes`.

    async def prune(self, tombstones: Sequence[Tombstone]) -> None:
        await self._prunes().prune(tombstones)

    async def delete_pruned(self, *, limit: int) -> int:
        return await self._prunes().delete_pruned(limit=limit)

    async def tombstone(self, channel_id: str) -> Tombstone | None:
        return await self._inner.tombstone(channel_id) if isinstance(self._inner, Prunes) else None

    async def tombstones(self, *, after: str = "", limit: int) -> list[Tombstone]:
        return await self._prunes().tombstones(after=after, limit=limit)

    async def restore(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        await self._prunes().restore(channel_id, envelopes, after=after)

    def _prunes(self) -> Prunes:
        if not isinstance(self._inner, Prunes):
            raise LogUnavailable(self.address, because="it cannot prune")
        return self._inner

    async def compact(self) -> None:
        if isinstance(self._inner, Erases):
            await self._inner.compact()

    async def save_snapshot(self, channel_id: str, *, seq: int, body: bytes) -> None:
        if self._snapshots is not None:
            await self._snapshots.save_snapshot(channel_id, seq=seq, body=body)

    async def load_snapshot(self, channel_id: str) -> tuple[int, bytes] | None:
        return None if self._snapshots is None else await self._snapshots.load_snapshot(channel_id)

    async def delete_snapshots(self) -> None:
        if self._snapshots is not None:
            await self._snapshots.delete_snapshots()

    async def _origin_of(self, channel_id: str, envelopes: Sequence[Envelope]) -> ForkedFrom | None:
        """The origin, also of a fork whose first line is being written."""
        if envelopes and envelopes[0].event_type == EV_CHANNEL_FORKED:
            return _origin_in(envelopes[0])
        return await self.origin(channel_id)

    async def _own(
        self, channel_id: str, origin: ForkedFrom, envelopes: Sequence[Envelope], after: int
    ) -> list[Envelope]:
        """The envelopes as they are kept. An id of the past is taken, as everywhere (E1)."""
        check_append(channel_id, envelopes, after=after)
        if after < origin.seq:
            raise LogConflict(channel_id, after=after, found=origin.seq)
        for envelope in envelopes:
            found = await self.find(origin.channel, envelope.envelope_id)
            if found is not None and found.seq <= origin.seq:
                raise DuplicateEnvelope(channel_id, envelope_id=envelope.envelope_id)
        return [replace(one, seq=one.seq - origin.seq) for one in envelopes]

    async def _numbered_on(self, head: Head) -> Head:
        if head.is_pruned:
            self._origins.pop(head.channel_id, None)
            return head
        try:
            origin = await self.origin(head.channel_id)
        except CorruptRecord:  # Whoever reads the channel is told; whoever lists channels sees it (E5).
            return head
        return head if origin is None else replace(head, seq=head.seq + origin.seq)

    def _remember(self, channel_id: str, first: Envelope) -> None:
        self._origins[channel_id] = _origin_in(first) if first.event_type == EV_CHANNEL_FORKED else None
        if len(self._origins) > _REMEMBERED:
            self._origins.popitem(last=False)


class JoiningForkingLog(ForkingLog):
    """The same around a log that joins transactions: see `JoinsTransactions`."""

    def __init__(self, inner: Log, joins: JoinsTransactions) -> None:
        super().__init__(inner)
        self._joins = joins

    @property
    def database(self) -> SharedDatabase:
        return self._joins.database

    async def append_within(
        self,
        transaction: Transaction,
        channel_id: str,
        envelopes: Sequence[Envelope],
        *,
        after: int,
        row: ChannelRow | None = None,
    ) -> None:
        origin = await self._origin_of(channel_id, envelopes)
        if origin is None:
            await self._joins.append_within(transaction, channel_id, envelopes, after=after, row=row)
            return
        own = await self._own(channel_id, origin, envelopes, after)
        try:
            await self._joins.append_within(transaction, channel_id, own, after=after - origin.seq, row=row)
        except LogConflict as conflict:
            raise _shifted(conflict, after, origin) from conflict


def with_forks(log: Log) -> ForkingLog:
    """Return `log` as one on which forks can be written and read."""
    return JoiningForkingLog(log, log) if isinstance(log, JoinsTransactions) else ForkingLog(log)


def _origin_in(first: Envelope) -> ForkedFrom:
    try:
        return msgspec.convert(first.event_data.get("forked_from"), ForkedFrom)
    except msgspec.ValidationError as error:
        because = f"a {EV_CHANNEL_FORKED!r} that does not say what it is a fork of ({error})"
        raise CorruptRecord(first.channel_id, seq=1, because=because) from error


def _inherited(line: Envelope, channel_id: str, origin: ForkedFrom) -> Envelope:
    """A line of the origin as the fork has it. The first says what the channel is: the fork, from now on."""
    if line.seq > 1:
        return replace(line, channel_id=channel_id)
    said = {"channel_id": channel_id, "forked_from": msgspec.to_builtins(origin)}
    return replace(line, channel_id=channel_id, event_data={**line.event_data, **said})


def _shift_lines(line: Envelope, by: int) -> Envelope:
    """Return a `payload.erased` with the numbers that a fork, or the log below it, gives the lines."""
    if line.event_type != EV_PAYLOAD_ERASED or not by:
        return line
    lines = [[first + by, last + by] for first, last in erased_lines(line)]
    return replace(line, event_data={**line.event_data, "lines": lines})


def _shifted(conflict: LogConflict, after: int, origin: ForkedFrom) -> LogConflict:
    return LogConflict(conflict.channel_id, after=after, found=conflict.found + origin.seq)


@asynccontextmanager
async def reading(lines: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """`lines`, let go of where reading stops early."""
    try:
        yield lines
    finally:
        if isinstance(lines, AsyncGenerator):
            await lines.aclose()
