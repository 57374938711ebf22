"""What one process knows of a channel on a `NatsLog`: where its appends are, and its envelopes' ids.

The server compares the position a writer names with the subject's last one, and
takes an append only if they are equal. So a `Channel` that was caught up with
that position knows every id the channel has, and an append that lands cannot
repeat one: no index of ids has to be kept on the servers. It costs reading the
headers of a channel once in each process that appends to it, and no question
at all after that while nobody else writes to it.

Rule: a `Channel` may be behind the servers, never beside them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core.codec import NO_HASH
from turnline.errors import ChannelPruned, CorruptRecord
from turnline.log.nats_keys import ChannelKeys
from turnline.log.nats_message import (
    RESTORING,
    TOMBSTONE,
    Message,
    Summary,
    erased_in,
    restarts,
    summary_of,
    unpack,
)
from turnline.log.nats_reader import Reader

SHORT: Final = 16
"""Messages asked for one by one; more are told by a scan."""


class Place(Struct, frozen=True):
    """One append of a channel."""

    first: int
    last: int
    position: int


class Channel:
    """A channel as far as it has been read."""

    def __init__(self, channel_id: str, subject: str, keys: ChannelKeys) -> None:
        self.channel_id = channel_id
        self.keys = keys
        self.subject = subject
        self.places: list[Place] = []
        self.ids: dict[str, int] = {}
        """Envelope id -> the position of its append."""
        self.hash = NO_HASH
        self.closed = False
        self.is_pruned = False
        self._start = 0
        """The position of the tombstone that the lines come after; 0 if there was none."""
        self.note = 0
        """The last `payload.erased`; 0 if there is none."""
        self.erased: set[int] = set()
        """The lines whose content is erased, whether or not their keys are destroyed already."""
        self.damage: CorruptRecord | None = None
        """Why nothing behind the last place is known."""
        self.appending = asyncio.Lock()
        self._reading = asyncio.Lock()

    @property
    def seq(self) -> int:
        return self.places[-1].last if self.places else 0

    @property
    def position(self) -> int:
        return self.places[-1].position if self.places else self._start

    def since(self, after: int) -> list[Place]:
        """Return the appends that hold what is behind the seq `after`."""
        return self.places[bisect_right(self.places, after, key=lambda place: place.last) :]

    def behind(self, position: int) -> Place | None:
        """Return the first append behind `position`."""
        found = bisect_right(self.places, position, key=lambda place: place.position)
        return self.places[found] if found < len(self.places) else None

    def undamaged(self) -> None:
        """Raise what is wrong with the channel, if anything is."""
        if self.damage is not None:
            raise self.damage

    def unpruned(self) -> None:
        """Raise `ChannelPruned` if only the channel's tombstone is left."""
        if self.is_pruned:
            raise ChannelPruned(self.channel_id)

    def forget(self, start: int = 0) -> None:
        """Forget all lines; those that are there come after the position `start`."""
        self.places, self.ids, self.hash = [], {}, NO_HASH
        self.closed, self.is_pruned, self._start = False, False, start
        self.note, self.erased = 0, set()
        self.keys.forget()

    async def landed(self, told: Summary, *, position: int, behind: int, is_pruned: bool) -> None:
        """Note this process's own append, unless it has been read back already."""
        async with self._reading:
            if self.position == behind:
                self._add(told, position)
                self.is_pruned = is_pruned

    async def catch_up(self, reader: Reader) -> dict[int, Message]:
        """Read up to what the leader has. Return the messages that were read whole, by position."""
        async with self._reading:
            last = await reader.last(self.subject)
            if last is None or last.position <= self.position:
                return {}
            whole: dict[int, Message] = {}
            self.damage = None
            async for message in self._up_to(last, reader, whole):
                if restarts(message):
                    self._restart()
                if self.damage is None:  # After damage only a restart counts, if there is one.
                    await self._learn(message, reader)
                elif not self.channel_id.startswith("_"):
                    break
            return whole

    def _restart(self) -> None:
        self.places, self.ids, self.hash, self.damage = [], {}, NO_HASH, None

    async def _up_to(
        self, last: Message, reader: Reader, whole: dict[int, Message]
    ) -> AsyncIterator[Message]:
        """Yield what is new, `last` at the end. A few are asked of the leader, many are scanned."""
        for _ in range(SHORT):
            message = last if self._is_next(last) else await self._following(reader)
            if message is None or message.position >= last.position:
                message = last
            whole[message.position] = message
            yield message
            if message is last:
                return
        headers = reader.scan(self.subject, after=self.position, headers_only=True)
        async for message in reader.up_to(last.position, headers):
            yield message

    async def _following(self, reader: Reader) -> Message | None:
        return await reader.following(self.subject, after=self.position)

    def _is_next(self, message: Message) -> bool:
        try:
            return summary_of(message).first == self.seq + 1
        except ValueError:
            return False

    async def _learn(self, message: Message, reader: Reader) -> None:
        if TOMBSTONE in message.headers:
            self.forget(message.position)
            self.is_pruned = True
            return
        seq = self.seq + 1
        try:
            told = summary_of(message)
            if told.first == 1 and self.places:  # It was pruned and restored since.
                self.forget(self._start)
                seq = 1
        except ValueError as error:
            self.damage = CorruptRecord(self.channel_id, seq=seq, because=str(error))
            return
        if told.first != seq:
            because = f"it is missing; the next one found is {told.first}"
            self.damage = CorruptRecord(self.channel_id, seq=seq, because=because)
            return
        if told.ids is None or told.erased is None:
            told = await self._from_payload(told, message, reader)
        self._add(told, message.position)
        self.is_pruned = RESTORING in message.headers

    async def _from_payload(self, told: Summary, message: Message, reader: Reader) -> Summary:
        """Return what the headers say with what is too long for them."""
        found = message if message.payload else await reader.at(message.position)
        try:
            _, records = unpack(self.channel_id, found or message, seq=told.first)
            erased = erased_in(records)
        except (CorruptRecord, ValueError):
            return told  # Its ids are lost with it; whoever reads it is told.
        return replace(told, ids=tuple(record.envelope_id for record in records), erased=erased)

    def _add(self, told: Summary, position: int) -> None:
        self.places.append(Place(told.first, told.last, position))
        self.ids.update((envelope_id, position) for envelope_id in told.ids or ())
        self.hash = told.hash
        self.closed = told.closed
        for note, first, last in told.erased or ():
            self.note = max(self.note, min(note, told.last))
            begin, end = max(first, 1), min(last, told.last)
            self.erased.update(range(begin, end + 1))
            self.keys.note_erased(min(note, told.last), begin, end)
