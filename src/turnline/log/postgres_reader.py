"""Reading a `PostgresLog`: queries, on a few connections at a time.

A channel is read in pages, so its length does not matter. A query whose connection was lost is asked
once more: it changes nothing.
"""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection
from psycopg.errors import DataCorrupted, IndexCorrupted

from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import NO_HASH, Record
from turnline.log import blobs as files
from turnline.log.base import Blob, ChannelEnd, Head, Tombstone, read_tombstone
from turnline.log.listing import needs_codes, page_query, read_row, read_rows
from turnline.log.pages import Page
from turnline.log.postgres_schema import DIALECT
from turnline.log.postgres_server import ConnectionLost, PostgresServer, Row
from turnline.log.sqlite_work import snapshot_checksum

READERS: Final = 4
PAGE_RECORDS: Final = 256
PAGE_BYTES: Final = 4 * 1024 * 1024
"""A page ends with the record that passes it."""

DAMAGE: Final = (DataCorrupted, IndexCorrupted)

_PAGE: Final = f"""
SELECT head.seq, before.hash, page.seq, page.envelope_id, page.head, page.hash, page.payload, page.more
FROM (SELECT) AS one
LEFT JOIN turnline_heads AS head ON head.channel = %(channel)s
LEFT JOIN turnline_records AS before ON before.channel = %(channel)s AND before.seq = %(after)s
LEFT JOIN LATERAL (
    SELECT *, lead(seq) OVER (ORDER BY seq) IS NOT NULL AS more FROM (
        SELECT seq, envelope_id, head, hash, payload, sum(size) OVER (ORDER BY seq) - size AS bytes_before
        FROM turnline_records,
            LATERAL (SELECT octet_length(head) + coalesce(octet_length(payload), 0) AS size) AS sized
        WHERE channel = %(channel)s AND seq > %(after)s
            AND NOT EXISTS (SELECT FROM turnline_tombstones AS one WHERE one.channel = %(channel)s)
        ORDER BY seq LIMIT {PAGE_RECORDS}
    ) AS records
) AS page ON page.bytes_before < {PAGE_BYTES}
ORDER BY page.seq
"""
_FIND: Final = """
SELECT record.seq, record.envelope_id, record.head, record.hash, record.payload, before.hash
FROM turnline_records AS record
LEFT JOIN turnline_records AS before ON before.channel = record.channel AND before.seq = record.seq - 1
WHERE record.channel = %s AND record.envelope_id = %s
    AND NOT EXISTS (SELECT FROM turnline_tombstones AS one WHERE one.channel = record.channel)
"""
_HEAD: Final = "SELECT channel, seq, closed, least(position, %s) FROM turnline_heads"
_OPEN: Final = {None: "TRUE", False: "NOT closed", True: "closed"}

T = TypeVar("T")
Query = Callable[[AsyncConnection[Row]], Awaitable[T]]


class Reader:
    """Runs queries, a few at a time."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._free = Semaphore(READERS)

    async def ask(self, query: Query[T]) -> T:
        """Return what `query` makes of a connection. Raises `LogUnavailable`, and PostgreSQL's own errors."""
        async with self._free:
            try:
                return await self._once(query)
            except ConnectionLost:
                return await self._once(query)

    async def _once(self, query: Query[T]) -> T:
        async with self._server.connection() as connection:
            return await query(connection)


async def page(connection: AsyncConnection[Row], channel_id: str, after: int) -> Page:
    """Return the records behind `after`, up to a page's limits."""
    rows = await _rows(connection, _PAGE, {"channel": channel_id, "after": after})
    end, previous, *_ = rows[0]
    records = [_record(row[2:7]) for row in rows if row[2] is not None]
    more = bool(records) and (rows[-1][7] or len(records) == PAGE_RECORDS)
    # A record that should be there and is not leaves its follower without a chain, and unreadable.
    return Page(records=records, more=more, end=end or 0, previous=previous or NO_HASH)


async def record_with(
    connection: AsyncConnection[Row], channel_id: str, envelope_id: str
) -> tuple[Record, bytes] | None:
    """Return the record with this id and the hash of the one before it."""
    for row in await _rows(connection, _FIND, (channel_id, envelope_id)):
        return _record(row[:5]), row[5] or NO_HASH
    return None


async def head_of(connection: AsyncConnection[Row], channel_id: str) -> Head | None:
    rows = await _rows(connection, f"{_HEAD} WHERE channel = %s", (await horizon(connection), channel_id))
    return _head(rows[0]) if rows else None


async def heads_by_name(
    connection: AsyncConnection[Row], closed: bool | None, after: str, limit: int | None
) -> list[Head]:
    query = f"{_HEAD} WHERE channel > %s AND {_OPEN[closed]} ORDER BY channel LIMIT %s"
    rows = await _rows(connection, query, (await horizon(connection), after, limit))
    return [_head(row) for row in rows]


async def rows(
    connection: AsyncConnection[Row], where: ChannelFilter, after: ChannelRow | None, limit: int
) -> list[ChannelRow]:
    """Return a page of the index."""
    codes = [code for (code,) in await _rows(connection, DIALECT.codes, ())] if needs_codes(where) else []
    query, values = page_query(DIALECT, where, after=after, limit=limit, codes=codes)
    return read_rows(body for _, _, body in await _rows(connection, query, values))


async def row_of(connection: AsyncConnection[Row], channel_id: str) -> ChannelRow | None:
    query = "SELECT row FROM turnline_heads WHERE channel = %s AND created IS NOT NULL"
    for (body,) in await _rows(connection, query, (channel_id,)):
        return read_row(body)
    return None


async def without_row(connection: AsyncConnection[Row], after: str, limit: int) -> list[str]:
    """Return channels without a row, by id; the hub's own never have one."""
    query = """
        SELECT channel FROM turnline_heads
        WHERE created IS NULL AND channel > %s AND left(channel, 1) <> '_' ORDER BY channel LIMIT %s
    """
    return [name for (name,) in await _rows(connection, query, (after, limit))]


async def heads_by_position(connection: AsyncConnection[Row], after: int) -> list[Head]:
    """Return a head for every channel appended to behind `after`, as far as nothing can come between."""
    query = "SELECT * FROM turnline_tail(%s, %s)"
    rows = await _rows(connection, query, (after, PAGE_RECORDS))
    newest = {row[0]: _head(row) for row in rows}
    return sorted(newest.values(), key=lambda head: head.position)


async def horizon(connection: AsyncConnection[Row]) -> int:
    """Return the position at and below which every append is finished.

    Asked for before heads are read, it is where a tail may start without missing one that was
    under way then.
    """
    ((position,),) = await _rows(connection, "SELECT turnline_horizon()", ())
    return int(position)


async def tombstone_of(connection: AsyncConnection[Row], channel_id: str) -> Tombstone | None:
    query = "SELECT body FROM turnline_tombstones WHERE channel = %s"
    for (body,) in await _rows(connection, query, (channel_id,)):
        return read_tombstone(body)
    return None


async def tombstones(connection: AsyncConnection[Row], after: str, limit: int) -> list[Tombstone]:
    query = "SELECT body FROM turnline_tombstones WHERE channel > %s ORDER BY channel LIMIT %s"
    return [read_tombstone(body) for (body,) in await _rows(connection, query, (after, limit))]


async def end_of(connection: AsyncConnection[Row], channel_id: str) -> ChannelEnd | None:
    query = "SELECT channel, seq, hash, position FROM turnline_heads WHERE channel = %s"
    for row in await _rows(connection, query, (channel_id,)):
        return _end(row)
    return None


async def ends_by_position(connection: AsyncConnection[Row], after: int, limit: int) -> list[ChannelEnd]:
    """Return where appends after a position left their channels, as far as nothing can come between."""
    query = """
        SELECT channel, seq, hash, position FROM turnline_records
        WHERE position > %s AND position <= %s ORDER BY position LIMIT %s
    """
    rows = await _rows(connection, query, (after, await horizon(connection), limit))
    newest = {row[0]: _end(row) for row in rows}
    return sorted(newest.values(), key=lambda end: end.position)


async def snapshot_of(connection: AsyncConnection[Row], channel_id: str) -> tuple[int, bytes] | None:
    try:
        query = "SELECT seq, checksum, body FROM turnline_snapshots WHERE channel = %s"
        rows = await _rows(connection, query, (channel_id,))
    except DAMAGE:  # A cache that cannot be read is an empty one.
        return None
    for seq, checksum, body in rows:
        return (seq, body) if snapshot_checksum(channel_id, seq, body) == checksum else None
    return None


async def save_snapshot(connection: AsyncConnection[Row], channel_id: str, seq: int, body: bytes) -> None:
    await connection.execute(
        "INSERT INTO turnline_snapshots VALUES (%s, %s, %s, %b) ON CONFLICT (channel) DO UPDATE "
        "SET seq = excluded.seq, checksum = excluded.checksum, body = excluded.body",
        (channel_id, seq, snapshot_checksum(channel_id, seq, body), body),
    )


async def delete_snapshots(connection: AsyncConnection[Row], channel_id: str | None = None) -> None:
    query = "DELETE FROM turnline_snapshots WHERE channel = coalesce(%s, channel)"
    await connection.execute(query, (channel_id,))


def _place(query: str) -> str:
    return query.replace("?", "%s")


DELETE_BLOB: Final = _place(files.DELETE[-1])
"""Its chunks go with it, also one that is being added."""
_ADD_BLOB: Final = f"{_place(files.ADD)} ON CONFLICT DO NOTHING"
_SET_BLOB: Final = _place(files.SET)
_OF_USER: Final = _place(files.OF_USER)
_ADD_CHUNK: Final = f"{_place(files.ADD_CHUNK)} ON CONFLICT DO NOTHING"
_CHUNK: Final = _place(files.CHUNK)
OF_ROOT: Final = _place(files.OF_ROOT)
OLD: Final = _place(files.OLD)
COMPLETE: Final = files.COMPLETE


async def add_blob(connection: AsyncConnection[Row], blob: Blob) -> None:
    await connection.execute(_ADD_BLOB, (*files.values_of(blob)[:-1], blob.is_kept))


async def set_blob(connection: AsyncConnection[Row], blob: Blob) -> None:
    values = (blob.digest, blob.size, blob.is_kept, blob.root, blob.blob_id)
    await connection.execute(_SET_BLOB, values)


async def add_chunk(connection: AsyncConnection[Row], blob: Blob, number: int, data: bytes) -> None:
    # As binary: as text it would take twice as many bytes on the way.
    await connection.execute(_ADD_CHUNK.replace("%s", "%b", 2), (number, data, blob.root, blob.blob_id))


async def blobs(connection: AsyncConnection[Row], query: str, values: Sequence[str | int]) -> list[Blob]:
    return [files.blob_of(row) for row in await _rows(connection, query, values)]


async def count_blobs(connection: AsyncConnection[Row], user_key: str, limit: int) -> tuple[int, int]:
    ((found, size),) = await _rows(connection, _OF_USER, (user_key, limit))
    return found, int(size)


async def chunk(connection: AsyncConnection[Row], blob: Blob, number: int) -> bytes | None:
    for (data,) in await _rows(connection, _CHUNK, (number, blob.root, blob.blob_id)):
        return bytes(data)
    return None


async def delete_blob(connection: AsyncConnection[Row], blob: Blob) -> None:
    await connection.execute(DELETE_BLOB, (blob.root, blob.blob_id))


async def _rows(connection: AsyncConnection[Row], query: str, parameters: Any) -> list[Row]:
    cursor = connection.cursor(binary=True)
    await cursor.execute(query, parameters)
    return await cursor.fetchall()


def _record(row: Row) -> Record:
    seq, envelope_id, head, hash_, payload = row
    return Record(seq=seq, envelope_id=envelope_id, head=head, hash=hash_, payload=payload)


def _end(row: Row) -> ChannelEnd:
    channel_id, seq, hash_, position = row
    return ChannelEnd(channel_id=channel_id, seq=seq, hash=hash_, position=position)


def _head(row: Row) -> Head:
    channel_id, seq, closed, position = row
    return Head(channel_id=channel_id, seq=seq, closed=closed, position=position)
