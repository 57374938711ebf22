"""Moving a log: out to a file, and from a file into any log. Ids, seqs, hashes and bytes stay.

Rule 1: an export is a consistent prefix of each channel: whole appends, as they stood when the
channel was looked at, whoever writes meanwhile. A channel that is damaged is left out and named;
half of it would look like a channel that never got any further. So a channel is read once, and kept aside
until its end is known. No content is in the file that a line in the file names as erased.

Rule 2: an import writes only what is missing. A channel that the log has is compared record by
record first, and left alone if it differs. So importing again, also after a crash, ends the same.

Rule 3: what fits into one append is one append: such a channel is there as a whole or not at all.
A longer one comes in parts, each behind the last, so a second import goes on where the first
ended. No hub may use the log before the import is done.

Rule 4: marks of trust stay with their log (`flow.trust`): no export has them, no import takes them.

Rule 5: rows of data models come first, all of them or none (`flow.data.transfer`). So no line is on a log
that lacks the rows it was written with, and a file whose rows are refused leaves the log as it was.

Rule 6: tombstones travel, so an id that was pruned stays taken (Y3). A channel that was pruned here is
restored from a file that has it as a whole, to the same hash, and from no other. A tombstone in a file
deletes nothing.

Rule 7: files of messages come last. Then every line is fixed that may refer to one. An import takes those
that a line of the log refers to: what was erased here does not come back with an old file.

Rule 8: a file that is not trusted adds nothing to a channel of this log (`log.origin`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from tempfile import SpooledTemporaryFile
from typing import IO, BinaryIO, Final, Protocol
from uuid import uuid4

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from turnline.core.adapter import Adapters
from turnline.core.adapters import built_in
from turnline.core.codec import Record, erased_lines
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_PAYLOAD_ERASED
from turnline.errors import (
    ArchiveDiffers,
    ChannelDiffers,
    ChannelGuarded,
    CorruptRecord,
    ImportRefused,
    LogConflict,
    RowsRefused,
    UnknownChannel,
)
from turnline.log.base import MARK_PREFIX, Blob, Blobs, Log, Prunes, Tombstone
from turnline.log.blobs import CHUNK_BYTES, count_uses, find_blob, read_blob
from turnline.log.chain import Chain
from turnline.log.export_file import (
    End,
    ExportWriter,
    FileLine,
    FilePiece,
    Header,
    LeftOut,
    ModelHead,
    Part,
    Piece,
    Rows,
    read_export,
)
from turnline.log.origin import is_of_a_run, lists_with, names_in, names_of
from turnline.log.records import Records
from turnline.log.rows import rebuild_rows
from turnline.log.verify import Progress

ASIDE_BYTES: Final = 16 * 1024 * 1024
"""A channel up to this size is kept aside in memory while it is exported; a larger one in a private file."""
SIZE_BYTES: Final = 8

_aside_encoder = msgspec.msgpack.Encoder()
_aside_decoder = msgspec.msgpack.Decoder(Record)


class RowSource(Protocol):
    """Rows to export."""

    @property
    def models(self) -> Sequence[ModelHead]: ...

    def rows(self) -> AsyncIterator[tuple[str, JsonObject]]:
        """Yield each row, with its model's name: one model after the other."""
        ...


class RowTarget(Protocol):
    """Where the rows of a file go, in one transaction."""

    written: int
    known: int
    """Rows that were there already."""

    async def take(self, rows: Rows) -> None:
        """Write the rows that are missing. Raises `RowsRefused` for one that is there and differs."""
        ...

    async def finish(self) -> None:
        """Commit."""
        ...


OpenRows = Callable[[Sequence[ModelHead]], Awaitable[RowTarget]]
"""Opens where rows of these models go. Raises `RowsRefused` if there is no place for them."""


class Exported(Struct, frozen=True, kw_only=True):
    """What was written to a file."""

    channels: int
    records: int
    left_out: list[CorruptRecord]
    rows: int = 0
    files: int = 0
    """Files of messages."""
    tombstones: int = 0


class Imported(Struct, frozen=True, kw_only=True):
    """What became of a file."""

    channels: int
    """In the file."""
    records: int
    written: int
    """Records that were not on the log before."""
    known: int
    """Records that were."""
    own: list[str] = field(default_factory=list)
    """Channels in the file that servers write for themselves: their ids begin with `_`."""
    left_out: list[LeftOut] = field(default_factory=list)
    """Channels the export could not read."""
    refused: list[ImportRefused] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    """Channels of runs, and forks, that were not refused -> how many records the file has of each."""
    rows_written: int = 0
    rows_known: int = 0
    files: int = 0
    """Files of messages that were not on the log before."""
    restored: list[str] = field(default_factory=list)
    """Channels that had been pruned here."""
    tombstones: int = 0
    """Ids of pruned channels that this log did not know."""


async def export_log(
    records: Records,
    write: Callable[[bytes], object],
    *,
    exported_at: str,
    channels: Collection[str] = (),
    rows: RowSource | None = None,
    progress: Progress = lambda channels, done: None,
) -> Exported:
    """Write the log, or only `channels` of it, as a file. Raises `LogUnavailable` and `UnknownChannel`."""
    writer = ExportWriter(write)
    models = () if rows is None else rows.models
    writer.begin(source=records.address, exported_at=exported_at, models=models)
    if rows is not None:
        async for model, values in rows.rows():
            writer.row(model, values)
    left_out: list[CorruptRecord] = []
    wanted = set(channels)
    async for channel_id in _named(records, wanted) if channels else records.channels():
        if channel_id.startswith(MARK_PREFIX):
            continue
        try:
            await _export(records, channel_id, writer)
        except CorruptRecord as error:
            writer.leave_out(channel_id, seq=error.seq, because=error.because)
            left_out.append(error)
        progress(writer.channels, writer.records)
    if not channels:
        async for tombstone in records.tombstones():
            writer.tombstone(tombstone)
    for blob in await records.blobs():
        if not channels or blob.root in channels:
            await _export_file(records, blob, writer)
    writer.end()
    return Exported(
        channels=writer.channels,
        records=writer.records,
        left_out=left_out,
        rows=writer.rows,
        tombstones=writer.tombstones,
        files=writer.files,
    )


async def _export_file(records: Records, blob: Blob, writer: ExportWriter) -> None:
    """Write a file, unless it was deleted meanwhile or is damaged: half of one would spoil the export."""
    try:
        async for _ in read_blob(records, blob):
            pass
    except CorruptRecord:
        return
    writer.file(blob.root, digest=blob.digest, size=blob.size)
    async for chunk in read_blob(records, blob):
        writer.chunk(chunk)


async def _named(records: Records, wanted: Collection[str]) -> AsyncIterator[str]:
    """Yield the channels that are wanted, by id. Raises `UnknownChannel` for one that is not there."""
    for channel_id in sorted(wanted):
        if channel_id.startswith(MARK_PREFIX) or not await _is_there(records, channel_id):
            raise UnknownChannel(channel_id)
        yield channel_id


async def _is_there(records: Records, channel_id: str) -> bool:
    if await records.indexed(channel_id) is not None:
        return True
    async with aclosing(records.read(channel_id)) as found:
        return await anext(found, None) is not None


async def _export(records: Records, channel_id: str, writer: ExportWriter) -> None:
    """Write a channel as far as it goes now. Raises `CorruptRecord` before anything of it is written."""
    with SpooledTemporaryFile(max_size=ASIDE_BYTES) as aside:
        reading = _Reading(records, channel_id, aside)
        await reading.read()
        writer.channel(channel_id, records=reading.chain.seq, hash_=reading.chain.hash)
        aside.seek(0)
        for _ in range(reading.chain.seq):
            size = int.from_bytes(aside.read(SIZE_BYTES))
            record = _aside_decoder.decode(aside.read(size))
            is_erased = record.payload is not None and reading.has_erased(record.seq)
            writer.record(channel_id, replace(record, payload=None) if is_erased else record)


class _Reading:
    """A channel that is read to its end, and kept aside."""

    def __init__(self, records: Records, channel_id: str, aside: IO[bytes]) -> None:
        self.chain = Chain(channel_id)
        self._records = records
        self._aside = aside
        self._erased: list[tuple[int, int]] = []

    async def read(self) -> None:
        """Raise `CorruptRecord` where a record is not what was written, also for an end that is missing."""
        channel_id = self.chain.channel_id
        index = await self._records.indexed(channel_id)
        await self._read_on()
        if self.chain.erasures.is_missing_any:  # Erased while it was read: the line that says so follows.
            await self._read_on()
        self.chain.erasures.check()
        if index is not None and index.seq > self.chain.seq:
            because = f"it is missing, though the channel goes on to {index.seq}"
            raise CorruptRecord(channel_id, seq=self.chain.seq + 1, because=because)

    def has_erased(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self._erased)

    async def _read_on(self) -> None:
        chain = self.chain
        async with aclosing(self._records.read(chain.channel_id, after=chain.seq)) as found:
            async for record in found:
                envelope = chain.add(record)
                if envelope.event_type == EV_PAYLOAD_ERASED:
                    self._erased += erased_lines(envelope)
                body = _aside_encoder.encode(record)
                self._aside.write(len(body).to_bytes(SIZE_BYTES) + body)


def check_export(file: BinaryIO) -> End:
    """Read a file through and return its last line. Raises `BadExport`."""
    for piece in read_export(file):
        if isinstance(piece, End):
            return piece
    raise AssertionError("an export ends with its end, or is refused")


async def import_log(
    file: BinaryIO,
    log: Log,
    there: Records,
    *,
    open_rows: OpenRows | None = None,
    is_trusted: bool = False,
    is_checked: bool = False,
    adapters: Adapters | None = None,
    progress: Progress = lambda channels, done: None,
) -> Imported:
    """Bring what is in `file` onto `log`; `there` is the same log, to look at.

    Rows of data models go where `open_rows` says; without it, a file that has some is refused.
    Only a file that `is_checked`, which was read through before, restores channels that were pruned here.
    A file that `is_trusted` may also add to channels of this log. The index gets the rows of channels whose
    type is one of `adapters` (the built-in ones); the others get theirs when their program opens a hub.
    Raises `BadExport`: what came before the bad line is on the log. Raises what `append` raises.
    """
    taking = _Taking(log, there, None if is_trusted else await names_of(log), is_checked=is_checked)
    pieces = read_export(file)
    rows, files = _TakingRows(open_rows), FileWriter(log, _MissingFiles(log))
    while (piece := await asyncio.to_thread(_next, pieces)) is not None:
        await rows.see(piece)
        match piece:
            case Part() if piece.channel_id.startswith(MARK_PREFIX):
                pass  # A mark counts on its own log only.
            case Part():
                await taking.take(piece)
                progress(taking.channels, taking.records)
            case Tombstone():
                await taking.bury(piece)
            case LeftOut():
                taking.left_out.append(piece)
            case FilePiece():
                await files.take(piece)
            case Header() | Rows() | End():
                pass
    await rebuild_rows(log, adapters or built_in(), only_known=True)
    return msgspec.structs.replace(rows.count(taking.done()), files=files.written)


def _next(pieces: Iterator[Piece]) -> Piece | None:
    return next(pieces, None)


class _TakingRows:
    """The rows of an import under way: committed before the first channel."""

    def __init__(self, open_rows: OpenRows | None) -> None:
        self._open = open_rows
        self._target: RowTarget | None = None
        self._is_finished = False

    async def see(self, piece: Piece) -> None:
        """Take what a piece has for the data models. Raises `RowsRefused`."""
        if isinstance(piece, Header) and piece.models:
            if self._open is None:
                raise RowsRefused(["there is no database for them. Import with `turnline log import --dir`."])
            self._target = await self._open(piece.models)
        elif self._target is not None and isinstance(piece, Rows):
            await self._target.take(piece)
        elif self._target is not None and not self._is_finished:
            await self._target.finish()
            self._is_finished = True

    def count(self, done: Imported) -> Imported:
        if self._target is None:
            return done
        written, known = self._target.written, self._target.known
        return msgspec.structs.replace(done, rows_written=written, rows_known=known)


class _MissingFiles:
    """Says which files of an import are written: those that lines refer to and that the log lacks."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._root = ""
        self._uses = Counter[str]()
        """How often lines of the tree `_root` refer to each digest."""

    async def __call__(self, file: FileLine) -> bool:
        log = self._log
        if not isinstance(log, Blobs):
            return False
        if file.root != self._root:
            self._root, self._uses = file.root, await count_uses(log, file.root)
        return bool(self._uses[file.digest]) and await find_blob(log, file.root, file.digest) is None


class FileWriter:
    """Writes files of an export to a log, piece by piece: those that `is_wanted` says."""

    def __init__(self, log: Log, is_wanted: Callable[[FileLine], Awaitable[bool]]) -> None:
        self.written = 0
        self._log = log
        self._is_wanted = is_wanted
        self._blob: Blob | None = None
        """The one whose bytes are coming; None: it is not wanted."""

    async def take(self, piece: FilePiece) -> Blob | None:
        """Take some bytes. Return the blob that is complete with them."""
        log, file = self._log, piece.file
        if not isinstance(log, Blobs):
            return None
        if not piece.start:
            self._blob = None
            if await self._is_wanted(file):
                self._blob = Blob(root=file.root, blob_id=uuid4().hex, created_at=datetime.now(UTC))
                await log.add_blob(self._blob)
        if self._blob is None:
            return None
        if piece.data:
            await log.add_chunk(self._blob, piece.start // CHUNK_BYTES, piece.data)
        if not piece.is_last:
            return None
        done = msgspec.structs.replace(self._blob, digest=file.digest, size=file.size)
        await log.set_blob(done)
        self.written += 1
        return done


class _Taking:
    """An import under way."""

    def __init__(
        self, log: Log, there: Records, guarded: Collection[str] | None, *, is_checked: bool
    ) -> None:
        """`guarded` are the names of this log; None if the file is trusted."""
        self.left_out: list[LeftOut] = []
        self.channels = self.records = self._written = self._known_before = 0
        self._refused: list[ImportRefused] = []
        self._runs: dict[str, int] = {}
        self._guarded = guarded
        self._own: list[str] = []
        self._log = log
        self._there = there
        self._channel_id: str | None = None
        self._known = 0
        self._is_refused = self._is_guarded = False
        self._is_checked = is_checked
        self._tombstone: Tombstone | None = None
        """Of the channel, if it was pruned here and is restored."""
        self._restored: list[str] = []
        self._tombstones = 0

    def done(self) -> Imported:
        return Imported(
            channels=self.channels,
            records=self.records,
            written=self._written,
            known=self._known_before,
            own=self._own,
            left_out=self.left_out,
            refused=self._refused,
            runs=self._runs,
            restored=self._restored,
            tombstones=self._tombstones,
        )

    async def take(self, part: Part) -> None:
        is_first = part.channel_id != self._channel_id
        if is_first:
            await self._begin(part.channel_id, part.envelopes[0])
        self.records += len(part.records)
        if self._is_refused:
            return
        try:
            if is_first and self._tombstone is not None:
                self._check_archive(self._tombstone, part)
            await (self._take(part) if self._tombstone is None else self._restore(self._tombstone, part))
        except ImportRefused as error:
            self._is_refused = True
            self._refused.append(error)
            self._runs.pop(part.channel_id, None)
        else:
            if part.channel_id in self._runs:
                self._runs[part.channel_id] = part.records[-1].seq

    async def _begin(self, channel_id: str, first: Envelope) -> None:
        head = await self._log.head(channel_id)
        self.channels += 1
        if channel_id.startswith("_"):
            self._own.append(channel_id)
        self._channel_id = channel_id
        self._known = head.seq if head else 0
        self._is_refused = False
        self._tombstone = await self._log.tombstone(channel_id) if isinstance(self._log, Prunes) else None
        self._is_guarded = await self._guards(channel_id, first)
        if is_of_a_run(first) and not channel_id.startswith("_"):
            self._runs[channel_id] = 0

    async def bury(self, tombstone: Tombstone) -> None:
        """Take over that a channel was pruned elsewhere. One that is here stays."""
        name, log = tombstone.channel_id, self._log
        if name.startswith("_") or not isinstance(log, Prunes):
            return
        if await log.head(name) is None and await log.tombstone(name) is None:
            await log.prune([tombstone])
            self._tombstones += 1

    def _check_archive(self, tombstone: Tombstone, part: Part) -> None:
        """Raise `ArchiveDiffers` unless the file has the channel as it was pruned."""
        expected = f"{tombstone.seq} records that end with {tombstone.hash.hex()}"
        found = f"{part.end.records} records that end with {part.end.hash}"
        if not self._is_checked:
            found = "standard input, which cannot be read through first"
            expected = "a file"
        elif found == expected:
            return
        raise ArchiveDiffers(part.channel_id, seq=1, found=found, expected=expected)

    async def _restore(self, tombstone: Tombstone, part: Part) -> None:
        """Write a part of a channel that was pruned, without content that was erased before."""
        assert isinstance(self._log, Prunes)
        lines = [
            msgspec.structs.replace(one, payload=None) if _is_in(one.seq, tombstone.erased) else one
            for one in part.envelopes
        ]
        await self._log.restore(part.channel_id, lines, after=lines[0].seq - 1)
        self._written += len(lines)
        if lines[-1].seq == tombstone.seq:
            self._restored.append(part.channel_id)

    async def _guards(self, channel_id: str, first: Envelope) -> bool:
        if self._guarded is None:
            return False
        is_trusted_here = self._known > 0 and await lists_with(self._log, channel_id)
        return bool(is_trusted_here) or not names_in(first).isdisjoint(self._guarded)

    async def _take(self, part: Part) -> None:
        while True:
            await self._compare(part)
            new = [envelope for envelope in part.envelopes if envelope.seq > self._known]
            if new and self._is_guarded:
                raise ChannelGuarded(part.channel_id, seq=new[0].seq)
            try:
                await self._log.append(part.channel_id, new, after=part.records[-1].seq - len(new))
            except LogConflict as conflict:  # Somebody else appended: perhaps a second import of the same.
                if conflict.found <= self._known:  # A channel only grows; one that does not is broken.
                    raise
                self._known = conflict.found
            else:
                self._known = max(self._known, part.records[-1].seq)
                self._written += len(new)
                self._known_before += len(part.records) - len(new)
                return

    async def _compare(self, part: Part) -> None:
        """Raise `ChannelDiffers` unless the log has the part's records as far as it goes."""
        expected = [record for record in part.records if record.seq <= self._known]
        if not expected:
            return
        after = expected[0].seq - 1
        async with aclosing(self._there.read(part.channel_id, after=after)) as found:
            for record in expected:
                kept = await anext(found, None)
                if kept != record and not _is_erased_since(kept, record):
                    raise ChannelDiffers(
                        part.channel_id,
                        seq=record.seq,
                        found="nothing" if kept is None else f"{kept.envelope_id!r} ({kept.hash.hex()})",
                        expected=f"{record.envelope_id!r} ({record.hash.hex()})",
                    )


def _is_in(seq: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= seq <= last for first, last in ranges)


def _is_erased_since(kept: Record | None, record: Record) -> bool:
    """Whether the log has the record of a file without its content."""
    return kept is not None and kept == msgspec.structs.replace(record, payload=None)
