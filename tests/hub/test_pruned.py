"""Y3: what a hub does with channels that were pruned: they are gone, and their ids stay taken."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

from turnline.client.embedded import Hub
from turnline.errors import ChannelPruned
from turnline.log.base import Log, Prunes, Tombstone
from turnline.log.memory import MemoryLog
from turnline.log.pruning import Pruned, Pruner, plan_trees
from turnline.log.records import MemoryRecords, looking_at_log
from turnline.log.transfer import import_log
from turnline.server.retention import Retain, Retention, RetentionClock
from turnline.testing.manual_clock import ManualClock

from .scenes import A_B, House, house, refused, until

DAY = 86_400.0


async def close_one(home: House, channel_id: str = "order-7") -> str:
    """Open a channel of this id, and let both say what closes it."""
    channel = await home.open(A_B, channel_id=channel_id, message="hello", labels={"team": "red"})
    await home.handle("bob", channel).send("good bye")
    assert (await home.hub.state(channel.channel_id)).is_over
    return channel.channel_id


async def prune(home: House, archive: Path | None = None) -> Pruned:
    log = home.hub.log
    assert isinstance(log, Prunes)
    before = home.clock.now() + timedelta(seconds=1)
    trees, _, _ = await plan_trees(log, before=before, labels={}, most=100)
    opened = partial(looking_at_log, log.address, log)
    hub = home.hub
    pruner = Pruner(log, opened, now=hub.clock.now, new_id=hub.new_id, forget=hub.forget_pruned)
    done = await pruner.prune(trees, archive)
    home.hub.audit_log.note_pruned(done, before)
    return done


async def test_the_id_of_a_pruned_channel_is_never_used_again() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel_id = await close_one(home)

        assert (await prune(home)).trees == [channel_id]

        assert (await refused(ChannelPruned, home.open(A_B, channel_id=channel_id))).name == channel_id
        await refused(ChannelPruned, home.hub.state(channel_id))
        await refused(ChannelPruned, home.hub.erase(channel_id, by="admin"))
        await refused(ChannelPruned, home.hub.why(channel_id, 4))
        assert await home.hub.list_channels() == []
        (said,) = await home.audited("pruned")
        assert (said["trees"], said["channels"]) == ([channel_id], 1)


async def test_a_restored_channel_is_as_it_was(tmp_path: Path) -> None:
    log, archive = MemoryLog(), tmp_path / "old.jsonl"
    async with house(log, "alice", "bob") as home:
        channel_id = await close_one(home)
        before = await home.hub.state(channel_id)
        await prune(home, archive)

        with archive.open("rb") as file:
            done = await import_log(file, log, MemoryRecords(log), is_checked=True)

        assert done.restored == [channel_id]
        assert await home.hub.state(channel_id) == before
        assert (await log.row(channel_id)) is not None


async def test_every_hub_of_the_log_forgets_a_pruned_channel() -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel_id = await close_one(home)
        other = await Hub.open(log, ttl_sweep_interval=0, follow=True, clock=home.clock)
        assert (await other.state(channel_id)).is_over

        await prune(home)

        await until(lambda: other.health().cached_channels == 0)
        await refused(ChannelPruned, other.state(channel_id))
        await other.close()


async def test_a_channel_that_was_erased_while_it_was_archived_stays() -> None:
    class Erasing(MemoryLog):
        """A log on which another process erases the channel just before its tombstone."""

        home: House | None = None

        async def prune(self, tombstones: list[Tombstone]) -> None:  # type: ignore[override]
            if self.home is not None:
                await self.home.hub.erase(tombstones[0].channel_id, by="admin")
            await super().prune(tombstones)

    log = Erasing()
    async with house(log, "alice", "bob") as home:
        channel_id = await close_one(home)
        log.home = home

        done = await prune(home)

        assert (done.trees, [one.top for one in done.kept]) == ([], [channel_id])
        assert (await home.hub.state(channel_id)).is_incomplete
        log.home = None
        assert (await prune(home)).trees == [channel_id]


async def test_retention_prunes_what_is_old_while_others_go_on(tmp_path: Path) -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        old = await close_one(home, "old")
        retention = Retention(home.hub, retain(timedelta(days=90), tmp_path))
        for day in range(89):
            home.clock.advance(DAY)
            assert (await retention.once()).trees == [], day
        young = await close_one(home, "young")
        open_one = await home.open(A_B, message="hello")
        for _ in range(2):
            home.clock.advance(DAY)
            await retention.once()

        await refused(ChannelPruned, home.hub.state(old))
        assert (await home.hub.state(young)).is_over
        await home.handle("bob", open_one).send("good bye")
        assert len(list_files(tmp_path)) == 1


def list_files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def retain(age: timedelta, archive: Path | None = None) -> Retain:
    def open_records(log: Log) -> object:
        return looking_at_log(log.address, log)

    return Retain(age=age, archive=archive, open_records=open_records)  # type: ignore[arg-type]


async def test_a_clock_that_jumps_ahead_is_not_believed_for_a_day() -> None:
    class JumpingClock(ManualClock):
        """Its time can be set ahead, while the monotonic one goes on."""

        def jump(self, seconds: float) -> None:
            self.set_back(-seconds)

    clock = JumpingClock()
    started = clock.now()
    time = RetentionClock(clock, clock.now())
    clock.advance(60)
    assert time.now() == started + timedelta(seconds=60)

    clock.jump(365 * DAY)
    for _ in range(23):
        assert time.now() - started < timedelta(days=1)
        clock.advance(3600)
    clock.advance(2 * 3600)
    assert time.now() == clock.now()

    off_for_a_month = RetentionClock(clock, clock.now() - timedelta(days=30))
    assert off_for_a_month.now() < clock.now() - timedelta(days=28)
