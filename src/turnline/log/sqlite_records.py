"""A `SqliteLog`'s file to look at: opened read-only, so that nothing is made, mended or synced."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from threading import Lock
from typing import Final, TypeVar
from urllib.parse import quote

from turnline.core.codec import Record
from turnline.errors import CorruptRecord, LogUnavailable
from turnline.errors.base import count_of
from turnline.log import sqlite_reader as queries
from turnline.log.base import Blob, Tombstone
from turnline.log.blobs import COMPLETE, OF_ROOT
from turnline.log.listing import COLUMNS, contradiction_in, read_row
from turnline.log.records import NOTE, Indexed, every_tombstone, read_until_damage
from turnline.log.sqlite_file import (
    MOUNTS,
    SQLITE_RAISES,
    check_owner,
    file_system,
    has_own_schema,
    reason,
)
from turnline.log.sqlite_pages import count_hidden
from turnline.log.sqlite_work import mark_of

BUSY_TIMEOUT_SECONDS: Final = 10.0
MAX_WAL_BYTES: Final = 64 * 1024 * 1024
"""A larger -wal file is not searched for hidden frames."""
MAX_FAULTS: Final = 10
"""Of the file's own check; whoever has ten needs a backup, not the eleventh."""

_CHANNELS: Final = """
SELECT coalesce(CAST(id AS BLOB), x'')
FROM turnline_names
ORDER BY id
"""
_NAMELESS: Final = """
SELECT count(*) FROM (SELECT DISTINCT channel FROM turnline_records)
WHERE channel IS NULL OR (
    channel NOT IN (SELECT channel FROM turnline_names)
    AND channel NOT IN (SELECT channel FROM turnline_tombstones WHERE channel IS NOT NULL)
)
"""
_INDEXED: Final = f"""
SELECT seq, CAST(hash AS BLOB), closed, channel, {", ".join(COLUMNS)}
FROM turnline_names JOIN turnline_heads USING (channel) WHERE id = ?
"""
_FACTS: Final = {
    "journal mode": "PRAGMA journal_mode",
    "page bytes": "PRAGMA page_size",
    "pages": "PRAGMA page_count",
    "free pages": "PRAGMA freelist_count",
}

T = TypeVar("T")


class SqliteRecords:
    """See `turnline.log.records.Records`. Raises `LogUnavailable` for a file that is not a log."""

    can_rewrite = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.address = f"sqlite:///{self.path}"
        self._lock = Lock()
        if self.path.is_dir():
            raise LogUnavailable(self.address, because="it is a folder; name a file in it")
        if not self.path.is_file():
            raise LogUnavailable(self.address, because="there is no such file")
        with self._told():
            self._connection = _connect(self.path)
            try:
                self._check()
            except BaseException:
                self._connection.close()
                raise

    async def channels(self) -> AsyncGenerator[str]:
        for (name,) in await self._ask(lambda connection: connection.execute(_CHANNELS).fetchall()):
            yield name.decode(errors="replace")

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncGenerator[Record]:
        more = True
        while more:
            try:
                page = await self._query(partial(queries.page, channel_id=channel_id, after=after))
            except SQLITE_RAISES as error:
                raise self._blamed(channel_id, after + 1, error) from error
            for record in page.records:
                yield record
                after = max(after, record.seq)
            more = page.more

    async def indexed(self, channel_id: str) -> Indexed | None:
        try:
            return await self._query(partial(_indexed, channel_id=channel_id))
        except SQLITE_RAISES as error:
            raise self._blamed(channel_id, 0, error) from error

    async def blobs(self, root: str | None = None) -> list[Blob]:
        query, values = (COMPLETE, ()) if root is None else (OF_ROOT, (root,))
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
        try:
            rows = await self._query(
                lambda connection: connection.execute(f"PRAGMA integrity_check({MAX_FAULTS})").fetchall()
            )
        except SQLITE_RAISES as error:
            return [reason(error)]
        faults = [fault for (fault,) in rows if fault != "ok"]
        if not await self._ask(has_own_schema):
            faults.append("its tables are not described as they were made")
        return faults + await self._ask(_nameless)

    async def facts(self) -> dict[str, str]:
        return await self._ask(self._facts)

    async def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _check(self) -> None:
        check_owner(self._connection, self.address)
        tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_schema")}
        if not tables >= {"turnline_records", "turnline_heads"}:
            because = (
                "it is empty"
                if not tables
                else "its index `turnline_heads` is not there; a hub makes it anew"
            )
            raise LogUnavailable(self.address, because=because)

    def _facts(self, connection: Connection) -> dict[str, str]:
        wal = Path(f"{self.path}-wal")
        mounts = MOUNTS.read_text() if MOUNTS.exists() else ""
        return {
            "durability": "power, unless whoever writes opened it with durability='process'",
            "SQLite": sqlite3.sqlite_version,
            "file bytes": str(self.path.stat().st_size),
            "write-ahead bytes": str(wal.stat().st_size if wal.exists() else 0),
            "file system": file_system(self.path, mounts) or "unknown",
            **_note(wal),
            **{name: str(connection.execute(query).fetchone()[0]) for name, query in _FACTS.items()},
        }

    async def _ask(self, query: Callable[[Connection], T]) -> T:
        with self._told():
            return await self._query(query)

    async def _query(self, query: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(self._alone, query)

    def _alone(self, query: Callable[[Connection], T]) -> T:
        with self._lock:
            return query(self._connection)

    def _blamed(self, channel_id: str, seq: int, error: Exception) -> CorruptRecord | LogUnavailable:
        if queries.is_damage(error):
            return CorruptRecord(channel_id, seq=seq, because=reason(error))
        return LogUnavailable(self.address, because=reason(error))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLITE_RAISES as error:
            raise LogUnavailable(self.address, because=reason(error)) from error


def _note(wal: Path) -> dict[str, str]:
    """Say that a -wal file may hide commits: frames of it follow one that SQLite takes for the end."""
    for _ in range(2):  # The last frame may just be written: look twice.
        if not wal.exists() or not 0 < wal.stat().st_size <= MAX_WAL_BYTES:
            return {}
        hidden = count_hidden(wal.read_bytes())
        if not hidden:
            return {}
    return {
        NOTE: f"the -wal file has {count_of(hidden, 'frame')} after its first wrong checksum, and SQLite "
        "does not read them. After a loss of power this is normal: they were not acknowledged. Otherwise "
        "the file is damaged, and the last commits are hidden; a seal that you kept says which. What is "
        "read is whole"
    }


def _indexed(connection: Connection, channel_id: str) -> Indexed | None:
    found = connection.execute(_INDEXED, (channel_id,)).fetchone()
    if found is None:
        return None
    seq, hash_, closed, channel, *columns = found
    tags = connection.execute("SELECT tag FROM turnline_tags WHERE channel = ?", (channel,))
    body = columns[-1] if isinstance(columns[-1], bytes) else None
    return Indexed(
        seq=seq if isinstance(seq, int) else 0,
        hash=hash_ or b"",
        closed=bool(closed),
        listed=not closed,
        row=None if columns[0] is None else read_row(body),
        contradiction=contradiction_in(columns, [tag for (tag,) in tags]),
    )


def _nameless(connection: Connection) -> list[str]:
    """Return what is wrong with the names of channels."""
    found = connection.execute(_NAMELESS).fetchone()[0]
    names = connection.execute("SELECT coalesce(CAST(id AS BLOB), x''), mark FROM turnline_names")
    wrong = sum(mark_of(name.decode(errors="replace")) != mark for name, mark in names)
    table = "in the table `turnline_names`"
    return [
        *([f"without a name {table}: {count_of(found, 'channel')} with records"] if found else []),
        *([f"with a wrong mark {table}: {count_of(wrong, 'name')}"] if wrong else []),
    ]


def _connect(path: Path) -> Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro",
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
