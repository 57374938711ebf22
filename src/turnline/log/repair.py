"""Repair: a damaged channel is written again, so that the log is served again (Y5).

    salvage       which lines of a channel are what was written, also after a damaged one
    plan_repairs  what is wrong with the channels and files, and what they will be
    repair        write them
    restore_files write damaged files as the archive has them

Rule 1: a line counts if its hash follows from its bytes and from the hash of the line before it, whether or
not that line can still be read. So one flipped bit costs at most one line.

Rule 2: a line that is lost is taken from the archive, if the archive has it. Otherwise `log.line_lost` stands
in its place, so no later line changes its number, and `log.repaired` at the end says what was lost.

Rule 3: participants that the directory has lost are read from the first lines of the channels that they are
on: names keep their ids. Their rules, resumes and passports come back when their programs register again.

Rule 4: only damaged channels are written. A line that is lost is replaced only on channels of the hub's own
(`_`). A conversation is written again only if all of its lines are known, so that it is what it was, byte for
byte; otherwise it stays as it is, and a hub refuses it. With another line in the place of a lost one, or
closed at the damaged one, participants would act on a conversation that never was.

Rule 5: content that was erased here does not come back from an archive. Nor does a file that no line with
content refers to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from turnline.core.adapters import built_in
from turnline.core.channel import Participant
from turnline.core.codec import NO_HASH, Kept, Record, erased_lines, keep, ranges, rehash, unseal
from turnline.core.directory import (
    DIRECTORY_CHANNEL,
    EV_PARTICIPANT_REGISTERED,
    EV_USER_SEEN,
    Directory,
    fold_directory,
    skeleton,
)
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.event_types import (
    EV_CHANNEL_INVITE,
    EV_LINE_LOST,
    EV_LOG_REPAIRED,
    EV_PAYLOAD_ERASED,
    HUB,
)
from turnline.core.governance import Passport, Registration
from turnline.core.state import LONG_AGO
from turnline.errors import CorruptRecord, LogUnavailable
from turnline.log.base import Blobs, Erasures, Log, Replaces
from turnline.log.chain import Chain
from turnline.log.export_file import FileLine, FilePiece, Part, Piece, read_export
from turnline.log.records import Records
from turnline.log.seals import Sealed, Seals
from turnline.log.transfer import FileWriter
from turnline.log.verify import BadFile, BadRecord, verify

OWN_PREFIX: Final = "_"
MAX_LOST: Final = 100_000
"""Lines in a row that are taken for lost; an index that tells of more is taken for damaged."""
PERSON: Final = "human"

Rows = Mapping[int, Sequence[Record]]
"""seq -> what may be the line of that number."""
Range = tuple[int, int]


class ChannelRepair(Struct, frozen=True, kw_only=True):
    """What becomes of a damaged channel."""

    channel_id: str
    found: str
    """What is wrong with it."""
    lines: list[Envelope]
    """What it will have; nothing: it is removed."""
    kept: int = 0
    restored: int = 0
    """Lines from the archive."""
    lost: list[Range] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Participants that were found again in the channels that they are on."""


class Repairing:
    """What a repair needs besides the log: the time, ids, and an archive."""

    def __init__(
        self, now: Callable[[], datetime], new_id: Callable[[], str], archive: BinaryIO | None = None
    ) -> None:
        """`archive` is an export of this log. Raises `BadExport` for another file, before all else."""
        self.now = now
        self.new_id = new_id
        self.archived: dict[str, list[Record]] = {}
        self.archived_files: set[tuple[str, str]] = set()
        """Root of a tree and digest of each file in the archive."""
        self._archive = archive
        self.read_archive(())

    def pieces(self) -> Iterator[Piece]:
        """Yield what is in the archive; nothing, if there is none."""
        if self._archive is not None:
            self._archive.seek(0)
            yield from read_export(self._archive)

    def read_archive(self, channels: Collection[str]) -> None:
        """Read the records of these channels into `archived`, and which files there are."""
        self.archived = {}
        for piece in self.pieces():
            if isinstance(piece, Part) and piece.channel_id in channels:
                self.archived.setdefault(piece.channel_id, []).extend(piece.records)
            elif isinstance(piece, FilePiece):
                self.archived_files.add((piece.file.root, piece.file.digest))

    def line(self, channel_id: str, seq: int, event_type: str, data: JsonObject, at: datetime) -> Envelope:
        return Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=self.new_id(),
            channel_id=channel_id,
            seq=seq,
            sender_id=HUB,
            event_type=event_type,
            event_data=data,
            audience=[],
            created_at=at,
        )


class RepairPlan(Struct, frozen=True, kw_only=True):
    """What is wrong with a log, and what a repair does about it."""

    channels: list[ChannelRepair]
    damaged: list[BadRecord]
    """Conversations that stay as they are (rule 4). A hub refuses them, and serves the rest."""
    files: list[BadFile] = field(default_factory=list)
    """Damaged files that the archive has."""
    damaged_files: list[BadFile] = field(default_factory=list)
    """Damaged files that it does not have."""

    @property
    def has_work(self) -> bool:
        return bool(self.channels or self.files)


async def plan_repairs(records: Records, repairing: Repairing) -> RepairPlan:
    """Return what has to be written so that channels are good again. Raises `LogUnavailable`."""
    verdict = await verify(records, built_in())
    bad = {one.channel_id: one for one in verdict.bad}
    if DIRECTORY_CHANNEL not in bad and await _lacks_directory(records):
        found = "the channel is gone"
        bad[DIRECTORY_CHANNEL] = BadRecord(channel_id=DIRECTORY_CHANNEL, seq=1, found=found, expected="")
    repairing.read_archive(bad.keys())
    seals = Seals(None, None)
    await seals.read(records)
    pruned = {one.channel_id async for one in records.tombstones() if one.channel_id in bad}
    plans, damaged = list[ChannelRepair](), list[BadRecord]()
    for one in bad.values():
        plan = await _plan(records, one, repairing, seals.ends.get(one.channel_id, {}))
        if plan is None or one.channel_id in pruned:
            damaged.append(one)
        else:
            plans.append(plan)
    files, damaged_files = list[BadFile](), list[BadFile]()
    for file in verdict.bad_files:
        is_archived = (file.root, file.digest) in repairing.archived_files
        (files if is_archived else damaged_files).append(file)
    return RepairPlan(
        channels=sorted(plans, key=lambda one: one.channel_id),
        damaged=damaged,
        files=files,
        damaged_files=damaged_files,
    )


async def repair(log: Log, repairs: Iterable[ChannelRepair]) -> None:
    """Write what was planned. Raises `LogUnavailable`; what was not written yet can be planned again."""
    for plan in repairs:
        if not isinstance(log, Replaces):
            raise LogUnavailable(log.address, because=f"{plan.channel_id!r} cannot be written again there")
        await log.replace(plan.channel_id, plan.lines)


async def restore_files(log: Log, files: Iterable[BadFile], repairing: Repairing) -> None:
    """Write these files as the archive has them, and delete the damaged copies. Raises `LogUnavailable`."""
    wanted = {(one.root, one.digest) for one in files}
    if not wanted or not isinstance(log, Blobs):
        return

    async def is_wanted(file: FileLine) -> bool:
        return (file.root, file.digest) in wanted

    writer = FileWriter(log, is_wanted)
    for piece in repairing.pieces():
        done = await writer.take(piece) if isinstance(piece, FilePiece) else None
        if done is not None:
            copies = [one for one in await log.blobs(done.root) if one.digest == done.digest]
            await log.delete_blobs([one for one in copies if one.blob_id != done.blob_id])


Salvaged = dict[int, tuple[Kept, Record]]
"""seq -> a line that is what was written."""


def salvage(channel_id: str, rows: Rows, *, end: bytes | None = None) -> Salvaged:
    """Return the lines that are what was written (rule 1).

    `end` is the hash of the last line, if an index has one.
    """
    found: Salvaged = {}
    for seq in sorted(rows):
        before = _hashes_before(seq, found, rows)
        for record in (*rows[seq], *_with_own_hash(channel_id, rows, seq, before, end)):
            line = _read(channel_id, record, before)
            if line is not None:
                found[seq] = line, record
                break
    _check_content(channel_id, found, rows)
    _drop_erased(found)
    return found


def _hashes_before(seq: int, found: Salvaged, rows: Rows) -> list[bytes]:
    """Return what may be the hash of the line before: the one that was found first."""
    known = [found[seq - 1][1].hash] if seq - 1 in found else []
    return [NO_HASH] if seq == 1 else [*known, *(one.hash for one in rows.get(seq - 1, ()))]


def _with_own_hash(
    channel_id: str, rows: Rows, seq: int, before: Sequence[bytes], end: bytes | None
) -> list[Record]:
    """Return lines whose hash alone is damaged: the line after them, or the index, knows the right one."""
    found = list[Record]()
    for record in rows[seq]:
        for previous in before:
            right = rehash(channel_id, record, previous=previous)
            following = rows.get(seq + 1, ())
            if right.hash == end or any(_read(channel_id, one, [right.hash]) for one in following):
                found.append(right)
    return found


def _read(channel_id: str, record: Record, before: Iterable[bytes]) -> Kept | None:
    for previous in before:
        try:
            return keep(unseal(channel_id, record, previous=previous, seq=record.seq), record)
        except CorruptRecord:
            continue
    return None


def _check_content(channel_id: str, found: Salvaged, rows: Rows) -> None:
    """Drop lines whose content is missing and was not erased, unless the archive has it.

    Content that was erased stays so.
    """
    while True:
        erasures = Erasures(channel_id)
        for seq in sorted(found):
            erasures.add(found[seq][0])
        try:
            return erasures.check()
        except CorruptRecord as error:
            del found[error.seq]
            before = _hashes_before(error.seq, found, rows)
            for record in rows[error.seq]:
                line = None if record.payload is None else _read(channel_id, record, before)
                if line is not None:
                    found[error.seq] = line, record
                    break


def _drop_erased(found: Salvaged) -> None:
    """Drop the content of lines that later ones name as erased (rule 5)."""
    for note, _ in [one for one in found.values() if one[0].event_type == EV_PAYLOAD_ERASED]:
        for seq in [seq for first, last in erased_lines(note) for seq in range(first, last + 1)]:
            if seq in found and found[seq][1].payload is not None:
                bare = replace(found[seq][1], payload=None)
                previous = NO_HASH if seq == 1 else found[seq - 1][1].hash if seq - 1 in found else b""
                line = _read(note.channel_id, bare, [previous])
                if line is not None:
                    found[seq] = line, bare


async def _plan(
    records: Records, bad: BadRecord, repairing: Repairing, sealed: Mapping[int, Sealed]
) -> ChannelRepair | None:
    """Return what becomes of a channel; None if it stays as it is."""
    channel_id = bad.channel_id
    archived = set(repairing.archived.get(channel_id, ()))
    stored = await records.readable(channel_id)
    rows: dict[int, list[Record]] = {}
    for record in (*stored, *repairing.archived.get(channel_id, ())):
        rows.setdefault(record.seq, []).append(record)
    own = set(stored)
    seq, hash_ = await _indexed(records, channel_id)
    found = salvage(channel_id, rows, end=hash_)
    last = max(_end(found, {record.seq for record in own}, seq), max(sealed, default=0))
    lost = [number for number in range(1, last + 1) if number not in found]
    names = list[str]()
    if _is_own(channel_id):
        lines, names = await _fill(records, channel_id, found, last, repairing)
    elif lost or not records.can_rewrite or not _heals(channel_id, stored, (seq, hash_), found, sealed):
        return None
    else:
        lines = [found[number][0] for number in sorted(found)]
    restored = sum(record in archived and record not in own for _, record in found.values())
    return ChannelRepair(
        channel_id=channel_id,
        found=f"line {bad.seq}: {bad.found}",
        lines=lines,
        kept=len(found) - restored,
        restored=restored,
        lost=ranges(lost),
        names=names,
    )


def _heals(
    channel_id: str,
    stored: Sequence[Record],
    end: tuple[int, bytes | None],
    found: Salvaged,
    sealed: Mapping[int, Sealed],
) -> bool:
    """Whether these lines follow each other, are those that were sealed, and are not stored already."""
    records = [found[seq][1] for seq in sorted(found)]
    if not records or any(found[seq][1].hash != one.hash for seq, one in sealed.items()):
        return False
    chain = Chain(channel_id)
    try:
        for record in records:
            chain.add(record)
        chain.erasures.check()
    except CorruptRecord:
        return False
    is_indexed = end[0] == len(records) and end[1] in {None, records[-1].hash}
    return list(stored) != records or not is_indexed


async def _fill(
    records: Records, channel_id: str, found: Salvaged, last: int, repairing: Repairing
) -> tuple[list[Envelope], list[str]]:
    """Return the lines of a system channel without a gap, and the names of participants in them."""
    lost = [number for number in range(1, last + 1) if number not in found]
    lines, names = _fill_gaps(channel_id, found, last, repairing), list[str]()
    if not found:
        lines = []  # Nothing is left of it. The program that needs it begins it again.
    if channel_id == DIRECTORY_CHANNEL and (lost or not found):
        lines, names = await _add_participants(records, lines, repairing)
    if lost and lines:
        at = max(lines[-1].created_at, repairing.now())
        data: JsonObject = {"first": lost[0], "lost": [list(one) for one in ranges(lost)]}
        lines.append(repairing.line(channel_id, len(lines) + 1, EV_LOG_REPAIRED, data, at))
    return lines, names


async def _indexed(records: Records, channel_id: str) -> tuple[int, bytes | None]:
    try:
        index = await records.indexed(channel_id)
    except CorruptRecord:
        return 0, None
    return (0, None) if index is None else (index.seq, index.hash)


def _end(found: Mapping[int, object], own: set[int], indexed: int) -> int:
    """Return how many lines the channel had, as far as that can be known."""
    last = max(found, default=0)
    damaged = sum(seq > last for seq in own)
    told = indexed - last if 0 < indexed - last <= MAX_LOST else 0
    return last + max(damaged, told)


def _fill_gaps(channel_id: str, found: Salvaged, last: int, repairing: Repairing) -> list[Envelope]:
    lines, at = list[Envelope](), LONG_AGO
    for seq in range(1, last + 1):
        if seq in found:
            lines.append(found[seq][0])
        else:
            at = (
                at if at != LONG_AGO else min((one.created_at for one, _ in found.values()), default=LONG_AGO)
            )
            lines.append(repairing.line(channel_id, seq, EV_LINE_LOST, {}, at))
        at = lines[-1].created_at
    return lines


async def _add_participants(
    records: Records, lines: list[Envelope], repairing: Repairing
) -> tuple[list[Envelope], list[str]]:
    """Register those whom channels name and the directory lacks (rule 3). The newest of a name counts."""
    known, users = Directory(), set[str]()
    for line in lines:
        known = fold_directory(known, line)
        if line.event_type == EV_USER_SEEN:
            users.add(str(line.event_data.get("user")))
    missing: dict[str, tuple[datetime, Registration]] = {}
    taken = {skeleton(name) for name in known.ids_by_name}
    async for at, one in _participants(records):
        look = skeleton(one.name)
        if one.agent_id in known.by_id or one.agent_id in known.removed or look in taken:
            continue
        if look not in missing or missing[look][0] < at:
            user = one.name if one.kind == PERSON and one.name in users else ""
            passport = Passport(name=one.name, kind=one.kind, owner=user)
            missing[look] = at, Registration(agent_id=one.agent_id, passport=passport, user=user)
    start = max((line.created_at for line in lines), default=repairing.now())
    added = [
        repairing.line(
            DIRECTORY_CHANNEL, len(lines) + number, EV_PARTICIPANT_REGISTERED, msgspec.to_builtins(one), start
        )
        for number, (_, one) in enumerate(missing.values(), 1)
    ]
    return lines + added, [one.name for _, one in missing.values()]


async def _participants(records: Records) -> AsyncIterator[tuple[datetime, Participant]]:
    """Yield whoever the first line of a channel names, and when."""
    async for channel_id in records.channels():
        first = None if _is_own(channel_id) else await _first_line(records, channel_id)
        if first is None or first.event_type != EV_CHANNEL_INVITE:
            continue
        for data in first.event_data.get("participants", []):
            try:
                one = msgspec.convert(data, Participant)
            except msgspec.ValidationError:
                continue
            if one.name and not one.played_by:
                yield first.created_at, one


async def _first_line(records: Records, channel_id: str) -> Envelope | None:
    try:
        async with aclosing(records.read(channel_id)) as found:
            async for record in found:
                return unseal(channel_id, record, previous=NO_HASH, seq=1)
    except CorruptRecord:
        pass
    return None


async def _lacks_directory(records: Records) -> bool:
    """Return whether there are conversations and no directory."""
    has_others = False
    async for channel_id in records.channels():
        if channel_id == DIRECTORY_CHANNEL:
            return False
        has_others = has_others or not _is_own(channel_id)
    return has_others


def _is_own(channel_id: str) -> bool:
    return channel_id.startswith(OWN_PREFIX)
