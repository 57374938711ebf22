"""Pruning: trees of channels that closed long ago leave the log (Y3).

    archive written, synced and read back -> ends sealed -> tombstones, the lower channels first
    -> lines deleted in steps

Rule 1: a tree is a channel, the channels below it, and the forks that read any of them. It leaves as a whole
if all of its channels closed before a given time; otherwise it stays.

Rule 2: the tombstones say what was read back from the archive, and the log compares that with the channels.
So nothing is deleted that is not in the archive, also if another process writes meanwhile.

Rule 3: killed anywhere, it can be run again. Before the tombstones nothing has happened; after them
`finish_pruning` deletes what is left.

Rule 4: what is about to leave is sealed first, so that `verify` can compare a tombstone with a seal that is
chained to all others. Killed after that, the seal is true and the channel is there.

Rule 5: an archive is an export, with the files of messages. A file that is there is never overwritten.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import ranges
from turnline.core.state import LONG_AGO
from turnline.errors import ChannelQuarantined, CorruptRecord, LogConflict, OriginInUse, PruneRefused
from turnline.log.base import Blob, Blobs, Log, Prunes, Tombstone
from turnline.log.chain import Chain
from turnline.log.export_file import Part, read_export
from turnline.log.records import Records
from turnline.log.seals import seal_ends
from turnline.log.transfer import export_log

MAX_TREE: Final = 10_000
"""Channels of a tree that is pruned. A larger one stays."""
MAX_KEPT: Final = 1_000
"""Trees that are named because they stay."""
MAX_PLANNED: Final = 100_000
"""Channels that one call of the command line prunes, about."""
CHANNELS_PER_ARCHIVE: Final = 1_000
"""Channels of one file in a folder of archives, about, and of what is pruned between two looks."""
CHANNELS_PER_STEP: Final = 100
"""Tombstones of one transaction."""
LINES_PER_STEP: Final = 500
"""Lines deleted by one transaction: appends wait for no more."""
TRUSTED_AHEAD: Final = timedelta(days=1)
"""How far a clock may be ahead of the newest line. One that is further ahead is not believed."""
PRIVATE_FILE: Final = 0o600
PART_SUFFIX: Final = ".part"
_PAGE: Final = 256

OpenRecords = Callable[[], AbstractAsyncContextManager[Records]]


class PruningLog(Log, Prunes, Protocol):
    """A log that can be pruned."""


class ClosedTree(Struct, frozen=True, kw_only=True):
    """Channels that can be pruned together."""

    top: str
    channels: list[str]
    """Each after those that it is below, or a fork of."""


class KeptTree(Struct, frozen=True, kw_only=True):
    """Channels that closed long ago and stay."""

    top: str
    because: str


class Pruned(Struct, frozen=True, kw_only=True):
    """What was pruned, or would be."""

    trees: list[str] = field(default_factory=list)
    """The top channel of each."""
    channels: int = 0
    records: int = 0
    kept: list[KeptTree] = field(default_factory=list)
    archive: str = ""
    """The file; empty if there is none."""


async def find_trees(
    log: Log, *, before: datetime, labels: Mapping[str, str]
) -> AsyncGenerator[ClosedTree | KeptTree]:
    """Yield the trees whose top channel closed before a time and has these labels, newest first."""
    where, last = ChannelFilter(labels=dict(labels), until=before, is_closed=True), None
    while page := await log.rows(where, after=last, limit=_PAGE):
        for row in page:
            if _closed_before(row, before) and not await _is_below(log, row):
                yield await _collect(log, row, before)
        last = page[-1]


async def _is_below(log: Log, row: ChannelRow) -> bool:
    """Whether another channel of the log is above, or is read by this fork."""
    for name in (row.parent_id, row.origin):
        if name and await log.row(name) is not None:
            return True
    return False


async def _collect(log: Log, top: ChannelRow, before: datetime) -> ClosedTree | KeptTree:
    found, pending = dict[str, None](), [top]
    while pending:
        row = pending.pop(0)
        if row.channel_id in found:
            continue
        if not _closed_before(row, before):
            state = "is open" if row.closed_at is None else f"closed on {row.closed_at:%Y-%m-%d}"
            return KeptTree(top=top.channel_id, because=f"{row.channel_id!r}, which belongs to it, {state}")
        found[row.channel_id] = None
        if len(found) > MAX_TREE:
            return KeptTree(top=top.channel_id, because=f"more than {MAX_TREE} channels belong to it")
        for where in (ChannelFilter(parent_id=row.channel_id), ChannelFilter(origin=row.channel_id)):
            pending += await _all_rows(log, where)
    return ClosedTree(top=top.channel_id, channels=list(found))


async def _all_rows(log: Log, where: ChannelFilter) -> list[ChannelRow]:
    rows: list[ChannelRow] = []
    while page := await log.rows(where, after=rows[-1] if rows else None, limit=_PAGE):
        rows += page
        if len(rows) > MAX_TREE:
            break
    return rows


def _closed_before(row: ChannelRow, before: datetime) -> bool:
    return row.closed_at is not None and row.closed_at < before


async def plan_trees(
    log: Log, *, before: datetime, labels: Mapping[str, str], most: int
) -> tuple[list[ClosedTree], list[KeptTree], bool]:
    """Return trees with about `most` channels, trees that stay, and whether those are all."""
    trees, kept, channels = list[ClosedTree](), list[KeptTree](), 0
    async with aclosing(find_trees(log, before=before, labels=labels)) as found:
        async for tree in found:
            if isinstance(tree, ClosedTree):
                trees.append(tree)
                channels += len(tree.channels)
            elif len(kept) < MAX_KEPT:
                kept.append(tree)
            if channels >= most:
                return trees, kept, False
    return trees, kept, True


async def newest_time(log: Log, audit: str) -> datetime:
    """Return about when the newest line was written: by the newest channel, and the end of the audit."""
    times = [row.updated_at for row in await log.rows(ChannelFilter(), limit=1)]
    head = await log.head(audit)
    with suppress(CorruptRecord):
        times += [line.created_at async for line in log.read(audit, after=head.seq - 1 if head else 0)]
    return max(times, default=LONG_AGO)


async def finish_pruning(log: Prunes) -> int:
    """Delete what is left of pruned channels, in steps. Return how many lines that were."""
    deleted = 0
    while step := await log.delete_pruned(limit=LINES_PER_STEP):
        deleted += step
        await asyncio.sleep(0)
    return deleted


class Pruner:
    """Prunes trees of one log."""

    def __init__(
        self,
        log: PruningLog,
        open_records: OpenRecords,
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        forget: Callable[[str], None] = lambda channel_id: None,
    ) -> None:
        """`forget` gets the id of each channel that was pruned."""
        self._log = log
        self._open_records = open_records
        self._now = now
        self._new_id = new_id
        self._forget = forget

    async def prune_all(
        self, trees: Sequence[ClosedTree], archive: Path | None, *, is_file: bool = False
    ) -> Pruned:
        """Prune any number of trees, in batches; at once if the archive `is_file`. Raises `PruneRefused`."""
        done = Pruned(archive="" if archive is None else str(archive))
        for batch in [list(trees)] if is_file else _batches(trees):
            one = await self.prune(batch, archive)
            done = Pruned(
                trees=done.trees + one.trees,
                channels=done.channels + one.channels,
                records=done.records + one.records,
                kept=done.kept + one.kept,
                archive=done.archive,
            )
        return done

    async def prune(self, trees: Sequence[ClosedTree], archive: Path | None) -> Pruned:
        """Prune trees. Write `archive` first: a file, or a folder that gets one. Raises `PruneRefused`."""
        if not trees:
            return Pruned()
        if archive is None:
            ends, kept = await self._read_ends(trees)
            file = ""
        else:
            ends, kept, file = await self._archive(trees, archive)
        await self._seal(ends.values())
        damaged = {one.top for one in kept}
        tops, counted = list[str](), [0, 0]
        for tree in trees:
            if tree.top in damaged:
                continue
            files = await self._release_files(tree.top)
            try:
                await self._bury([ends[name] for name in reversed(tree.channels)])
                await self._delete_files(files)
            except (LogConflict, OriginInUse) as error:
                kept.append(KeptTree(top=tree.top, because=f"it has changed meanwhile: {error}"))
            else:
                tops.append(tree.top)
                counted[0] += len(tree.channels)
                counted[1] += sum(ends[name].seq for name in tree.channels)
        await finish_pruning(self._log)
        return Pruned(trees=tops, channels=counted[0], records=counted[1], kept=kept, archive=file)

    async def _seal(self, tombstones: Iterable[Tombstone]) -> None:
        """Seal the ends that tombstones will have (Rule 4)."""
        ends = [(one.channel_id, one.seq, one.hash.hex()) for one in tombstones]
        try:
            await seal_ends(self._log, ends, now=self._now, new_id=self._new_id)
        except (ChannelQuarantined, CorruptRecord) as error:
            because = f"the seals of the log are damaged. {error} Run: turnline log repair ADDRESS"
            raise PruneRefused(because) from error

    async def _release_files(self, top: str) -> list[Blob]:
        """Return the files of a tree. From now on the sweep deletes them, unless a line refers to them."""
        if not isinstance(self._log, Blobs):
            return []
        files = await self._log.blobs(top)
        for one in files:
            await self._log.set_blob(replace(one, is_kept=False))
        return files

    async def _delete_files(self, files: Sequence[Blob]) -> None:
        if isinstance(self._log, Blobs):
            await self._log.delete_blobs(files)

    async def _bury(self, tombstones: Sequence[Tombstone]) -> None:
        for first in range(0, len(tombstones), CHANNELS_PER_STEP):
            some = tombstones[first : first + CHANNELS_PER_STEP]
            await self._log.prune(some)
            for one in some:
                self._forget(one.channel_id)

    async def _read_ends(self, trees: Iterable[ClosedTree]) -> tuple[dict[str, Tombstone], list[KeptTree]]:
        """Return how the channels end, and the trees with a channel that cannot be read."""
        ends, kept = dict[str, Tombstone](), list[KeptTree]()
        async with self._open_records() as records:
            for tree in trees:
                try:
                    ends |= {name: await self._read_end(records, name) for name in tree.channels}
                except CorruptRecord as error:
                    kept.append(_damaged(tree, error))
        return ends, kept

    async def _read_end(self, records: Records, channel_id: str) -> Tombstone:
        end = _End(channel_id, self._now())
        async with aclosing(records.read(channel_id)) as found:
            async for record in found:
                end.add(end.chain.add(record).is_erased)
        end.chain.erasures.check()
        return end.tombstone()

    async def _archive(
        self, trees: Sequence[ClosedTree], place: Path
    ) -> tuple[dict[str, Tombstone], list[KeptTree], str]:
        """Write and read back an archive. Trees that cannot be read as a whole stay, and are not in it."""
        kept = list[KeptTree]()
        with writing_archive(place, self._now()) as (final, file):
            while (bad := await self._export(trees, file)) is not None:
                kept += [_damaged(tree, bad) for tree in trees if bad.channel_id in tree.channels]
                trees = [tree for tree in trees if bad.channel_id not in tree.channels]
            await asyncio.to_thread(_sync, file)
            ends = await asyncio.to_thread(self._read_back, Path(file.name))
        if ends.keys() != {name for tree in trees for name in tree.channels}:
            raise PruneRefused("the archive does not have the channels that were written to it")
        return ends, kept, str(final)

    async def _export(self, trees: Iterable[ClosedTree], file: BinaryIO) -> CorruptRecord | None:
        """Write the channels of trees; return what is wrong with one that cannot be read."""
        file.seek(0)
        file.truncate()
        names = [name for tree in trees for name in tree.channels] or [""]
        at = self._now().replace(microsecond=0).isoformat()
        async with self._open_records() as records:
            done = await export_log(records, file.write, exported_at=at, channels=names)
        return next(iter(done.left_out), None)

    def _read_back(self, path: Path) -> dict[str, Tombstone]:
        """Return how the channels end that a file has. Raises `BadExport`."""
        ends = dict[str, _End]()
        with path.open("rb") as file:
            for piece in read_export(file):
                if isinstance(piece, Part):
                    end = ends.setdefault(piece.channel_id, _End(piece.channel_id, self._now()))
                    for line in piece.envelopes:
                        end.add(line.is_erased)
                    end.hash = piece.records[-1].hash
        return {name: end.tombstone() for name, end in ends.items()}


class _End:
    """How a channel ends, as far as it was read."""

    def __init__(self, channel_id: str, pruned_at: datetime) -> None:
        self.chain = Chain(channel_id)
        self.hash = b""
        self._pruned_at = pruned_at
        self._seq = 0
        self._erased: list[int] = []

    def add(self, is_erased: bool) -> None:
        self._seq += 1
        if is_erased:
            self._erased.append(self._seq)

    def tombstone(self) -> Tombstone:
        return Tombstone(
            channel_id=self.chain.channel_id,
            seq=self._seq,
            hash=self.hash or self.chain.hash,
            pruned_at=self._pruned_at,
            erased=ranges(self._erased),
        )


def _batches(trees: Iterable[ClosedTree]) -> Iterator[list[ClosedTree]]:
    batch, channels = list[ClosedTree](), 0
    for tree in trees:
        batch.append(tree)
        channels += len(tree.channels)
        if channels >= CHANNELS_PER_ARCHIVE:
            yield batch
            batch, channels = [], 0
    if batch:
        yield batch


def _damaged(tree: ClosedTree, error: CorruptRecord) -> KeptTree:
    return KeptTree(top=tree.top, because=f"it cannot be read: {error}")


@contextmanager
def writing_archive(place: Path, now: datetime) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield the path of the archive, and a private file that gets this path after all is done.

    Raises `PruneRefused` for a file that is there, and for whatever the file system says.
    """
    final = place / f"pruned-{now:%Y%m%dT%H%M%SZ}-{token_hex(4)}.jsonl" if place.is_dir() else place
    part = final.with_name(final.name + PART_SUFFIX)
    try:
        if final.exists():
            raise PruneRefused(f"the archive {final} is there already; name another file")
        part.unlink(missing_ok=True)  # A killed process may have left it. A link is not followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with open(part, "wb", opener=lambda name, _: os.open(name, flags, PRIVATE_FILE)) as file:
                yield final, file
            os.link(part, final)  # Unlike a rename, this never replaces a file.
            _sync_folder(final.parent)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        because = f"the archive {final} cannot be written: {error.strerror or error}"
        raise PruneRefused(because) from error


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
