"""The log in a PostgreSQL database, for many processes at once: psycopg 3.

    caller -> Writer (two lanes, group commit) -> server <- Reader (a few connections) <- caller

What an append survives is asked of the server, on every new connection: `power` if it syncs before
it answers, `process` otherwise (the crash of this program, but perhaps not that of the server's
machine).

Any number of processes may use one database. One `PostgresLog` belongs to the event loop that uses
it first. It talks to the primary itself: a pooler that gives out connections by the transaction
forgets their settings.

An outage is a `LogUnavailable` for whoever asks meanwhile. The log goes on with the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Final, TypeVar, cast

import psycopg

from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import erased_lines, unseal
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord, LogUnavailable
from turnline.log import postgres_prune as pruning, postgres_reader as queries
from turnline.log.base import Bell, Blob, ChannelEnd, Head, Tombstone, check_append
from turnline.log.joined import SharedDatabase, Statements, Transaction, under_savepoint
from turnline.log.listing import micros
from turnline.log.pages import NOTHING, Page, in_order
from turnline.log.postgres_bell import PostgresBell
from turnline.log.postgres_joined import COMPACTED, PREPARE, JoinedAppend
from turnline.log.postgres_reader import DAMAGE, Query, Reader
from turnline.log.postgres_schema import TABLE_NAMES
from turnline.log.postgres_server import ANSWER_SECONDS, PostgresServer
from turnline.log.postgres_work import Ends, check_names, is_name
from turnline.log.postgres_writer import Writer, WriterStats

POLL_SECONDS: Final = 0.25
"""How often `tail` looks for what other processes appended; a notice of theirs wakes it sooner."""

T = TypeVar("T")


class PostgresLog:
    """See `turnline.log.base.Log`, `Snapshots`, `Blobs`, `Erases`, `Prunes` and `JoinsTransactions`.

    Connects, and makes the tables if there are none. Raises `LogUnavailable` for a server that does
    not answer or lets nobody in, a standby, and tables that are something else or of another format.
    """

    def __init__(self, address: str, *, poll_seconds: float = POLL_SECONDS) -> None:
        self.durability = "none"
        self._server = PostgresServer(address, checked=self._take_note)
        self.address = self._server.address
        self._poll_seconds = poll_seconds
        self._closed = False
        self._bell = Bell()
        self._others = PostgresBell(self._server, self._bell)
        self._reader = Reader(self._server)
        self._ends = Ends()
        self._blob_lane = asyncio.Lock()
        """Chunks go one at a time on one connection, beside the lanes of appends: no append waits for one."""
        self._writer = Writer(self._server, self._ends, committed=self._committed)

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        check_append(channel_id, envelopes, after=after)
        check_names(channel_id, envelopes)
        if envelopes or row is not None:
            await self._writer.submit(channel_id, envelopes, after=after, row=row)

    @property
    def database(self) -> SharedDatabase:
        return SharedDatabase(
            url=self._server.url, prepare=PREPARE, busy_timeout_seconds=ANSWER_SECONDS, tables=TABLE_NAMES
        )

    async def append_within(
        self,
        transaction: Transaction,
        channel_id: str,
        envelopes: Sequence[Envelope],
        *,
        after: int,
        row: ChannelRow | None = None,
    ) -> None:
        check_append(channel_id, envelopes, after=after)
        check_names(channel_id, envelopes)
        if not envelopes or not transaction.has_writes:
            # With nothing to commit beside them, the envelopes may share a commit with others.
            await self.append(channel_id, envelopes, after=after, row=row)
            return
        if self._closed:
            raise LogUnavailable(self.address, because="it has been closed")
        work = JoinedAppend(channel_id, envelopes, after=after, row=row, ends=self._ends)
        try:
            await transaction.commit_with(under_savepoint(work.write))
        except psycopg.Error as error:
            if not await self._landed(work):
                raise self._server.unavailable(error) from None
        work.committed()
        self._committed()

    async def erase(
        self,
        channel_id: str,
        note: Envelope,
        *,
        after: int,
        row: ChannelRow | None,
        blobs: Sequence[Blob] = (),
    ) -> None:
        check_append(channel_id, [note], after=after)
        work = JoinedAppend(channel_id, [note], after=after, row=row, ends=self._ends)
        await self._alone(work, partial(work.erase, lines=erased_lines(note), blobs=blobs))
        work.committed()

    async def replace(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        check_append(channel_id, envelopes, after=0)
        work = JoinedAppend(channel_id, envelopes, after=0, row=None, ends=self._ends)
        await self._alone(work, work.replace)
        if envelopes:
            work.committed()

    async def _alone(self, work: JoinedAppend, do: Callable[[Statements], None]) -> None:
        """Do something in a transaction of its own."""

        def run() -> None:
            with psycopg.connect(self._server.url) as connection:
                for statement in PREPARE:
                    connection.execute(statement)
                do(cast("Statements", connection))  # Only SQLite asks for `lastrowid`.

        try:
            await asyncio.to_thread(run)
        except psycopg.Error as error:
            if not await self._landed(work):
                raise self._server.unavailable(error) from None
        self._committed()

    async def prune(self, tombstones: Sequence[Tombstone]) -> None:
        for one in tombstones:
            check_names(one.channel_id, ())
        await self._ask(partial(pruning.prune, tombstones=tombstones))
        self._committed()

    async def delete_pruned(self, *, limit: int) -> int:
        return await self._ask(partial(pruning.delete_pruned, limit=limit))

    async def tombstone(self, channel_id: str) -> Tombstone | None:
        if not is_name(channel_id):
            return None
        return await self._ask(partial(queries.tombstone_of, channel_id=channel_id))

    async def tombstones(self, *, after: str = "", limit: int) -> list[Tombstone]:
        return await self._ask(partial(queries.tombstones, after=after, limit=limit))

    async def restore(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        check_append(channel_id, envelopes, after=after)
        check_names(channel_id, envelopes)
        work = partial(pruning.restore, channel_id=channel_id, envelopes=envelopes, after=after)
        await self._ask(work)
        self._committed()

    async def compact(self) -> None:
        """Write the tables again without what was deleted. Nobody can use the log meanwhile."""
        try:
            await asyncio.to_thread(self._compact)
        except psycopg.Error as error:
            raise self._server.unavailable(error) from None

    def _compact(self) -> None:
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            for name in COMPACTED:
                connection.execute(f"VACUUM (FULL) turnline_{name}")
            connection.execute("CHECKPOINT")

    def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        return in_order(channel_id, self._page, after=after)

    async def find(self, channel_id: str, envelope_id: str) -> Envelope | None:
        if not (is_name(channel_id) and is_name(envelope_id)):
            return None
        with self._damage_is_of(channel_id, seq=0):
            found = await self._reader.ask(
                partial(queries.record_with, channel_id=channel_id, envelope_id=envelope_id)
            )
        if found is None:
            return None
        record, previous = found
        return unseal(channel_id, record, previous=previous, seq=record.seq)

    async def head(self, channel_id: str) -> Head | None:
        if not is_name(channel_id):
            return None
        return await self._ask(partial(queries.head_of, channel_id=channel_id))

    async def channels(
        self, *, closed: bool | None = None, after: str = "", limit: int | None = None
    ) -> list[Head]:
        return await self._ask(partial(queries.heads_by_name, closed=closed, after=after, limit=limit))

    async def rows(
        self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
    ) -> list[ChannelRow]:
        return await self._ask(partial(queries.rows, where=where, after=after, limit=limit))

    async def row(self, channel_id: str) -> ChannelRow | None:
        if not is_name(channel_id):
            return None
        return await self._ask(partial(queries.row_of, channel_id=channel_id))

    async def without_row(self, *, after: str = "", limit: int) -> list[str]:
        return await self._ask(partial(queries.without_row, after=after, limit=limit))

    async def end(self) -> int:
        return await self._ask(queries.horizon)

    async def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        """See `Log.tail`. Waits through an outage; ends when the log is closed."""
        while not self._closed:
            self._others.listen()
            seen = self._bell.rung
            heads = await self._heads_behind(after)
            for head in heads:
                yield head
                after = head.position
            if not heads:
                await self._bell.wait(seen, timeout_seconds=self._poll_seconds)

    async def channel_end(self, channel_id: str) -> ChannelEnd | None:
        return await self._ask(partial(queries.end_of, channel_id=channel_id))

    async def ends(self, *, after: int, limit: int) -> list[ChannelEnd]:
        return await self._ask(partial(queries.ends_by_position, after=after, limit=limit))

    async def close(self) -> None:
        self._closed = True
        try:
            await self._writer.close()
        finally:  # Whoever waits for it may have no more time; its connections end all the same.
            await self._others.close()
            await self._server.close()
            self._bell.ring()

    def stats(self) -> WriterStats:
        """Return what the writer has done, and why it cannot write if it cannot."""
        return self._writer.stats()

    @property
    def outage(self) -> str:
        """See `TellsOutage`."""
        return self.stats().unavailable

    async def save_snapshot(self, channel_id: str, *, seq: int, body: bytes) -> None:
        await self._ask(partial(queries.save_snapshot, channel_id=channel_id, seq=seq, body=body))
        self._writer.note_written()

    async def load_snapshot(self, channel_id: str) -> tuple[int, bytes] | None:
        if not is_name(channel_id):
            return None
        return await self._ask(partial(queries.snapshot_of, channel_id=channel_id))

    async def delete_snapshots(self) -> None:
        await self._ask(queries.delete_snapshots)

    async def finish_erasing(self, channel_id: str) -> None:
        """Delete the snapshot; the lines are erased in the transaction of their note."""
        await self._ask(partial(queries.delete_snapshots, channel_id=channel_id))

    async def add_blob(self, blob: Blob) -> None:
        await self._change(partial(queries.add_blob, blob=blob))

    async def add_chunk(self, blob: Blob, number: int, data: bytes) -> None:
        await self._change(partial(queries.add_chunk, blob=blob, number=number, data=data))

    async def set_blob(self, blob: Blob) -> None:
        await self._change(partial(queries.set_blob, blob=blob))

    async def blobs(self, root: str) -> list[Blob]:
        return await self._ask(partial(queries.blobs, query=queries.OF_ROOT, values=(root,)))

    async def count_blobs(self, user_key: str, *, limit: int) -> tuple[int, int]:
        return await self._ask(partial(queries.count_blobs, user_key=user_key, limit=limit))

    async def old_blobs(self, *, before: datetime, limit: int) -> list[Blob]:
        return await self._ask(partial(queries.blobs, query=queries.OLD, values=(micros(before), limit)))

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        return await self._ask(partial(queries.chunk, blob=blob, number=number))

    async def delete_blobs(self, blobs: Sequence[Blob]) -> None:
        for blob in blobs:
            await self._change(partial(queries.delete_blob, blob=blob))

    async def _change(self, query: Query[None]) -> None:
        async with self._blob_lane:
            await self._ask(query)

    async def _page(self, channel_id: str, after: int) -> Page:
        if not is_name(channel_id):
            return NOTHING
        with self._damage_is_of(channel_id, seq=after + 1):
            return await self._reader.ask(partial(queries.page, channel_id=channel_id, after=after))

    async def _landed(self, work: JoinedAppend) -> bool:
        """Whether a commit without an answer is there. Raises `LogUnavailable` if nobody can say."""
        try:
            return await work.landed(self._server)
        except psycopg.Error as error:
            raise self._server.unavailable(error) from None

    async def _heads_behind(self, after: int) -> list[Head]:
        try:
            return await self._ask(partial(queries.heads_by_position, after=after))
        except LogUnavailable:
            return []

    async def _ask(self, query: Query[T]) -> T:
        try:
            return await self._reader.ask(query)
        except psycopg.Error as error:
            raise self._server.unavailable(error) from None

    def _committed(self) -> None:
        self._bell.ring()
        self._others.tell()

    def _take_note(self, durability: str) -> None:
        self.durability = durability

    @contextmanager
    def _damage_is_of(self, channel_id: str, *, seq: int) -> Iterator[None]:
        """Blame damage met here on one channel, so that it costs no other (E5)."""
        try:
            yield
        except DAMAGE as error:
            raise CorruptRecord(channel_id, seq=seq, because=self._server.reason(error)) from None
        except psycopg.Error as error:
            raise self._server.unavailable(error) from None
