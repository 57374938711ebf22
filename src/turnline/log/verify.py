"""Whether a log is what was written to it (rules 2, 5 and 7 of the faults page).

    each channel    the chain, no gap, ids, times, the fold, the seals, no erased content; then the index
    its files       those that its lines refer to: there, whole, of the right size (Y6)
    the seals       channels that are gone (`log.seals`)
    the storage     what the backend itself finds wrong

Rule 1: the first bad record of a channel is told and ends that channel; the others are looked at
all the same.

Rule 2: looking changes nothing, and hubs may go on writing. So content that a later line names as erased
is looked for again: it may have been read before it was erased. So is a line whose file is missing. A channel
that was pruned meanwhile is compared with the seals as they are after that.

Rule 3: what was erased or pruned since a seal is listed; it is not damage. A repaired channel is listed too,
unless a kept seal or a signature covers what it was before: then it is bad, because lines were lost.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from turnline.core.adapter import Adapters
from turnline.core.channel import ChannelRow
from turnline.core.codec import Record, erased_lines
from turnline.core.directory import DIRECTORY_CHANNEL, Directory, fold_directory
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_LOG_REPAIRED, EV_PAYLOAD_ERASED
from turnline.core.parts import FilePart, files_of
from turnline.errors import CorruptRecord, LogUnavailable
from turnline.log.base import Blob, Tombstone, closes
from turnline.log.blobs import choose_blob, read_blob
from turnline.log.chain import Chain
from turnline.log.forks import ForkingLog
from turnline.log.memory import MemoryLog
from turnline.log.records import NOTE, Indexed, Records
from turnline.log.rows import ChannelFold
from turnline.log.seals import SEALS_CHANNEL, KeptSeal, Sealed, Seals

if TYPE_CHECKING:
    from turnline.log.seal_keys import PublicSealKey

Progress = Callable[[int, int], None]
"""Told of the channels and records done so far."""
MAX_TREES: Final = 256
"""Trees of channels whose files are remembered. The files of others are listed, and read, again."""


class BadRecord(Struct, frozen=True, kw_only=True):
    """The first thing that is wrong with a channel."""

    channel_id: str
    seq: int
    found: str
    expected: str


class BadFile(Struct, frozen=True, kw_only=True):
    """A file that a line refers to, and that is not what was written."""

    channel_id: str
    seq: int
    file: int
    """Which of the line's files: 0 is the first."""
    found: str
    expected: str
    root: str
    """The top of the tree of channels that has the file."""
    digest: str


class ErasedLines(Struct, frozen=True, kw_only=True):
    """Lines whose content was erased since a seal."""

    channel_id: str
    seq: int
    """The line that says so."""
    lines: list[tuple[int, int]]


class Verdict(Struct, frozen=True, kw_only=True):
    """What was looked at, and what was found."""

    address: str
    channels: int = 0
    records: int = 0
    pruned: int = 0
    """Channels of which only a tombstone is left (Y3)."""
    files: int = 0
    """Files of lines that were read; one that two lines refer to counts twice."""
    bad: list[BadRecord] = field(default_factory=list)
    bad_files: list[BadFile] = field(default_factory=list)
    """Their channels are read and written all the same."""
    storage: list[str] = field(default_factory=list)
    """What is wrong with no channel in particular."""
    not_folded: dict[str, str] = field(default_factory=dict)
    """Channels of a type that only their own program knows -> the type. Their chain was checked."""

    seals: int = 0
    """Lines of `_seals`."""
    sealed_at: datetime | None = None
    """When the last seal was made that was checked."""
    erased: list[ErasedLines] = field(default_factory=list)
    """Since the seal that was kept, or the last signed one."""
    pruned_since: list[str] = field(default_factory=list)
    """Sealed channels that were pruned since."""
    repaired: list[str] = field(default_factory=list)
    """System channels that were repaired: seals from before cover lines that were lost."""
    note: str = ""
    """What the storage may hide from every look at it; empty: nothing that is known."""

    @property
    def is_good(self) -> bool:
        return not self.bad and not self.bad_files and not self.storage


async def verify(
    records: Records,
    adapters: Adapters,
    *,
    seal: KeptSeal | None = None,
    public_key: PublicSealKey | None = None,
    progress: Progress = lambda channels, done: None,
) -> Verdict:
    """Look at everything. Raises `LogUnavailable` if that is not possible.

    The seals on the log are checked as well. `seal` is one that was kept outside, and `public_key` the key
    that checks signatures: only what these cover is proven against a person with rights on the database.
    """
    looking = _Looking(records, adapters, lambda: Seals(seal, public_key))
    storage = await records.damage()
    try:
        await looking.look_at_all(progress)
    except LogUnavailable as error:
        if not storage:
            raise
        storage = [*storage, error.because]
    except CorruptRecord as error:
        storage = [*storage, error.because]
    with suppress(LogUnavailable):
        return replace(looking.verdict(storage), note=(await records.facts()).get(NOTE, ""))
    return looking.verdict(storage)


class _Looking:
    """A log as far as it was looked at."""

    def __init__(self, records: Records, adapters: Adapters, make_seals: Callable[[], Seals]) -> None:
        self._records = records
        self._adapters = adapters
        self._make_seals = make_seals
        self._seals = make_seals()
        self._files = _Files(records)
        self._bad: list[BadRecord] = []
        self._not_folded: dict[str, str] = {}
        self._erased: list[ErasedLines] = []
        self._pruned_since: list[str] = []
        self._repaired: list[str] = []
        self._channels = self._done = self._pruned = 0

    async def look_at_all(self, progress: Progress) -> None:
        await self._seals.read(self._records)
        missing = set(self._seals.ends)
        async for channel_id in self._records.channels():
            missing.discard(channel_id)
            await self._look_at(channel_id)
            progress(self._channels, self._done)
        await self._look_for_all(missing, await self._find_left())

    async def _find_left(self) -> set[str]:
        """Return bad channels that are not there any more: a prune may have taken them meanwhile."""
        left = set[str]()
        for bad in self._bad:
            with suppress(CorruptRecord):
                if await self._records.indexed(bad.channel_id) is None:
                    left.add(bad.channel_id)
        return left

    async def _look_for_all(self, missing: set[str], left: set[str]) -> None:
        tombstones = await self._read_tombstones(missing | left)
        if not all(map(self._is_proven, tombstones.values())):
            self._seals = self._make_seals()  # A prune may have sealed their ends since.
            await self._seals.read(self._records)
        pruned = {name for name in left & tombstones.keys() if self._is_proven(tombstones[name])}
        self._bad = [one for one in self._bad if one.channel_id not in pruned]
        for channel_id in sorted(missing | pruned):
            self._look_for(channel_id, tombstones.get(channel_id))

    async def _read_tombstones(self, missing: set[str]) -> dict[str, Tombstone]:
        """Count the pruned channels; return the tombstones of those that were looked for."""
        found: dict[str, Tombstone] = {}
        async for one in self._records.tombstones():
            self._pruned += 1
            if one.channel_id in missing:
                found[one.channel_id] = one
        return found

    def _is_proven(self, tombstone: Tombstone) -> bool:
        """Whether the last seal of a channel has the end that its tombstone has (rule 5 of the seals)."""
        ends = self._seals.ends.get(tombstone.channel_id, {})
        return bool(ends) and (tombstone.seq, tombstone.hash) == (max(ends), ends[max(ends)].hash)

    def verdict(self, storage: list[str]) -> Verdict:
        return Verdict(
            address=self._records.address,
            channels=self._channels,
            records=self._done,
            files=self._files.done,
            bad=self._bad,
            bad_files=self._files.bad,
            storage=storage,
            not_folded=self._not_folded,
            seals=self._seals.lines,
            sealed_at=self._seals.last_at,
            erased=self._erased,
            pruned=self._pruned,
            pruned_since=self._pruned_since,
            repaired=self._repaired,
        )

    async def _look_at(self, channel_id: str) -> None:
        look = self._begin(channel_id)
        try:
            await _look_at(self._records, look)
            if look.left is not None:
                look = self._begin(channel_id)
                await _look_at(self._records, look)
                look.refuse_left()
            self._compare(look)
        except _Wrong as wrong:
            self._bad.append(self._earlier(look, wrong).bad)
        await self._files.look_at(channel_id, look.files)
        if look.unknown_type:
            self._not_folded[channel_id] = look.unknown_type
        end = self._seals.vouched_end(channel_id)
        self._erased += [one for one in look.erased if 0 < end < one.seq]
        self._channels, self._done = self._channels + 1, self._done + look.chain.seq

    def _begin(self, channel_id: str) -> _Look:
        return _Look(channel_id, self._adapters, self._seals.ends.get(channel_id, {}))

    def _compare(self, look: _Look) -> None:
        """Compare a channel with its seals. Raises `_Wrong`."""
        if look.chain.channel_id == SEALS_CHANNEL and self._seals.problem is not None:
            seq, found, expected = self._seals.problem
            raise look.wrong(seq, found=found, expected=expected)
        unlike = look.unlike()
        if not unlike:
            return
        first = min(unlike)
        covered = any(self._seals.is_vouched(sealed) for sealed in unlike.values())
        if look.repaired_from and look.repaired_from <= first and not covered:
            self._repaired.append(look.chain.channel_id)
            return
        raise look.unsealed(first, unlike[first])

    def _earlier(self, look: _Look, wrong: _Wrong) -> _Wrong:
        """Return what was found first: a seal may tell of a line before the one that cannot be read."""
        unlike = {seq: one for seq, one in look.unlike().items() if seq < min(wrong.bad.seq, look.seq + 1)}
        return look.unsealed(min(unlike), unlike[min(unlike)]) if unlike else wrong

    def _look_for(self, channel_id: str, tombstone: Tombstone | None) -> None:
        """Note that a sealed channel is not there; a tombstone may say that it was pruned."""
        ends = self._seals.ends[channel_id]
        last = max(ends)
        found = "the channel is gone"
        if tombstone is not None:
            if self._is_proven(tombstone):
                self._pruned_since.append(channel_id)
                return
            found = "the channel was pruned, and its tombstone has another end than its last seal"
        expected = f"{last} {'line' if last == 1 else 'lines'}, as {_seal_of(ends[last])} says"
        self._bad.append(BadRecord(channel_id=channel_id, seq=1, found=found, expected=expected))


class _LineFile(NamedTuple):
    """A file of a line."""

    seq: int
    number: int
    """Which of the line's files: 0 is the first."""
    part: FilePart


class _Tree(NamedTuple):
    """The files of a tree of channels, and what was found wrong with those that were read ("": nothing)."""

    blobs: list[Blob]
    read: dict[str, str]


class _Files:
    """The files that lines refer to. The files of a tree whose top is not on this log were never on it."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._trees: OrderedDict[str, _Tree] = OrderedDict()
        self.bad: list[BadFile] = []
        self.done = 0

    async def look_at(self, channel_id: str, files: Sequence[_LineFile]) -> None:
        """Read the files of a channel's lines."""
        root = await self._root(channel_id) if files else None
        if root is None:
            return
        self.done += len(files)
        doubtful = [one for one in files if await self._compare(root, one.part)]
        if doubtful:  # They may be newer than the list, or erased since.
            self._trees.pop(root, None)
        for one in doubtful:
            wrong = await self._compare(root, one.part)
            if wrong and await self._has_content(channel_id, one.seq):
                found, expected = wrong
                bad = BadFile(
                    channel_id=channel_id,
                    seq=one.seq,
                    file=one.number,
                    found=found,
                    expected=expected,
                    root=root,
                    digest=one.part.digest,
                )
                self.bad.append(bad)

    async def _root(self, channel_id: str) -> str | None:
        """Return the top of a channel's tree; None if it, or a channel on the way, cannot be read."""
        seen = set[str]()
        while channel_id not in seen:
            seen.add(channel_id)
            try:
                async with aclosing(self._records.read(channel_id)) as found:
                    record = await anext(found, None)
                first = None if record is None else Chain(channel_id).add(record)
            except CorruptRecord:
                return None
            if first is None:
                return None
            origin = first.event_data.get("forked_from")
            above = origin.get("channel") if isinstance(origin, dict) else first.event_data.get("parent_id")
            if not above:
                return channel_id
            channel_id = str(above)
        return None

    async def _compare(self, root: str, part: FilePart) -> tuple[str, str] | None:
        """Return what was found and what was expected; None if the file is what the line says."""
        tree = await self._load(root)
        blob = choose_blob(tree.blobs, part.digest)
        if blob is None:
            return "the file is missing", f"{part.size} bytes"
        if blob.size != part.size:
            return f"a file of {blob.size} bytes", f"{part.size} bytes, as the line says"
        if blob.blob_id not in tree.read:
            tree.read[blob.blob_id] = await self._read(blob)
        wrong = tree.read[blob.blob_id]
        return (wrong, f"the {part.size} bytes that were written") if wrong else None

    async def _load(self, root: str) -> _Tree:
        if root not in self._trees:
            try:
                blobs = await self._records.blobs(root)
            except CorruptRecord:  # A reader finds none of them either.
                blobs = []
            self._trees[root] = _Tree(blobs, {})
            if len(self._trees) > MAX_TREES:
                self._trees.popitem(last=False)
        return self._trees[root]

    async def _read(self, blob: Blob) -> str:
        try:
            async for _ in read_blob(self._records, blob):
                pass
        except CorruptRecord as error:
            return error.because
        return ""

    async def _has_content(self, channel_id: str, seq: int) -> bool:
        async with aclosing(self._records.read(channel_id, after=seq - 1)) as found:
            record = await anext(found, None)
        return record is not None and record.payload is not None


class _Wrong(Exception):
    def __init__(self, channel_id: str, seq: int, *, found: str, expected: str) -> None:
        self.bad = BadRecord(channel_id=channel_id, seq=seq, found=found, expected=expected)
        super().__init__(found)


class _Look:
    """A channel as far as it was looked at."""

    def __init__(self, channel_id: str, adapters: Adapters, sealed: Mapping[int, Sealed]) -> None:
        self.chain = Chain(channel_id)
        self.erased: list[ErasedLines] = []
        self.files: list[_LineFile] = []
        self.repaired_from = 0
        """The first line that a repair replaced; 0: the channel was never repaired."""
        self._sealed = sealed
        self._unlike: dict[int, Sealed] = {}
        self._last: Envelope | None = None
        self._is_over = False
        """Whether `channel.closed` was read."""
        self._contents: set[int] = set()
        """The lines that have content."""
        self.left: tuple[int, int] | None = None
        """A line that has content, and the line that says that it was erased."""
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
        return self._last is not None and closes(self.chain.channel_id, self._last.event_type)

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
        if record.payload is not None:
            self._contents.add(record.seq)
            found = files_of(envelope.event_type, envelope.event_data)
            self.files += [_LineFile(record.seq, index, part) for index, part in enumerate(found)]
        if envelope.event_type == EV_PAYLOAD_ERASED and self.left is None:
            self.left = self._find_left(envelope)
        self._compare_seal(envelope)
        if self._last is not None:
            self._compare(self._last, envelope)
        if not self.chain.channel_id.startswith("_") or self.chain.channel_id == DIRECTORY_CHANNEL:
            self._fold(replace(envelope, seq=envelope.seq + self._before) if self._before else envelope)
        self._last = envelope

    def _find_left(self, note: Envelope) -> tuple[int, int] | None:
        ranges = erased_lines(note)
        named = (seq for seq in self._contents if any(first <= seq <= last for first, last in ranges))
        seq = min(named, default=None)
        return None if seq is None else (seq, note.seq)

    def unlike(self) -> dict[int, Sealed]:
        """Return the seals that the channel is not like, by line. One after its end is."""
        return self._unlike | {seq: one for seq, one in self._sealed.items() if seq > self.seq}

    def unsealed(self, seq: int, sealed: Sealed) -> _Wrong:
        """Return that the channel is not what was sealed."""
        if seq > self.seq:
            found = f"the channel ends at {self.seq}"
            return self.wrong(self.seq + 1, found=found, expected=f"{seq} lines, as {_seal_of(sealed)} says")
        before = max((one for one in self._sealed if one < seq and one not in self._unlike), default=0)
        found = f"other lines between {before + 1} and {seq} than those that were sealed"
        return self.wrong(
            seq, found=found, expected=f"the hash {sealed.hash.hex()}, as {_seal_of(sealed)} says"
        )

    def wrong(self, seq: int, *, found: str, expected: str) -> _Wrong:
        return _Wrong(self.chain.channel_id, seq, found=found, expected=expected)

    def refuse_left(self) -> None:
        """Raise if content is left that was erased."""
        if self.left is not None:
            seq, note = self.left
            found = f"its content, though line {note} says that it was erased"
            do = "no content; an erase was interrupted, and `turnline log erase` finishes it"
            raise self.wrong(seq, found=found, expected=do)

    def _compare_seal(self, envelope: Envelope) -> None:
        sealed = self._sealed.get(envelope.seq)
        if sealed is not None and sealed.hash != self.chain.hash:
            self._unlike[envelope.seq] = sealed
        if envelope.event_type == EV_PAYLOAD_ERASED:
            lines = ErasedLines(
                channel_id=envelope.channel_id, seq=envelope.seq, lines=erased_lines(envelope)
            )
            self.erased.append(lines)
        elif envelope.event_type == EV_LOG_REPAIRED and envelope.channel_id.startswith("_"):
            first = envelope.event_data.get("first")
            if isinstance(first, int):
                self.repaired_from = min(self.repaired_from or first, first)

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

    def add(self, envelope: Envelope) -> None:
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


def _seal_of(sealed: Sealed) -> str:
    return f"line {sealed.line} of `{SEALS_CHANNEL}`" if sealed.line else "the kept seal"


def _word(closed: bool) -> str:
    return "closed" if closed else "open"
