"""`repair`: a damaged system channel is written again, and open conversations continue (Y5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from io import BytesIO
from random import Random

import pytest
from msgspec.structs import replace

from turnline.core.adapters import built_in
from turnline.core.codec import Record
from turnline.core.directory import DIRECTORY_CHANNEL
from turnline.errors import ChannelQuarantined
from turnline.hub.audit import AUDIT_CHANNEL
from turnline.hub.timers import sortable_ids
from turnline.log import nats
from turnline.log.base import Replaces
from turnline.log.chain import Chain
from turnline.log.repair import ChannelRepair, Repairing, RepairPlan, plan_repairs, repair
from turnline.log.seals import SEALS_CHANNEL, keep_seal, seal_log
from turnline.log.transfer import export_log
from turnline.log.verify import Verdict, verify
from turnline.server.auth.revocation import REVOCATIONS_CHANNEL, Revocations
from turnline.testing import ManualClock
from turnline.testing.damage import Damage, drop_payload, flip_byte

from ..faults.counts import REPAIRED_BITS
from ..hub.scenes import A_B_A, house
from .backends import KINDS, Place

SYSTEM_CHANNELS = (DIRECTORY_CHANNEL, REVOCATIONS_CHANNEL, AUDIT_CHANNEL, SEALS_CHANNEL, "_mark-seals")
TOKENS = ["ab" * 64, "cd" * 64]
Kept = dict[str, list[Record]]


class Story:
    """An open conversation on a log, and what has to be so after a repair."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ids: dict[str, str] = {}
        self.channel_id = ""
        self.kept: Kept = {}

    async def begin(self) -> None:
        async with self.place.log() as log, house(log, "alice", "bob", "carol") as home:
            clock = ManualClock()
            revocations = Revocations(log, clock, sortable_ids(clock))
            for token in TOKENS:
                await revocations.revoke([token], reason="lost", by="root")
            self.ids = {name: client.agent_id for name, client in home.agents.items()}
            channel = await home.open(A_B_A)
            await channel.send("one")
            self.channel_id = channel.channel_id
            await home.hub.audit_log.flush()
            await seal_log(log, now=clock.now, new_id=sortable_ids(clock))
        self.kept = await self.place.kept()

    async def finish(self, *, damaged: Collection[str] = ()) -> None:
        """Continue the conversation to its end, with the names that it began with."""
        async with self.place.log() as log, house(log, "alice", "bob", "carol") as home:
            assert {name: client.agent_id for name, client in home.agents.items()} == self.ids
            await home["bob"].channel(self.channel_id).send("two")
            await home["alice"].channel(self.channel_id).send("three")
            assert (await home.hub.state(self.channel_id)).is_over
            assert home.hub.health().quarantined.keys() <= set(damaged)

    async def plan(self, archive: bytes = b"") -> RepairPlan:
        clock = ManualClock()
        repairing = Repairing(clock.now, sortable_ids(clock), BytesIO(archive) if archive else None)
        async with self.place.log() as log:
            await log.channels(limit=1)
            async with self.place.records() as records:
                return await plan_repairs(records, repairing)

    async def repair(self, archive: bytes = b"") -> list[ChannelRepair]:
        plan = await self.plan(archive)
        async with self.place.log() as log:
            await repair(log, plan.channels)
        return plan.channels

    async def verdict(self) -> Verdict:
        async with self.place.records() as records:
            return await verify(records, built_in())

    async def export(self) -> bytes:
        file = BytesIO()
        async with self.place.records() as records:
            await export_log(records, file.write, exported_at="")
        return file.getvalue()


@pytest.fixture
async def story(place: Place) -> Story:
    told = Story(place)
    await told.begin()
    return told


def flips(random: Random, record: Record) -> Iterator[tuple[str, Damage]]:
    """Yield a flipped bit of each part of a record."""
    for column in ("head", "payload", "hash"):
        kept: bytes | None = getattr(record, column)
        if kept is not None:
            bit = random.randrange(len(kept) * 8)
            changed = replace(record, **{column: flip_byte(kept, bit // 8, mask=1 << bit % 8)})
            yield column, partial(_put, changed)


def _put(changed: Record, _: Record) -> Record:
    return changed


@pytest.mark.parametrize("kind", ["memory"])
async def test_one_flipped_bit_in_any_system_channel_costs_at_most_one_line(
    make_place: Callable[[str], Place], kind: str
) -> None:
    random = Random(14)
    for _ in range(REPAIRED_BITS):
        told = Story(make_place(kind))
        await told.begin()
        channel_id = random.choice(SYSTEM_CHANNELS)
        record = random.choice(told.kept[channel_id])
        column, damage = random.choice(list(flips(random, record)))
        told.place.damage(channel_id, record.seq, damage)

        plans = await told.repair()

        assert [plan.channel_id for plan in plans] == [channel_id], (channel_id, record.seq, column)
        lost = [seq for first, last in plans[0].lost for seq in range(first, last + 1)]
        # A hash follows from the line and is known to the next one; a log in memory has no other copy.
        is_known = column == "hash" and record.seq < len(told.kept[channel_id])
        assert lost == ([] if is_known else [record.seq])
        found = await told.verdict()
        assert found.is_good, (channel_id, record.seq, column, found.bad)
        after = await told.place.kept()
        assert {name: rows for name, rows in after.items() if name != channel_id} == {
            name: rows for name, rows in told.kept.items() if name != channel_id
        }
        await told.finish()


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("channel_id", SYSTEM_CHANNELS[:4])
async def test_a_damaged_line_of_a_system_channel_is_repaired_on_every_log(
    story: Story, channel_id: str
) -> None:
    story.place.damage(channel_id, 1)

    plans = await story.repair()

    assert [(plan.channel_id, plan.lost) for plan in plans] == [(channel_id, [(1, 1)])]
    found = await story.verdict()
    assert found.is_good, found.bad
    assert await story.repair() == []
    await story.finish()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_archive_brings_a_system_channel_back_byte_for_byte(story: Story) -> None:
    archive = await story.export()
    async with story.place.records() as records:
        seal = await keep_seal(records)
    for channel_id in (DIRECTORY_CHANNEL, REVOCATIONS_CHANNEL):
        story.place.damage(channel_id, 1)
        story.place.damage(channel_id, 2, drop_payload)

    plans = await story.repair(archive)

    assert [(plan.restored, plan.lost) for plan in plans] == [(2, []), (2, [])]
    assert await story.place.kept() == story.kept
    async with story.place.records() as records:
        assert (await verify(records, built_in(), seal=seal)).is_good
    await story.finish()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_damaged_conversation_stays_as_it_is_and_the_others_are_served(story: Story) -> None:
    story.place.damage(story.channel_id, 2)
    before = await story.place.kept() if story.place.kind != "nats" else {}

    plan = await story.plan()
    assert await story.repair() == []

    assert (plan.channels, [(one.channel_id, one.seq) for one in plan.damaged]) == (
        [],
        [(story.channel_id, 2)],
    )
    if before:
        assert await story.place.kept() == before
    async with story.place.log() as log, house(log, "alice", "bob") as home:
        with pytest.raises(ChannelQuarantined):
            await home.hub.state(story.channel_id)
        other = await home.open(A_B_A, message="one")
        assert (await home.hub.state(other.channel_id)).seq


@pytest.mark.parametrize("kind", KINDS)
async def test_an_archive_with_all_of_its_lines_heals_a_conversation(story: Story) -> None:
    archive = await story.export()
    story.place.damage(story.channel_id, 2)

    plans = await story.repair(archive)

    if story.place.kind == "nats":  # Its messages cannot be replaced.
        assert plans == []
        return
    assert [(one.channel_id, one.restored, one.lost) for one in plans] == [(story.channel_id, 1, [])]
    assert await story.place.kept() == story.kept
    assert (await story.verdict()).is_good
    await story.finish()


@pytest.mark.parametrize("kind", ["memory"])
async def test_a_conversation_that_is_shorter_than_its_seal_is_healed_by_an_archive_only(
    story: Story,
) -> None:
    archive = await story.export()
    chain = Chain(story.channel_id)
    cut = [chain.keep(one) for one in story.kept[story.channel_id][:-1]]
    async with story.place.log() as log:
        assert isinstance(log, Replaces)
        await log.replace(story.channel_id, cut)

    assert [one.channel_id for one in (await story.plan()).damaged] == [story.channel_id]
    assert [one.restored for one in await story.repair(archive)] == [1]
    assert await story.place.kept() == story.kept
    await story.finish()


@pytest.mark.parametrize("kind", ["memory"])
async def test_a_conversation_with_other_lines_than_its_seal_stays_as_it_is(story: Story) -> None:
    archive = await story.export()
    async with story.place.log() as log:
        assert isinstance(log, Replaces)
        said = [replace(one) async for one in log.read(story.channel_id)]  # They get other salts.
        await log.replace(story.channel_id, said[:-1])

    assert [one.channel_id for one in (await story.plan(archive)).damaged] == [story.channel_id]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_content_that_was_erased_does_not_come_back_from_an_archive(story: Story) -> None:
    async with story.place.log() as log, house(log, "alice", "bob") as home:
        await home["bob"].channel(story.channel_id).send("two")
        await home["alice"].channel(story.channel_id).send("three")
    archive = await story.export()
    async with story.place.log() as log, house(log) as home:
        await home.hub.erase(story.channel_id, by="admin")
    after = (await story.place.kept())[story.channel_id]
    erased = next(one.seq for one in after if one.payload is None and one.seq > 1)
    story.place.damage(story.channel_id, erased)

    plans = await story.repair(archive)

    assert [(one.channel_id, one.restored) for one in plans] == [(story.channel_id, 1)]
    assert (await story.place.kept())[story.channel_id] == after
    assert (await story.verdict()).is_good


@pytest.mark.parametrize("kind", ["memory"])
async def test_revocations_that_can_be_read_still_count(story: Story) -> None:
    story.place.damage(REVOCATIONS_CHANNEL, 1)
    await story.repair()
    clock = ManualClock()
    async with story.place.log() as log:
        revocations = Revocations(log, clock, sortable_ids(clock))

        assert await revocations.is_revoked([TOKENS[1]])
        assert not await revocations.is_revoked([TOKENS[0]])


@pytest.mark.parametrize("kind", ["memory"])
async def test_a_directory_that_is_gone_is_made_from_the_channels(story: Story) -> None:
    async with story.place.log() as log:
        await log.replace(DIRECTORY_CHANNEL, [])  # type: ignore[attr-defined]

    (plan,) = await story.repair()

    assert sorted(plan.names) == ["alice", "bob", "carol"]
    await story.finish()


@pytest.mark.parametrize("kind", ["memory"])
async def test_a_seal_from_before_a_repair_says_that_lines_were_lost(story: Story) -> None:
    async with story.place.records() as records:
        seal = await keep_seal(records)
    story.place.damage(AUDIT_CHANNEL, 1)
    await story.repair()

    async with story.place.records() as records:
        against_kept = await verify(records, built_in(), seal=seal)
        on_the_log = await verify(records, built_in())

    assert [bad.channel_id for bad in against_kept.bad] == [AUDIT_CHANNEL]
    assert (on_the_log.bad, on_the_log.repaired) == ([], [AUDIT_CHANNEL])


@pytest.mark.parametrize("kind", ["memory"])
async def test_the_error_of_a_damaged_system_channel_names_the_repair(story: Story) -> None:
    story.place.damage(DIRECTORY_CHANNEL, 1)

    async with story.place.log() as log:
        with pytest.raises(ChannelQuarantined, match="turnline log repair ADDRESS"):
            async with house(log, "dora"):
                pass


@pytest.mark.parametrize("kind", ["nats"])
async def test_a_repair_in_parts_that_was_killed_is_resumed(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.place.damage(AUDIT_CHANNEL, 2)
    with monkeypatch.context() as killed:
        killed.setattr(nats, "_parts", lambda records: [(0, 1)])  # Only the first of the messages is written.
        await story.repair()

    (bad,) = (await story.verdict()).bad
    assert (bad.channel_id, bad.seq, "repair was not finished" in bad.found) == (AUDIT_CHANNEL, 2, True)
    monkeypatch.setattr(nats, "PART_RECORDS", 1)
    (plan,) = await story.repair()
    assert plan.lost == [(2, 2)]
    found = await story.verdict()
    assert found.is_good, found.bad
    await story.finish()
