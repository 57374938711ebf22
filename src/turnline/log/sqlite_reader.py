"""Reading a `SqliteLog`'s file: a few threads, each with a connection of its own.

Readers see the last commit and wait for nobody; a channel is read in pages, so
its length does not matter. A cell is read as what it should be (`_blob`, `_number`),
so that a damaged one fails its checksum, and nothing else fails with it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from sqlite3 import Connection
from threading import Lock, local
from typing import Final, TypeVar

from turnline.core.codec import NO_HASH, Record
from turnline.errors import LogUnavailable
from turnline.log.base import Head
from turnline.log.pages import Page
from turnline.log.sqlite_file import SQLITE_RAISES, LogFile, code
from turnline.log.sqlite_work import snapshot_checksum

READERS: Final = 4
PAGE_RECORDS: Final = 256
PAGE_BYTES: Final = 4 * 1024 * 1024
"""A page ends with the record that passes it."""


def _blob(column: str) -> str:
    return f"coalesce(CAST({column} AS BLOB), x'')"


def _number(column: str) -> str:
    return f"coalesce(CAST({column} AS INTEGER), 0)"


_RECORD: Final = f"{_number('seq')}, {_blob('envelope_id')}, {_blob('body')}, {_blob('hash')}"
_HEAD: Final = ", ".join(
    (_blob("heads.channel"), _number("heads.seq"), _number("heads.closed"), _number("heads.position"))
)
_OPEN: Final = {None: "TRUE", False: "closed = 0", True: "closed <> 0"}

T = TypeVar("T")


class Reader:
    """Runs queries in threads of its own."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="turnline-log-reader")
        self._mine = local()
        self._lock = Lock()
        self._connections: list[Connection] = []
        self._closed = False

    async def ask(self, query: Callable[[Connection], T]) -> T:
        """Return what `query` makes of a connection. Raises `LogUnavailable`, and SQLite's own errors."""
        with self._lock:
            if self._closed:
                raise LogUnavailable(self._file.address, because="it has been closed")
            answer = asyncio.get_running_loop().run_in_executor(self._threads, self._run, query)
        return await answer

    def close(self) -> None:
        """Let running queries end, then let go of the file. Blocks; closing twice is allowed."""
        with self._lock:
            self._closed = True
        self._threads.shutdown()
        while self._connections:
            self._connections.pop().close()

    def _run(self, query: Callable[[Connection], T]) -> T:
        return query(self._connection())

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._file.connect()
            connection.execute("PRAGMA query_only = ON")
            with self._lock:
                self._connections.append(connection)
        return connection


def page(connection: Connection, channel_id: str, after: int) -> Page:
    """Return the records behind `after`, up to a page's limits. Raises `sqlite3.DatabaseError`."""
    # The head first: what is appended in between makes more records, never fewer.
    head = head_of(connection, channel_id)
    query = f"SELECT {_RECORD} FROM records WHERE channel = ? AND seq > ? ORDER BY seq LIMIT {PAGE_RECORDS}"
    records: list[Record] = []
    size = 0
    try:
        with closing(connection.execute(query, (channel_id, after))) as rows:
            while size < PAGE_BYTES and (found := rows.fetchone()):
                records.append(_record(found))
                size += len(records[-1].body)
    except SQLITE_RAISES:
        if not records:
            raise
        size = PAGE_BYTES  # What was read is told first; asking again meets the damage at once.
    more = size >= PAGE_BYTES or len(records) == PAGE_RECORDS
    previous = _hash_at(connection, channel_id, after)
    return Page(records=records, more=more, end=head.seq if head else 0, previous=previous)


def record_with(connection: Connection, channel_id: str, envelope_id: str) -> tuple[Record, bytes] | None:
    """Return the record with this id and the hash of the one before it."""
    query = f"SELECT {_RECORD} FROM records WHERE channel = ? AND envelope_id = ?"
    row = connection.execute(query, (channel_id, envelope_id)).fetchone()
    if row is None:
        return None
    record = _record(row)
    return record, _hash_at(connection, channel_id, record.seq - 1)


def head_of(connection: Connection, channel_id: str) -> Head | None:
    row = connection.execute(f"SELECT {_HEAD} FROM heads WHERE channel = ?", (channel_id,)).fetchone()
    return None if row is None else _head(row)


def heads_by_name(connection: Connection, closed: bool | None, after: str, limit: int | None) -> list[Head]:
    query = f"SELECT {_HEAD} FROM heads WHERE channel > ? AND {_OPEN[closed]} ORDER BY channel LIMIT ?"
    return [_head(row) for row in connection.execute(query, (after, -1 if limit is None else limit))]


def heads_by_position(connection: Connection, after: int) -> list[Head]:
    """Return the heads of the channels appended to behind `after`, in the order of their last append."""
    query = f"""
        SELECT {_HEAD}
        FROM records JOIN heads ON heads.channel = records.channel AND heads.position = records.position
        WHERE records.position > ? ORDER BY records.position LIMIT {PAGE_RECORDS}
    """
    return [_head(row) for row in connection.execute(query, (after,))]


def snapshot_of(connection: Connection, channel_id: str) -> tuple[int, bytes] | None:
    try:
        query = "SELECT seq, checksum, CAST(body AS BLOB) FROM snapshots WHERE channel = ?"
        row = connection.execute(query, (channel_id,)).fetchone()
    except SQLITE_RAISES:  # A cache that cannot be read is an empty one.
        return None
    if row is None:
        return None
    seq, checksum, body = row
    return (seq, body) if snapshot_checksum(channel_id, seq, body) == checksum else None


def is_damage(error: Exception) -> bool:
    """Whether the file's pages are not what SQLite wrote."""
    return code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB} or isinstance(error, UnicodeError)


def _hash_at(connection: Connection, channel_id: str, seq: int) -> bytes:
    query = f"SELECT {_blob('hash')} FROM records WHERE channel = ? AND seq = ?"
    row = connection.execute(query, (channel_id, seq)).fetchone()
    # A record that should be there and is not leaves its follower without a chain, and unreadable.
    return NO_HASH if row is None else row[0]


def _record(row: tuple[int, bytes, bytes, bytes]) -> Record:
    seq, envelope_id, body, hash_ = row
    return Record(seq=seq, envelope_id=_text(envelope_id), body=body, hash=hash_)


def _head(row: tuple[bytes, int, int, int]) -> Head:
    channel_id, seq, closed, position = row
    return Head(channel_id=_text(channel_id), seq=seq, closed=bool(closed), position=position)


def _text(cell: bytes) -> str:
    # Bytes that are no text are nobody's name; they are not worth an error for every channel.
    return cell.decode(errors="replace")
