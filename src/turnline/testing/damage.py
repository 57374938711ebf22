"""Damage done on purpose: the hooks that `LogContract` asks a backend's tests for."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from turnline.core.codec import Record, pack_id, unpack_id
from turnline.log.memory import MemoryLog

Damage = Callable[[Record], Record]
"""A record as it was written -> what is kept in its place."""


def flip_byte(body: bytes, index: int, *, mask: int = 0x01) -> bytes:
    """Return `body` with some bits of one byte turned over."""
    return body[:index] + bytes([body[index] ^ mask]) + body[index + 1 :]


def written_longer(head: bytes) -> bytes:
    """Return a head that says the same in other bytes: its version is a number of two bytes."""
    return head[:1] + b"\xcc" + head[1:]


def flip_head(record: Record) -> Record:
    """Turn over one bit in the middle of the structure."""
    return replace(record, head=flip_byte(record.head, len(record.head) // 2))


def flip_payload(record: Record) -> Record:
    """Turn over one bit in the middle of the content."""
    assert record.payload is not None
    return replace(record, payload=flip_byte(record.payload, len(record.payload) // 2))


def drop_payload(record: Record) -> Record:
    """Leave the content out, as erasing it does."""
    return replace(record, payload=None)


def damage_memory(log: MemoryLog, channel_id: str, seq: int, damage: Damage = flip_head) -> None:
    """Change one record of `log`."""
    records = log.records[channel_id]
    records[seq - 1] = damage(records[seq - 1])


def damage_sqlite(path: Path, channel_id: str, seq: int, damage: Damage = flip_head) -> None:
    """Change one record of the `SqliteLog` at `path`."""
    columns = "position, envelope_id, head, hash, payload"
    query = (
        f"SELECT {columns} FROM turnline_names JOIN turnline_records USING (channel) "
        "LEFT JOIN turnline_contents USING (position) "
        "WHERE id = ? AND seq = ?"
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        position, *row = connection.execute(query, (channel_id, seq)).fetchone()
        cell, *rest = row
        written = unpack_id(cell) if isinstance(cell, bytes) else cell
        changed = damage(Record(seq, written, *rest))
        connection.execute(
            "UPDATE turnline_records SET envelope_id = ?, head = ?, hash = ? WHERE position = ?",
            (pack_id(changed.envelope_id), changed.head, changed.hash, position),
        )
        connection.execute("DELETE FROM turnline_contents WHERE position = ?", (position,))
        if changed.payload is not None:
            connection.execute("INSERT INTO turnline_contents VALUES (?, ?)", (position, changed.payload))
