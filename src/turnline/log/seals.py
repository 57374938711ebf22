"""Seals: where every channel ended at some time, so that nothing disappears unnoticed (Y4).

    _seals    log.sealed {"ends": [[channel, seq, hash], ...], "position", "previous", "log", ...}

A line covers the channels that were appended to since the line before it. The hash chain of `_seals` covers
the lines before, so the number and the hash of one line stand for every channel end up to it: this is the
text that an operator keeps outside (`KeptSeal`).

Rule 1: a seal costs what was appended since the last one, never the whole log. A line has at most
`ENDS_PER_LINE` ends; if more channels changed, more lines follow.

Rule 2: it covers appends up to a position that no later commit can come before (`ListsEnds`), and the next
seal continues from there. Positions count on one log only, so a line names its log (`_mark-seals`, which
no export has). On another log, sealing starts with every channel.

Rule 3: several servers may seal one log. The one that appends second writes nothing.

Rule 4: an end stays true: a channel only grows, and erased content leaves the chain as it was. `_seals`
itself and the marks of trust are in no seal.

Rule 5: a prune first seals the ends that its tombstones will have (`seal_ends`). So the last seal of a pruned
channel and its tombstone say the same, and a tombstone that says more than the last seal is not believed.
The ends are named one by one: positions above the horizon are not sealed otherwise, and a channel that a
process appends to meanwhile gets no tombstone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from turnline.core.codec import NO_HASH, read_structure
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_LOG_REPAIRED, EV_LOG_SEALED
from turnline.errors import BadSeal, CorruptRecord, LogUnavailable
from turnline.log.base import MARK_PREFIX, ChannelEnd, ListsEnds, Log
from turnline.log.chain import Chain
from turnline.log.records import Records
from turnline.log.system_channel import MAX_CONFLICTS, SystemChannel, SystemLine

if TYPE_CHECKING:
    from turnline.log.seal_keys import PublicSealKey, SealKey

SEALS_CHANNEL: Final = "_seals"
LOG_ID_CHANNEL: Final = f"{MARK_PREFIX}seals"
"""Holds the id of this log. A log that has another one, or none, has positions of its own."""
EV_LOG_IDENTIFIED: Final = "log.identified"
ENDS_PER_LINE: Final = 500
MAX_LINES: Final = 10_000
"""Lines written by one call. The next call continues."""
MAX_KEPT_CHARACTERS: Final = 1024 * 1024
"""Of the text or the file of a kept seal."""

Now = Callable[[], datetime]
NewId = Callable[[], str]
KeptEnd = tuple[str, int, str]
"""Channel, seq and hash, as a line has them."""
_TEXT: Final = re.compile(r"turnline-seal:([1-9][0-9]{0,17}):([0-9a-f]{64})")
_end_decoder = msgspec.json.Decoder(KeptEnd)


class SealLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of a `log.sealed`."""

    log: str
    position: int
    """Every append up to here is covered, by this line or by one before."""
    previous: str
    """The hash of the line before."""
    ends: list[KeptEnd]
    key: str = ""
    """The public key that checks the signature."""
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """Return what is signed: all the rest, and so all seals before."""
        bare = msgspec.json.encode(replace(self, signature=""), order="deterministic")
        return b"turnline seal\0" + sha256(bare).digest()


class KeptSeal(Struct, frozen=True, kw_only=True):
    """A seal as an operator keeps it: a line of `_seals`, and perhaps the ends that the line names."""

    seq: int
    hash: bytes
    ends: list[KeptEnd] = field(default_factory=list)

    @classmethod
    def from_text(cls, text: str) -> KeptSeal:
        """Return what `to_text` or `to_file` wrote. Raises `BadSeal`."""
        first, *rest = text.strip().splitlines() or [""]
        found = _TEXT.fullmatch(first.strip())
        if found is None or len(text) > MAX_KEPT_CHARACTERS:
            raise BadSeal(found=repr(first[:80]))
        try:
            ends = [_end_decoder.decode(line) for line in rest]
        except ValueError as error:
            raise BadSeal(found=f"a line that is not the end of a channel ({error})") from None
        return cls(seq=int(found[1]), hash=bytes.fromhex(found[2]), ends=ends)

    def to_text(self) -> str:
        """Return one short line."""
        return f"turnline-seal:{self.seq}:{self.hash.hex()}"

    def to_file(self) -> str:
        """Return the text and, line by line, the ends that the seal names."""
        return "\n".join([self.to_text(), *(msgspec.json.encode(end).decode() for end in self.ends), ""])


async def seal_log(log: Log, *, now: Now, new_id: NewId, key: SealKey | None = None) -> int:
    """Seal what was appended since the last seal; return how many lines that took.

    With a key every line is signed. Then one is written also if nothing was appended since a seal that the
    key did not sign. Raises `LogUnavailable`, and `CorruptRecord` if the last seal is damaged.
    """
    if not isinstance(log, ListsEnds):
        raise LogUnavailable(log.address, because="it cannot say where its channels end")
    sealing = _Sealing(log, await _identify(log, now, new_id), now, new_id)
    for written in range(MAX_LINES):
        last = await sealing.catch_up()
        ends, position = await _changed(log, sealing.position)
        if not ends and (key is None or (last is not None and last.key == key.public.text)):
            return written
        if not await sealing.append(ends, position, key):  # Another process appended a seal (rule 3).
            return written
    return MAX_LINES


async def seal_ends(log: Log, ends: Sequence[KeptEnd], *, now: Now, new_id: NewId) -> None:
    """Seal these ends of channels, whatever else was appended (rule 5). Raises what `seal_log` raises."""
    if not isinstance(log, ListsEnds):
        raise LogUnavailable(log.address, because="it cannot say where its channels end")
    sealing = _Sealing(log, await _identify(log, now, new_id), now, new_id)
    for first in range(0, len(ends), ENDS_PER_LINE):
        for _ in range(MAX_CONFLICTS):
            await sealing.catch_up()
            if await sealing.append(ends[first : first + ENDS_PER_LINE], sealing.position, None):
                break
        else:
            raise LogUnavailable(log.address, because=f"other writers were first in {MAX_CONFLICTS} seals")


class _SealedLog(Log, ListsEnds, Protocol):
    """A log that can be sealed."""


class _Sealing:
    """The end of `_seals`, as one process knows it."""

    def __init__(self, log: _SealedLog, log_id: str, now: Now, new_id: NewId) -> None:
        self.position = 0
        """Every append up to here is sealed."""
        self._log = log
        self._log_id = log_id
        self._channel = SystemChannel(log, SEALS_CHANNEL, now, new_id)
        self._known = 0
        self._previous = NO_HASH

    async def catch_up(self) -> SealLine | None:
        """Look at the last seal, and return it."""
        await self._channel.catch_up()
        self._known = self._channel.seq
        last = await _last_line(self._log, self._known)
        end = await self._log.channel_end(SEALS_CHANNEL)
        self._previous = NO_HASH if end is None else end.hash
        self.position = last.position if last is not None and last.log == self._log_id else 0
        return last

    async def append(self, ends: Sequence[KeptEnd], position: int, key: SealKey | None) -> bool:
        """Append a seal after the one that was looked at; return False if another process was first."""
        line = SealLine(log=self._log_id, position=position, previous=self._previous.hex(), ends=list(ends))
        new = [_sealed(line, key)]
        return bool(await self._channel.append(lambda: new if self._channel.seq == self._known else []))


async def keep_seal(records: Records) -> KeptSeal | None:
    """Return the last seal of a log, to be kept outside; None if it has none. Raises `CorruptRecord`."""
    index = await records.indexed(SEALS_CHANNEL)
    if index is None:
        return None
    async with aclosing(records.read(SEALS_CHANNEL, after=index.seq - 1)) as found:
        async for record in found:
            data = read_structure(record.head).data
            ends = [(name, seq, hash_) for name, seq, hash_ in data.get("ends", [])]
            return KeptSeal(seq=record.seq, hash=record.hash, ends=ends)
    raise CorruptRecord(SEALS_CHANNEL, seq=index.seq, because="it is missing")


async def _identify(log: Log, now: Now, new_id: NewId) -> str:
    """Return the id of this log; give it one if it has none."""
    found = list[str]()

    def apply(line: Envelope) -> None:
        found.append(str(line.event_data.get("log", "")))

    channel = SystemChannel(log, LOG_ID_CHANNEL, now, new_id, apply=apply)
    await channel.catch_up()
    line = SystemLine(EV_LOG_IDENTIFIED, {"log": new_id()})
    await channel.append(lambda: [] if found else [line])
    return found[-1]


async def _last_line(log: Log, seq: int) -> SealLine | None:
    if not seq:
        return None
    async for line in log.read(SEALS_CHANNEL, after=seq - 1):
        if line.event_type == EV_LOG_SEALED:
            return msgspec.convert(line.event_data, SealLine)
    return None


async def _changed(log: ListsEnds, after: int) -> tuple[list[KeptEnd], int]:
    """Return the ends of the next line, and the position up to which they were looked for."""
    while page := await log.ends(after=after, limit=ENDS_PER_LINE):
        ends = [(end.channel_id, end.seq, end.hash.hex()) for end in page if _is_covered(end)]
        after = page[-1].position
        if ends:
            return ends, after
    return [], after


def _is_covered(end: ChannelEnd) -> bool:
    return end.channel_id != SEALS_CHANNEL and not end.channel_id.startswith(MARK_PREFIX)


def _sealed(line: SealLine, key: SealKey | None) -> SystemLine:
    if key is not None:
        line = replace(line, key=key.public.text)
        line = replace(line, signature=key.sign(line.signed_bytes()))
    return SystemLine(EV_LOG_SEALED, msgspec.json.decode(msgspec.json.encode(line)))


class Sealed(Struct, frozen=True):
    """What a seal says of a channel at some line."""

    hash: bytes
    line: int
    """The line of `_seals` that says it; 0: a file that was kept."""


class Seals:
    """What the seals of a log say, and what is wrong with them."""

    def __init__(self, kept: KeptSeal | None, key: PublicSealKey | None) -> None:
        self.ends: dict[str, dict[int, Sealed]] = {}
        """Channel -> seq -> what was sealed. Seals that a program without rights wrote are here as well."""
        self.lines = 0
        self.last_at: datetime | None = None
        """When the last seal was made that `vouched_to` counts."""
        self.problem: tuple[int, str, str] | None = None
        """The first line of `_seals` that is wrong, what was found and what was expected."""
        self.vouched_to = 0 if kept is None else kept.seq
        """Up to this line of `_seals` a kept seal or a signature proves what it says."""
        self._kept = kept
        self._key = key
        if kept is not None:
            self.ends[SEALS_CHANNEL] = {kept.seq: Sealed(kept.hash, 0)}
            for name, seq, hash_ in kept.ends:
                self._note(name, seq, hash_, 0)

    async def read(self, records: Records) -> None:
        """Read `_seals` as far as it is not damaged. Raises `LogUnavailable`."""
        chain = Chain(SEALS_CHANNEL)
        signed = 0
        try:
            async with aclosing(records.read(SEALS_CHANNEL)) as found:
                async for record in found:
                    previous = chain.hash
                    envelope = chain.add(record)
                    if envelope.event_type == EV_LOG_SEALED:
                        signed = self._add(envelope, previous) or signed
                    elif envelope.event_type == EV_LOG_REPAIRED:
                        self._excuse(envelope)
        except CorruptRecord:
            pass  # The look at the channel itself says so.
        if self._key is not None:
            self.vouched_to = max(self.vouched_to, signed)
            if not signed:
                self._blame(max(chain.seq, 1), "no seal that this key has signed", "at least one")

    def is_vouched(self, sealed: Sealed) -> bool:
        return sealed.line <= self.vouched_to and self.vouched_to > 0

    def vouched_end(self, channel_id: str) -> int:
        """Return up to which line a kept seal or a signature covers a channel; 0: not at all."""
        ends = self.ends.get(channel_id, {})
        return max((seq for seq, sealed in ends.items() if self.is_vouched(sealed)), default=0)

    def _add(self, envelope: Envelope, previous: bytes) -> int:
        """Note what a line says; return its number if the key has signed it."""
        try:
            line = msgspec.convert(envelope.event_data, SealLine)
            for name, seq, hash_ in line.ends:
                self._note(name, seq, hash_, envelope.seq)
        except ValueError as error:
            self._blame(envelope.seq, f"a seal that cannot be read: {error}", "the seal that was written")
            return 0
        self.lines += 1
        if not self.vouched_to or envelope.seq <= self.vouched_to:
            self.last_at = envelope.created_at
        if line.previous != previous.hex():
            self._blame(envelope.seq, "a seal that follows another line", "the hash of the line before it")
            return 0
        if self._key is None or line.key != self._key.text:
            return 0
        if not self._key.fits(line.signature, line.signed_bytes()):
            self._blame(envelope.seq, "a signature that does not fit the seal", "one that the key has made")
            return 0
        return envelope.seq

    def _note(self, name: str, seq: int, hash_: str, line: int) -> None:
        self.ends.setdefault(name, {}).setdefault(seq, Sealed(bytes.fromhex(hash_), line))

    def _excuse(self, envelope: Envelope) -> None:
        """Forget what is wrong with lines after one that a repair has replaced: they had another before."""
        first = envelope.event_data.get("first")
        if self.problem is not None and isinstance(first, int) and self.problem[0] >= first:
            self.problem = None

    def _blame(self, seq: int, found: str, expected: str) -> None:
        self.problem = self.problem or (seq, found, expected)
