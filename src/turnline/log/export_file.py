"""The file a log is moved in: JSON lines, the same for every backend.

    header      the format and its version; where the log was; which data models it has rows of
    row         one row of a data model; all of them come before the first channel
    channel     a channel begins: how many records it has, and the hash of the last
    record      its channel, seq, id, hash and exact bytes; `structure` is what its head says, for people
    tombstone   a channel that was pruned: how many records it had, and the hash of the last
    left_out    a channel that could not be read to its end, and why
    file        a file of a tree of channels begins (Y6): its root, digest and size; all of them come last
    chunk       some of its bytes
    end         how much there was, and a digest of every line before it

Rule 1: a record's hash is checked as it is read, so a changed byte is told with its line. A file
without its `end`, or with something behind it, is not whole.

Rule 2: memory is bounded: a channel is given out in parts (`Part`), never as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b, sha256
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from turnline.core.codec import Kept, Record, Structure, read_structure
from turnline.core.envelope import JsonObject
from turnline.errors import BadExport, CorruptRecord
from turnline.log.base import Tombstone
from turnline.log.blobs import CHUNK_BYTES
from turnline.log.chain import Chain

FORMAT: Final = "turnline-log"
VERSION: Final = 2
DIGEST_BYTES: Final = 32
MAX_LINE_BYTES: Final = 128 * 1024 * 1024
PART_BYTES: Final = 512 * 1024
"""A part ends with the record that passes it: small enough for a NATS server as it is installed."""
PART_RECORDS: Final = 1_000


class ModelHead(Struct, frozen=True, kw_only=True):
    """A data model that the file has rows of."""

    name: str
    version: str
    columns: dict[str, str]
    """Their names and types, in order."""


class Header(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="header", tag_field="line"):
    """The first line."""

    format: str
    version: int
    source: str = ""
    """The address of the log, for people."""
    exported_at: str = ""
    models: list[ModelHead] = []


class RowLine(Struct, frozen=True, kw_only=True, tag="row", tag_field="line"):
    """One row of a data model."""

    model: str
    values: JsonObject


class ChannelLine(Struct, frozen=True, kw_only=True, tag="channel", tag_field="line"):
    """A channel begins."""

    channel: str
    records: int
    hash: str


class RecordLine(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="record", tag_field="line"):
    """One record."""

    channel: str
    seq: int
    id: str
    hash: str
    structure: Structure
    """The head, for people. A file in which it says something else than the head is refused."""
    head: bytes
    payload: bytes | None = None
    """Absent: the line has no content, or it was erased."""


class FileLine(Struct, frozen=True, kw_only=True, tag="file", tag_field="line"):
    """A file of a tree of channels begins."""

    root: str
    digest: str
    size: int


class ChunkLine(Struct, frozen=True, kw_only=True, tag="chunk", tag_field="line"):
    """Some of its bytes."""

    data: bytes


class TombstoneLine(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tombstone", tag_field="line"):
    """A channel that was pruned."""

    channel: str
    records: int
    hash: str
    pruned_at: datetime
    erased: list[tuple[int, int]] = []


class LeftOut(Struct, frozen=True, kw_only=True, tag="left_out", tag_field="line"):
    """A channel that is not in the file."""

    channel: str
    seq: int
    because: str


class End(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="end", tag_field="line"):
    """The last line."""

    channels: int
    records: int
    left_out: int
    digest: str
    rows: int = 0
    tombstones: int = 0
    files: int = 0


Line = Header | RowLine | ChannelLine | RecordLine | TombstoneLine | FileLine | ChunkLine | LeftOut | End
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class Part(Struct, frozen=True, kw_only=True):
    """Some consecutive records of a channel, checked."""

    channel_id: str
    records: list[Record]
    envelopes: list[Kept]
    line: int
    """Where the first of them stands."""
    end: ChannelLine
    """How the file says that the channel ends. It is checked with the last part."""


class Rows(Struct, frozen=True, kw_only=True):
    """Some rows of one data model."""

    model: str
    rows: list[JsonObject]


class FilePiece(Struct, frozen=True, kw_only=True):
    """Some of a file's bytes, the last of them checked."""

    file: FileLine
    start: int
    data: bytes

    @property
    def is_last(self) -> bool:
        return self.start + len(self.data) == self.file.size


Piece = Header | Rows | Part | FilePiece | Tombstone | LeftOut | End


class ExportWriter:
    """Writes the lines; counts and digests them."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self.channels = self.records = self.left_out = self.rows = self.tombstones = self.files = 0

    def begin(self, *, source: str, exported_at: str, models: Sequence[ModelHead] = ()) -> None:
        header = Header(
            format=FORMAT, version=VERSION, source=source, exported_at=exported_at, models=list(models)
        )
        self._line(header)

    def row(self, model: str, values: JsonObject) -> None:
        self.rows += 1
        self._line(RowLine(model=model, values=values))

    def channel(self, channel_id: str, *, records: int, hash_: bytes) -> None:
        self.channels += 1
        self._line(ChannelLine(channel=channel_id, records=records, hash=hash_.hex()))

    def record(self, channel_id: str, record: Record) -> None:
        self.records += 1
        self._line(
            RecordLine(
                channel=channel_id,
                seq=record.seq,
                id=record.envelope_id,
                hash=record.hash.hex(),
                structure=read_structure(record.head),
                head=record.head,
                payload=record.payload,
            )
        )

    def tombstone(self, one: Tombstone) -> None:
        self.tombstones += 1
        self._line(
            TombstoneLine(
                channel=one.channel_id,
                records=one.seq,
                hash=one.hash.hex(),
                pruned_at=one.pruned_at,
                erased=one.erased,
            )
        )

    def leave_out(self, channel_id: str, *, seq: int, because: str) -> None:
        self.left_out += 1
        self._line(LeftOut(channel=channel_id, seq=seq, because=because))

    def file(self, root: str, *, digest: str, size: int) -> None:
        self.files += 1
        self._line(FileLine(root=root, digest=digest, size=size))

    def chunk(self, data: bytes) -> None:
        self._line(ChunkLine(data=data))

    def end(self) -> None:
        self._line(
            End(
                channels=self.channels,
                records=self.records,
                left_out=self.left_out,
                rows=self.rows,
                files=self.files,
                tombstones=self.tombstones,
                digest=self._digest.hexdigest(),
            )
        )

    def _line(self, line: Line) -> None:
        written = _encoder.encode(line) + b"\n"
        self._digest.update(written)
        self._write(written)


def read_export(file: BinaryIO) -> Iterator[Piece]:
    """Yield what is in the file, each piece checked. Raises `BadExport` at the first bad line."""
    return _Reading(file).pieces()


class _Reading:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 0
        self._digest = self._before = blake2b(digest_size=DIGEST_BYTES)
        """Of the lines so far, and of those before the last one."""
        self._bytes = 0
        """Of the last line."""
        self._channels: set[str] = set()
        self._records = self._left_out = self._rows = self._tombstones = self._files = 0
        self._models: set[str] = set()

    def pieces(self) -> Iterator[Piece]:
        header = self._header()
        self._models = {model.name for model in header.models}
        yield header
        line = self._next()
        while isinstance(line, RowLine):
            rows, model, size = [self._row(line)], line.model, self._bytes
            line = self._next()
            while isinstance(line, RowLine) and line.model == model and size < PART_BYTES:
                rows.append(self._row(line))
                size += self._bytes
                line = self._next()
            yield Rows(model=model, rows=rows)
        while True:
            match line:
                case ChannelLine():
                    yield from self._channel(line)
                case TombstoneLine():
                    yield self._tombstone(line)
                case LeftOut():
                    self._left_out += 1
                    yield line
                case FileLine():
                    yield from self._file_pieces(line)
                case End():
                    self._check_end(line)
                    yield line
                    return
                case _:
                    raise self._bad(
                        f"a {type(line).__struct_config__.tag!r} where a channel or the end belongs"
                    )
            line = self._next()

    def _header(self) -> Header:
        line = self._next()
        if not isinstance(line, Header) or line.format != FORMAT:
            raise self._bad(f"expected the header of a {FORMAT!r} file")
        if line.version != VERSION:
            raise self._bad(
                f"its version is {line.version}, this program reads {VERSION}; "
                "use the version of turnline that wrote it"
            )
        return line

    def _row(self, line: RowLine) -> JsonObject:
        if line.model not in self._models:
            raise self._bad(f"a row of {line.model!r}, a data model that the header does not name")
        self._rows += 1
        return line.values

    def _channel(self, line: ChannelLine) -> Iterator[Part]:
        if line.channel in self._channels:
            raise self._bad(f"the channel {line.channel!r} was there before")
        self._channels.add(line.channel)
        chain = Chain(line.channel)
        while chain.seq < line.records:
            yield self._part(chain, line)
        if chain.hash.hex() != line.hash:
            raise self._bad(f"the channel {line.channel!r} ends with another hash than it was said to")

    def _tombstone(self, line: TombstoneLine) -> Tombstone:
        if line.channel in self._channels:
            raise self._bad(f"the channel {line.channel!r} was there before")
        self._channels.add(line.channel)
        self._tombstones += 1
        return Tombstone(
            channel_id=line.channel,
            seq=line.records,
            hash=self._hash(line.hash),
            pruned_at=line.pruned_at,
            erased=line.erased,
        )

    def _part(self, chain: Chain, said: ChannelLine) -> Part:
        end = said.records
        records: list[Record] = []
        envelopes: list[Kept] = []
        first, size = self._number + 1, 0
        while chain.seq < end and size < PART_BYTES and len(records) < PART_RECORDS:
            record, shown = self._record(chain, end)
            try:
                envelopes.append(chain.keep(record))
                if chain.seq == end:
                    chain.erasures.check()
            except CorruptRecord as error:
                because = f"record {error.seq} of channel {chain.channel_id!r}: {error.because}"
                raise self._bad(because) from error
            if read_structure(record.head) != shown:
                raise self._bad("its `structure` says something else than its head")
            records.append(record)
            size += record.size
        self._records += len(records)
        return Part(channel_id=chain.channel_id, records=records, envelopes=envelopes, line=first, end=said)

    def _record(self, chain: Chain, end: int) -> tuple[Record, Structure]:
        line = self._next()
        if not isinstance(line, RecordLine) or line.channel != chain.channel_id:
            raise self._bad(f"expected record {chain.seq + 1} of the {end} of channel {chain.channel_id!r}")
        hash_ = self._hash(line.hash)
        record = Record(seq=line.seq, envelope_id=line.id, head=line.head, hash=hash_, payload=line.payload)
        return record, line.structure

    def _hash(self, text: str) -> bytes:
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise self._bad("its hash is not one") from None

    def _file_pieces(self, line: FileLine) -> Iterator[FilePiece]:
        self._files += 1
        start, hashing = 0, sha256()
        while True:
            found = self._next() if line.size else ChunkLine(data=b"")
            expected = min(line.size - start, CHUNK_BYTES)
            if not isinstance(found, ChunkLine) or len(found.data) != expected:
                raise self._bad(f"expected {expected} bytes of the file {line.digest!r}")
            hashing.update(found.data)
            piece = FilePiece(file=line, start=start, data=found.data)
            start += len(found.data)
            if piece.is_last and hashing.hexdigest() != line.digest:
                raise self._bad(f"the bytes of the file {line.digest!r} do not match its digest")
            yield piece
            if piece.is_last:
                return

    def _check_end(self, line: End) -> None:
        channels = len(self._channels) - self._tombstones
        found = (channels, self._records, self._left_out, self._rows, self._tombstones, self._files)
        if found != (line.channels, line.records, line.left_out, line.rows, line.tombstones, line.files):
            expected = f"{line.channels}, {line.records}, {line.rows} and {line.files}"
            raise self._bad(
                f"found {found[0]} channels, {found[1]} records, {found[3]} rows and {found[5]} files, "
                f"expected {expected}"
            )
        if self._before.hexdigest() != line.digest:
            raise self._bad("the digest of the lines before it is another one")
        if self._file.read(1):
            self._number += 1
            raise self._bad("expected nothing behind the end")

    def _next(self) -> Line:
        self._number += 1
        text = self._file.readline(MAX_LINE_BYTES)
        if not text.endswith(b"\n"):
            because = (
                "the file ends here, before its end line" if len(text) < MAX_LINE_BYTES else "it is too long"
            )
            raise self._bad(because)
        self._before, self._bytes = self._digest.copy(), len(text)
        self._digest.update(text)
        try:
            return _decoder.decode(text)
        except ValueError as error:  # msgspec's decoding errors are ValueErrors.
            raise self._bad(str(error)) from None

    def _bad(self, because: str) -> BadExport:
        return BadExport(self._number, because=because)
