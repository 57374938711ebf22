"""The log in one file: SQLite, from the standard library.

    caller -> Writer (group commit, in the loop or in a thread) -> file <- Reader (a few threads) <- caller

What an append survives is a named choice: `power` (the default) syncs every
commit; `process` leaves the last commits to the operating system, so that they
survive a crash of the program but perhaps not of the machine.

Several processes may use one file at once. Event loops and threads may share
one `SqliteLog`: each caller is answered in the loop it asked from.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from sqlite3 import Connection
from threading import Lock
from typing import Final, TypeVar

from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import unseal
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord, LogUnavailable
from turnline.log import blobs as files, sqlite_reader as queries
from turnline.log.base import Bell, Blob, ChannelEnd, Head, Tombstone, check_append
from turnline.log.joined import SharedDatabase, SqlValue, Transaction, under_savepoint
from turnline.log.listing import micros
from turnline.log.pages import Page, in_order
from turnline.log.sqlite_file import MOUNTS, SQLITE_RAISES, TABLE_NAMES, Durability, LogFile, reason
from turnline.log.sqlite_reader import Reader
from turnline.log.sqlite_work import (
    MAX_DELETED,
    Append,
    Change,
    DeletePruned,
    DeleteSnapshots,
    Erase,
    Prune,
    Replace,
    Restore,
    SaveSnapshot,
    Work,
    add_blob,
    delete_blobs,
)
from turnline.log.sqlite_writer import LOOP_SECONDS, SYNC_FAILURES, Writer, WriterStats

BUSY_TIMEOUT_SECONDS: Final = 10.0
"""How long another process may hold the file before an append gives up."""
POLL_SECONDS: Final = 0.25
"""How often `tail` looks for what other processes appended; this process's own appends wake it at once."""

MAX_OWN_HEADS: Final = 4096
"""Appends that a tail hears of without asking the file. One that is further behind asks."""

T = TypeVar("T")


class _OwnHeads:
    """The last appends of this process, by the position that each of them follows. Used by any thread.

    Positions of a file grow by one, whoever appends. So an append that follows what a tail has told last is
    the next one, and no other process has written in between.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._heads: dict[int, Head] = {}
        self.last = 0
        """The position of the newest."""
        self.looks = 0
        """Grows with every commit that only the file can tell of."""

    def add(self, works: Sequence[Work]) -> bool:
        """Note what works have written. Return whether a tail has to say something."""
        found = [work.heads for work in works]
        with self._lock:
            self.looks += found.count(None)
            for before, head in chain.from_iterable(heads or () for heads in found):
                self._heads[before] = head
                self.last = max(self.last, head.position)
            while len(self._heads) > MAX_OWN_HEADS:
                del self._heads[next(iter(self._heads))]
        return any(heads is None or heads for heads in found)

    def after(self, position: int) -> Head | None:
        """Return what was appended right after `position`; None if only the file can tell."""
        return self._heads.get(position)


class SqliteLog:
    """See `turnline.log.base.Log`, `Snapshots`, `Blobs`, `Erases`, `Prunes` and `JoinsTransactions`.

    Opens the file, or makes it and its folder. Raises `LogUnavailable` for a
    file that is something else, is of another format, cannot be written, or is
    on a network file system.

    While commits take less than `loop_seconds` on average, the event loop makes them itself, without a
    change of threads. A sync that is slow all of a sudden stalls the loop once; the next commits are made
    in a thread until the disk is quick again. With 0 the loop never waits for the disk.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        loop_seconds: float = LOOP_SECONDS,
        mounts: Path = MOUNTS,
    ) -> None:
        file = LogFile(path, durability=durability, busy_timeout_seconds=busy_timeout_seconds, mounts=mounts)
        self.address = file.address
        self.path = file.path
        self.durability: str = file.durability
        self._file = file
        self._poll_seconds = poll_seconds
        self._closed = False
        self._bell = Bell()
        self._reader = Reader(file)
        self._own = _OwnHeads()
        self._tail_queries = 0
        self._writer = Writer(file, committed=self._note, loop_seconds=loop_seconds)

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        check_append(channel_id, envelopes, after=after)
        if envelopes or row is not None:
            await self._writer.submit(Append(channel_id, envelopes, after=after, row=row))

    @property
    def database(self) -> SharedDatabase:
        return SharedDatabase(
            url=f"sqlite:///{self.path.absolute()}",
            prepare=self._file.prepare,
            busy_timeout_seconds=self._file.busy_timeout_seconds,
            tables=TABLE_NAMES,
            turnstile=self._file.turnstile,
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
        if not envelopes or not transaction.has_writes:
            # With nothing to commit beside them, the envelopes may share a commit with others.
            await self.append(channel_id, envelopes, after=after, row=row)
            return
        if self._closed:
            raise LogUnavailable(self.address, because="it has been closed")
        work = Append(channel_id, envelopes, after=after, row=row)
        try:
            await transaction.commit_with(under_savepoint(work.write))
        except SQLITE_RAISES as error:
            if not await self._landed(work, error):
                raise LogUnavailable(self.address, because=reason(error)) from error
        self._note([work])

    def _note(self, works: Sequence[Work]) -> None:
        """Note what was committed, and wake the tails."""
        if self._own.add(works):
            self._bell.ring()

    def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        return in_order(channel_id, self._page, after=after)

    async def find(self, channel_id: str, envelope_id: str) -> Envelope | None:
        with self._damage_is_of(channel_id, seq=0):
            found = await self._reader.ask(
                partial(queries.record_with, channel_id=channel_id, envelope_id=envelope_id)
            )
        if found is None:
            return None
        record, previous = found
        return unseal(channel_id, record, previous=previous, seq=record.seq)

    async def head(self, channel_id: str) -> Head | None:
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
        return await self._ask(partial(queries.row_of, channel_id=channel_id))

    async def without_row(self, *, after: str = "", limit: int) -> list[str]:
        return await self._ask(partial(queries.without_row, after=after, limit=limit))

    async def end(self) -> int:
        return await self._ask(queries.last_position)

    async def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        """See `Log.tail`. Ends when the log is closed.

        Appends of this log are told from memory. The file is asked for those of other processes: now and
        then, and if one of ours does not follow what was told last.
        """
        with self._ends_when_closed():
            pruned, clock = await self._ask(queries.last_tombstone), asyncio.get_running_loop().time
            looks, look_at = -1, 0.0
            while not self._closed:
                seen = self._bell.rung
                while (own := self._own.after(after)) is not None:
                    yield own
                    after = own.position
                if self._own.looks == looks and self._own.last <= after and clock() < look_at:
                    await self._bell.wait(seen, timeout_seconds=look_at - clock())
                    continue
                looks, look_at = self._own.looks, clock() + self._poll_seconds
                self._tail_queries += 1
                heads = await self._ask(partial(queries.heads_by_position, after=after))
                for number, channel_id in await self._ask(partial(queries.pruned_since, after=pruned)):
                    yield Head(channel_id=channel_id, seq=0, closed=True, position=after)
                    pruned = number
                for head in heads:
                    yield head
                    after = head.position
                if heads:  # There may be another page.
                    look_at = 0.0

    async def channel_end(self, channel_id: str) -> ChannelEnd | None:
        return await self._ask(partial(queries.end_of, channel_id=channel_id))

    async def ends(self, *, after: int, limit: int) -> list[ChannelEnd]:
        return await self._ask(partial(queries.ends_by_position, after=after, limit=limit))

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._reader.close)
        self._bell.ring()

    def stats(self) -> WriterStats:
        """Return what the writer has done, and why it cannot write if it cannot."""
        return replace(self._writer.stats(), tail_queries=self._tail_queries)

    @property
    def outage(self) -> str:
        """See `TellsOutage`."""
        return self.stats().read_only

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
        await self._writer.submit(Erase(channel_id, note, after=after, row=row, blobs=blobs))

    async def add_blob(self, blob: Blob) -> None:
        await self._writer.submit(add_blob(blob), is_urgent=False)

    async def add_chunk(self, blob: Blob, number: int, data: bytes) -> None:
        place = (number, blob.root, blob.blob_id)
        await self._change(files.ADD_CHUNK, (number, data, blob.root, blob.blob_id), files.CHUNK, place)

    async def set_blob(self, blob: Blob) -> None:
        values = (blob.digest, blob.size, int(blob.is_kept), blob.root, blob.blob_id)
        await self._change(files.SET, values, files.HAS_SET, values)

    async def blobs(self, root: str) -> list[Blob]:
        return await self._ask(partial(queries.blobs, query=files.OF_ROOT, values=(root,)))

    async def count_blobs(self, user_key: str, *, limit: int) -> tuple[int, int]:
        return await self._ask(partial(queries.count_blobs, user_key=user_key, limit=limit))

    async def old_blobs(self, *, before: datetime, limit: int) -> list[Blob]:
        return await self._ask(partial(queries.blobs, query=files.OLD, values=(micros(before), limit)))

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        return await self._ask(partial(queries.chunk, blob=blob, number=number))

    async def delete_blobs(self, blobs: Sequence[Blob]) -> None:
        for blob in blobs:  # Each in a transaction of its own: an append between two of them does not wait.
            await self._writer.submit(delete_blobs([blob]), is_urgent=False)

    async def _change(
        self, query: str, values: Sequence[SqlValue], landed: str, of: Sequence[SqlValue]
    ) -> None:
        await self._writer.submit(Change((query, values), landed=(landed, of)), is_urgent=False)

    async def finish_erasing(self, channel_id: str) -> None:
        """Delete the snapshot; the lines are erased in the transaction of their note."""
        await self._writer.submit(DeleteSnapshots(channel_id))

    async def replace(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        check_append(channel_id, envelopes, after=0)
        await self._writer.submit(Replace(channel_id, envelopes))

    async def compact(self) -> None:
        await asyncio.to_thread(self._file.compact)

    async def prune(self, tombstones: Sequence[Tombstone]) -> None:
        await self._writer.submit(Prune(tombstones))

    async def delete_pruned(self, *, limit: int) -> int:
        work = DeletePruned(min(limit, MAX_DELETED))
        await self._writer.submit(work)
        return work.deleted

    async def tombstone(self, channel_id: str) -> Tombstone | None:
        return await self._ask(partial(queries.tombstone_of, channel_id=channel_id))

    async def tombstones(self, *, after: str = "", limit: int) -> list[Tombstone]:
        return await self._ask(partial(queries.tombstones, after=after, limit=limit))

    async def restore(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        check_append(channel_id, envelopes, after=after)
        await self._writer.submit(Restore(channel_id, envelopes, after=after))

    async def save_snapshot(self, channel_id: str, *, seq: int, body: bytes) -> None:
        await self._writer.submit(SaveSnapshot(channel_id, seq=seq, body=body))

    async def load_snapshot(self, channel_id: str) -> tuple[int, bytes] | None:
        return await self._ask(partial(queries.snapshot_of, channel_id=channel_id))

    async def delete_snapshots(self) -> None:
        await self._writer.submit(DeleteSnapshots())

    async def _page(self, channel_id: str, after: int) -> Page:
        with self._damage_is_of(channel_id, seq=after + 1):
            return await self._reader.ask(partial(queries.page, channel_id=channel_id, after=after))

    async def _landed(self, work: Append, failure: Exception) -> bool:
        """Whether a commit that failed is there all the same; a failed sync never counts as one."""
        if getattr(failure, "sqlite_errorcode", 0) in SYNC_FAILURES:
            return False
        try:
            return await self._reader.ask(work.landed)
        except (*SQLITE_RAISES, LogUnavailable):
            return False

    async def _ask(self, query: Callable[[Connection], T]) -> T:
        try:
            return await self._reader.ask(query)
        except SQLITE_RAISES as error:
            because = reason(error)
            if queries.is_damage(error):
                because += (
                    "; its index is made anew when the table `turnline_heads` is dropped and the log opened"
                )
            raise LogUnavailable(self.address, because=because) from error

    @contextmanager
    def _ends_when_closed(self) -> Iterator[None]:
        try:
            yield
        except LogUnavailable:
            if not self._closed:
                raise

    @contextmanager
    def _damage_is_of(self, channel_id: str, *, seq: int) -> Iterator[None]:
        """Blame damage met here on one channel, so that it costs no other (E5)."""
        try:
            yield
        except SQLITE_RAISES as error:
            if queries.is_damage(error):
                raise CorruptRecord(channel_id, seq=seq, because=reason(error)) from error
            raise LogUnavailable(self.address, because=reason(error)) from error
