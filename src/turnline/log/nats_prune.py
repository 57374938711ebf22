"""Pruning on a `NatsLog` (Y3).

    marks in the index -> tombstone on the channel's subject, after its last message -> purge before it

The server takes the tombstone only if the channel ends where it was looked at. It stays as the subject's last
message: without one, the expected sequence would be 0 again, and a late writer could begin the channel again.

Restored lines come after the tombstone. Until the last part is there, each says that others follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from msgspec import Struct

from turnline.errors import LogConflict, OriginInUse
from turnline.log.base import Tombstone, write_tombstone
from turnline.log.nats_connection import NATS_RAISES, Answer, Connection, Refused, reason
from turnline.log.nats_index import Index
from turnline.log.nats_message import (
    EXPECTED_POSITION,
    EXPECTED_STREAM,
    MESSAGE_ID,
    TOMBSTONE,
    is_hidden,
    summary_of,
    token,
)
from turnline.log.nats_reader import Reader
from turnline.log.nats_rows import RowCache

PAGE: Final = 500


class _Plan(Struct, frozen=True):
    """A tombstone, and the position that it comes after."""

    tombstone: Tombstone
    after: int


class Pruning:
    """Prunes channels of one log, in one event loop."""

    def __init__(self, connection: Connection, reader: Reader, index: Index, rows: RowCache) -> None:
        self._connection = connection
        self._reader = reader
        self._index = index
        self._rows = rows

    async def prune(self, tombstones: Sequence[Tombstone]) -> None:
        """See `Prunes.prune`."""
        names = {one.channel_id for one in tombstones}
        forks = await self._rows.forks()
        plans = [plan for one in tombstones if (plan := await self._plan(one)) is not None]
        for plan in plans:
            fork = forks.get(plan.tombstone.channel_id)
            if fork is not None and fork not in names:
                raise OriginInUse(plan.tombstone.channel_id, fork=fork)
        for plan in plans:
            await self._bury(plan)

    async def _plan(self, one: Tombstone) -> _Plan | None:
        last = await self._reader.last(self._subject(one.channel_id))
        if last is None:
            return _Plan(one, 0)
        if is_hidden(last):
            return None
        told = summary_of(last)
        if (told.last, told.hash, told.closed) != (one.seq, one.hash, True):
            raise LogConflict(one.channel_id, after=one.seq, found=told.last)
        return _Plan(one, last.position)

    async def _bury(self, plan: _Plan) -> None:
        channel_id = plan.tombstone.channel_id
        await self._index.save_tombstone(plan.tombstone)
        if plan.after:
            await self._index.note_undeleted(channel_id)
        if await self._publish(plan) is None:
            raise LogConflict(channel_id, after=plan.tombstone.seq, found=plan.tombstone.seq + 1)
        await self._index.forget(channel_id)

    async def _publish(self, plan: _Plan) -> int | None:
        """Write a tombstone and return its position; None if the channel does not end there any more."""
        subject = self._subject(plan.tombstone.channel_id)
        headers = {
            TOMBSTONE: "yes",
            MESSAGE_ID: f"{token(plan.tombstone.channel_id)}:pruned:{uuid4().hex}",
            EXPECTED_POSITION: str(plan.after),
            EXPECTED_STREAM: self._reader.stream,
        }
        patience = self._connection.patience()
        while True:
            try:
                return (await self._connection.publish(subject, write_tombstone(plan.tombstone), headers)).seq
            except Refused as refused:
                because = str(refused)
            except NATS_RAISES as error:
                because = reason(error)
            last = await self._reader.last(subject)
            if last is not None and last.headers.get(MESSAGE_ID) == headers[MESSAGE_ID]:
                return last.position
            if (0 if last is None else last.position) != plan.after:
                return None
            await patience.pause(because)

    async def delete_pruned(self) -> int:
        """Delete what is left of one pruned channel; return how many lines it had."""
        for channel_id in await self._index.undeleted_channels():
            deleted = await self.clear(channel_id)
            await self._index.note_deleted(channel_id)
            if deleted:
                return deleted
        return 0

    async def clear(self, channel_id: str) -> int:
        """Delete every message of a pruned channel but its tombstone. Return how many lines there were."""
        last = await self._reader.last(self._subject(channel_id))
        tombstone = await self._index.tombstone(channel_id)
        if last is None or not is_hidden(last) or tombstone is None:
            return 0  # Its tombstone was never written, or it was restored.
        lines = tombstone.seq
        position: int | None = last.position
        if TOMBSTONE not in last.headers:
            lines = summary_of(last).last
            position = await self._publish(_Plan(tombstone, last.position))
        if position is not None:
            await self.purge(channel_id, before=position)
        return lines

    async def purge(self, channel_id: str, *, before: int) -> None:
        """Delete the messages of a channel before a position."""
        request = {"filter": self._subject(channel_id), "seq": before}
        try:
            await self._connection.ask(f"STREAM.PURGE.{self._reader.stream}", request, Answer)
        except Refused as refused:
            raise self._connection.unavailable(str(refused)) from refused

    async def tombstone(self, channel_id: str) -> Tombstone | None:
        """See `Prunes.tombstone`."""
        if not is_hidden(await self._reader.last(self._subject(channel_id))):
            return None
        return await self._index.tombstone(channel_id)

    async def tombstones(self, *, after: str, limit: int) -> list[Tombstone]:
        """See `Prunes.tombstones`."""
        names = [name for name in await self._index.pruned_channels() if name > after]
        found: list[Tombstone] = []
        for first in range(0, len(names), PAGE):
            for name in await self._hidden(names[first : first + PAGE]):
                one = await self._index.tombstone(name)
                found += [] if one is None else [one]
                if len(found) >= limit:
                    return found
        return found

    async def _hidden(self, names: Sequence[str]) -> list[str]:
        """Return those that are pruned; the index may name others."""
        subjects = {self._subject(name): name for name in names}
        last = await self._reader.last_of_each(list(subjects))
        return sorted(subjects[one.subject] for one in last if is_hidden(one))

    async def finish_restore(self, channel_id: str, *, first: int) -> None:
        """Forget the tombstone of a channel whose lines are there again, the first of them at `first`."""
        await self._index.drop_tombstone(channel_id)
        await self._index.note_deleted(channel_id)
        await self.purge(channel_id, before=first)

    def _subject(self, channel_id: str) -> str:
        return f"{self._reader.stream}.{token(channel_id)}"
