"""A log as it is kept, opened to look at and not to touch.

    channels     every channel there is
    read         its records, as they are, unchecked: whoever reads passes them through a `Chain`
    indexed      what the backend's index says of a channel
    tombstones   what is left of pruned channels
    damage       what the storage itself finds wrong

Rule 1: looking changes nothing and makes nothing. A log that is not there is a `LogUnavailable`.

Rule 2: it may be looked at while hubs write. An index is asked after the records were read, so
it may be ahead of them, and never behind.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from msgspec import Struct

from turnline.core.channel import ChannelRow
from turnline.core.codec import Record
from turnline.errors import CorruptRecord, LogUnavailable, MissingExtra, UnknownName
from turnline.log.address import PLAIN_SUFFIX
from turnline.log.base import Blob, Chunks, Log, Tombstone
from turnline.log.memory import MemoryLog

PAGE_TOMBSTONES: Final = 1_000
NOTE: Final = "note"


class Indexed(Struct, frozen=True, kw_only=True):
    """What the index says of a channel: where it ends, and its row."""

    seq: int
    hash: bytes | None
    """None: this backend keeps none beside the records."""
    closed: bool
    listed: bool
    """Whether a list of open channels would name it."""
    row: ChannelRow | None = None
    """What lists show of it; None if it is in none."""
    contradiction: str = ""
    """What parts of the index say differently; empty if they agree."""


class Records(Chunks, Protocol):
    """A log to look at."""

    address: str
    """Where it is kept, for people: without a password."""
    can_rewrite: bool
    """Whether a repair can write any channel again. Otherwise only those of the hub's own."""

    def channels(self) -> AsyncGenerator[str]:
        """Yield every channel that has records or an entry in the index, by id. Raises `LogUnavailable`."""
        ...

    def read(self, channel_id: str, *, after: int = 0) -> AsyncGenerator[Record]:
        """Yield the records behind `after`. Raises `CorruptRecord` where there is nothing to yield."""
        ...

    async def indexed(self, channel_id: str) -> Indexed | None:
        """Return what the index says, or None for a channel it does not have. Raises `CorruptRecord`."""
        ...

    async def blobs(self, root: str | None = None) -> list[Blob]:
        """Return the complete files of a tree, or of all trees, the oldest first, without their bytes."""
        ...

    def tombstones(self) -> AsyncGenerator[Tombstone]:
        """Yield what is left of pruned channels, by id. `channels` does not yield those."""
        ...

    async def readable(self, channel_id: str) -> list[Record]:
        """Return every record that can be read at all, whatever is wrong with it or with others."""
        ...

    async def damage(self) -> list[str]:
        """Return what is wrong with the storage as a whole; none of it belongs to a channel."""
        ...

    async def facts(self) -> dict[str, str]:
        """Return what there is to say of the backend, for people. `NOTE` is what `verify` says as well."""
        ...

    async def close(self) -> None: ...


class TombstonePage(Protocol):
    """Asks for some tombstones: see `turnline.log.base.Prunes`."""

    async def __call__(self, *, after: str, limit: int) -> list[Tombstone]: ...


async def every_tombstone(page: TombstonePage) -> AsyncGenerator[Tombstone]:
    """Yield all of them, by pages."""
    after: str | None = ""
    while after is not None:
        found = await page(after=after, limit=PAGE_TOMBSTONES)
        for one in found:
            yield one
        after = found[-1].channel_id if found else None


class MemoryRecords:
    """See `Records`."""

    can_rewrite = True

    def __init__(self, log: MemoryLog) -> None:
        self.address = log.address
        self._log = log

    async def channels(self) -> AsyncGenerator[str]:
        for channel_id in sorted(
            {*self._log.records, *(head.channel_id for head in await self._log.channels())}
        ):
            yield channel_id

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncGenerator[Record]:
        for record in self._log.records.get(channel_id, [])[after:]:
            yield record

    async def indexed(self, channel_id: str) -> Indexed | None:
        head = await self._log.head(channel_id)
        if head is None:
            return None
        row = await self._log.row(channel_id)
        return Indexed(seq=head.seq, hash=None, closed=head.closed, listed=not head.closed, row=row)

    async def blobs(self, root: str | None = None) -> list[Blob]:
        roots = sorted(self._log.records) if root is None else [root]
        return [blob for one in roots for blob in await self._log.blobs(one) if blob.digest]

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        return await self._log.read_chunk(blob, number)

    async def tombstones(self) -> AsyncGenerator[Tombstone]:
        async for one in every_tombstone(self._log.tombstones):
            yield one

    async def readable(self, channel_id: str) -> list[Record]:
        return await read_until_damage(self, channel_id)

    async def damage(self) -> list[str]:
        return []

    async def facts(self) -> dict[str, str]:
        return {"durability": self._log.durability}

    async def close(self) -> None:
        """Do nothing: the log is somebody else's."""


async def read_until_damage(records: Records, channel_id: str) -> list[Record]:
    """Return the records of a channel up to one that the storage cannot give out."""
    found: list[Record] = []
    with suppress(CorruptRecord):
        async for record in records.read(channel_id):
            found.append(record)
    return found


async def open_records(address: str) -> Records:
    """Return what is kept at `address`. Raises `LogUnavailable`, or `UnknownName` for an unknown scheme."""
    scheme, colon, _ = address.partition(":")
    if scheme in _SCHEMES and colon:
        return await _SCHEMES[scheme](address)
    if address.endswith(PLAIN_SUFFIX) and "://" not in address:
        return await _sqlite(f"sqlite:///{address}")
    # Only the scheme: the rest may hold a password.
    raise UnknownName(
        "log scheme",
        scheme if colon else address,
        _SCHEMES,
        do=f"Or give a file that ends in {PLAIN_SUFFIX!r}.",
    )


@asynccontextmanager
async def looking_at_log(address: str, log: Log) -> AsyncIterator[Records]:
    """Yield an open log to look at. `address` is where it is, with its password."""
    records = MemoryRecords(log) if isinstance(log, MemoryLog) else await open_records(address)
    try:
        yield records
    finally:
        await records.close()


async def _memory(address: str) -> Records:
    raise LogUnavailable(address, because="it ends with its process, so there is nothing to look at")


async def _sqlite(address: str) -> Records:
    from turnline.log.sqlite_records import SqliteRecords  # noqa: PLC0415  As for the others.

    path = address.removeprefix("sqlite:///")
    if path == address or not path:
        raise LogUnavailable(address, because="expected `sqlite:///` and the path of a file")
    return SqliteRecords(path)


async def _nats(address: str) -> Records:
    try:
        from turnline.log.nats_records import NatsRecords  # noqa: PLC0415  Only whoever asks needs nats-py.
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("nats", "cryptography")):
            raise
        raise MissingExtra("logs on NATS", extra="nats") from None
    return await NatsRecords.open(address)


async def _postgres(address: str) -> Records:
    try:
        from turnline.log.postgres_records import PostgresRecords  # noqa: PLC0415  The same for psycopg.
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        raise MissingExtra("logs on PostgreSQL", extra="postgres") from None
    return PostgresRecords(address)


_SCHEMES: Final[dict[str, Callable[[str], Awaitable[Records]]]] = {
    "memory": _memory,
    "nats": _nats,
    "postgres": _postgres,
    "postgresql": _postgres,
    "sqlite": _sqlite,
}
