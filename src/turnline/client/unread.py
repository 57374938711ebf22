"""What a person has not pulled yet, of all channels.

    put -> [ at most UNREAD_ENVELOPES envelopes, and UNREAD_BYTES ] -> get
       \\-> a place per channel -> read again from the log, once there is room

Rule 1: `put` never waits. Somebody who never pulls costs a place per channel: no task, no envelopes.

Rule 2: a channel that has a place is read on from there, and from nowhere else, until it has caught up: what
is pulled of one channel comes in order, each envelope once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

from turnline.core.envelope import Envelope
from turnline.core.json import size_of
from turnline.core.views import concerns
from turnline.errors import TurnlineError
from turnline.hub.retry import retry
from turnline.hub.seat import Reading
from turnline.log.base import Bell

logger = logging.getLogger(__name__)

UNREAD_ENVELOPES: Final = 1000
"""Envelopes buffered per person. Beyond this only the place is kept, and the rest is read from the log."""
UNREAD_BYTES: Final = 1024 * 1024
"""Data buffered per person. The envelope that passes it is the last one."""


class Source(Protocol):
    """What is needed of a seat."""

    @property
    def agent_id(self) -> str: ...

    def read(self, channel_id: str, after: int) -> Awaitable[Reading]: ...

    async def sleep(self, seconds: float) -> None: ...


class Unread:
    """Envelopes that wait to be pulled, in memory as far as there is room."""

    def __init__(
        self,
        source: Callable[[], Source],
        *,
        room: int = UNREAD_ENVELOPES,
        room_bytes: int = UNREAD_BYTES,
    ) -> None:
        self._source = source
        self._room = room
        self._room_bytes = room_bytes
        self._waiting: deque[tuple[Envelope, int]] = deque()
        """Envelopes, and the bytes of their data."""
        self._bytes = 0
        self._bell = Bell()
        self._error: TurnlineError | None = None
        self._places: dict[str, tuple[int, int]] = {}
        """Channel -> behind which line it is to be read again, and up to which one."""
        self._refilling: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._places or self._waiting)

    @property
    def in_memory(self) -> int:
        """How many envelopes are held; never more than there is room for."""
        return len(self._waiting)

    @property
    def _has_room(self) -> bool:
        return self.in_memory < self._room and self._bytes < self._room_bytes

    def put(self, envelope: Envelope) -> None:
        """Take in an envelope, or its place."""
        place = self._places.get(envelope.channel_id)
        if place is None and self._has_room:
            self._add(envelope)
            return
        behind = envelope.seq - 1 if place is None else place[0]
        self._places[envelope.channel_id] = behind, envelope.seq

    async def get(self) -> Envelope:
        """Return the next one; wait for it if there is none. Raises what `end` was given, after the last."""
        while not self._waiting:
            if self._error is not None:
                raise self._error
            await self._bell.wait(self._bell.rung)
        envelope, size = self._waiting.popleft()
        self._bytes -= size
        is_half_empty = self.in_memory <= self._room // 2 and self._bytes <= self._room_bytes // 2
        if self._places and is_half_empty and self._refilling is None:
            self._refilling = asyncio.create_task(self._refill())
        return envelope

    def end(self, error: TurnlineError) -> None:
        """Wake everybody who waits with `error`: no more is put."""
        self._error = self._error or error
        self._bell.ring()

    async def stop(self) -> None:
        """Read nothing more."""
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)

    async def _refill(self) -> None:
        try:
            while self._places and self._has_room:
                await self._read_on(next(iter(self._places)))
        finally:
            self._refilling = None

    async def _read_on(self, channel_id: str) -> None:
        source, (behind, _) = self._source(), self._places[channel_id]
        read = partial(source.read, channel_id, behind)
        try:
            reading = await retry(source, read, f"{channel_id} is not read")
        except TurnlineError as error:
            logger.warning("reading channel %s stopped: %s", channel_id, error)
            del self._places[channel_id]
            return
        self._take(channel_id, reading)

    def _add(self, envelope: Envelope) -> None:
        size = size_of(envelope.event_data)
        self._waiting.append((envelope, size))
        self._bytes += size
        self._bell.ring()

    def _take(self, channel_id: str, reading: Reading) -> None:
        """Take in what there is room for, and move the channel's place behind it."""
        behind, up_to = self._places[channel_id]
        known = [one for one in reading.envelopes if one.seq <= up_to]  # What is beyond is still to be put.
        taken = list[Envelope]()
        for envelope in known:
            if not self._has_room:
                break
            taken.append(envelope)
            if concerns(envelope, self._source().agent_id):
                self._add(envelope)
        if len(taken) == len(known):
            behind = max(behind, reading.seq)
        elif taken:
            behind = taken[-1].seq
        if behind >= up_to:
            del self._places[channel_id]
        else:
            self._places[channel_id] = behind, up_to
