"""What a `NatsLog` keeps: one message for each append.

    subject    <stream>.<channel>, the channel's name written so that it is one token
    headers    what the append is, so that a list of channels reads no envelopes
    payload    the hash before it, and its records: the same bytes and the same chain as on any backend

A pruned channel has one message in the place of all others: its tombstone. So the server refuses an append
that expects the subject as it was, or empty.

Rule: an append is one message, so all of it lands or nothing does, and a
subject's last message says where its channel ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from turnline.core.channel import ChannelRow
from turnline.core.codec import NO_HASH, Record, erased_lines, is_id, ranges_in, read_structure
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_PAYLOAD_ERASED
from turnline.errors import CorruptRecord
from turnline.log.base import ChannelEnd, Head, closes

FORMAT: Final = 2
MAX_SUBJECT_CHARACTERS: Final = 1_000
"""A server cuts the connection of whoever sends a line of more than 4 KiB."""
MAX_IDS_CHARACTERS: Final = 16_000
"""Ids that need more stand in the payload only: a server takes 64 KiB of headers."""

MESSAGE_ID: Final = "Nats-Msg-Id"
EXPECTED_POSITION: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
LINES: Final = "Turnline-Lines"
"""The first and the last seq, the last hash, the status, the ids: `7 8 9f3c.. open idA,idB`. One header,
since each costs the client and the server time."""
ROW: Final = "Turnline-Row"
"""The channel's row in the index, without what is about people."""
LABELLED: Final = "Turnline-Labelled"
SEQ: Final = "Turnline-Seq"
TOMBSTONE: Final = "Turnline-Tombstone"
"""The message stands in the place of a pruned channel (Y3)."""
RESTORING: Final = "Turnline-Restoring"
"""The append brings back lines of a pruned channel, and others follow."""
ERASED: Final = "Turnline-Erased"
"""The lines that the `payload.erased` of an append name: `12:4-4,12:7-9`. They count at once, also where
their keys are not destroyed yet."""
MAX_ERASED_CHARACTERS: Final = 16_000
_IN_PAYLOAD: Final = "*"
"""Stands for more ids or ranges than fit into a header. No id is written so."""
RESTART: Final = "Turnline-Restart"
"""The channel begins again with this message: the messages before it on the subject do not count (Y5). The
value is the number of lines that it gets; as long as it has fewer, its repair is not finished."""
MAX_ROW_CHARACTERS: Final = 16_000
"""A row that needs more is written alone, after the append."""

_ROW_SAFE: Final = ' "{}[],:_.-+/'
_EMPTY_NAME: Final = "%"
"""Stands for the channel whose name is empty; no other name is written so."""


class Message(Struct, frozen=True, kw_only=True):
    """One message of a stream, as it is kept."""

    subject: str
    position: int
    headers: Mapping[str, str]
    payload: bytes = b""
    """Empty where only headers were asked for."""


class Summary(Struct, frozen=True, kw_only=True):
    """What the headers say of an append."""

    first: int
    last: int
    hash: bytes
    closed: bool
    ids: tuple[str, ...] | None
    """None: there are too many for a header; they are in the payload."""
    erased: tuple[tuple[int, int, int], ...] | None = ()
    """The seq of a `payload.erased`, and the first and the last line of a range. None: as for ids."""


class RowHeaders(Struct, frozen=True):
    """A channel's row as headers have it."""

    row: ChannelRow
    """Without labels and a user's address, which are about people."""
    has_more: bool
    """Whether the channel's first line has what is left out here."""


class _Payload(Struct, array_like=True, frozen=True):
    version: int
    previous: bytes
    records: list[tuple[int, str, bytes, bytes, bytes | None]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Payload)
_row_encoder = msgspec.json.Encoder()
_row_decoder = msgspec.json.Decoder(ChannelRow)


def token(channel_id: str) -> str:
    """Return the channel's name as one token of a subject. Raises `ValueError` for one that is too long."""
    written = quote(channel_id, safe="").replace(".", "%2E") or _EMPTY_NAME
    if len(written) > MAX_SUBJECT_CHARACTERS:
        raise ValueError(
            f"a channel id takes {len(written)} characters in a subject; at most {MAX_SUBJECT_CHARACTERS} fit"
        )
    return written


def channel_of(subject: str) -> str:
    """Return the channel whose name is the last token of `subject`."""
    written = subject.rpartition(".")[2]
    return "" if written == _EMPTY_NAME else unquote(written)


def pack(records: Sequence[Record], previous: bytes) -> bytes:
    rows = [astuple(record) for record in records]
    return _encoder.encode(_Payload(FORMAT, previous, rows))


def unpack(channel_id: str, message: Message, *, seq: int) -> tuple[bytes, list[Record]]:
    """Return the hash before an append and its records. Raises `CorruptRecord`, naming `seq`."""
    try:
        payload = _decoder.decode(message.payload)
    except ValueError as error:
        raise CorruptRecord(channel_id, seq=seq, because=f"its message cannot be read: {error}") from error
    if payload.version != FORMAT:
        because = f"its message is of format {payload.version}, this program reads {FORMAT}"
        raise CorruptRecord(channel_id, seq=seq, because=because)
    return payload.previous, [Record(*row) for row in payload.records]


def summary(envelopes: Sequence[Envelope], records: Sequence[Record]) -> Summary:
    if not records:  # A channel that begins again, with nothing.
        return Summary(first=1, last=0, hash=NO_HASH, closed=False, ids=None)
    return Summary(
        first=records[0].seq,
        last=records[-1].seq,
        hash=records[-1].hash,
        closed=closes(envelopes[-1].channel_id, envelopes[-1].event_type),
        ids=tuple(record.envelope_id for record in records),
        erased=tuple((one.seq, *lines) for one in envelopes for lines in _erased_by(one)),
    )


def erased_in(records: Sequence[Record]) -> tuple[tuple[int, int, int], ...]:
    """Return what the `payload.erased` among some records name. Raises `ValueError`."""
    return tuple(
        (record.seq, first, last)
        for record in records
        if record.payload is None  # All of such a line is structure.
        and (found := read_structure(record.head)).type == EV_PAYLOAD_ERASED
        for first, last in ranges_in(found.data)
    )


def _erased_by(envelope: Envelope) -> list[tuple[int, int]]:
    return erased_lines(envelope) if envelope.event_type == EV_PAYLOAD_ERASED else []


def headers_of(told: Summary) -> dict[str, str]:
    ids = ",".join(quote(envelope_id, safe="") for envelope_id in told.ids or ())
    if told.ids is None or len(ids) > MAX_IDS_CHARACTERS:
        ids = _IN_PAYLOAD
    status = "closed" if told.closed else "open"
    headers = {LINES: f"{told.first} {told.last} {told.hash.hex()} {status} {ids}"}
    if told.erased:
        written = ",".join(f"{note}:{first}-{last}" for note, first, last in told.erased)
        headers[ERASED] = written if len(written) <= MAX_ERASED_CHARACTERS else _IN_PAYLOAD
    return headers


def headers_of_row(row: ChannelRow) -> dict[str, str]:
    """Return a row as headers, without what is about people. Nothing if it is too large."""
    bare = _without_people(row)
    written = quote(_row_encoder.encode(bare), safe=_ROW_SAFE)
    if len(written) > MAX_ROW_CHARACTERS:
        return {}
    return {ROW: written, LABELLED: "no" if bare == row else "yes"}


def _without_people(row: ChannelRow) -> ChannelRow:
    """Return a row without labels, and without a user id that is more than an id, such as an address."""
    return replace(row, labels={}, forked_for=row.forked_for if is_id(row.forked_for) else "")


def row_alone_of(row: ChannelRow, seq: int) -> tuple[bytes, dict[str, str]]:
    """Return the payload and the headers of a row that is written alone, for the append up to `seq`."""
    bare = _without_people(row)
    return _row_encoder.encode(bare), {SEQ: str(seq), LABELLED: "no" if bare == row else "yes"}


def row_in(message: Message) -> RowHeaders | None:
    """Return the row of a message; None if it has none, or one that cannot be read."""
    written = message.headers.get(ROW)
    body = message.payload if written is None and SEQ in message.headers else unquote(written or "").encode()
    try:
        row = _row_decoder.decode(body)
    except ValueError:
        return None
    return RowHeaders(row, message.headers.get(LABELLED) == "yes")


def row_alone_in(message: Message) -> tuple[int, RowHeaders] | None:
    """Return a row that was written alone, and the seq that it is for; None if it cannot be read."""
    row, seq = row_in(message), message.headers.get(SEQ, "")
    return None if row is None or not seq.isdecimal() else (int(seq), row)


def summary_of(message: Message) -> Summary:
    """Return what a message's headers say. Raises `ValueError` if they are not what was written."""
    found = message.headers.get(LINES)
    if found is None:
        raise ValueError(f"its message has no {LINES}")
    first, last, hash_, status, ids = found.split(" ")
    return Summary(
        first=int(first),
        last=int(last),
        hash=bytes.fromhex(hash_),
        closed=status == "closed",
        ids=None if ids == _IN_PAYLOAD else tuple(map(unquote, ids.split(","))),
        erased=_erased_of(message.headers.get(ERASED, "")),
    )


def is_hidden(last: Message | None) -> bool:
    """Whether the channel whose last message this is was pruned, and is not restored as a whole."""
    return last is not None and (TOMBSTONE in last.headers or RESTORING in last.headers)


def _erased_of(written: str) -> tuple[tuple[int, int, int], ...] | None:
    if written == _IN_PAYLOAD:
        return None
    found = list[tuple[int, int, int]]()
    for one in written.split(",") if written else ():
        note, _, lines = one.partition(":")
        first, _, last = lines.partition("-")
        found.append((int(note), int(first), int(last)))
    return tuple(found)


def restarts(message: Message) -> bool:
    """Return whether a channel begins again with a message. Only one of the hub's own can."""
    return RESTART in message.headers and channel_of(message.subject).startswith("_")


def head_of(message: Message) -> Head:
    """Return where the channel of `message`, its last one, ends; for a pruned one a head that says so.

    A message that cannot be read is listed as an open channel at seq 0, so that
    whoever touches the channel is told, and nobody else (E5).
    """
    channel_id = channel_of(message.subject)
    if is_hidden(message):
        return Head(channel_id=channel_id, seq=0, closed=True, position=message.position)
    try:
        told = summary_of(message)
    except ValueError:
        return Head(channel_id=channel_id, seq=0, closed=False, position=message.position)
    return Head(channel_id=channel_id, seq=told.last, closed=told.closed, position=message.position)


def end_of(message: Message) -> ChannelEnd:
    """Return where the append of `message` left its channel. Raises `ValueError` as `summary_of` does."""
    told = summary_of(message)
    return ChannelEnd(
        channel_id=channel_of(message.subject), seq=told.last, hash=told.hash, position=message.position
    )
