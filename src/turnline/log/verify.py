"""Whether a log is what was written to it (rules 2, 5 and 7 of the faults page).

    each channel    the chain, no gap, ids, times, the fold; then what the index says of it
    the storage     what the backend itself finds wrong

Rule 1: the first bad record of a channel is told and ends that channel; the others are looked at
all the same.

Rule 2: looking changes nothing, and hubs may go on writing.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from msgspec import Struct, field
from msgspec.structs import replace

from turnline.core.adapter import Adapters
from turnline.core.channel import ChannelRow
from turnline.core.codec import Record
from turnline.core.directory import DIRECTORY_CHANNEL, Directory, fold_directory
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_PAYLOAD_ERASED
from turnline.errors import CorruptRecord, LogUnavailable
from turnline.log.base import closes
from turnline.log.chain import Chain
from turnline.log.forks import ForkingLog
from turnline.log.memory import MemoryLog
from turnline.log.records import Indexed, Records
from turnline.log.rows import ChannelFold

Progress = Callable[[int, int], None]
"""Told of the channels and records done so far."""


class BadRecord(Struct, frozen=True, kw_only=True):
    """The first thing that is wrong with a channel."""

    channel_id: str
    seq: int
    found: str
    expected: str


class Verdict(Struct, frozen=True, kw_only=True):
    """What was looked at, and what was found."""

    address: str
    channels: int = 0
    records: int = 0
    pruned: int = 0
    """Channels of which only a tombstone is left (Y3)."""
    bad: list[BadRecord] = field(default_factory=list)
    storage: list[str] = field(default_factory=list)
    """What is wrong with no channel in particular."""
    not_folded: dict[str, str] = field(default_factory=dict)
    """Channels of a type that only their own program knows -> the type. Their chain was checked."""

    @property
    def is_good(self) -> bool:
        return not self.bad and not self.storage


async def verify(
    records: Records, adapters: Adapters, *, progress: Progress = lambda channels, done: None
) -> Verdict:
    """Look at everything. Raises `LogUnavailable` if that is not possible."""
    bad: list[BadRecord] = []
    not_folded: dict[str, str] = {}
    channels = done = pruned = 0
    storage = await records.damage()
    try:
        async for channel_id in records.channels():
            look = _Look(channel_id, adapters)
            try:
                await _look_at(records, look)
            except _Wrong as wrong:
                bad.append(wrong.bad)
            if look.unknown_type:
                not_folded[channel_id] = look.unknown_type
            channels, done = channels + 1, done + look.chain.seq
            progress(channels, done)
        async for _ in records.tombstones():
            pruned += 1
    except LogUnavailable as error:
        if not storage:
            raise
        storage = [*storage, error.because]
    except CorruptRecord as error:
        storage = [*storage, error.because]
    return Verdict(
        address=records.address,
        channels=channels,
        records=done,
        pruned=pruned,
        bad=bad,
        storage=storage,
        not_folded=not_folded,
    )


class _Wrong(Exception):
    def __init__(self, channel_id: str, seq: int, *, found: str, expected: str) -> None:
        self.bad = BadRecord(channel_id=channel_id, seq=seq, found=found, expected=expected)
        super().__init__(found)


class _Look:
    """A channel as far as it was looked at."""

    def __init__(self, channel_id: str, adapters: Adapters) -> None:
        self.chain = Chain(channel_id)
        self._last: Envelope | None = None
        self._is_over = False
        """Whether `channel.closed` was read."""
        self._before = 0
        """How many lines of another channel a fork has before its own."""
        self._folding = _Directory() if channel_id == DIRECTORY_CHANNEL else ChannelFold(adapters)

    @property
    def unknown_type(self) -> str:
        return "" if isinstance(self._folding, _Directory) else self._folding.unknown_type

    @property
    def row(self) -> ChannelRow | None:
        """The row that the index has to have; None if it cannot be told from the lines."""
        if isinstance(self._folding, _Directory) or not self._folding.is_folded:
            return None
        return self._folding.row()

    @property
    def seq(self) -> int:
        return self.chain.seq

    @property
    def is_closed(self) -> bool:
        return self._last is not None and closes(self._last.event_type)

    async def inherit(self, past: ForkingLog) -> None:
        """Fold what a fork has from another channel. Raises `CorruptRecord` if that cannot be read."""
        origin = await past.origin(self.chain.channel_id)
        if origin is None:
            return
        async for line in past.past(self.chain.channel_id, origin):
            self._fold(line)
        self._before = origin.seq

    def add(self, record: Record) -> None:
        envelope = self.chain.add(record)
        if self._last is not None:
            self._compare(self._last, envelope)
        if not self.chain.channel_id.startswith("_") or self.chain.channel_id == DIRECTORY_CHANNEL:
            self._fold(replace(envelope, seq=envelope.seq + self._before) if self._before else envelope)
        self._last = envelope

    def wrong(self, seq: int, *, found: str, expected: str) -> _Wrong:
        return _Wrong(self.chain.channel_id, seq, found=found, expected=expected)

    def _compare(self, before: Envelope, envelope: Envelope) -> None:
        self._is_over = self._is_over or before.event_type == EV_CHANNEL_CLOSED
        is_about_erased = envelope.event_type == EV_PAYLOAD_ERASED
        is_system = self.chain.channel_id.startswith("_")
        found = f"a {envelope.event_type!r}"
        if self._is_over and not is_about_erased:
            expected = "only `payload.erased` behind `channel.closed`"
            raise self.wrong(envelope.seq, found=found, expected=expected)
        if is_about_erased and not self._is_over and not is_system:
            raise self.wrong(envelope.seq, found=found, expected="`channel.closed` before it")
        if envelope.created_at < before.created_at:
            raise self.wrong(
                envelope.seq,
                found=f"the time {envelope.created_at.isoformat()}",
                expected=f"none before that of seq {before.seq}, {before.created_at.isoformat()}",
            )

    def _fold(self, envelope: Envelope) -> None:
        try:
            self._folding.add(envelope)
        except Exception as error:  # Whatever a fold raises costs a hub this channel (E5).
            raise self.wrong(
                envelope.seq,
                found=f"it cannot be folded: {type(error).__name__}: {error}",
                expected="a record that the channel's rules wrote",
            ) from error


class _Directory:
    """Who is registered."""

    def __init__(self) -> None:
        self._known = Directory()
        self._is_erased = False

    def add(self, envelope: Envelope) -> None:
        self._is_erased = self._is_erased or envelope.is_erased
        if not self._is_erased:  # What follows cannot be folded without it.
            self._known = fold_directory(self._known, envelope)


async def _look_at(records: Records, look: _Look) -> None:
    """Read a channel to its end, and compare that with the index. Raises `_Wrong`."""
    channel_id = look.chain.channel_id
    try:
        await look.inherit(ForkingLog(_Lines(records)))
        await _follow(records, look)
        index = await records.indexed(channel_id)
        if index is not None and index.seq > look.seq:  # Somebody appended meanwhile, or it is not there.
            await _follow(records, look, until=index.seq)
        look.chain.erasures.check()
    except CorruptRecord as error:
        expected = f"record {error.seq} as it was appended"
        raise look.wrong(error.seq, found=error.because, expected=expected) from error
    _compare(look, index)


class _Lines(MemoryLog):
    """The records as a log that can only be read, for the past of a fork."""

    def __init__(self, records: Records) -> None:
        super().__init__()
        self._kept = records

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        chain = Chain(channel_id)
        async with aclosing(self._kept.read(channel_id)) as found:
            async for record in found:
                envelope = chain.add(record)
                if envelope.seq > after:
                    yield envelope


async def _follow(records: Records, look: _Look, *, until: int = sys.maxsize) -> None:
    async with aclosing(records.read(look.chain.channel_id, after=look.seq)) as found:
        async for record in found:
            look.add(record)
            if look.seq >= until:
                return


def _compare(look: _Look, index: Indexed | None) -> None:
    if index is None:
        raise look.wrong(look.seq, found="the index does not have the channel", expected="its end")
    if index.seq > look.seq:
        found = f"it is missing, though the index says that the channel goes on to {index.seq}"
        raise look.wrong(look.seq + 1, found=found, expected=f"record {look.seq + 1} as it was appended")
    if index.seq < look.seq:
        found = f"the index says that the channel ends at {index.seq}"
        raise look.wrong(index.seq + 1, found=found, expected=f"an end at {look.seq}, as the records have it")
    if index.hash not in {None, look.chain.hash}:
        raise look.wrong(look.seq, found="the index has another hash", expected=look.chain.hash.hex())
    if index.closed != look.is_closed:
        found, expected = _word(index.closed), f"{_word(look.is_closed)}, as its last record is"
        raise look.wrong(look.seq, found=f"the index says {found}", expected=expected)
    if not index.closed and not index.listed:
        found = "the list of open channels does not name it"
        raise look.wrong(look.seq, found=found, expected="every open channel on it")
    _compare_row(look, index)


def _compare_row(look: _Look, index: Indexed) -> None:
    """Compare the row with the fold. A channel without one gets it when a hub opens the log."""
    if index.contradiction:
        raise look.wrong(look.seq, found=index.contradiction, expected="one index that says the same")
    expected = look.row
    if index.row is None or expected is None or index.row == expected:
        return
    # Names only: a label or an id of a participant is nobody's business here.
    fields = [
        name for name in expected.__struct_fields__ if getattr(expected, name) != getattr(index.row, name)
    ]
    raise look.wrong(
        look.seq,
        found=f"the row of the index has another {', '.join(fields)}",
        expected="the row that follows from its lines; a hub makes it again if the index is dropped",
    )


def _word(closed: bool) -> str:
    return "closed" if closed else "open"
