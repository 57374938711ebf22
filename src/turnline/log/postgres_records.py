"""A `PostgresLog`'s tables to look at: in read-only transactions, on the primary or a standby."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Final, TypeVar

import psycopg
from psycopg import AsyncConnection

from turnline.core.codec import Record
from turnline.errors import CorruptRecord
from turnline.log import postgres_reader as queries
from turnline.log.base import Blob, Tombstone
from turnline.log.listing import COLUMNS, contradiction_in, read_row
from turnline.log.postgres_reader import DAMAGE, Query, Reader
from turnline.log.postgres_server import ReadOnlyServer, Row
from turnline.log.records import Indexed, every_tombstone, read_until_damage

PAGE_CHANNELS: Final = 500

# Each name is found by a step in the index, however many records it has.
_CHANNELS: Final = f"""
WITH RECURSIVE named AS (
    (SELECT channel FROM turnline_records WHERE channel > %(after)s ORDER BY channel LIMIT 1)
    UNION ALL
    SELECT (
        SELECT record.channel FROM turnline_records AS record
        WHERE record.channel > named.channel ORDER BY record.channel LIMIT 1
    ) FROM named WHERE named.channel IS NOT NULL
)
SELECT channel,
    EXISTS (SELECT FROM turnline_tombstones AS one WHERE one.channel = both_of_them.channel)
FROM (
    (SELECT channel FROM named WHERE channel IS NOT NULL LIMIT {PAGE_CHANNELS})
    UNION
    (SELECT channel FROM turnline_heads WHERE channel > %(after)s ORDER BY channel LIMIT {PAGE_CHANNELS})
) AS both_of_them ORDER BY channel LIMIT {PAGE_CHANNELS}
"""
_INDEXED: Final = f"""
SELECT seq, hash, closed, {", ".join(COLUMNS)},
    ARRAY (SELECT tag FROM turnline_tags AS one WHERE one.channel = head.channel)
FROM turnline_heads AS head WHERE channel = %s
"""
_FACTS: Final = """
SELECT current_setting('server_version'), current_database(),
    pg_size_pretty(pg_total_relation_size('turnline_records')), pg_is_in_recovery()
"""

T = TypeVar("T")


class PostgresRecords:
    """See `turnline.log.records.Records`. Raises `LogUnavailable` for tables that are not a log's."""

    can_rewrite = True

    def __init__(self, address: str) -> None:
        self._durability = ""
        self._server = ReadOnlyServer(address, checked=self._take_note)
        self.address = self._server.address
        self._reader = Reader(self._server)

    async def channels(self) -> AsyncGenerator[str]:
        after: str | None = ""
        while after is not None:
            rows = await self._ask(partial(_rows, query=_CHANNELS, parameters={"after": after}))
            for name, is_pruned in rows:
                if not is_pruned:
                    yield name
            after = rows[-1][0] if rows else None

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncGenerator[Record]:
        more = True
        while more:
            try:
                page = await self._reader.ask(partial(queries.page, channel_id=channel_id, after=after))
            except DAMAGE as error:
                because = self._server.reason(error)
                raise CorruptRecord(channel_id, seq=after + 1, because=because) from None
            except psycopg.Error as error:
                raise self._server.unavailable(error) from None
            for record in page.records:
                yield record
                after = max(after, record.seq)
            more = page.more

    async def indexed(self, channel_id: str) -> Indexed | None:
        for found in await self._ask(partial(_rows, query=_INDEXED, parameters=(channel_id,))):
            seq, hash_, closed, *columns, tags = found
            return Indexed(
                seq=seq,
                hash=hash_,
                closed=closed,
                listed=not closed,
                row=None if columns[0] is None else read_row(columns[-1]),
                contradiction=contradiction_in(columns, tags),
            )
        return None

    async def blobs(self, root: str | None = None) -> list[Blob]:
        query, values = (queries.COMPLETE, ()) if root is None else (queries.OF_ROOT, (root,))
        found = await self._ask(partial(queries.blobs, query=query, values=values))
        return [blob for blob in found if blob.digest]

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        return await self._ask(partial(queries.chunk, blob=blob, number=number))

    async def tombstones(self) -> AsyncGenerator[Tombstone]:
        async for one in every_tombstone(self._tombstones):
            yield one

    async def _tombstones(self, *, after: str, limit: int) -> list[Tombstone]:
        return await self._ask(partial(queries.tombstones, after=after, limit=limit))

    async def readable(self, channel_id: str) -> list[Record]:
        return await read_until_damage(self, channel_id)

    async def damage(self) -> list[str]:
        return []

    async def facts(self) -> dict[str, str]:
        ((version, database, size, is_standby),) = await self._ask(
            partial(_rows, query=_FACTS, parameters=())
        )
        return {
            "durability": self._durability,
            "PostgreSQL": version,
            "database": database,
            "size of the records": size,
            "role": "standby" if is_standby else "primary",
        }

    async def close(self) -> None:
        await self._server.close()

    async def _ask(self, query: Query[T]) -> T:
        try:
            return await self._reader.ask(query)
        except psycopg.Error as error:
            raise self._server.unavailable(error) from None

    def _take_note(self, durability: str) -> None:
        self._durability = durability


async def _rows(
    connection: AsyncConnection[Row], query: str, parameters: dict[str, str] | tuple[str, ...]
) -> list[Row]:
    return await (await connection.execute(query.encode(), parameters)).fetchall()
