"""Seals: what is gone, shorter, replaced or changed since a seal is found, with the place (Y4)."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from turnline.core.adapters import built_in
from turnline.core.directory import DIRECTORY_CHANNEL
from turnline.core.envelope import Envelope
from turnline.errors import BadSeal
from turnline.hub.audit import AUDIT_CHANNEL
from turnline.log import seals
from turnline.log.address import open_log
from turnline.log.base import MARK_PREFIX, ChannelEnd, ListsEnds, Log, Prunes, Tombstone
from turnline.log.memory import MemoryLog
from turnline.log.records import MemoryRecords, open_records
from turnline.log.seal_keys import PublicSealKey, SealKey
from turnline.log.seals import SEALS_CHANNEL, KeptSeal, keep_seal, seal_log
from turnline.log.transfer import export_log, import_log
from turnline.log.verify import Verdict, verify
from turnline.testing import ManualClock
from turnline.testing.damage import flip_byte
from turnline.testing.lines import NOON, closing_line, erased_line, line

from ..faults.counts import TAMPERINGS
from .backends import KINDS, Place
from .tampering import tamper
from .test_verify import spoken

_clock = ManualClock()
_numbers = iter(range(10**9))


def new_id() -> str:
    return f"id-{next(_numbers):09}"


async def seal(log: Log, key: SealKey | None = None) -> int:
    return await seal_log(log, now=_clock.now, new_id=new_id, key=key)


async def kept(place: Place) -> KeptSeal:
    async with place.records() as records:
        found = await keep_seal(records)
    assert found is not None
    return found


async def checked(place: Place, seal: KeptSeal | None = None, key: PublicSealKey | None = None) -> Verdict:
    async with place.records() as records:
        return await verify(records, built_in(), seal=seal, public_key=key)


async def fill(log: Log) -> None:
    for name in "abc":
        await log.append(name, spoken(name, 4), after=0)
    await log.append("c", [closing_line("c", 5)], after=4)
    for name in (AUDIT_CHANNEL, DIRECTORY_CHANNEL):
        await log.append(name, [system_line(name, seq) for seq in (1, 2, 3)], after=0)


def system_line(name: str, seq: int) -> Envelope:
    return replace(line(name, seq), event_type="audit.tested", sender_id="hub")


async def ends_on(log: Log) -> list[list[tuple[str, int]]]:
    return [[(name, seq) for name, seq, _ in one.event_data["ends"]] async for one in log.read(SEALS_CHANNEL)]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_seal_covers_the_channels_that_changed_since_the_last_one(place: Place) -> None:
    async with place.log() as log:
        await fill(log)
        written = [await seal(log), await seal(log)]
        await log.append("b", [line("b", 5)], after=4)
        written.append(await seal(log))
        found = await ends_on(log)

    assert written == [1, 0, 1]
    everything = [("a", 4), ("b", 4), ("c", 5), (AUDIT_CHANNEL, 3), (DIRECTORY_CHANNEL, 3)]
    assert [sorted(ends) for ends in found] == [sorted(everything), [("b", 5)]]
    assert (await checked(place, await kept(place))).is_good


@pytest.mark.parametrize("kind", KINDS)
async def test_a_kept_seal_fits_a_log_that_has_grown_since(place: Place) -> None:
    async with place.log() as log:
        await fill(log)
        await seal(log)
    old = await kept(place)
    async with place.log() as log:
        await log.append("a", [line("a", 5)], after=4)
        await log.append("new", spoken("new", 2), after=0)
        await seal(log)
        await log.append("a", [line("a", 6)], after=5)

    found = await checked(place, old)

    assert found.is_good, found.bad
    assert found.seals == 2


async def forget_channel(place: Place, name: str) -> None:
    """Delete every trace of a channel."""
    if place.kind == "nats":
        from .nats_stage import stream_of

        async with stream_of(place.address) as (stream, stream_name):
            info = await stream.stream_info(stream_name)
            messages = [await stream.get_msg(stream_name, seq) for seq in range(1, info.state.last_seq + 1)]
            await stream.delete_stream(stream_name)
            await stream.add_stream(info.config)
            for one in messages:
                if one.subject != f"{stream_name}.{name}":
                    headers = {k: v for k, v in (one.headers or {}).items() if not k.startswith("Nats-")}
                    await stream.publish(one.subject or "", one.data or b"", headers=headers)
        return
    for table in ("records", "heads"):
        place.sql(f"DELETE FROM turnline_{table} WHERE channel = '{name}'")
    if place.kind == "sqlite":
        place.sql(f"DELETE FROM turnline_names WHERE id = '{name}'")


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("name", ["a", "c", AUDIT_CHANNEL, SEALS_CHANNEL])
async def test_a_channel_that_is_gone_is_found(place: Place, name: str) -> None:
    async with place.log() as log:
        await fill(log)
        await seal(log)
    seal_kept_outside = await kept(place)
    await forget_channel(place, name)

    found = await checked(place, seal_kept_outside)

    assert [(bad.channel_id, bad.found) for bad in found.bad] == [(name, "the channel is gone")]
    if name != SEALS_CHANNEL:  # The seals on the log say so too.
        assert [bad.channel_id for bad in (await checked(place)).bad] == [name]


async def test_a_line_has_a_limited_number_of_ends_and_more_lines_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seals, "ENDS_PER_LINE", 3)
    log = MemoryLog()
    for number in range(8):
        await log.append(f"c{number}", spoken(f"c{number}", 2), after=0)

    written = await seal(log)

    assert (written, [len(ends) for ends in await ends_on(log)]) == (3, [3, 3, 2])
    assert await seal(log) == 0


class Counting(MemoryLog):
    """Counts the ends that it was asked for."""

    asked = 0

    async def ends(self, *, after: int, limit: int) -> list[ChannelEnd]:
        found = await super().ends(after=after, limit=limit)
        self.asked += len(found)
        return found

    def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        is_last = after >= len(self.records.get(channel_id, ())) - 1
        assert channel_id.startswith(MARK_PREFIX) or is_last
        return super().read(channel_id, after=after)


async def test_a_seal_costs_what_changed() -> None:
    log = Counting()
    for number in range(400):
        await log.append(f"c{number:03}", spoken(f"c{number:03}", 2), after=0)
        if number % 100 == 0:
            await seal(log)
    await seal(log)
    log.asked = 0
    await log.append("c007", [line("c007", 3)], after=2)

    await seal(log)

    assert log.asked <= 5


async def test_of_two_servers_that_seal_at_once_one_writes() -> None:
    log = MemoryLog()
    await fill(log)

    class Overtaken(MemoryLog):
        def __init__(self) -> None:
            super().__init__()
            self.others = 1

        async def channel_end(self, channel_id: str) -> ChannelEnd | None:
            if channel_id == SEALS_CHANNEL and self.others:
                self.others -= 1
                found = await super().channel_end(channel_id)
                await seal(self)
                return found
            return await super().channel_end(channel_id)

    log = Overtaken()
    await fill(log)

    assert await seal(log) == 0
    assert len(await ends_on(log)) == 1
    assert (await verify(MemoryRecords(log), built_in())).is_good


async def test_on_postgres_nothing_above_the_horizon_is_sealed(make_place: object) -> None:
    from ..postgres import run

    place: Place = make_place("postgres")  # type: ignore[operator]
    async with place.log() as log:
        await log.append("a", spoken("a", 2), after=0)
        import psycopg

        with psycopg.connect(place.address) as slow:
            slow.execute("SELECT turnline_enter()")  # An append that is not committed yet.
            slow.execute("SELECT nextval('turnline_positions')")
            await log.append("b", spoken("b", 2), after=0)
            await seal(log)
            before = await ends_on(log)
        await seal(log)
        after = await ends_on(log)

    assert before == [[("a", 2)]]
    assert after == [[("a", 2)], [("b", 2)]]
    assert run(place.address, "SELECT count(*) FROM turnline_records WHERE channel = '_seals'") == [(2,)]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_what_was_erased_since_a_seal_is_listed_and_not_bad(place: Place) -> None:
    async with place.log() as log:
        await fill(log)
        await seal(log)
    old = await kept(place)
    async with place.log() as log:
        assert isinstance(log, ListsEnds)
        await log.erase("c", erased_line("c", 6, (1, 3)), after=5, row=None)  # type: ignore[attr-defined]

    found = await checked(place, old)

    assert found.is_good, found.bad
    assert [(one.channel_id, one.seq, one.lines) for one in found.erased] == [("c", 6, [(1, 3)])]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_channel_that_was_pruned_since_a_seal_is_listed(place: Place) -> None:
    async with place.log() as log:
        await fill(log)
        await seal(log)
    old = await kept(place)
    async with place.log() as log:
        assert isinstance(log, ListsEnds)
        assert isinstance(log, Prunes)
        end = await log.channel_end("c")
        assert end is not None
        await log.prune([Tombstone(channel_id="c", seq=end.seq, hash=end.hash, pruned_at=NOON)])

    found = await checked(place, old)

    assert (found.bad, found.pruned_since) == ([], ["c"])


async def test_a_tombstone_with_another_end_than_the_seal_is_bad() -> None:
    log, forged = MemoryLog(), MemoryLog()
    await fill(log)
    await seal(log)
    old = await keep_seal(MemoryRecords(log))
    await forged.prune([Tombstone(channel_id="c", seq=5, hash=bytes(32), pruned_at=NOON)])

    found = await verify(MemoryRecords(forged), built_in(), seal=old)

    assert [one.channel_id for one in found.bad if "tombstone" in one.found] == ["c"]


async def test_seals_move_with_a_log_and_the_next_seal_starts_with_every_channel(tmp_path: Path) -> None:
    log, there = MemoryLog(), MemoryLog()
    await fill(log)
    await seal(log)
    old = await keep_seal(MemoryRecords(log))
    with (tmp_path / "export").open("w+b") as file:
        await export_log(MemoryRecords(log), file.write, exported_at="")
        file.seek(0)
        await import_log(file, there, MemoryRecords(there))

    await seal(there)

    assert (await verify(MemoryRecords(there), built_in(), seal=old)).is_good
    assert [len(ends) for ends in await ends_on(there)] == [5, 5]


def a_key() -> SealKey:
    return SealKey(Ed25519PrivateKey.from_private_bytes(sha256(b"seal").digest()))


async def test_a_signed_seal_covers_the_unsigned_ones_before_it() -> None:
    log, key = MemoryLog(), a_key()
    await fill(log)
    await seal(log)
    await seal(log, key)

    found = await verify(MemoryRecords(log), built_in(), public_key=key.public)

    assert found.is_good, found.bad
    assert [len(ends) for ends in await ends_on(log)] == [5, 0]
    assert await seal(log, key) == 0


@pytest.mark.parametrize("forger", [None, SealKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))])
async def test_a_log_that_was_made_again_without_the_key_is_bad(forger: SealKey | None) -> None:
    key, forged = a_key(), MemoryLog()
    await fill(forged)
    await seal(forged, forger)

    found = await verify(MemoryRecords(forged), built_in(), public_key=key.public)

    assert [(bad.channel_id, bad.found) for bad in found.bad] == [
        (SEALS_CHANNEL, "no seal that this key has signed")
    ]


async def test_a_signature_of_another_seal_is_bad() -> None:
    key, log, other = a_key(), MemoryLog(), MemoryLog()
    for one in (log, other):
        await one.append("a", spoken("a", 2), after=0)
    await seal(log, key)
    (signed,) = [one async for one in log.read(SEALS_CHANNEL)]
    forged = {**signed.event_data, "ends": [["a", 2, bytes(32).hex()]]}
    await other.append(SEALS_CHANNEL, [replace(signed, event_data=forged)], after=0)

    found = await verify(MemoryRecords(other), built_in(), public_key=key.public)

    assert [(bad.channel_id, bad.seq) for bad in found.bad if "signature" in bad.found] == [
        (SEALS_CHANNEL, 1)
    ]


@pytest.mark.parametrize(
    "text", ["", "turnline-seal:0:" + "a" * 64, "turnline-seal:1:abc", f"turnline-seal:1:{'a' * 64}\nx"]
)
def test_what_is_not_a_seal_is_refused(text: str) -> None:
    with pytest.raises(BadSeal, match="expected `turnline-seal:LINE:HASH`"):
        KeptSeal.from_text(text)


def test_a_kept_seal_reads_back() -> None:
    one = KeptSeal(seq=7, hash=bytes(range(32)), ends=[("a", 3, "0" * 64)])

    assert KeptSeal.from_text(one.to_file()) == one
    assert KeptSeal.from_text(one.to_text()) == replace(one, ends=[])


# Tampering.


@asynccontextmanager
async def a_log(path: Path) -> AsyncIterator[Log]:
    log = open_log(f"sqlite:///{path}")
    try:
        yield log
    finally:
        await log.close()


async def test_tampering_with_sealed_lines_is_found_with_the_place(tmp_path: Path) -> None:
    template, old, path = tmp_path / "log.db", tmp_path / "old.db", tmp_path / "tampered.db"
    async with a_log(template) as log:
        await fill(log)
        await seal(log)
    shutil.copyfile(template, old)
    async with a_log(template) as log:
        await log.append("b", [line("b", 5)], after=4)
        await log.append(AUDIT_CHANNEL, [system_line(AUDIT_CHANNEL, 4)], after=3)
        await log.append("d", spoken("d", 6), after=0)
        await seal(log)
    records = await open_records(str(template))
    seal_kept_outside = await keep_seal(records)
    assert seal_kept_outside is not None
    sealed = {"a": 4, "b": 5, "c": 5, "d": 6, AUDIT_CHANNEL: 4, DIRECTORY_CHANNEL: 3, SEALS_CHANNEL: 2}
    assert (await verify(records, built_in(), seal=seal_kept_outside)).is_good
    await records.close()
    async with a_log(template) as log:
        await log.append("a", [line("a", 5)], after=4)
    random = Random(20_301)

    for number in range(TAMPERINGS):
        shutil.copyfile(template, path)
        done = tamper(path, old, random, sealed)
        records = await open_records(str(path))
        found = await verify(records, built_in(), seal=seal_kept_outside)
        await records.close()

        places = [(bad.channel_id, bad.seq) for bad in found.bad]
        assert any(name in done.channels and done.first <= seq <= done.last + 1 for name, seq in places), (
            number,
            done,
            places,
        )


def copy_with_a_damaged_wal(path: Path, copy: Path) -> None:
    """Flip a bit in the page of the first frame."""
    shutil.copyfile(path, copy)
    wal = Path(f"{path}-wal").read_bytes()
    Path(f"{copy}-wal").write_bytes(flip_byte(wal, 32 + 24 + 100))


async def test_a_damaged_frame_of_a_wal_hides_later_commits_from_verify_and_not_from_a_seal(
    tmp_path: Path,
) -> None:
    """The durability page says so: SQLite takes a damaged frame for the end of the write-ahead file."""
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    async with a_log(path) as log:
        await log.append("a", spoken("a", 2), after=0)
    async with a_log(path) as log:  # What follows stays in the -wal file while the log is open.
        await log.append("b", spoken("b", 2), after=0)
        await seal(log)
        records = await open_records(str(path))
        seal_kept_outside = await keep_seal(records)
        assert (await verify(records, built_in())).note == ""
        await records.close()
        copy_with_a_damaged_wal(path, copy)
    place = Place("sqlite", f"sqlite:///{copy}")

    alone, against_the_seal = await checked(place), await checked(place, seal_kept_outside)

    assert alone.is_good
    assert "the last commits are hidden; a seal that you kept says which" in alone.note
    assert (alone.channels, alone.seals) == (
        1,
        0,
    )  # The channel `b` and the seal vanished with their commits.
    assert [(bad.channel_id, bad.found) for bad in against_the_seal.bad] == [
        (SEALS_CHANNEL, "the channel is gone"),
        ("b", "the channel is gone"),
    ]
