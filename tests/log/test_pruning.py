"""Y3: whole closed trees leave the log, and their archive restores them byte for byte."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from turnline.core.adapters import built_in
from turnline.core.channel import ChannelRow, ChannelState
from turnline.core.codec import Record
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_FORKED, EV_CHANNEL_INVITE
from turnline.errors import ChannelPruned, LogConflict, PruneRefused
from turnline.log.base import Blobs, Erases, Log, Prunes, Tombstone
from turnline.log.blobs import CHUNK_BYTES, read_blob
from turnline.log.memory import MemoryLog
from turnline.log.pruning import ClosedTree, KeptTree, Pruned, Pruner, plan_trees
from turnline.log.records import MemoryRecords, looking_at_log
from turnline.log.seals import SEALS_CHANNEL, seal_log
from turnline.log.sqlite import SqliteLog
from turnline.log.stats import stats
from turnline.log.transfer import Imported, check_export, export_log, import_log
from turnline.log.verify import Verdict, verify
from turnline.testing import flip_head
from turnline.testing.blob_contract import file_data, write as write_file
from turnline.testing.lines import NOON, closing_line, erased_line, line, lines, refusal, row
from turnline.testing.prune_contract import closed_channel, delete_all

from ..faults.counts import SOAK
from .backends import KEPT_KINDS, KINDS, MakePlace, Place

_numbers = count(1)
SECOND = 2
LATER = datetime(2031, 1, 1, tzinfo=UTC)
STEPS_OF_A_PRUNE = {"sqlite": 60, "postgres": 60, "nats": 120}
"""More than one has, with two trees."""
IN_CI = {"sqlite": (3, 5, 7, 8, 10, 14), "postgres": (7, 10), "nats": (7, 10)}
"""While the archive is written and read back, before the tombstones, after them, while lines are deleted."""


async def add(
    log: Log,
    name: str,
    *,
    closed: bool = True,
    length: int = 4,
    second: JsonObject | None = None,
    **fields: object,
) -> None:
    """Append a channel with content, of a type that `verify` leaves unfolded."""
    data = {"channel_id": name, "type": "custom", "labels": fields.get("labels", {})}
    said = [line(name, seq, data=second if seq == SECOND else None) for seq in range(1, length)]
    said[0] = line(name, 1, data=data)
    kind = EV_CHANNEL_FORKED if fields.get("origin") else EV_CHANNEL_INVITE
    if kind == EV_CHANNEL_FORKED:
        said[0] = line(name, 1, data={"forked_from": {"channel": fields["origin"], "seq": 2}})
    said[0] = replace(said[0], event_type=kind)
    said += [closing_line(name, length)] if closed else []
    at = {"closed_at": NOON, "status": ChannelState.CLOSED} if closed else {}
    entry = row(name, seq=len(said), **{**at, **fields})  # type: ignore[arg-type]
    await log.append(name, said, after=0, row=entry)


def closed_row(name: str, seq: int) -> ChannelRow:
    return row(name, seq=seq, closed_at=NOON, status=ChannelState.CLOSED)


async def erase_second(log: Log, name: str) -> None:
    """Erase the second of four lines."""
    assert isinstance(log, Erases)
    await log.erase(name, erased_line(name, 5, (2, 2)), after=4, row=closed_row(name, 5))


async def plan(log: Log, **labels: str) -> tuple[list[ClosedTree], list[KeptTree]]:
    trees, kept, _ = await plan_trees(log, before=LATER, labels=labels, most=10_000)
    return trees, kept


async def prune(place: Place, archive: Path | None, **labels: str) -> Pruned:
    async with place.log() as log:
        assert isinstance(log, Prunes)
        trees, _ = await plan(log, **labels)
        opened = partial(looking_at_log, place.address, log)
        pruner = Pruner(log, opened, now=lambda: LATER, new_id=new_id)
        return await pruner.prune_all(trees, archive, is_file=True)


async def restore(place: Place, archive: Path) -> Imported:
    with archive.open("rb") as file:
        check_export(file)
        file.seek(0)
        async with place.log() as log:
            await log.channels(limit=1)
            async with place.records() as there:
                return await import_log(file, log, there, is_checked=True)


async def seen(place: Place) -> dict[str, list[Record]]:
    """Return what is kept, without the seals."""
    return {name: records for name, records in (await place.kept()).items() if not name.startswith("_")}


async def check(place: Place) -> Verdict:
    async with place.records() as records:
        return await verify(records, built_in())


async def export_all(place: Place) -> bytes:
    file = BytesIO()
    async with place.records() as records:
        await export_log(records, file.write, exported_at="")
    return file.getvalue()


async def fill(log: Log) -> None:
    await add(log, "run", length=300)
    await add(log, "run-child", parent_id="run")
    await add(log, "run-fork", origin="run")
    await add(log, "open", closed=False)


def new_id() -> str:
    return f"id-{next(_numbers):09}"


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def without(kept: dict[str, list[Record]], *names: str) -> dict[str, list[Record]]:
    return {name: records for name, records in kept.items() if name not in names}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_archive_restores_a_tree_byte_for_byte(place: Place, tmp_path: Path) -> None:
    async with place.log() as log:
        await fill(log)
    before = await seen(place)
    archive = tmp_path / "old.jsonl"

    done = await prune(place, archive)

    assert (done.trees, done.channels, done.records) == (["run"], 3, 308)
    assert await seen(place) == without(before, "run", "run-child", "run-fork")
    assert archive.stat().st_mode & 0o777 == 0o600
    async with place.records() as records:
        verdict = await verify(records, built_in())
        assert (verdict.pruned, verdict.storage) == (3, [])
        assert (await stats(records)).pruned == 3

    restored = await restore(place, archive)

    assert sorted(restored.restored) == ["run", "run-child", "run-fork"]
    assert await seen(place) == before
    async with place.log() as log:
        assert isinstance(log, Prunes)
        assert await log.tombstones(limit=9) == []
    assert (await restore(place, archive)).written == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_sealed", [True, False])
async def test_a_prune_seals_what_it_is_about_to_remove(place: Place, is_sealed: bool) -> None:
    async with place.log() as log:
        await add(log, "a")
        await add(log, "open", closed=False)
        if is_sealed:
            await seal_log(log, now=lambda: LATER, new_id=new_id)
        await add(log, "b")
        await erase_second(log, "a")

    await prune(place, None)

    found = await check(place)
    assert (found.bad, found.pruned_since) == ([], ["a", "b"])
    async with place.log() as log:
        *_, last = [line async for line in log.read(SEALS_CHANNEL)]
        assert sorted((name, seq) for name, seq, _ in last.event_data["ends"]) == [("a", 5), ("b", 4)]
        written = await seal_log(log, now=lambda: LATER, new_id=new_id)
    assert written == (0 if is_sealed else 1)  # It goes on where the last one ended.
    assert (await check(place)).is_good


async def test_a_tombstone_that_says_more_than_the_last_seal_is_not_believed() -> None:
    log = MemoryLog()
    await add(log, "c")
    await seal_log(log, now=lambda: LATER, new_id=new_id)
    await erase_second(log, "c")
    end = await log.channel_end("c")
    assert end is not None
    await log.prune([Tombstone(channel_id="c", seq=end.seq, hash=end.hash, pruned_at=NOON)])

    found = await verify(MemoryRecords(log), built_in())

    assert [one.found for one in found.bad] == [
        "the channel was pruned, and its tombstone has another end than its last seal"
    ]


async def test_two_processes_that_seal_at_once_do_not_stop_a_prune() -> None:
    class Overtaken(MemoryLog):
        """Another process seals first, once."""

        is_first = True

        async def append(
            self,
            channel_id: str,
            envelopes: Sequence[Envelope],
            *,
            after: int,
            row: ChannelRow | None = None,
        ) -> None:
            if channel_id == SEALS_CHANNEL and self.is_first:
                self.is_first = False
                await seal_log(self, now=lambda: LATER, new_id=new_id)
            await super().append(channel_id, envelopes, after=after, row=row)

    log = Overtaken()
    await add(log, "c")
    trees, _ = await plan(log)

    await Pruner(log, partial(looking_at_log, "", log), now=lambda: LATER, new_id=new_id).prune(trees, None)

    found = await verify(MemoryRecords(log), built_in())
    assert (found.bad, found.seals, found.pruned_since) == ([], 2, ["c"])


async def test_a_prune_while_the_log_is_verified_is_no_damage() -> None:
    class Pruning(MemoryRecords):
        """Channels are pruned while the lines of the first one are read."""

        is_over = False

        async def read(self, channel_id: str, *, after: int = 0) -> AsyncGenerator[Record]:
            async for record in super().read(channel_id, after=after):
                yield record
                if channel_id == "a" and not self.is_over:
                    self.is_over = True
                    trees, _ = await plan(log)
                    opened = partial(looking_at_log, "", log)
                    await Pruner(log, opened, now=lambda: LATER, new_id=new_id).prune(trees, None)

    log = MemoryLog()
    for name in ("a", "b"):
        await add(log, name)
    await seal_log(log, now=lambda: LATER, new_id=new_id)
    for name in ("a", "b"):
        await erase_second(log, name)

    found = await verify(Pruning(log), built_in())

    assert (found.bad, found.pruned_since) == ([], ["a", "b"])


async def test_a_log_with_damaged_seals_is_not_pruned(make_place: MakePlace) -> None:
    place = make_place("sqlite")
    async with place.log() as log:
        await add(log, "c")
        await seal_log(log, now=lambda: LATER, new_id=new_id)
    place.damage(SEALS_CHANNEL, 1, flip_head)
    before = await seen(place)

    error = await refusal(PruneRefused, prune(place, None))

    assert "turnline log repair" in str(error)
    assert await seen(place) == before


@pytest.mark.parametrize("kind", KINDS)
async def test_the_files_of_a_pruned_tree_go_and_come_back_with_its_archive(
    place: Place, tmp_path: Path
) -> None:
    async with place.log() as log:
        assert isinstance(log, Blobs)
        for root, closed in (("run", True), ("open", False)):
            content = root.encode() * CHUNK_BYTES
            await write_file(log, root, content, blob_id=f"of-{root}")
            await add(log, root, closed=closed, second=file_data(content))
    archive = tmp_path / "old.jsonl"

    await prune(place, archive)

    async with place.log() as log:
        assert isinstance(log, Blobs)
        assert [len(await log.blobs(root)) for root in ("run", "open")] == [0, 1]
    await restore(place, archive)
    async with place.log() as log:
        assert isinstance(log, Blobs)
        [blob] = await log.blobs("run")
        assert b"".join([chunk async for chunk in read_blob(log, blob)]) == b"run" * CHUNK_BYTES


@pytest.mark.parametrize("kind", KINDS)
async def test_content_that_was_erased_does_not_come_back(place: Place, tmp_path: Path) -> None:
    async with place.log() as log:
        await add(log, "c")
        if not isinstance(log, Erases):
            pytest.skip("this log cannot erase yet")
    old = await export_all(place)
    async with place.log() as log:
        assert isinstance(log, Erases)
        await log.erase("c", erased_line("c", 5, (2, 3)), after=4, row=closed_row("c", 5))
    old_file, archive = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old_file.write_bytes(old)
    before = await seen(place)

    present = await restore(place, old_file)  # The channel is there.
    assert (present.written, await seen(place)) == (0, before)
    await prune(place, archive)
    refused = await restore(place, old_file)  # The channel is pruned.
    assert (len(refused.refused), refused.written) == (1, 0)
    async with place.log() as log:
        assert isinstance(log, Prunes)
        tombstone = await log.tombstone("c")
    assert tombstone is not None
    assert tombstone.erased == [(2, 3)]

    await restore(place, archive)
    assert await seen(place) == before
    assert [one.payload for one in before["c"][1:3]] == [None, None]


async def test_a_restored_channel_never_gets_content_that_its_tombstone_calls_erased(
    make_place: MakePlace, tmp_path: Path
) -> None:
    place = make_place("memory")
    async with place.log() as log:
        await add(log, "c")
    archive = tmp_path / "old.jsonl"
    await prune(place, archive)
    async with place.log() as log:
        assert isinstance(log, Prunes)
        found = await log.tombstone("c")
    other = make_place("sqlite")
    async with other.log() as log:
        assert isinstance(log, Prunes)
        assert found is not None
        await log.prune([replace(found, erased=[(2, 2)])])

    await restore(other, archive)

    assert [one.payload is None for one in (await other.kept())["c"]][:3] == [False, True, False]


@pytest.mark.parametrize("kind", KEPT_KINDS)
async def test_a_process_that_knows_a_channel_from_before_does_not_write_to_it(place: Place) -> None:
    said, tombstone = closed_channel("c")
    async with place.log() as log, place.log() as late:
        assert isinstance(log, Prunes)
        await log.append("c", said, after=0)
        before = await lines(late, "c")
        await log.prune([tombstone])
        await delete_all(log)

        await refusal(ChannelPruned, late.append("c", [erased_line("c", 4, (1, 1))], after=3))
        await refusal(ChannelPruned, late.append("c", [line("c", 1)], after=0))
        assert (await lines(late, "c"), await late.head("c")) == ([], None)

        await log.restore("c", said[:2], after=0)
        await log.restore("c", said[2:], after=2)
        assert await lines(late, "c") == before


@pytest.mark.parametrize("kind", KEPT_KINDS)
async def test_of_a_prune_and_an_erasure_at_once_one_is_refused(place: Place) -> None:
    async with place.log() as log, place.log() as other:
        assert isinstance(log, Prunes)
        for number in range(10):
            name = f"c{number}"
            said, tombstone = closed_channel(name)
            await log.append(name, said, after=0)
            note = erased_line(name, 4, (1, 1))
            outcomes = await asyncio.gather(
                log.prune([tombstone]), other.append(name, [note], after=3), return_exceptions=True
            )
            is_pruned = await log.tombstone(name) is not None
            assert [type(one) for one in outcomes] == (
                [type(None), ChannelPruned] if is_pruned else [LogConflict, type(None)]
            )
            assert len(await lines(log, name)) == (0 if is_pruned else 4)


async def test_a_tree_stays_while_one_of_its_channels_is_open_or_closed_lately(make_place: MakePlace) -> None:
    place = make_place("memory")
    async with place.log() as log:
        await add(log, "a")
        await add(log, "a-child", parent_id="a", closed=False)
        await add(log, "b")
        await add(log, "b-fork", origin="b", closed=False)
        await add(log, "c")
        await add(log, "c-child", parent_id="c", closed_at=LATER + timedelta(days=1))
        trees, kept = await plan(log)

    assert trees == []
    assert {one.top: one.because.partition(",")[0] for one in kept} == {
        "a": "'a-child'",
        "b": "'b-fork'",
        "c": "'c-child'",
    }


async def test_labels_choose_trees_by_their_top_channel(make_place: MakePlace) -> None:
    place = make_place("memory")
    async with place.log() as log:
        await add(log, "a", labels={"team": "red"})
        await add(log, "a-child", parent_id="a")
        await add(log, "b", labels={"team": "blue"})
        await add(log, "b-child", parent_id="b", labels={"team": "red"})

        assert [tree.top for tree in (await plan(log, team="red"))[0]] == ["a"]
        assert await plan(log, team="green") == ([], [])


@pytest.mark.parametrize("kind", KINDS)
async def test_tombstones_travel_with_an_export(place: Place, make_place: MakePlace, tmp_path: Path) -> None:
    async with place.log() as log:
        await fill(log)
    await prune(place, None)
    file = tmp_path / "moved.jsonl"
    file.write_bytes(await export_all(place))
    other = make_place("memory" if place.kind != "memory" else "sqlite")
    async with other.log() as log:
        await add(log, "run-child")  # It is there: a tombstone in a file deletes nothing.

    done = await restore(other, file)

    assert done.tombstones == 2
    async with other.log() as log:
        assert await log.head("run-child") is not None
        late = [line("run", 1)]
        await refusal(ChannelPruned, log.append("run", late, after=0))


async def test_a_pipe_restores_nothing(make_place: MakePlace, tmp_path: Path) -> None:
    place, archive = make_place("memory"), tmp_path / "old.jsonl"
    async with place.log() as log:
        await add(log, "c")
    await prune(place, archive)

    async with place.log() as log, place.records() as there:
        done = await import_log(BytesIO(archive.read_bytes()), log, there)
        assert await log.head("c") is None

    assert "a file" in str(done.refused[0])


async def test_a_damaged_tree_stays_and_the_others_leave(make_place: MakePlace, tmp_path: Path) -> None:
    for archive in (None, tmp_path / "old.jsonl"):
        place = make_place("sqlite")
        async with place.log() as log:
            await add(log, "good")
            await add(log, "bad")
        place.damage("bad", 2, flip_head)

        done = await prune(place, archive)

        assert (done.trees, [one.top for one in done.kept]) == (["good"], ["bad"])


async def test_no_archive_no_deletion(make_place: MakePlace, tmp_path: Path) -> None:
    place, there = make_place("sqlite"), tmp_path / "there.jsonl"
    async with place.log() as log:
        await add(log, "c")
    before = await seen(place)
    there.write_bytes(b"precious")

    error = await refusal(PruneRefused, prune(place, there))
    assert "is there already" in str(error)
    assert there.read_bytes() == b"precious"
    await refusal(PruneRefused, prune(place, tmp_path / "nowhere" / "old.jsonl"))
    full = tmp_path / "full.jsonl"
    assert _run(place, full, 10_000, "500") == 1
    assert not full.exists()
    assert await seen(place) == before
    assert list(files(tmp_path, "*.part")) == []


@pytest.mark.parametrize("kind", KEPT_KINDS)
async def test_a_prune_that_is_killed_anywhere_loses_nothing(
    make_place: MakePlace, tmp_path: Path, kind: str
) -> None:
    steps = range(1, STEPS_OF_A_PRUNE[kind]) if SOAK > 1 else IN_CI[kind]
    killed = 0
    for step in steps:
        place = make_place(kind)
        archives = tmp_path / str(step)
        archives.mkdir()
        async with place.log() as log:
            for name in ("a", "b"):
                await add(log, name)
                await add(log, f"{name}-child", parent_id=name)
            await seal_log(log, now=lambda: LATER, new_id=new_id)
            await erase_second(log, "a")  # After the last seal.
        before = await seen(place)
        code = _run(place, archives, step)
        killed += code < 0
        if code < 0:  # What is not on the log any more is in a whole archive.
            gone = before.keys() - (await seen(place)).keys()
            assert gone <= await _archived(archives)
            assert (await check(place)).is_good, (step, await check(place))
        assert _run(place, archives, 10_000) == 0
        assert await seen(place) == {}
        assert (await check(place)).is_good, (step, await check(place))
        for archive in files(archives, "*.jsonl"):
            await restore(place, archive)
        assert await seen(place) == before
        assert (await check(place)).is_good, (step, await check(place))
    assert killed == len(IN_CI[kind]) or SOAK > 1


def _run(place: Place, archives: Path, step: int, *most_bytes: str) -> int:
    words = [sys.executable, "-m", "tests.log.prune_and_die", place.address, str(archives), str(step)]
    return subprocess.run([*words, *most_bytes], check=False, capture_output=True).returncode


async def _archived(archives: Path) -> set[str]:
    log = SqliteLog(archives / "look.db", durability="process")
    place = Place("sqlite", f"sqlite:///{archives / 'look.db'}")
    await log.close()
    for archive in files(archives, "*.jsonl"):
        await restore(place, archive)
    return set(await seen(place))
