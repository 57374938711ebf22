"""What a `SqliteLog` writes: one class for each kind of write.

A piece of work is done inside a savepoint of the writer's transaction. It
raises a `LogError` to be undone alone; the others of its batch go on. After a
COMMIT whose outcome is unknown, `landed` says which side of it the file is on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, Protocol

from turnline.core.codec import NO_HASH, Record, seal
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord, DuplicateEnvelope, LogConflict
from turnline.log.base import closes
from turnline.log.joined import Statements

_HEAD: Final = """
SELECT heads.seq, heads.hash, records.hash
FROM heads LEFT JOIN records ON records.channel = heads.channel AND records.seq = heads.seq
WHERE heads.channel = ?
"""
_INSERT: Final = "INSERT INTO records (channel, seq, envelope_id, hash, body) VALUES (?, ?, ?, ?, ?)"
_SET_HEAD: Final = """
INSERT INTO heads (channel, seq, hash, closed, position) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (channel) DO UPDATE
SET seq = excluded.seq, hash = excluded.hash, closed = excluded.closed, position = excluded.position
"""


class Work(Protocol):
    """One caller's write."""

    def write(self, connection: Statements) -> None:
        """Write all of it, or raise a `LogError`; the writer undoes what was begun."""
        ...

    def landed(self, connection: Statements) -> bool:
        """Whether the file holds it."""
        ...


class Append:
    """Envelopes behind a channel's last one."""

    def __init__(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        self._channel_id = channel_id
        self._envelopes = tuple(envelopes)
        self._after = after

    def write(self, connection: Statements) -> None:
        seq, previous = _end(connection, self._channel_id)
        if seq != self._after:
            raise LogConflict(self._channel_id, after=self._after, found=seq)
        position = None
        for envelope in self._envelopes:
            record = seal(envelope, previous)
            position = self._insert(connection, record)
            previous = record.hash
        last = self._envelopes[-1]
        connection.execute(_SET_HEAD, (self._channel_id, last.seq, previous, closes(last), position))

    def landed(self, connection: Statements) -> bool:
        # All of an append lands or none of it does, so its last envelope speaks for the others.
        last = self._envelopes[-1]
        query = "SELECT 1 FROM records WHERE channel = ? AND seq = ? AND envelope_id = ?"
        return (
            connection.execute(query, (self._channel_id, last.seq, last.envelope_id)).fetchone() is not None
        )

    def _insert(self, connection: Statements, record: Record) -> int | None:
        row = (self._channel_id, record.seq, record.envelope_id, record.hash, record.body)
        try:
            return connection.execute(_INSERT, row).lastrowid
        except sqlite3.IntegrityError as error:
            if _knows(connection, self._channel_id, record.envelope_id):
                raise DuplicateEnvelope(self._channel_id, envelope_id=record.envelope_id) from error
            raise CorruptRecord(
                self._channel_id, seq=record.seq, because="it is there, but the channel's head is before it"
            ) from error


class SaveSnapshot:
    """A channel's folded state."""

    def __init__(self, channel_id: str, *, seq: int, body: bytes) -> None:
        self._row = (channel_id, seq, snapshot_checksum(channel_id, seq, body), body)

    def write(self, connection: Statements) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO snapshots (channel, seq, checksum, body) VALUES (?, ?, ?, ?)", self._row
        )

    def landed(self, connection: Statements) -> bool:
        query = "SELECT 1 FROM snapshots WHERE channel = ? AND seq = ? AND checksum = ?"
        return connection.execute(query, self._row[:3]).fetchone() is not None


class DeleteSnapshots:
    """Forget every folded state."""

    def write(self, connection: Statements) -> None:
        connection.execute("DELETE FROM snapshots")

    def landed(self, connection: Statements) -> bool:
        return connection.execute("SELECT 1 FROM snapshots LIMIT 1").fetchone() is None


def snapshot_checksum(channel_id: str, seq: int, body: bytes) -> bytes:
    return blake2b(f"{len(channel_id)}:{channel_id}{seq}:".encode() + body, digest_size=16).digest()


def _end(connection: Statements, channel_id: str) -> tuple[int, bytes]:
    """Return the seq and the hash that the channel ends with."""
    row = connection.execute(_HEAD, (channel_id,)).fetchone()
    if row is None:
        return _end_without_head(connection, channel_id)
    seq, head_hash, record_hash = row
    if head_hash != record_hash:
        # Chaining on either would acknowledge an envelope that nobody can read back.
        raise CorruptRecord(channel_id, seq=seq, because="it is not the one the channel's head names")
    return seq, record_hash


def _end_without_head(connection: Statements, channel_id: str) -> tuple[int, bytes]:
    query = "SELECT seq, hash FROM records WHERE channel = ? ORDER BY seq DESC LIMIT 1"
    row = connection.execute(query, (channel_id,)).fetchone()
    return (0, NO_HASH) if row is None else (row[0], row[1])


def _knows(connection: Statements, channel_id: str, envelope_id: str) -> bool:
    query = "SELECT 1 FROM records WHERE channel = ? AND envelope_id = ?"
    return connection.execute(query, (channel_id, envelope_id)).fetchone() is not None
