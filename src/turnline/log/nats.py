"""The log on NATS JetStream, for clusters: one stream, a subject for each channel.

    caller -> Channel (what this process knows) -> publish behind a position -> stream's leader

An append is one message; the server takes it only if the subject's last message
is the one the writer knows. An answer comes after a quorum of the stream's
servers has it. What a client cannot see is whether they synced it first: run
them with `sync_interval: always`, and with a `max_payload` above the largest
append (the default is 1 MiB; an append that is larger is refused, saying so).

Rule 1: an append's outcome is what the stream says. When an answer is missing,
or says "wrong sequence" or "duplicate" (a single server and a cluster answer a
retry differently), the message that follows the one expected is read from the
leader: either it is this very append, or somebody was first. If there is none,
the append is tried again with the same message id and the same expectation, so
at most one of the attempts lands.

Rule 2: message ids are of the whole stream, so they begin with the channel;
they name one call of `append`, not an envelope. Envelope ids are looked for in
what the process knows of the channel: see `nats_channel`.

Rule 3: a position is a stream sequence. Several event loops may share one
`NatsLog`; each has a connection of its own.

Rule 4: content is encrypted (`nats_keys`), and messages of the log are never
deleted. Content counts as erased from the moment a `payload.erased` names it;
its key is destroyed after that.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from datetime import datetime
from itertools import count
from secrets import token_bytes
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import NO_HASH, SALT_BYTES, Record, seal_all, unseal
from turnline.core.envelope import Envelope
from turnline.errors import ChannelPruned, CorruptRecord, DuplicateEnvelope, LogConflict, LogUnavailable
from turnline.log.base import Blob, ChannelEnd, Erasures, Head, Tombstone, check_append, check_restored
from turnline.log.nats_address import NatsAddress
from turnline.log.nats_blobs import NatsBlobs
from turnline.log.nats_channel import SHORT, Channel, Place
from turnline.log.nats_connection import NATS_RAISES, Connection, Refused, reason
from turnline.log.nats_index import Index
from turnline.log.nats_keys import CIPHER_BYTES, ChannelKeys, Keys, part_in
from turnline.log.nats_message import (
    EXPECTED_POSITION,
    EXPECTED_STREAM,
    MESSAGE_ID,
    RESTART,
    RESTORING,
    Message,
    channel_of,
    end_of,
    head_of,
    headers_of,
    headers_of_row,
    is_hidden,
    pack,
    summary,
    token,
    unpack,
)
from turnline.log.nats_prune import Pruning
from turnline.log.nats_reader import MAX_FILTERS, Reader
from turnline.log.nats_rows import RowCache, first_line
from turnline.log.nats_stream import open_streams

PATIENCE_SECONDS: Final = 20.0
"""How long servers may be away before an append gives up; a cluster elects a leader in less."""
MAX_CHANNELS: Final = 4_096
"""Channels a process knows at once; the one unused for longest is read anew when it is needed."""
PART_BYTES: Final = 256 * 1024
PART_RECORDS: Final = 1_000
"""Of a channel that is written again, in one message; it ends with the record that passes the bytes."""
HEADER_BYTES: Final = 64
"""What a header takes besides its name and value, at most."""
RECORD_BYTES: Final = CIPHER_BYTES + 128
"""What a record takes besides its id, head and content, at most."""


class Session:
    """What a `NatsLog` has in one event loop."""

    def __init__(self, address: NatsAddress, *, patience_seconds: float) -> None:
        self.connection = Connection(address, patience_seconds=patience_seconds)
        self.reader = Reader(self.connection, address.stream)
        self.keys = Keys(self.connection)
        self.index = Index(self.connection, self.keys)
        self.blobs = NatsBlobs(self.connection, self.keys)
        self.rows = RowCache(self.reader, self.index.reader, self._first_line)
        self.pruning = Pruning(self.connection, self.reader, self.index, self.rows, self.keys)
        self.durability = ""
        self._channels: OrderedDict[str, Channel] = OrderedDict()
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect and check the streams, once."""
        async with self._opening:
            if not self.durability:
                durability = await open_streams(self.connection)
                await self.index.complete(self.reader)
                self.durability = durability

    async def _first_line(self, channel_id: str) -> Envelope | None:
        return await first_line(self.reader, ChannelKeys(self.keys, channel_id))

    def forget(self, channel_id: str) -> None:
        """Read the channel again when it is needed."""
        self._channels.pop(channel_id, None)

    def channel(self, channel_id: str) -> Channel:
        """Return what is known of a channel, perhaps nothing yet."""
        channel = self._channels.get(channel_id)
        if channel is None:
            subject = f"{self.reader.stream}.{token(channel_id)}"
            channel = Channel(channel_id, subject, ChannelKeys(self.keys, channel_id))
            self._channels[channel_id] = channel
        self._channels.move_to_end(channel_id)
        if len(self._channels) > MAX_CHANNELS:
            self._channels.popitem(last=False)
        return channel


class NatsLog:
    """See `turnline.log.base.Log`, `Snapshots`, `Blobs` and `Prunes`.

    Connects when it is first used. Raises `LogUnavailable` for an address that
    cannot be understood; everything else waits for that first use.
    """

    def __init__(
        self, address: str, *, patience_seconds: float = PATIENCE_SECONDS, writer: str | None = None
    ) -> None:
        self._address = NatsAddress(address)
        self.address = self._address.text
        self.durability = "unknown until it is connected"
        self._patience_seconds = patience_seconds
        self._writer = writer or uuid4().hex
        self._appends = count(1)
        self._sessions: dict[AbstractEventLoop, Session] = {}
        self._closed = False
        self._outage = ""

    def __repr__(self) -> str:
        return f"NatsLog({self.address!r})"

    async def connect(self) -> None:
        """Connect, make or check the streams and set `durability`. Raises `LogUnavailable`."""
        await self._session()

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        """See `Log.append`. The row travels in the headers, without labels (`nats_rows`)."""
        check_append(channel_id, envelopes, after=after)
        if envelopes or row is not None:
            with self._told():
                await self._append(channel_id, envelopes, after=after, row=row)

    async def _append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None
    ) -> None:
        session = await self._session()
        channel = session.channel(channel_id)
        async with channel.appending:
            if channel.seq < after or channel.damage or channel.closed or not envelopes:
                # An open channel only grows: one that is known to be longer needs no question.
                await channel.catch_up(session.reader)
            channel.unpruned()
            if channel.seq != after:
                raise LogConflict(channel_id, after=after, found=channel.seq)
            channel.undamaged()
            if row is not None and row.origin and not after:
                await self._refuse_pruned(session, row.origin)
            _refuse_known(channel, envelopes)
            if envelopes:
                await self._write(session, channel, envelopes, row)
            elif row is not None and after > 0:
                await session.index.save_row(row, channel_id, seq=after)

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        session = await self._session()
        channel = session.channel(channel_id)
        erasures, previous = Erasures(channel_id), b""
        while True:
            whole = await channel.catch_up(session.reader)
            if channel.is_pruned:
                return
            damage, places = channel.damage, channel.since(after)
            async with aclosing(_messages(session.reader, channel, places, whole)) as messages:
                async for message in messages:
                    before, records = unpack(channel_id, message, seq=after + 1)
                    previous = previous or before
                    for record in records:
                        if record.seq > after:
                            kept = await _content(channel, record)
                            envelope = unseal(channel_id, kept, previous=previous, seq=after + 1)
                            erasures.add(envelope)
                            yield envelope
                            after = record.seq
                        previous = record.hash
            if damage is not None and damage.seq > after:
                raise damage
            if not places or not erasures.is_missing_any:
                break  # A key that is gone was destroyed after a line that says so: that is read as well.
        erasures.check()

    async def find(self, channel_id: str, envelope_id: str) -> Envelope | None:
        session = await self._session()
        channel = session.channel(channel_id)
        whole = await channel.catch_up(session.reader)
        position = None if channel.is_pruned else channel.ids.get(envelope_id)
        if position is None:
            channel.undamaged()
            return None
        message = whole.get(position) or await session.reader.at(position)
        place = channel.behind(position - 1)
        seq = place.first if place else 0
        if message is None:
            channel.forget()
            raise CorruptRecord(channel_id, seq=seq, because="its message is missing")
        previous, records = unpack(channel_id, message, seq=seq)
        for record in records:
            if record.envelope_id == envelope_id:
                kept = await _content(channel, record)
                return unseal(channel_id, kept, previous=previous, seq=record.seq)
            previous = record.hash
        raise CorruptRecord(channel_id, seq=seq, because=f"its message has no envelope {envelope_id!r}")

    async def head(self, channel_id: str) -> Head | None:
        session = await self._session()
        last = await session.reader.last(session.channel(channel_id).subject)
        return None if last is None or is_hidden(last) else head_of(last)

    async def channels(
        self, *, closed: bool | None = None, after: str = "", limit: int | None = None
    ) -> list[Head]:
        session = await self._session()
        subjects = await self._subjects(session, closed)
        wanted = [subjects[name] for name in sorted(subjects) if name > after]
        page = MAX_FILTERS if limit is None or closed else max(1, min(limit, MAX_FILTERS))
        heads: list[Head] = []
        for first in range(0, len(wanted), page):
            if limit is not None and len(heads) >= limit:
                break
            some = await session.reader.last_of_each(wanted[first : first + page])
            found = [head_of(last) for last in some if not is_hidden(last)]
            found.sort(key=lambda head: head.channel_id)
            heads += [head for head in found if closed is None or head.closed is closed]
            if closed is False:
                await self._forget_closed(session, found)
        return heads[:limit]

    async def rows(
        self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
    ) -> list[ChannelRow]:
        """See `Index.rows`, and `nats_rows` for what a page costs here."""
        return await (await self._session()).rows.rows(where, after=after, limit=limit)

    async def row(self, channel_id: str) -> ChannelRow | None:
        return await (await self._session()).rows.row(channel_id)

    async def without_row(self, *, after: str = "", limit: int) -> list[str]:
        return await (await self._session()).rows.without_row(after=after, limit=limit)

    async def end(self) -> int:
        return await (await self._session()).reader.end()

    async def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        """See `Log.tail`. Ends when the log is closed; raises `LogUnavailable` when its servers are away."""
        try:
            session = await self._session()
            scan = session.reader.scan(f"{session.reader.stream}.*", after=after, headers_only=True)
            async with aclosing(scan) as messages:
                async for message in messages:
                    session.rows.note(message, behind=after)
                    after = message.position
                    yield head_of(message)
        except LogUnavailable:
            if not self._closed:
                raise

    async def channel_end(self, channel_id: str) -> ChannelEnd | None:
        session = await self._session()
        last = await session.reader.last(session.channel(channel_id).subject)
        try:
            return None if last is None else end_of(last)
        except ValueError as error:
            raise CorruptRecord(channel_id, seq=0, because=str(error)) from error

    async def ends(self, *, after: int, limit: int) -> list[ChannelEnd]:
        session = await self._session()
        last = await session.reader.end()
        newest: dict[str, ChannelEnd] = {}
        if last <= after:
            return []
        scan = session.reader.scan(f"{session.reader.stream}.*", after=after, headers_only=True)
        async with aclosing(session.reader.up_to(last, scan)) as messages:
            async for message in messages:
                with suppress(ValueError):  # A damaged message is no end of anything.
                    end = end_of(message)
                    newest[end.channel_id] = end
                if len(newest) >= limit:
                    break
        return sorted(newest.values(), key=lambda end: end.position)

    async def replace(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        """See `Replaces`. Nothing is deleted: the first message says that the channel begins again."""
        check_append(channel_id, envelopes, after=0)
        session = await self._session()
        channel = session.channel(channel_id)
        records = seal_all(envelopes, NO_HASH, salt=token_bytes(SALT_BYTES))
        last = await session.reader.last(channel.subject)
        position, previous = 0 if last is None else last.position, NO_HASH
        await session.index.open(channel_id)
        encrypted = await channel.keys.encrypt_again(records, position=position)
        for first, end in _parts(records):
            told = summary(envelopes[first:end], records[first:end])
            headers = headers_of(told) | {
                MESSAGE_ID: f"{token(channel_id)}:{self._writer}:{next(self._appends)}",
                EXPECTED_POSITION: str(position),
                EXPECTED_STREAM: session.reader.stream,
            }
            if first == 0:
                headers[RESTART] = str(len(records))
            payload = pack(encrypted[first:end], previous)
            await self._refuse_large(session, len(payload), headers)
            try:
                position = (await session.connection.publish(channel.subject, payload, headers)).seq
            except Refused as refused:
                raise session.connection.unavailable(str(refused)) from refused
            except NATS_RAISES as error:
                raise session.connection.unavailable(reason(error)) from error
            previous = told.hash
        session.forget(channel_id)

    async def close(self) -> None:
        self._closed = True
        here = asyncio.get_running_loop()
        while self._sessions:
            loop, session = self._sessions.popitem()
            if loop is here:
                await session.connection.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(session.connection.close(), loop)
                await asyncio.wrap_future(closing)

    @property
    def outage(self) -> str:
        """See `TellsOutage`."""
        return self._outage

    async def prune(self, tombstones: Sequence[Tombstone]) -> None:
        with self._told():
            await (await self._session()).pruning.prune(tombstones)

    async def delete_pruned(self, *, limit: int) -> int:
        """See `Prunes.delete_pruned`. The servers delete all lines of a channel at once."""
        with self._told():
            return await (await self._session()).pruning.delete_pruned()

    async def tombstone(self, channel_id: str) -> Tombstone | None:
        return await (await self._session()).pruning.tombstone(channel_id)

    async def tombstones(self, *, after: str = "", limit: int) -> list[Tombstone]:
        return await (await self._session()).pruning.tombstones(after=after, limit=limit)

    async def restore(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        check_append(channel_id, envelopes, after=after)
        session = await self._session()
        channel = session.channel(channel_id)
        with self._told():
            async with channel.appending:
                tombstone = await session.pruning.tombstone(channel_id)
                if tombstone is not None and not after:
                    await session.index.note_undeleted(channel_id)
                    await session.pruning.clear(channel_id)
                    channel.keys.forget()
                await channel.catch_up(session.reader)
                if tombstone is not None and channel.seq != after:
                    raise LogConflict(channel_id, after=after, found=channel.seq)
                records = seal_all(envelopes, channel.hash, salt=token_bytes(SALT_BYTES))
                if not check_restored(tombstone, channel_id, records[-1]):
                    await self._write(session, channel, envelopes, None, more={RESTORING: "yes"})
                    return
                await self._write(session, channel, envelopes, None)
                await session.pruning.finish_restore(channel_id, first=channel.places[0].position)

    async def erase(
        self,
        channel_id: str,
        note: Envelope,
        *,
        after: int,
        row: ChannelRow | None,
        blobs: Sequence[Blob] = (),
    ) -> None:
        """See `Erases`: the note first, then the keys of lines and files."""
        await self.append(channel_id, [note], after=after, row=row)
        await self.finish_erasing(channel_id)
        await self.delete_blobs(blobs)

    async def finish_erasing(self, channel_id: str) -> None:
        with self._told():
            session = await self._session()
            channel = session.channel(channel_id)
            await channel.catch_up(session.reader)
            if channel.is_pruned:
                return  # Its keys are destroyed with its lines.
            channel.undamaged()
            await session.keys.destroy(channel_id, await _parts_to_destroy(session.reader, channel))
            channel.keys.forget()
            await session.index.delete_snapshots(channel_id)

    async def compact(self) -> None:
        """Do nothing: a key is overwritten where it was, and the rest cannot be read without it."""

    async def save_snapshot(self, channel_id: str, *, seq: int, body: bytes) -> None:
        with self._told():
            await (await self._session()).index.save_snapshot(channel_id, seq=seq, body=body)

    async def load_snapshot(self, channel_id: str) -> tuple[int, bytes] | None:
        return await (await self._session()).index.load_snapshot(channel_id)

    async def delete_snapshots(self) -> None:
        await (await self._session()).index.delete_snapshots()

    async def add_blob(self, blob: Blob) -> None:
        with self._told():
            await (await self._session()).blobs.add(blob)

    async def add_chunk(self, blob: Blob, number: int, data: bytes) -> None:
        with self._told():
            await (await self._session()).blobs.add_chunk(blob, number, data)

    async def set_blob(self, blob: Blob) -> None:
        with self._told():
            await (await self._session()).blobs.set(blob)

    async def blobs(self, root: str) -> list[Blob]:
        return await (await self._session()).blobs.of_root(root)

    async def count_blobs(self, user_key: str, *, limit: int) -> tuple[int, int]:
        return await (await self._session()).blobs.count(user_key, limit=limit)

    async def old_blobs(self, *, before: datetime, limit: int) -> list[Blob]:
        return await (await self._session()).blobs.list_old(before=before, limit=limit)

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        return await (await self._session()).blobs.read_chunk(blob, number)

    async def delete_blobs(self, blobs: Sequence[Blob]) -> None:
        with self._told():
            await (await self._session()).blobs.delete(blobs)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Take note of whether something could be written."""
        try:
            yield
        except LogUnavailable as error:
            self._outage = error.because
            raise
        self._outage = ""

    async def _session(self) -> Session:
        if self._closed:
            raise LogUnavailable(self.address, because="it has been closed")
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            session = Session(self._address, patience_seconds=self._patience_seconds)
            self._sessions[loop] = session
        await session.open()
        self.durability = session.durability
        return session

    async def _subjects(self, session: Session, closed: bool | None) -> dict[str, str]:
        """Return the subjects of the channels that may be listed, by channel."""
        stream = session.reader.stream
        if closed is False:
            return {name: f"{stream}.{token(name)}" for name in await session.index.open_channels()}
        return {channel_of(subject): subject for subject in await session.reader.subjects(f"{stream}.*")}

    async def _forget_closed(self, session: Session, heads: Sequence[Head]) -> None:
        for head in heads:
            if head.closed:
                await session.index.close(head.channel_id)

    async def _write(
        self,
        session: Session,
        channel: Channel,
        envelopes: Sequence[Envelope],
        row: ChannelRow | None,
        *,
        more: dict[str, str] | None = None,
    ) -> None:
        """Write an append, with `more` headers. Raises `LogConflict`, and `ChannelPruned`."""
        # Others who read may move the channel on while this waits, so all of it is said at once.
        expected = channel.position
        previous, after, note = channel.hash, channel.seq, channel.note
        records = seal_all(envelopes, previous, salt=token_bytes(SALT_BYTES))
        told = summary(envelopes, records)
        of_row = {} if row is None else headers_of_row(row)
        headers = (
            headers_of(told)
            | of_row
            | (more or {})
            | {
                MESSAGE_ID: f"{channel.subject}:{self._writer}:{next(self._appends)}",
                EXPECTED_POSITION: str(expected),
                EXPECTED_STREAM: session.reader.stream,
            }
        )
        opens = not told.closed and (channel.closed or not channel.places)
        size = sum(record.size + 4 * len(record.envelope_id) + RECORD_BYTES for record in records)
        await self._refuse_large(session, size, headers)
        before = [session.index.open(channel.channel_id)] if opens else []
        await asyncio.gather(*before, *([] if after else [channel.keys.begin()]))
        encrypted = await channel.keys.encrypt(envelopes, records, note=note)
        if encrypted is None:
            await channel.catch_up(session.reader)
            if channel.seq == after:
                raise CorruptRecord(channel.channel_id, seq=after + 1, because="the channel's key is gone")
            raise LogConflict(channel.channel_id, after=after, found=channel.seq)
        payload = pack(encrypted, previous)
        position = await self._land(session, channel, payload, headers, after=after)
        await channel.landed(told, position=position, behind=expected, is_pruned=bool(more))
        if row is not None and not of_row:
            await session.index.save_row(row, channel.channel_id, seq=told.last)
        if told.closed or more:
            await session.index.close(channel.channel_id)

    async def _land(
        self, session: Session, channel: Channel, payload: bytes, headers: dict[str, str], *, after: int
    ) -> int:
        """Publish until it is known what became of it; return its position. Raises `LogConflict`."""
        patience = session.connection.patience()
        expected = int(headers[EXPECTED_POSITION])
        while True:
            try:
                written = await session.connection.publish(channel.subject, payload, headers)
                if not written.duplicate:
                    return written.seq
                because = "its servers have the append, but it cannot be read back"
            except Refused as refused:
                because = str(refused)
            except NATS_RAISES as error:
                because = reason(error)
            winner = await self._winner(session, channel, expected)
            if winner is None:
                await patience.pause(because)
            elif winner.headers.get(MESSAGE_ID) == headers[MESSAGE_ID]:
                return winner.position
            else:
                raise LogConflict(channel.channel_id, after=after, found=channel.seq)

    async def _winner(self, session: Session, channel: Channel, expected: int) -> Message | None:
        """Return the message that follows the expected one, as the leader has it."""
        was_pruned = channel.is_pruned
        await channel.catch_up(session.reader)
        if not was_pruned:
            channel.unpruned()
        channel.undamaged()
        place = channel.behind(expected)
        return None if place is None else await session.reader.at(place.position)

    async def _refuse_pruned(self, session: Session, channel_id: str) -> None:
        if is_hidden(await session.reader.last(session.channel(channel_id).subject)):
            raise ChannelPruned(channel_id)

    async def _refuse_large(self, session: Session, size: int, headers: dict[str, str]) -> None:
        size += sum(len(name) + len(value) + HEADER_BYTES for name, value in headers.items())
        limit = await session.connection.max_payload()
        if size > limit:
            because = f"an append of {size} bytes is more than the `max_payload` of its servers, {limit}"
            raise LogUnavailable(self.address, because=f"{because}; set a larger one there")


async def _messages(
    reader: Reader, channel: Channel, places: Sequence[Place], whole: dict[int, Message]
) -> AsyncGenerator[Message]:
    """Yield the messages of some appends: a few are asked of the leader, many are scanned."""
    if len(places) > SHORT:
        scan = reader.scan(channel.subject, after=places[0].position - 1, headers_only=False)
        async with aclosing(reader.up_to(places[-1].position, scan)) as messages:
            async for message in messages:
                yield message
        return
    for place in places:
        found = whole.get(place.position) or await reader.at(place.position)
        if found is None:
            channel.forget()
            raise CorruptRecord(channel.channel_id, seq=place.first, because="its message is missing")
        yield found


async def _content(channel: Channel, record: Record) -> Record:
    """Return the record with its content, or without it if that is erased."""
    return (
        replace(record, payload=None) if record.seq in channel.erased else await channel.keys.decrypt(record)
    )


async def _parts_to_destroy(reader: Reader, channel: Channel) -> dict[str, list[int]]:
    """Return the parts of which lines are erased, and which of their lines stay."""
    staying, gone = defaultdict[str, list[int]](list), set[str]()
    if not channel.erased:
        return {}
    async with aclosing(_messages(reader, channel, channel.places, {})) as messages:
        async for message in messages:
            _, records = unpack(channel.channel_id, message, seq=0)
            for record in records:
                if record.payload is None:
                    continue
                if record.seq in channel.erased:
                    gone.add(part_in(record))
                else:
                    staying[part_in(record)].append(record.seq)
    return {part: staying[part] for part in sorted(gone)}


def _parts(records: Sequence[Record]) -> Iterator[tuple[int, int]]:
    """Yield where the parts of a channel begin and end, each small enough for one message."""
    first, size = 0, 0
    for number, record in enumerate(records):
        if size > PART_BYTES or number - first >= PART_RECORDS:
            yield first, number
            first, size = number, 0
        size += record.size
    yield first, len(records)


def _refuse_known(channel: Channel, envelopes: Sequence[Envelope]) -> None:
    new: set[str] = set()
    for envelope in envelopes:
        if envelope.envelope_id in channel.ids or envelope.envelope_id in new:
            raise DuplicateEnvelope(channel.channel_id, envelope_id=envelope.envelope_id)
        new.add(envelope.envelope_id)
