"""Reading a `SqliteLog`'s file: a few threads, each with a connection of its own.

Readers see the last commit and wait for nobody; a channel is read in pages, so
its length does not matter. A cell is read as what it should be (`_blob`, `_number`),
so that a damaged one fails its checksum, and nothing else fails with it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from sqlite3 import Connection
from threading import Lock, local
from typing import Final, TypeVar

from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import NO_HASH, Record, pack_id, unpack_id
from turnline.errors import LogUnavailable
from turnline.log.base import Blob, ChannelEnd, Head, Tombstone, read_tombstone
from turnline.log.blobs import CHUNK, OF_USER, blob_of
from turnline.log.joined import SqlValue
from turnline.log.listing import needs_codes, page_query, read_row, read_rows
from turnline.log.pages import NOTHING, Page
from turnline.log.sqlite_file import DIALECT, SQLITE_RAISES, LogFile, code
from turnline.log.sqlite_work import number_of, snapshot_checksum

READERS: Final = 4
CACHE_KB: Final = 1000
"""Of pages, for each reader; half of what SQLite takes by itself. The system has them in memory anyway."""
PAGE_RECORDS: Final = 256
PAGE_BYTES: Final = 4 * 1024 * 1024
"""A page ends with the record that passes it."""


def _blob(column: str) -> str:
    return f"coalesce(CAST({column} AS BLOB), x'')"


def _number(column: str) -> str:
    return f"coalesce(CAST({column} AS INTEGER), 0)"


_RECORD: Final = (
    f"{_number('seq')}, typeof(envelope_id) = 'blob', {_blob('envelope_id')}, {_blob('head')}, "
    f"{_blob('hash')}, CAST(payload AS BLOB)"
)
_RECORDS: Final = "turnline_records LEFT JOIN turnline_contents USING (position)"
_HEAD: Final = ", ".join(
    (
        _blob("turnline_names.id"),
        *map(_number, ("turnline_heads.seq", "turnline_heads.closed", "turnline_heads.position")),
    )
)
_HEADS: Final = "turnline_names JOIN turnline_heads USING (channel)"
_SOME_HEADS: Final = "turnline_heads CROSS JOIN turnline_names USING (channel)"
"""For questions about few channels: with CROSS, SQLite begins with an index of heads, not with all names."""
_OPEN: Final = {None: "TRUE", False: "NOT closed", True: "closed"}

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
            connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            with self._lock:
                self._connections.append(connection)
        return connection


def page(connection: Connection, channel_id: str, after: int) -> Page:
    """Return the records behind `after`, up to a page's limits. Raises `sqlite3.DatabaseError`."""
    channel = number_of(connection, channel_id)
    if channel is None:
        return NOTHING
    # The head first: what is appended in between makes more records, never fewer.
    query = f"SELECT {_number('seq')} FROM turnline_heads WHERE channel = ?"
    end = connection.execute(query, (channel,)).fetchone()
    where = f"channel = ? AND seq > ? ORDER BY seq LIMIT {PAGE_RECORDS}"
    query = f"SELECT {_RECORD} FROM {_RECORDS} WHERE {where}"
    records: list[Record] = []
    size = 0
    try:
        with closing(connection.execute(query, (channel, after))) as rows:
            while size < PAGE_BYTES and (found := rows.fetchone()):
                records.append(_record(found))
                size += records[-1].size
    except SQLITE_RAISES:
        if not records:
            raise
        size = PAGE_BYTES  # What was read is told first; asking again meets the damage at once.
    more = size >= PAGE_BYTES or len(records) == PAGE_RECORDS
    previous = _hash_at(connection, channel, after)
    return Page(records=records, more=more, end=end[0] if end else 0, previous=previous)


def record_with(connection: Connection, channel_id: str, envelope_id: str) -> tuple[Record, bytes] | None:
    """Return the record with this id and the hash of the one before it."""
    channel = number_of(connection, channel_id)
    query = f"SELECT {_RECORD} FROM {_RECORDS} WHERE channel = ? AND envelope_id = ?"
    row = connection.execute(query, (channel, pack_id(envelope_id))).fetchone()
    if channel is None or row is None:
        return None
    record = _record(row)
    return record, _hash_at(connection, channel, record.seq - 1)


def head_of(connection: Connection, channel_id: str) -> Head | None:
    channel = number_of(connection, channel_id)
    row = connection.execute(f"SELECT {_HEAD} FROM {_HEADS} WHERE channel = ?", (channel,)).fetchone()
    return None if row is None else _head(row)


def heads_by_name(connection: Connection, closed: bool | None, after: str, limit: int | None) -> list[Head]:
    heads = _SOME_HEADS if closed is False else _HEADS
    query = f"SELECT {_HEAD} FROM {heads} WHERE id > ? AND {_OPEN[closed]} ORDER BY id LIMIT ?"
    return [_head(row) for row in connection.execute(query, (after, -1 if limit is None else limit))]


def rows(
    connection: Connection, where: ChannelFilter, after: ChannelRow | None, limit: int
) -> list[ChannelRow]:
    """Return a page of the index."""
    with _one_state(connection):
        codes = [code for (code,) in connection.execute(DIALECT.codes)] if needs_codes(where) else []
        query, values = page_query(DIALECT, where, after=after, limit=limit, codes=codes)
        return read_rows(body for _, _, body in connection.execute(query, values))


@contextmanager
def _one_state(connection: Connection) -> Iterator[None]:
    """Let several queries see the same commit."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def row_of(connection: Connection, channel_id: str) -> ChannelRow | None:
    query = f"SELECT {_blob('row')} FROM {_HEADS} WHERE id = ? AND created IS NOT NULL"
    found = connection.execute(query, (channel_id,)).fetchone()
    return None if found is None else read_row(found[0])


def without_row(connection: Connection, after: str, limit: int) -> list[str]:
    """Return channels without a row, by id; the hub's own never have one."""
    query = f"""
        SELECT {_blob("id")} FROM {_SOME_HEADS}
        WHERE created IS NULL AND id > ? AND substr(id, 1, 1) <> '_' ORDER BY id LIMIT ?
    """
    return [_text(name) for (name,) in connection.execute(query, (after, limit))]


def last_position(connection: Connection) -> int:
    ((position,),) = connection.execute("SELECT coalesce(max(position), 0) FROM turnline_records")
    return int(position)


def heads_by_position(connection: Connection, after: int) -> list[Head]:
    """Return the heads of the channels appended to behind `after`, in the order of their last append."""
    query = f"""
        SELECT {_HEAD}
        FROM turnline_records JOIN turnline_heads
        ON turnline_heads.channel = turnline_records.channel
        AND turnline_heads.position = turnline_records.position
        JOIN turnline_names ON turnline_names.channel = turnline_heads.channel
        WHERE turnline_records.position > ? ORDER BY turnline_records.position LIMIT {PAGE_RECORDS}
    """
    return [_head(row) for row in connection.execute(query, (after,))]


def blobs(connection: Connection, query: str, values: Sequence[SqlValue]) -> list[Blob]:
    return [blob_of(row) for row in connection.execute(query, values)] if _has_files(connection) else []


def count_blobs(connection: Connection, user_key: str, limit: int) -> tuple[int, int]:
    if not _has_files(connection):
        return 0, 0
    files, size = connection.execute(OF_USER, (user_key, limit)).fetchone()
    return files, size


def _has_files(connection: Connection) -> bool:
    """Return whether the tables of files are there: the first file makes them."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'turnline_blobs'").fetchone()
    return found is not None


def chunk(connection: Connection, blob: Blob, number: int) -> bytes | None:
    for (data,) in connection.execute(CHUNK, (number, blob.root, blob.blob_id)):
        return data if isinstance(data, bytes) else b""
    return None


def tombstone_of(connection: Connection, channel_id: str) -> Tombstone | None:
    query = f"SELECT {_blob('body')} FROM turnline_tombstones WHERE id = ?"
    found = connection.execute(query, (channel_id,)).fetchone()
    return None if found is None else read_tombstone(found[0])


def tombstones(connection: Connection, after: str, limit: int) -> list[Tombstone]:
    query = f"SELECT {_blob('body')} FROM turnline_tombstones WHERE id > ? ORDER BY id LIMIT ?"
    return [read_tombstone(body) for (body,) in connection.execute(query, (after, limit))]


def last_tombstone(connection: Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(number), 0) FROM turnline_tombstones").fetchone()[0])


def pruned_since(connection: Connection, after: int) -> list[tuple[int, str]]:
    """Return the channels pruned since, with the numbers of their tombstones."""
    query = (
        f"SELECT number, id FROM turnline_tombstones WHERE number > ? ORDER BY number LIMIT {PAGE_RECORDS}"
    )
    return connection.execute(query, (after,)).fetchall()


def end_of(connection: Connection, channel_id: str) -> ChannelEnd | None:
    channel = number_of(connection, channel_id)
    query = f"""
        SELECT {_number("head.seq")}, {_blob("record.hash")}, {_number("head.position")}
        FROM turnline_heads AS head LEFT JOIN turnline_records AS record
        ON record.channel = head.channel AND record.seq = head.seq WHERE head.channel = ?
    """
    for seq, hash_, position in connection.execute(query, (channel,)):
        return ChannelEnd(channel_id=channel_id, seq=seq, hash=hash_, position=position)
    return None


def ends_by_position(connection: Connection, after: int, limit: int) -> list[ChannelEnd]:
    """Return where the channels appended to after a position end, in the order of their last append."""
    query = f"""
        SELECT {_blob("id")}, {_number("record.seq")}, {_blob("record.hash")}, record.position
        FROM turnline_records AS record JOIN turnline_heads AS head
        ON head.channel = record.channel AND head.position = record.position
        JOIN turnline_names ON turnline_names.channel = head.channel
        WHERE record.position > ? ORDER BY record.position LIMIT ?
    """
    return [
        ChannelEnd(channel_id=_text(name), seq=seq, hash=hash_, position=position)
        for name, seq, hash_, position in connection.execute(query, (after, limit))
    ]


def snapshot_of(connection: Connection, channel_id: str) -> tuple[int, bytes] | None:
    try:
        query = "SELECT seq, checksum, CAST(body AS BLOB) FROM turnline_snapshots WHERE channel = ?"
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


def _hash_at(connection: Connection, channel: int, seq: int) -> bytes:
    query = f"SELECT {_blob('hash')} FROM turnline_records WHERE channel = ? AND seq = ?"
    row = connection.execute(query, (channel, seq)).fetchone()
    # A record that should be there and is not leaves its follower without a chain, and unreadable.
    return NO_HASH if row is None else row[0]


def _record(row: tuple[int, int, bytes, bytes, bytes, bytes | None]) -> Record:
    seq, is_packed, cell, head, hash_, payload = row
    envelope_id = unpack_id(cell) if is_packed else _text(cell)
    return Record(seq=seq, envelope_id=envelope_id, head=head, hash=hash_, payload=payload)


def _head(row: tuple[bytes, int, int, int]) -> Head:
    channel_id, seq, closed, position = row
    return Head(channel_id=_text(channel_id), seq=seq, closed=bool(closed), position=position)


def _text(cell: bytes) -> str:
    # Bytes that are no text are nobody's name; they are not worth an error for every channel.
    return cell.decode(errors="replace")
