"""A log that lives as long as the process. For tests, examples and dry runs.

It keeps sealed records, not envelopes, so whatever is read has been through
the codec: what works here works on a disk. Opening it again is using the same
object again: `close` lets go of nothing, and several hubs may share one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Container, Sequence
from datetime import datetime
from itertools import count
from secrets import token_bytes
from threading import Lock

from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow, age, matches
from turnline.core.codec import NO_HASH, SALT_BYTES, Record, erased_lines, seal_all, unseal
from turnline.core.envelope import Envelope
from turnline.errors import ChannelPruned, DuplicateEnvelope, LogConflict, OriginInUse
from turnline.log.base import (
    Bell,
    Blob,
    ChannelEnd,
    Erasures,
    Head,
    Tombstone,
    check_append,
    check_restored,
    closes,
)


def _new_salt() -> bytes:
    return token_bytes(SALT_BYTES)


class MemoryLog:
    """See `turnline.log.base.Log`, `Snapshots` and `Blobs`."""

    address = "memory:"
    durability = "none"
    """It ends with the process."""

    def __init__(self, *, new_salt: Callable[[], bytes] = _new_salt) -> None:
        """`new_salt` returns random bytes for each append; a simulation gives a source of its own."""
        self._new_salt = new_salt
        self.records: dict[str, list[Record]] = {}
        """What is kept, by channel. Public, so that a test can damage it."""
        self._ids: dict[str, dict[str, int]] = {}
        self._heads: dict[str, Head] = {}
        self._appends: list[
            str
        ] = []  # The channel of each append; an append's position is its place, from 1.
        self._rows: dict[str, ChannelRow] = {}
        self._snapshots: dict[str, tuple[int, bytes]] = {}
        self._blobs: dict[str, dict[str, Blob]] = {}
        """Root -> its blobs, by their ids."""
        self.chunks: dict[tuple[str, str, int], bytes] = {}
        """Root, blob id and number -> what is kept. Public for the same reason."""
        self._tombstones: dict[str, Tombstone] = {}
        self._hidden: dict[str, list[Record]] = {}
        """Lines of pruned channels: not deleted yet, or not all of them restored."""
        self._lock = Lock()
        self._bell = Bell()

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        check_append(channel_id, envelopes, after=after)
        with self._lock:
            if row is not None and after == 0 and row.origin in self._tombstones:
                raise ChannelPruned(row.origin)
            if envelopes:
                self._append(channel_id, envelopes, after)
                self._rows.pop(channel_id, None)
            if row is not None:
                self._set_row(channel_id, row, after + len(envelopes))
        if envelopes:
            self._bell.ring()

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        records = self.records.get(channel_id, [])
        previous = records[after - 1].hash if 0 < after <= len(records) else NO_HASH
        erasures = Erasures(channel_id)
        while after < len(records):
            record = records[after]
            after += 1
            envelope = unseal(channel_id, record, previous=previous, seq=after)
            erasures.add(envelope)
            yield envelope
            previous = record.hash
        erasures.check()

    async def find(self, channel_id: str, envelope_id: str) -> Envelope | None:
        seq = self._ids.get(channel_id, {}).get(envelope_id)
        if seq is None:
            return None
        records = self.records[channel_id]
        previous = records[seq - 2].hash if seq > 1 else NO_HASH
        return unseal(channel_id, records[seq - 1], previous=previous, seq=seq)

    async def head(self, channel_id: str) -> Head | None:
        return self._heads.get(channel_id)

    async def channels(
        self, *, closed: bool | None = None, after: str = "", limit: int | None = None
    ) -> list[Head]:
        names = sorted(name for name, head in self._heads.items() if closed is None or head.closed is closed)
        first = bisect_right(names, after)
        return [self._heads[name] for name in names[first:][:limit]]

    async def rows(
        self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
    ) -> list[ChannelRow]:
        found = sorted((row for row in self._rows.values() if matches(row, where)), key=age, reverse=True)
        return [row for row in found if after is None or age(row) < age(after)][:limit]

    async def row(self, channel_id: str) -> ChannelRow | None:
        return self._rows.get(channel_id)

    async def without_row(self, *, after: str = "", limit: int) -> list[str]:
        missing = self._heads.keys() - self._rows.keys()
        return sorted(name for name in missing if name > after and not name.startswith("_"))[:limit]

    async def end(self) -> int:
        return len(self._appends)

    async def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        while True:
            seen = self._bell.rung
            ends = map(self._end, self._appends[after:], count(after + 1))
            new = {head.position: head for head in ends}
            for position in sorted(new):
                yield new[position]
                after = position
            await self._bell.wait(seen)

    async def channel_end(self, channel_id: str) -> ChannelEnd | None:
        return None if channel_id not in self._heads else self._end_of(self._heads[channel_id])

    async def ends(self, *, after: int, limit: int) -> list[ChannelEnd]:
        names = self._heads.keys() & self._appends[after:]
        heads = sorted((self._heads[name] for name in names), key=lambda head: head.position)
        return [self._end_of(head) for head in heads[:limit]]

    async def close(self) -> None:
        """Do nothing: the next hub finds this log as the last one left it."""

    async def erase(
        self,
        channel_id: str,
        note: Envelope,
        *,
        after: int,
        row: ChannelRow | None,
        blobs: Sequence[Blob] = (),
    ) -> None:
        await self.append(channel_id, [note], after=after, row=row)
        records = self.records[channel_id]
        for first, last in erased_lines(note):
            records[first - 1 : last] = [replace(one, payload=None) for one in records[first - 1 : last]]
        self._snapshots.pop(channel_id, None)
        await self.delete_blobs(blobs)

    async def add_blob(self, blob: Blob) -> None:
        self._blobs.setdefault(blob.root, {})[blob.blob_id] = blob

    async def add_chunk(self, blob: Blob, number: int, data: bytes) -> None:
        if blob.blob_id in self._blobs.get(blob.root, {}):
            self.chunks[blob.root, blob.blob_id, number] = bytes(data)

    async def set_blob(self, blob: Blob) -> None:
        if blob.blob_id in self._blobs.get(blob.root, {}):
            self._blobs[blob.root][blob.blob_id] = blob

    async def blobs(self, root: str) -> list[Blob]:
        return list(self._blobs.get(root, {}).values())

    async def count_blobs(self, user_key: str, *, limit: int) -> tuple[int, int]:
        every = (blob for blobs in self._blobs.values() for blob in blobs.values())
        sizes = [blob.size for blob in every if user_key and blob.user_key == user_key][:limit]
        return len(sizes), sum(sizes)

    async def old_blobs(self, *, before: datetime, limit: int) -> list[Blob]:
        every = (blob for blobs in self._blobs.values() for blob in blobs.values())
        old = [blob for blob in every if not blob.is_kept and blob.created_at < before]
        return sorted(old, key=lambda blob: blob.created_at)[:limit]

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        return self.chunks.get((blob.root, blob.blob_id, number))

    async def delete_blobs(self, blobs: Sequence[Blob]) -> None:
        for blob in blobs:
            self._blobs.get(blob.root, {}).pop(blob.blob_id, None)
            for key in [key for key in self.chunks if key[:2] == (blob.root, blob.blob_id)]:
                del self.chunks[key]

    async def finish_erasing(self, channel_id: str) -> None:
        self._snapshots.pop(channel_id, None)

    async def compact(self) -> None:
        """Do nothing: there is no file."""

    async def prune(self, tombstones: Sequence[Tombstone]) -> None:
        with self._lock:
            new = {one.channel_id: one for one in tombstones if one.channel_id not in self._tombstones}
            for one in new.values():
                self._check_prune(one, new)
            for name, one in new.items():
                self._hidden[name] = self.records.pop(name, [])
                for kept in (self._ids, self._heads, self._rows, self._snapshots):
                    kept.pop(name, None)
                self._tombstones[name] = one
                self._appends.append(name)
        self._bell.ring()

    def _check_prune(self, tombstone: Tombstone, others: Container[str]) -> None:
        name, head = tombstone.channel_id, self._heads.get(tombstone.channel_id)
        if head is None:
            return
        if not head.closed or (head.seq, self.records[name][-1].hash) != (tombstone.seq, tombstone.hash):
            raise LogConflict(name, after=tombstone.seq, found=head.seq)
        for row in self._rows.values():
            if row.origin == name and row.channel_id not in others:
                raise OriginInUse(name, fork=row.channel_id)

    async def delete_pruned(self, *, limit: int) -> int:
        with self._lock:
            self._hidden = {name: records for name, records in self._hidden.items() if records}
            records = next(iter(self._hidden.values()), [])
            deleted = len(records[:limit])
            del records[:limit]
            return deleted

    async def tombstone(self, channel_id: str) -> Tombstone | None:
        return self._tombstones.get(channel_id)

    async def tombstones(self, *, after: str = "", limit: int) -> list[Tombstone]:
        names = sorted(name for name in self._tombstones if name > after)
        return [self._tombstones[name] for name in names[:limit]]

    async def restore(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        check_append(channel_id, envelopes, after=after)
        with self._lock:
            records = self._hidden.get(channel_id, [])[:] if after else []
            if len(records) != after:
                raise LogConflict(channel_id, after=after, found=len(records))
            previous = records[-1].hash if records else NO_HASH
            records += seal_all(envelopes, previous, salt=self._new_salt())
            if not check_restored(self._tombstones.get(channel_id), channel_id, records[-1]):
                self._hidden[channel_id] = records
                return
            self._hidden.pop(channel_id, None)
            del self._tombstones[channel_id]
            self._keep(channel_id, records, closed=closes(channel_id, envelopes[-1].event_type))
        self._bell.ring()

    async def replace(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        with self._lock:
            for kept in (self.records, self._ids, self._heads, self._rows, self._snapshots):
                kept.pop(channel_id, None)
        await self.append(channel_id, envelopes, after=0)

    async def save_snapshot(self, channel_id: str, *, seq: int, body: bytes) -> None:
        self._snapshots[channel_id] = (seq, bytes(body))

    async def load_snapshot(self, channel_id: str) -> tuple[int, bytes] | None:
        return self._snapshots.get(channel_id)

    async def delete_snapshots(self) -> None:
        self._snapshots.clear()

    def _end_of(self, head: Head) -> ChannelEnd:
        last = self.records[head.channel_id][head.seq - 1]
        return ChannelEnd(channel_id=head.channel_id, seq=head.seq, hash=last.hash, position=head.position)

    def _set_row(self, channel_id: str, row: ChannelRow, after: int) -> None:
        found = len(self.records.get(channel_id, ()))
        if found != after:
            raise LogConflict(channel_id, after=after, found=found)
        if found:
            self._rows[channel_id] = row

    def _append(self, channel_id: str, envelopes: Sequence[Envelope], after: int) -> None:
        if channel_id in self._tombstones:
            raise ChannelPruned(channel_id)
        records = self.records.get(channel_id, [])
        if len(records) != after:
            raise LogConflict(channel_id, after=after, found=len(records))
        ids, new = self._ids.get(channel_id, {}), set[str]()
        for envelope in envelopes:
            if envelope.envelope_id in ids or envelope.envelope_id in new:
                raise DuplicateEnvelope(channel_id, envelope_id=envelope.envelope_id)
            new.add(envelope.envelope_id)
        previous = records[-1].hash if records else NO_HASH
        added = seal_all(envelopes, previous, salt=self._new_salt())
        # From here on nothing can fail, so all of them are kept, or none were.
        self._keep(channel_id, added, closed=closes(channel_id, envelopes[-1].event_type))

    def _keep(self, channel_id: str, added: list[Record], *, closed: bool) -> None:
        self.records.setdefault(channel_id, []).extend(added)
        self._ids.setdefault(channel_id, {}).update((r.envelope_id, r.seq) for r in added)
        self._appends.append(channel_id)
        self._heads[channel_id] = Head(
            channel_id=channel_id,
            seq=added[-1].seq,
            closed=closed,
            position=len(self._appends),
        )

    def _end(self, channel_id: str, position: int) -> Head:
        """Return where a channel ends that was appended to at `position`, or pruned since."""
        found = self._heads.get(channel_id)
        return found or Head(channel_id=channel_id, seq=0, closed=True, position=position)
