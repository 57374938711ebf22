"""What a `PostgresLog` appends, and what `turnline_append` answers.

The server keeps the hash a channel ends with, and the caller has to seal behind it. So a log
remembers the ends it has seen (`Ends`). An append whose end is not among them is sent without
its records first, and is answered with the hash.
"""

from __future__ import annotations

import struct
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from secrets import token_bytes
from typing import Any, Final, NamedTuple

import psycopg
from msgspec import Struct
from psycopg.adapt import Dumper
from psycopg.pq import Format

from turnline.core.channel import ChannelRow
from turnline.core.codec import NO_HASH, SALT_BYTES, Record, seal_all
from turnline.core.envelope import Envelope
from turnline.errors import ChannelPruned, CorruptRecord, DuplicateEnvelope, LogConflict, LogError
from turnline.log.base import closes
from turnline.log.joined import SqlValue
from turnline.log.listing import COLUMNS, columns_of, tags_of

MAX_ENDS: Final = 50_000
MAX_NAME_BYTES: Final = 1000
"""Of a channel's or an envelope's id. A page of an index has no room for more."""

_ARRAY: Final = struct.Struct(">iiIii")
"""Dimensions, whether one is null, the type of the items, how many they are, the index of the first."""
_TABLE: Final = struct.Struct(">iiIiiii")
"""The same for an array of rows: how many these are, and how many items each has."""
_EMPTY: Final = struct.Struct(">iiI")
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)


class _Kind(NamedTuple):
    """A type of PostgreSQL: its number there, which never changes, and its bytes on the wire."""

    oid: int
    encode: Callable[[Any], bytes]


_TEXT: Final = _Kind(25, str.encode)
_BYTEA: Final = _Kind(17, bytes)
_BIGINT: Final = _Kind(20, struct.Struct(">q").pack)
_NO_COLUMNS: Final[tuple[SqlValue, ...]] = (None,) * len(COLUMNS)

Again = None
"""The hash was another one, or was asked for; it is known now."""


class Ends:
    """The seq and the hash that channels ended with when they were last seen."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, bytes]] = {}

    def hash_at(self, channel_id: str, seq: int) -> bytes | None:
        """Return the hash of the record at `seq` if that is where the channel was last seen to end."""
        if seq == 0:
            return NO_HASH
        found = self._ends.get(channel_id)
        return found[1] if found is not None and found[0] == seq else None

    def keep(self, channel_id: str, seq: int, hash_: bytes) -> None:
        self._ends.pop(channel_id, None)
        self._ends[channel_id] = (seq, hash_)
        if len(self._ends) > MAX_ENDS:
            del self._ends[next(iter(self._ends))]


class Answer(Struct, frozen=True):
    """A row of `turnline_append`."""

    outcome: str
    seq: int
    hash: bytes
    envelope_id: str | None


class Append:
    """One caller's envelopes and the channel's row, and who waits for their outcome."""

    def __init__(
        self,
        channel_id: str,
        envelopes: Sequence[Envelope],
        *,
        after: int,
        row: ChannelRow | None = None,
        answer: Future[None],
    ) -> None:
        self.channel_id = channel_id
        self.row = row
        self.envelopes = tuple(envelopes)
        self.after = after
        self.is_settled = False
        self.is_written = False
        self._answer = answer
        self._salt = token_bytes(SALT_BYTES)
        self.twice = _twice(envelope.envelope_id for envelope in envelopes)
        """An id that it has twice, so that it can never be written; empty if it has none."""
        self.sent: Sequence[Record] = ()
        """As they went out last; none while the end of the channel is asked for."""
        self.previous = b""
        """The hash they went out behind."""
        self.is_doubtful = False
        """Whether a connection was lost with it: it may have landed."""

    def seal(self, previous: bytes | None) -> None:
        """Make the records that follow the one with the hash `previous`. Raises what the codec raises."""
        self.previous = previous or b""
        if previous is None or self.twice:
            self.sent = ()
            return
        self.sent = seal_all(self.envelopes, previous, salt=self._salt)

    @property
    def closes(self) -> bool | None:
        """Whether it closes the channel; None if it has no envelopes and only sets the row."""
        return closes(self.channel_id, self.envelopes[-1].event_type) if self.envelopes else None

    @property
    def size(self) -> int:
        return sum(record.size for record in self.sent)

    def settle(self, outcome: Exception | None) -> None:
        """Tell the caller, unless it no longer waits. None: it is committed."""
        self.is_settled = True
        self.is_written = outcome is None
        if self._answer.done():
            return
        if outcome is None:
            self._answer.set_result(None)
        else:
            self._answer.set_exception(outcome)

    def refusal(self, answer: Answer) -> LogError | ChannelPruned | None:
        """Return why it was not written, or None if it is to be sent again."""
        match answer.outcome:
            case "pruned":
                return ChannelPruned(answer.envelope_id or self.channel_id)
            case "conflict":
                return LogConflict(self.channel_id, after=self.after, found=answer.seq)
            case "duplicate":
                return DuplicateEnvelope(self.channel_id, envelope_id=answer.envelope_id or "")
            case "head without record":
                because = "it is not the one the channel's head names"
                return CorruptRecord(self.channel_id, seq=answer.seq, because=because)
            case "record without head":
                because = "it is there, but the channel's head is before it"
                return CorruptRecord(self.channel_id, seq=answer.seq + 1, because=because)
            case _:
                return DuplicateEnvelope(self.channel_id, envelope_id=self.twice) if self.twice else Again


class Array(bytes):
    """An array as the wire has it. The driver's own conversion takes as long as the append on the server."""


class _ArrayDumper(Dumper):
    format = Format.BINARY  # Without an oid: the statement says what it is.

    def dump(self, obj: Array) -> Array:
        return obj


psycopg.adapters.register_dumper(Array, _ArrayDumper)


def parameters(works: Sequence[Append]) -> tuple[Array, ...]:
    """Return what `turnline_append` is called with."""
    numbers, texts, bodies = list[SqlValue](), list[SqlValue](), list[SqlValue]()
    tags = list[str]()
    for work in works:
        created, *names, deadline, code, body = _NO_COLUMNS if work.row is None else columns_of(work.row)
        own_tags = [] if work.row is None else tags_of(work.row)
        numbers += (work.after, len(work.sent), len(own_tags), work.closes, created, deadline)
        texts += (work.channel_id, *names, code)
        bodies += (work.previous, body)
        tags += own_tags
    records = [record for work in works for record in work.sent]
    lines = [part for record in records for part in (record.hash, record.head, record.payload)]
    return (
        _array(_BIGINT, numbers, width=6),
        _array(_TEXT, texts, width=8),
        _array(_BYTEA, bodies, width=2),
        _array(_TEXT, [record.envelope_id for record in records]),
        _array(_BYTEA, lines, width=3),
        _array(_TEXT, tags),
    )


def _array(kind: _Kind, items: Sequence[SqlValue], *, width: int = 0) -> Array:
    """Return an array of the items, or of rows of `width` items each."""
    if not items:
        return Array(_EMPTY.pack(0, 0, kind.oid))
    has_null = None in items
    if width:
        parts = [_TABLE.pack(2, has_null, kind.oid, len(items) // width, 1, width, 1)]
    else:
        parts = [_ARRAY.pack(1, has_null, kind.oid, len(items), 1)]
    for item in items:
        if item is None:
            parts.append(_NULL)
        else:
            value = kind.encode(item)
            parts += (_LENGTH.pack(len(value)), value)
    return Array(b"".join(parts))


def check_names(channel_id: str, envelopes: Sequence[Envelope]) -> None:
    """Raise `ValueError` for ids PostgreSQL cannot keep."""
    for name in (channel_id, *(envelope.envelope_id for envelope in envelopes)):
        if not is_name(name):
            raise ValueError(
                f"the id {name[:60]!r} cannot be kept in PostgreSQL: expected text without NUL, of at most "
                f"{MAX_NAME_BYTES} bytes"
            )


def is_name(text: str) -> bool:
    """Whether PostgreSQL can keep `text` as an id. Nobody has one that it cannot."""
    if "\0" in text or len(text) > MAX_NAME_BYTES:
        return False
    try:
        return len(text.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def _twice(names: Iterable[str]) -> str:
    return next((name for name, count in Counter(names).items() if count > 1), "")
