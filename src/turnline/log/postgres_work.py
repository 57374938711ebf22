"""What a `PostgresLog` appends, and what `turnline_append` answers.

The server keeps the hash a channel ends with, and the caller has to seal behind it. So a log
remembers the ends it has seen (`Ends`). An append whose end is not among them is sent without
its records first, and is answered with the hash.
"""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import Iterable, Sequence
from secrets import token_bytes
from typing import Any, Final

from msgspec import Struct

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
        return closes(self.envelopes[-1].event_type) if self.envelopes else None

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


def parameters(works: Sequence[Append]) -> tuple[list[Any], ...]:
    """Return what `turnline_append` is called with."""
    records = [record for work in works for record in work.sent]
    rows = [_NO_COLUMNS if work.row is None else columns_of(work.row) for work in works]
    tags = [[] if work.row is None else tags_of(work.row) for work in works]
    return (
        [work.channel_id for work in works],
        [work.after for work in works],
        [work.previous for work in works],
        [work.closes for work in works],
        [len(work.sent) for work in works],
        [record.envelope_id for record in records],
        [record.hash for record in records],
        [record.head for record in records],
        [record.payload for record in records],
        *map(list, zip(*rows, strict=True)),
        [len(one) for one in tags],
        [tag for one in tags for tag in one],
    )


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
