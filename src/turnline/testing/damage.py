"""Damage done on purpose: the hooks that `LogContract` asks a backend's tests for."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from turnline.log.memory import MemoryLog


def flip_byte(body: bytes, index: int, *, mask: int = 0x01) -> bytes:
    """Return `body` with some bits of one byte turned over."""
    return body[:index] + bytes([body[index] ^ mask]) + body[index + 1 :]


def flip_memory(log: MemoryLog, channel_id: str, seq: int) -> None:
    """Turn over one bit in the middle of a record of `log`."""
    record = log.records[channel_id][seq - 1]
    body = flip_byte(record.body, len(record.body) // 2)
    log.records[channel_id][seq - 1] = replace(record, body=body)


def flip_sqlite(path: Path, channel_id: str, seq: int) -> None:
    """Turn over one bit in the middle of a record of the `SqliteLog` at `path`."""
    with closing(sqlite3.connect(path)) as connection, connection:
        where = "WHERE channel = ? AND seq = ?"
        (body,) = connection.execute(f"SELECT body FROM records {where}", (channel_id, seq)).fetchone()
        flipped = flip_byte(body, len(body) // 2)
        connection.execute(f"UPDATE records SET body = ? {where}", (flipped, channel_id, seq))
