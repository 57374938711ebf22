"""Pruning on a `PostgresLog` (Y3): tombstones, the deletion of lines in steps, and their restoration.

Rule: each function runs again after a lost connection and does no harm. Only tombstones and channels that are
closed are locked, so no append waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_bytes
from typing import Final

from psycopg import AsyncConnection

from turnline.core.codec import NO_HASH, SALT_BYTES, seal_all
from turnline.core.envelope import Envelope
from turnline.errors import LogConflict, OriginInUse
from turnline.log.base import Tombstone, check_restored, closes, read_tombstone, write_tombstone
from turnline.log.listing import key_of
from turnline.log.postgres_server import Row

_PRUNE: Final = """
SELECT * FROM turnline_prune(%b::text[], %b::bigint[], %b::bytea[], %b::text[], %b::bytea[])
"""
_UNDELETED: Final = "SELECT channel FROM turnline_tombstones WHERE has_lines LIMIT 1 FOR UPDATE"
_DELETE: Final = """
DELETE FROM turnline_records WHERE channel = %(channel)s AND seq IN (
    SELECT seq FROM turnline_records WHERE channel = %(channel)s ORDER BY seq DESC LIMIT %(limit)s
)
"""
_END: Final = "SELECT seq, hash FROM turnline_records WHERE channel = %s ORDER BY seq DESC LIMIT 1"
_INSERT: Final = """
INSERT INTO turnline_records (channel, seq, envelope_id, hash, head, payload, position)
VALUES (%s, %s, %s, %b, %b, %b, NULL)
"""
_PLACE: Final = """
UPDATE turnline_records SET position = nextval('turnline_positions') WHERE channel = %s AND seq = %s
RETURNING position
"""
_HEAD: Final = "INSERT INTO turnline_heads (channel, seq, hash, closed, position) VALUES (%s, %s, %b, %s, %s)"


async def prune(connection: AsyncConnection[Row], tombstones: Sequence[Tombstone]) -> None:
    """See `Prunes.prune`."""
    some = sorted(tombstones, key=lambda one: one.channel_id)
    values = (
        [one.channel_id for one in some],
        [one.seq for one in some],
        [one.hash for one in some],
        [key_of(one.channel_id) for one in some],
        [write_tombstone(one) for one in some],
    )
    cursor = await connection.execute(_PRUNE, values)
    for channel_id, wanted, found, fork in await cursor.fetchall():
        raise (
            OriginInUse(channel_id, fork=fork) if fork else LogConflict(channel_id, after=wanted, found=found)
        )


async def delete_pruned(connection: AsyncConnection[Row], limit: int) -> int:
    """See `Prunes.delete_pruned`."""
    async with connection.transaction():
        while True:
            found = await (await connection.execute(_UNDELETED)).fetchone()
            if found is None:
                return 0
            values = {"channel": found[0], "limit": limit}
            deleted = (await connection.execute(_DELETE, values)).rowcount
            if deleted < limit:
                statement = "UPDATE turnline_tombstones SET has_lines = false WHERE channel = %s"
                await connection.execute(statement, found)
            if deleted:
                return deleted


async def restore(
    connection: AsyncConnection[Row], channel_id: str, envelopes: Sequence[Envelope], after: int
) -> None:
    """See `Prunes.restore`."""
    async with connection.transaction():
        statement = "UPDATE turnline_tombstones SET has_lines = true WHERE channel = %s RETURNING body"
        body = await (await connection.execute(statement, (channel_id,))).fetchone()
        if body is not None and not after:
            await connection.execute("DELETE FROM turnline_records WHERE channel = %s", (channel_id,))
        found = await (await connection.execute(_END, (channel_id,))).fetchone()
        seq, previous = found or (0, NO_HASH)
        if body is not None and seq != after:
            raise LogConflict(channel_id, after=after, found=seq)
        records = seal_all(envelopes, previous, salt=token_bytes(SALT_BYTES))
        last = records[-1]
        is_whole = check_restored(None if body is None else read_tombstone(body[0]), channel_id, last)
        rows = [(channel_id, one.seq, one.envelope_id, one.hash, one.head, one.payload) for one in records]
        await connection.cursor().executemany(_INSERT, rows)
        if is_whole:
            await connection.execute("SELECT turnline_enter()")
            placed = await (await connection.execute(_PLACE, (channel_id, last.seq))).fetchone()
            is_closed = closes(envelopes[-1].event_type)
            await connection.execute(_HEAD, (channel_id, last.seq, last.hash, is_closed, *(placed or (0,))))
            await connection.execute("DELETE FROM turnline_tombstones WHERE channel = %s", (channel_id,))
