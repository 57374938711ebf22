"""What a `SqliteLog` writes: one class for each kind of write.

A piece of work is done inside a savepoint of the writer's transaction. It
raises a `LogError` to be undone alone; the others of its batch go on. After a
COMMIT whose outcome is unknown, `landed` says which side of it the file is on.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from secrets import token_bytes
from typing import Final, NamedTuple, Protocol

from turnline.core.channel import ChannelRow
from turnline.core.codec import NO_HASH, SALT_BYTES, Record, erased_lines, pack_id, seal_all
from turnline.core.envelope import Envelope
from turnline.core.json import MAX_BYTES, size_of
from turnline.errors import ChannelPruned, CorruptRecord, DuplicateEnvelope, LogConflict, OriginInUse
from turnline.log.base import Blob, Head, Tombstone, check_restored, closes, read_tombstone, write_tombstone
from turnline.log.blobs import ADD, DELETE, HAS, values_of
from turnline.log.joined import SqlValue, Statements
from turnline.log.listing import COLUMNS, FIXED_COLUMNS, columns_of, key_of, tags_of
from turnline.log.sqlite_file import BLOB_TABLES

_MOVING: Final = COLUMNS[FIXED_COLUMNS:-1]
"""The columns of a row that are in indexes and may change; the row itself comes after them."""
_HEAD: Final = f"""
SELECT head.channel, head.seq, head.hash, record.hash, head.created IS NOT NULL, head.closed,
    {", ".join(f"head.{one}" for one in _MOVING)}
FROM turnline_names AS name JOIN turnline_heads AS head ON head.channel = name.channel
LEFT JOIN turnline_records AS record ON record.channel = head.channel AND record.seq = head.seq
WHERE name.id = ?
"""
_NUMBER: Final = """
SELECT
    (SELECT channel FROM turnline_names WHERE id = ?),
    (SELECT CAST(id AS BLOB) FROM turnline_names WHERE mark = ?)
"""
"""One statement: between two of them another program may name the channel."""
_NAME: Final = "INSERT INTO turnline_names (id, mark) VALUES (?, ?)"
_INSERT: Final = "INSERT INTO turnline_records (channel, seq, envelope_id, hash, head) VALUES (?, ?, ?, ?, ?)"
_CONTENT: Final = "INSERT INTO turnline_contents (position, payload) VALUES (?, ?)"
_SET_HEAD: Final = """
INSERT INTO turnline_heads (channel, seq, hash, closed, position) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (channel) DO UPDATE
SET seq = excluded.seq, hash = excluded.hash, closed = excluded.closed, position = excluded.position
"""


_DROP_ROW: Final = "UPDATE turnline_heads SET created = NULL, row = NULL WHERE channel = ?"
"""A row that the append has not brought up to date would be wrong."""


_SET_ROW: Final = f"UPDATE turnline_heads SET {', '.join(f'{one} = ?' for one in COLUMNS)} WHERE channel = ?"
_ERASE: Final = """
DELETE FROM turnline_contents WHERE position IN (
    SELECT position FROM turnline_records WHERE channel = ? AND seq BETWEEN ? AND ?
)
"""
_TAG: Final = "INSERT OR IGNORE INTO turnline_tags (tag, created, channel) VALUES (?, ?, ?)"
_REPLACED: Final = (
    "DELETE FROM turnline_contents WHERE position IN "
    "(SELECT position FROM turnline_records WHERE channel = ?)",
    "DELETE FROM turnline_records WHERE channel = ?",
    "DELETE FROM turnline_heads WHERE channel = ?",
)


_TOMBSTONE: Final = "SELECT body FROM turnline_tombstones WHERE id = ?"
_BURY: Final = "INSERT OR IGNORE INTO turnline_tombstones (id, channel, body) VALUES (?, ?, ?)"
_FORKS: Final = """
SELECT id FROM turnline_heads JOIN turnline_names USING (channel)
WHERE origin <> '' AND origin = ? AND id NOT IN (SELECT value FROM json_each(?)) LIMIT 1
"""
_FORGET: Final = tuple(
    f"DELETE FROM turnline_{table} WHERE channel = ?" for table in ("heads", "tags", "names")
)
_SOME_OF: Final = "SELECT position FROM turnline_records WHERE channel = ? ORDER BY seq DESC LIMIT ?"
_DELETE: Final = tuple(
    f"DELETE FROM turnline_{table} WHERE position IN ({_SOME_OF})" for table in ("contents", "records")
)
MAX_DELETED: Final = 1_000
"""Lines that one transaction deletes."""


UNKNOWN_BYTES: Final = MAX_BYTES
"""Size of a work that may be large."""


class OwnHead(NamedTuple):
    """Where an append of this process left a channel."""

    before: int
    """The position before its first line."""
    head: Head


class Work(Protocol):
    """One caller's write."""

    @property
    def size(self) -> int:
        """About how many bytes it writes."""
        return UNKNOWN_BYTES

    @property
    def heads(self) -> Sequence[OwnHead] | None:
        """What a tail says of it, once it has been written; None: a tail has to look at the file."""
        return None

    def write(self, connection: Statements) -> None:
        """Write all of it, or raise a `LogError`; the writer undoes what was begun."""
        ...

    def landed(self, connection: Statements) -> bool:
        """Whether the file holds it."""
        ...


class Append(Work):
    """Envelopes after a channel's last one, and the channel's row in the index."""

    heads: Sequence[OwnHead] = ()

    def __init__(
        self,
        channel_id: str,
        envelopes: Sequence[Envelope],
        *,
        after: int,
        row: ChannelRow | None = None,
        replaces_row: bool = False,
    ) -> None:
        self._channel_id = channel_id
        self._row = row
        self._replaces_row = replaces_row
        """Whether also what never changes by itself is written, such as labels."""
        self._envelopes = tuple(envelopes)
        self._after = after
        self._salt = token_bytes(SALT_BYTES)

    @property
    def size(self) -> int:
        return sum(size_of(one.event_data) for one in self._envelopes)

    def write(self, connection: Statements) -> None:
        end = _end(connection, self._channel_id)
        if end.channel is None:
            self._refuse_pruned(connection)
        if end.seq != self._after:
            raise LogConflict(self._channel_id, after=self._after, found=end.seq)
        if self._envelopes and end.moving is not None and self._row is not None and not self._replaces_row:
            self._move(connection, end, end.moving, columns_of(self._row)[FIXED_COLUMNS:])
            return
        channel = end.channel
        if channel is None and self._envelopes:
            channel = connection.execute(_NAME, (self._channel_id, mark_of(self._channel_id))).lastrowid
        if self._envelopes:
            last, position = self.write_records(connection, channel, end.hash)
            connection.execute(_SET_HEAD, (channel, last.seq, last.hash, self._closes, position))
        if self._row is None and end.moving is not None:
            connection.execute(_DROP_ROW, (channel,))
        if self._row is not None and channel is not None:
            write_row(connection, channel, self._row)

    def _move(
        self, connection: Statements, end: _End, before: Sequence[SqlValue], after: Sequence[SqlValue]
    ) -> None:
        """Write lines of a channel that has a row, and the columns that change.

        SQLite writes an index again for each of its columns that a statement sets, also to the same value.
        """
        last, position = self.write_records(connection, end.channel, end.hash)
        changed = [one for one in zip(_MOVING, before, after, strict=False) if one[1] != one[2]]
        if self._closes != end.closed:
            changed.append(("closed", end.closed, self._closes))
        names = tuple(name for name, _, _ in changed)
        values = (value for _, _, value in changed)
        connection.execute(_move_row(names), (*values, last.seq, last.hash, position, after[-1], end.channel))

    @property
    def _closes(self) -> bool:
        return closes(self._channel_id, self._envelopes[-1].event_type)

    def _refuse_pruned(self, connection: Statements) -> None:
        origin = "" if self._row is None else self._row.origin
        for name in (self._channel_id, *([origin] if origin else [])):
            if connection.execute(_TOMBSTONE, (name,)).fetchone() is not None:
                raise ChannelPruned(name)

    def write_records(
        self, connection: Statements, channel: int | None, previous: bytes
    ) -> tuple[Record, int | None]:
        """Write the records. Return the last one and its position."""
        records, position = seal_all(self._envelopes, previous, salt=self._salt), None
        for record in records:
            position = self._insert(connection, channel, record)
        last = records[-1]
        if position is not None:  # Lines of one transaction are contiguous: no other writes meanwhile.
            head = Head(channel_id=self._channel_id, seq=last.seq, closed=self._closes, position=position)
            self.heads = (OwnHead(position - len(records), head),)
        return last, position

    def landed(self, connection: Statements) -> bool:
        # All of an append lands or none of it does, so its last envelope speaks for the others.
        if not self._envelopes:
            return False
        last = self._envelopes[-1]
        channel = number_of(connection, self._channel_id)
        query = "SELECT 1 FROM turnline_records WHERE channel = ? AND seq = ? AND envelope_id = ?"
        return (
            connection.execute(query, (channel, last.seq, pack_id(last.envelope_id))).fetchone() is not None
        )

    def _insert(self, connection: Statements, channel: int | None, record: Record) -> int | None:
        row = (channel, record.seq, pack_id(record.envelope_id), record.hash, record.head)
        try:
            position = connection.execute(_INSERT, row).lastrowid
        except sqlite3.IntegrityError as error:
            if _knows(connection, channel, record.envelope_id):
                raise DuplicateEnvelope(self._channel_id, envelope_id=record.envelope_id) from error
            raise CorruptRecord(
                self._channel_id, seq=record.seq, because="it is there, but the channel's head is before it"
            ) from error
        if record.payload is not None:
            connection.execute(_CONTENT, (position, record.payload))
        return position


@lru_cache(maxsize=64)
def _move_row(names: tuple[str, ...]) -> str:
    changes = ", ".join(f"{one} = ?" for one in (*names, "seq", "hash", "position", "row"))
    return f"UPDATE turnline_heads SET {changes} WHERE channel = ?"


def write_row(connection: Statements, channel: int, row: ChannelRow) -> None:
    """Write what the index says of a channel, with its tags."""
    columns = columns_of(row)
    connection.execute(_SET_ROW, (*columns, channel))
    connection.execute("DELETE FROM turnline_tags WHERE channel = ?", (channel,))
    for tag in tags_of(row):
        connection.execute(_TAG, (tag, columns[0], channel))


class Erase(Work):
    """A line that names other lines, and the end of their content."""

    def __init__(
        self, channel_id: str, note: Envelope, *, after: int, row: ChannelRow | None, blobs: Sequence[Blob]
    ) -> None:
        self._append = Append(channel_id, [note], after=after, row=row, replaces_row=True)
        self._blobs = blobs
        self._channel_id = channel_id
        self._lines = erased_lines(note)

    def write(self, connection: Statements) -> None:
        self._append.write(connection)
        for first, last in self._lines:
            connection.execute(_ERASE, (number_of(connection, self._channel_id), first, last))
        connection.execute("DELETE FROM turnline_snapshots WHERE channel = ?", (self._channel_id,))
        delete_blobs(self._blobs).write(connection)

    def landed(self, connection: Statements) -> bool:
        return self._append.landed(connection)


class Change(Work):
    """Statements of one transaction, and a query that finds a row, or none, once they have landed."""

    heads: Sequence[OwnHead] = ()

    def __init__(
        self,
        *statements: tuple[str, Sequence[SqlValue]],
        landed: tuple[str, Sequence[SqlValue]],
        leaves_row: bool = True,
    ) -> None:
        self._statements = statements
        self._landed = landed
        self._leaves_row = leaves_row

    def write(self, connection: Statements) -> None:
        for query, values in self._statements:
            connection.execute(query, values)

    def landed(self, connection: Statements) -> bool:
        return (connection.execute(*self._landed).fetchone() is not None) is self._leaves_row


def add_blob(blob: Blob) -> Change:
    """Return what begins a blob. The first one of a file makes the tables."""
    tables = [(statement, ()) for statement in BLOB_TABLES.split(";") if statement.strip()]
    return Change(*tables, (ADD, values_of(blob)), landed=(HAS, (blob.root, blob.blob_id)))


def delete_blobs(blobs: Sequence[Blob]) -> Change:
    """Return what deletes blobs, with their chunks."""
    keys = [(blob.root, blob.blob_id) for blob in blobs]
    last = keys[-1] if keys else ("", "")
    return Change(
        *((query, key) for key in keys for query in DELETE),
        landed=("SELECT 1 FROM turnline_blobs WHERE root = ? AND id = ?", last),
        leaves_row=False,
    )


class Prune(Work):
    """Tombstones in the place of channels; their lines are deleted later."""

    def __init__(self, tombstones: Sequence[Tombstone]) -> None:
        self._tombstones = tombstones

    def write(self, connection: Statements) -> None:
        names = json.dumps([one.channel_id for one in self._tombstones])
        for one in self._tombstones:
            channel = None
            if connection.execute(_TOMBSTONE, (one.channel_id,)).fetchone() is None:
                channel = self._check(connection, one, names)
            connection.execute(_BURY, (one.channel_id, channel, write_tombstone(one)))
            for statement in _FORGET if channel is not None else ():
                connection.execute(statement, (channel,))
            connection.execute("DELETE FROM turnline_snapshots WHERE channel = ?", (one.channel_id,))

    def _check(self, connection: Statements, one: Tombstone, names: str) -> int | None:
        """Return the channel's number. Raises `LogConflict` and `OriginInUse`."""
        channel, seq, hash_, closed, _ = _end(connection, one.channel_id)
        if channel is None:
            return None
        # No cursor outlives its line: one that an error keeps alive would hold up every other writer.
        if (seq, hash_) != (one.seq, one.hash) or not closed:
            raise LogConflict(one.channel_id, after=one.seq, found=seq)
        fork = connection.execute(_FORKS, (key_of(one.channel_id), names)).fetchone()
        if fork is not None:
            raise OriginInUse(one.channel_id, fork=fork[0])
        return channel

    def landed(self, connection: Statements) -> bool:
        found = (connection.execute(_TOMBSTONE, (one.channel_id,)).fetchone() for one in self._tombstones)
        return None not in found


class DeletePruned(Work):
    """Some lines of pruned channels, the last ones first."""

    heads: Sequence[OwnHead] = ()

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.deleted = 0

    def write(self, connection: Statements) -> None:
        self.deleted = 0
        query = "SELECT channel FROM turnline_tombstones WHERE channel IS NOT NULL LIMIT 1"
        while not self.deleted and (found := connection.execute(query, ()).fetchone()):
            self.deleted = delete_lines(connection, found[0], self._limit)
            if self.deleted < self._limit:
                statement = "UPDATE turnline_tombstones SET channel = NULL WHERE channel = ?"
                connection.execute(statement, found)

    def landed(self, connection: Statements) -> bool:
        return False  # Doing it again is safe.


def delete_lines(connection: Statements, channel: int, limit: int) -> int:
    """Delete the last lines of a channel, with their content. Return how many."""
    found = connection.execute(f"SELECT count(*) FROM ({_SOME_OF})", (channel, limit)).fetchone()[0]
    for statement in _DELETE:
        connection.execute(statement, (channel, limit))
    return int(found)


class Restore(Work):
    """Lines of a pruned channel under a number that has no name, until the last part gives it its own."""

    def __init__(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        self._append = Append(channel_id, envelopes, after=after)
        self._channel_id = channel_id
        self._envelopes = envelopes
        self._after = after

    def write(self, connection: Statements) -> None:
        query = "SELECT body, channel FROM turnline_tombstones WHERE id = ?"
        body, channel = connection.execute(query, (self._channel_id,)).fetchone() or (None, None)
        if not self._after:
            while channel is not None and delete_lines(connection, channel, MAX_DELETED):
                pass
            channel = connection.execute(_NAME, (self._channel_id, mark_of(self._channel_id))).lastrowid
            connection.execute("DELETE FROM turnline_names WHERE channel = ?", (channel,))
            statement = "UPDATE turnline_tombstones SET channel = ? WHERE id = ?"
            connection.execute(statement, (channel, self._channel_id))
        seq, previous = _end_without_head(connection, channel or 0)
        if seq != self._after:
            raise LogConflict(self._channel_id, after=self._after, found=seq)
        last, position = self._append.write_records(connection, channel, previous)
        if check_restored(None if body is None else read_tombstone(body), self._channel_id, last):
            name = "INSERT INTO turnline_names (channel, id, mark) VALUES (?, ?, ?)"
            connection.execute(name, (channel, self._channel_id, mark_of(self._channel_id)))
            is_closed = closes(self._channel_id, self._envelopes[-1].event_type)
            connection.execute(_SET_HEAD, (channel, last.seq, last.hash, is_closed, position))
            connection.execute("DELETE FROM turnline_tombstones WHERE id = ?", (self._channel_id,))

    def landed(self, connection: Statements) -> bool:
        return self._append.landed(connection)


class Replace(Work):
    """A channel that is written again."""

    def __init__(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        self._append = Append(channel_id, envelopes, after=0)
        self._channel_id = channel_id
        self._is_empty = not envelopes

    def write(self, connection: Statements) -> None:
        channel = number_of(connection, self._channel_id)
        for statement in _REPLACED:
            connection.execute(statement, (channel,))
        connection.execute("DELETE FROM turnline_snapshots WHERE channel = ?", (self._channel_id,))
        if self._is_empty:
            connection.execute("DELETE FROM turnline_names WHERE channel = ?", (channel,))
        self._append.write(connection)

    def landed(self, connection: Statements) -> bool:
        if self._is_empty:
            return number_of(connection, self._channel_id) is None
        return self._append.landed(connection)


class SaveSnapshot(Work):
    """A channel's folded state."""

    heads: Sequence[OwnHead] = ()

    def __init__(self, channel_id: str, *, seq: int, body: bytes) -> None:
        self._row = (channel_id, seq, snapshot_checksum(channel_id, seq, body), body)

    @property
    def size(self) -> int:
        return len(self._row[3])

    def write(self, connection: Statements) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO turnline_snapshots (channel, seq, checksum, body) VALUES (?, ?, ?, ?)",
            self._row,
        )

    def landed(self, connection: Statements) -> bool:
        query = "SELECT 1 FROM turnline_snapshots WHERE channel = ? AND seq = ? AND checksum = ?"
        return connection.execute(query, self._row[:3]).fetchone() is not None


class DeleteSnapshots(Work):
    """Forget every folded state, or that of one channel."""

    heads: Sequence[OwnHead] = ()

    def __init__(self, channel_id: str | None = None) -> None:
        self._channel_id = channel_id

    def write(self, connection: Statements) -> None:
        connection.execute(
            "DELETE FROM turnline_snapshots WHERE channel = coalesce(?, channel)", (self._channel_id,)
        )

    def landed(self, connection: Statements) -> bool:
        query = "SELECT 1 FROM turnline_snapshots WHERE channel = coalesce(?, channel) LIMIT 1"
        return connection.execute(query, (self._channel_id,)).fetchone() is None


def snapshot_checksum(channel_id: str, seq: int, body: bytes) -> bytes:
    return blake2b(f"{len(channel_id)}:{channel_id}{seq}:".encode() + body, digest_size=16).digest()


def number_of(connection: Statements, channel_id: str) -> int | None:
    """Return the number that stands for a channel; None for one that is not there.

    Raises `CorruptRecord` if it is there and its name is damaged.
    """
    mark = mark_of(channel_id)
    channel, marked = connection.execute(_NUMBER, (channel_id, mark)).fetchone()
    if channel is not None:
        return int(channel)
    # Another id may have the same mark by chance. A damaged one does not fit its own.
    if marked is not None and (
        marked == channel_id.encode() or mark_of(marked.decode(errors="replace")) != mark
    ):
        because = "the channel's name is damaged in the table `turnline_names`"
        raise CorruptRecord(channel_id, seq=1, because=because)
    return None


def mark_of(channel_id: str) -> int:
    return int.from_bytes(sha256(channel_id.encode()).digest()[:8], signed=True)


class _End(NamedTuple):
    """Where a channel ends."""

    channel: int | None
    """Its number; None: it is not there."""
    seq: int = 0
    hash: bytes = NO_HASH
    closed: bool = False
    moving: Sequence[SqlValue] | None = None
    """What its row has in the columns that may change; None: it has no row."""


def _end(connection: Statements, channel_id: str) -> _End:
    row = connection.execute(_HEAD, (channel_id,)).fetchone()
    if row is None:
        channel = number_of(connection, channel_id)
        return _End(channel, *(() if channel is None else _end_without_head(connection, channel)))
    channel, seq, head_hash, record_hash, has_row, closed, *moving = row
    if head_hash != record_hash:
        # Chaining on either would acknowledge an envelope that nobody can read back.
        raise CorruptRecord(channel_id, seq=seq, because="it is not the one the channel's head names")
    return _End(channel, seq, record_hash, bool(closed), moving if has_row else None)


def _end_without_head(connection: Statements, channel: int) -> tuple[int, bytes]:
    query = "SELECT seq, hash FROM turnline_records WHERE channel = ? ORDER BY seq DESC LIMIT 1"
    row = connection.execute(query, (channel,)).fetchone()
    return (0, NO_HASH) if row is None else (row[0], row[1])


def _knows(connection: Statements, channel: int | None, envelope_id: str) -> bool:
    query = "SELECT 1 FROM turnline_records WHERE channel = ? AND envelope_id = ?"
    return connection.execute(query, (channel, pack_id(envelope_id))).fetchone() is not None
