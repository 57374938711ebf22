"""A `NatsLog`'s streams to look at: no stream is made, none is changed.

What a message's headers say of its append is an index as well: each is compared with its records.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core.channel import ChannelRow
from turnline.core.codec import NO_HASH, Record
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord
from turnline.log.base import Blob, Tombstone, read_tombstone
from turnline.log.nats_address import NatsAddress
from turnline.log.nats_blobs import NatsBlobs
from turnline.log.nats_channel import SHORT
from turnline.log.nats_connection import Answer, Connection, Refused, server_version
from turnline.log.nats_keys import ChannelKeys, Keys
from turnline.log.nats_message import (
    RESTART,
    TOMBSTONE,
    Message,
    Summary,
    channel_of,
    erased_in,
    is_hidden,
    restarts,
    row_alone_in,
    row_in,
    summary_of,
    token,
    unpack,
)
from turnline.log.nats_reader import Reader
from turnline.log.nats_rows import first_line, read_people
from turnline.log.nats_stream import NO_STREAM, StreamConfig, durability_of, index_of, refuse_format
from turnline.log.records import Indexed

PATIENCE_SECONDS: Final = 20.0


class _State(Struct, frozen=True):
    messages: int = 0
    bytes: int = 0


class _Peer(Struct, frozen=True):
    name: str
    current: bool = False
    offline: bool = False


class _Cluster(Struct, frozen=True):
    name: str = ""
    leader: str = ""
    replicas: list[_Peer] = []


class StreamFacts(Answer, frozen=True):
    """What the servers say of the log's stream."""

    config: StreamConfig | None = None
    state: _State = _State()
    cluster: _Cluster = _Cluster()


class _Read(Struct, frozen=True):
    """How far a channel was read last, so that reading on does not begin anew."""

    channel_id: str = ""
    seq: int = 0
    position: int = 0
    hash: bytes = NO_HASH


class NatsRecords:
    """See `turnline.log.records.Records`."""

    can_rewrite = False

    def __init__(self, connection: Connection, found: StreamFacts, *, index_is_whole: bool) -> None:
        self.address = connection.address.text
        self._connection = connection
        self._found = found
        self._stream = connection.address.stream
        self._reader = Reader(connection, self._stream)
        self._index = Reader(connection, index_of(self._stream))
        self._keys = Keys(connection)
        self._blobs = NatsBlobs(connection, self._keys)
        self._index_is_whole = index_is_whole
        self._last = _Read()

    @classmethod
    async def open(cls, address: str, *, patience_seconds: float = PATIENCE_SECONDS) -> NatsRecords:
        """Connect to what is there. Raises `LogUnavailable`, also if there is no stream."""
        connection = Connection(NatsAddress(address), patience_seconds=patience_seconds)
        try:
            found = await stream_facts(connection)
            whole = await _index_is_whole(connection)
        except BaseException:
            await connection.close()
            raise
        return cls(connection, found, index_is_whole=whole)

    async def channels(self) -> AsyncGenerator[str]:
        pruned = set(await self._pruned())
        for name in sorted(map(channel_of, await self._reader.subjects(f"{self._stream}.*"))):
            if name not in pruned or not is_hidden(await self._reader.last(self._subject(name))):
                yield name

    async def tombstones(self) -> AsyncGenerator[Tombstone]:
        for name in sorted(await self._pruned()):
            kept = await self._index.last(f"{self._index.stream}.pruned.{token(name)}")
            if kept is not None and is_hidden(await self._reader.last(self._subject(name))):
                yield read_tombstone(kept.payload)

    async def _pruned(self) -> list[str]:
        """Return the pruned channels, and perhaps others."""
        if not self._index_is_whole:
            return []
        return [channel_of(one) for one in await self._index.subjects(f"{self._index.stream}.pruned.*")]

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncGenerator[Record]:
        last = await self._reader.last(self._subject(channel_id))
        if last is None or is_hidden(last):
            return
        keys = ChannelKeys(self._keys, channel_id, with_every=True)
        read = self._last if self._last.channel_id == channel_id and self._last.seq <= after else _Read()
        restart = await self._restart(channel_id, last)
        if restart is not None and read.position < restart.position:
            read = _Read(channel_id, 0, restart.position - 1, NO_HASH)
        async with aclosing(self._messages(channel_id, read.position, last)) as messages:
            async for message in messages:
                if TOMBSTONE in message.headers or message.headers.get(RESTART) == "0":
                    continue
                records = _checked(channel_id, message, seq=read.seq + 1, previous=read.hash)
                for record in records:
                    if record.seq > after:
                        yield await self._content(keys, record)
                end = records[-1]
                read = self._last = _Read(channel_id, end.seq, message.position, end.hash)
        if restart is not None and read.seq < int(restart.headers[RESTART]):
            because = "its repair was not finished; run `turnline log repair` again"
            raise CorruptRecord(channel_id, seq=read.seq + 1, because=because)

    async def readable(self, channel_id: str) -> list[Record]:
        """See `Records.readable`. Also of messages before a restart: a repair may not have been finished."""
        found: list[Record] = []
        keys = ChannelKeys(self._keys, channel_id, with_every=True)
        last = await self._reader.last(self._subject(channel_id))
        if last is not None:
            async with aclosing(self._messages(channel_id, 0, last)) as messages:
                async for message in messages:
                    with suppress(CorruptRecord):
                        found += [await keys.decrypt(one) for one in unpack(channel_id, message, seq=0)[1]]
        return found

    async def _restart(self, channel_id: str, last: Message) -> Message | None:
        """Return the last message with which a channel of the hub's own begins again."""
        found = None
        if channel_id.startswith("_"):
            scan = self._reader.scan(self._subject(channel_id), after=0, headers_only=True)
            async with aclosing(self._reader.up_to(last.position, scan)) as messages:
                async for message in messages:
                    found = message if restarts(message) else found
        return found

    async def _content(self, keys: ChannelKeys, record: Record) -> Record:
        """Return a record with the content that its key opens.

        After an erase, a writer that knew nothing of it may have made a key that opens nothing.
        """
        kept = await keys.decrypt(record)
        if kept.payload is None or kept.payload is not record.payload:
            return kept
        return replace(record, payload=None) if record.seq in await self._erased(keys.channel_id) else kept

    async def _erased(self, channel_id: str) -> set[int]:
        """Return the lines whose content was erased, as the channel's lines say."""
        found = set[int]()
        if (last := await self._reader.last(self._subject(channel_id))) is not None:
            async with aclosing(self._messages(channel_id, 0, last)) as messages:
                async for message in messages:
                    _, records = unpack(channel_id, message, seq=0)
                    for note, first, end in _erased(records):
                        found.update(range(max(first, 1), min(end, note) + 1))
        return found

    async def indexed(self, channel_id: str) -> Indexed | None:
        last = await self._reader.last(self._subject(channel_id))
        if last is None or is_hidden(last):
            return None
        told = _summary(channel_id, last, seq=0)
        listed = not told.closed
        if listed and self._index_is_whole:
            entry = f"{self._index.stream}.open.{token(channel_id)}"
            listed = await self._index.last(entry) is not None
        row = await self._row(channel_id, last, told)
        return Indexed(seq=told.last, hash=told.hash, closed=told.closed, listed=listed, row=row)

    async def _row(self, channel_id: str, last: Message, told: Summary) -> ChannelRow | None:
        """Return the row that counts, with its labels (`nats_rows`)."""
        alone = await self._index.last(f"{self._index.stream}.row.{token(channel_id)}")
        found = None if alone is None else row_alone_in(alone)
        current = found[1] if found is not None and found[0] == told.last else row_in(last)
        if current is None or not current.has_more:
            return None if current is None else current.row
        return (await read_people(channel_id, self._first_line)).complete(current.row)

    async def _first_line(self, channel_id: str) -> Envelope | None:
        return await first_line(self._reader, ChannelKeys(self._keys, channel_id))

    async def blobs(self, root: str | None = None) -> list[Blob]:
        return await self._blobs.list_complete(root)

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        return await self._blobs.read_chunk(blob, number)

    async def damage(self) -> list[str]:
        return []

    async def facts(self) -> dict[str, str]:
        found = self._found
        client = await self._connection.client()
        return {
            "durability": durability_of(found.config, found.cluster.name),
            "NATS server": server_version(client),
            "stream": self._stream,
            "replicas": str(found.config.num_replicas if found.config else 1),
            "messages": str(found.state.messages),
            "stream bytes": str(found.state.bytes),
            "max_payload": str(client.max_payload),
        }

    async def close(self) -> None:
        await self._connection.close()

    async def _messages(self, channel_id: str, position: int, last: Message) -> AsyncGenerator[Message]:
        """Yield the channel's messages behind a position. A few are asked of the leader, many are scanned."""
        subject = self._subject(channel_id)
        for _ in range(SHORT):
            if position >= last.position:
                return
            message = await self._reader.following(subject, after=position)
            if message is None:
                return
            yield message
            position = message.position
        if position < last.position:
            scan = self._reader.scan(subject, after=position, headers_only=False)
            async with aclosing(self._reader.up_to(last.position, scan)) as messages:
                async for message in messages:
                    yield message

    def _subject(self, channel_id: str) -> str:
        return f"{self._stream}.{token(channel_id)}"


async def stream_facts(connection: Connection) -> StreamFacts:
    """Return what the servers say of the log's stream. Raises `LogUnavailable` if there is none.

    Also for a log of another format.
    """
    try:
        found = await connection.ask(f"STREAM.INFO.{connection.address.stream}", {}, StreamFacts)
    except Refused as refused:
        because = "there is no such stream" if refused.err_code == NO_STREAM else str(refused)
        raise connection.unavailable(because) from None
    refuse_format(connection, found.config)
    return found


async def _index_is_whole(connection: Connection) -> bool:
    """Whether the index names every open channel; one that does not is made whole by the next hub."""
    name = index_of(connection.address.stream)
    try:
        await connection.ask(f"STREAM.INFO.{name}", {}, StreamFacts)
    except Refused:
        return False
    return await Reader(connection, name).last(f"{name}.whole") is not None


def _checked(channel_id: str, message: Message, *, seq: int, previous: bytes) -> list[Record]:
    """Return the records of a message whose headers and payload agree. Raises `CorruptRecord`."""
    told = _summary(channel_id, message, seq=seq)
    before, records = unpack(channel_id, message, seq=seq)
    ids = tuple(record.envelope_id for record in records)
    because = ""
    if not records:
        because = "its message holds no record"
    elif (told.first, told.last, told.hash) != (records[0].seq, records[-1].seq, records[-1].hash):
        because = f"its message's headers speak of {told.first} to {told.last}, its payload of other records"
    elif told.ids not in {None, ids}:
        because = "its message's headers name other ids than its payload"
    elif records[0].seq == seq and before != previous:
        because = "its message goes on from another record than the one before it"
    elif told.erased not in {None, _erased(records)}:
        because = "its message's headers name other erased lines than its payload"
    if because:
        raise CorruptRecord(channel_id, seq=seq, because=because)
    return records


def _erased(records: list[Record]) -> tuple[tuple[int, int, int], ...]:
    try:
        return erased_in(records)
    except ValueError:  # The chain says what is wrong with the record.
        return ()


def _summary(channel_id: str, message: Message, *, seq: int) -> Summary:
    try:
        return summary_of(message)
    except ValueError as error:
        raise CorruptRecord(channel_id, seq=seq, because=str(error)) from error
