"""Timers (W11, L1, L4, R7, R8): what falls due; an outage expires nothing. Ids grow (E1)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final

import pytest
from msgspec.structs import replace

from turnline.client.channel import Channel
from turnline.core.adapter import Manifest
from turnline.core.adapters import TurnTaking, built_in
from turnline.core.channel import ID_PATTERN, ChannelState
from turnline.core.envelope import Basis, Decision, Envelope, Speak
from turnline.core.event_types import EV_CHANNEL_EXPIRED, EV_EXPECTATION_VIOLATED
from turnline.core.expectations import Deadline, max_silence, reply_within, turn_within
from turnline.core.governance import Passport, Registration
from turnline.core.graph import round_robin
from turnline.core.state import State
from turnline.errors import LogUnavailable, UnknownName
from turnline.hub.channels import Channels, Entry
from turnline.hub.timers import FEW_MOMENTS, MOMENTS_PER_CHANNEL, Timers, sortable_ids
from turnline.log.memory import MemoryLog
from turnline.testing.lines import NOON
from turnline.testing.manual_clock import ManualClock

from ..logs import OpenLog
from .scenes import A_B, A_B_A, FailingLog, House, add_one, begin, closed, house, on_log, quiet, refused

THREE_DAYS: Final = 3 * 86_400.0


async def violations(home: House, channel: Channel) -> list[Envelope]:
    return [e for e in await home.wal(channel) if e.event_type == EV_EXPECTATION_VIOLATED]


async def status(home: House, channel: Channel) -> ChannelState:
    return (await home.hub.state(channel.channel_id)).status


# --- W11 ---


async def test_a_slow_turn_is_warned_of_after_120_s_and_closed_after_600_s() -> None:
    """W11."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await home.pass_time(119)
        assert await violations(home, channel) == []

        await home.pass_time(1)
        (warning,) = await violations(home, channel)
        assert (warning.event_data["name"], warning.event_data["handler"]) == ("turn_within", "warn")
        assert await status(home, channel) is ChannelState.ACTIVE

        await home.pass_time(479)
        assert len(await violations(home, channel)) == 1
        await home.pass_time(1)
        assert await closed(channel) == "expectation_violated:turn_within"


async def test_a_violation_is_told_and_audited() -> None:
    """W11."""
    async with house(MemoryLog(), "alice", "bob") as home:
        heard: list[Envelope] = []
        home["bob"].on_envelope(heard.append)
        channel = await home.open(A_B)
        await home.pass_time(120)
        await quiet()

        (line,) = await home.audited("expectation_violated")
        assert (line["channel_id"], line["name"]) == (channel.channel_id, "turn_within")
        assert heard[-1].event_type == EV_EXPECTATION_VIOLATED


async def test_a_deadline_is_measured_from_the_moment_the_floor_was_given() -> None:
    """W11: not from the opening, nor from a context write or an interjection."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        await home.pass_time(100)
        await channel.send("hello")
        await home.pass_time(100)
        await add_one(channel)
        await channel.interject("take your time")
        await home.pass_time(19)
        assert await violations(home, channel) == []

        await home.pass_time(1)
        assert len(await violations(home, channel)) == 1


async def test_every_turn_is_warned_of_anew() -> None:
    """W11."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(round_robin(["alice", "bob"]))
        for name in ("alice", "bob"):
            await home.pass_time(120)
            await home.pass_time(10)
            await home.handle(name, channel).send("sorry")

        assert len(await violations(home, channel)) == 2


async def test_the_opener_may_expect_something_else() -> None:
    """W11."""
    async with house(MemoryLog(), "alice", "bob") as home:
        strict = await home.open(A_B, expectations=[turn_within(5, "auto_close")])
        lax = await home.open(A_B, expectations=[])
        await home.pass_time(THREE_DAYS)

        assert await closed(strict) == "expectation_violated:turn_within"
        assert await status(home, lax) is ChannelState.ACTIVE


@pytest.mark.parametrize("expectation", [reply_within(60, "auto_close"), max_silence(60, "auto_close")])
async def test_the_other_expectations_are_evaluated_too(expectation: object) -> None:
    """W11."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A, expectations=[expectation])
        await channel.send("hello")
        await home.pass_time(59)
        assert await status(home, channel) is ChannelState.ACTIVE

        await home.pass_time(1)
        assert (await closed(channel)).startswith("expectation_violated:")


async def test_an_unknown_expectation_or_handler_is_an_error_at_open() -> None:
    """W11."""
    async with house(MemoryLog(), "alice", "bob") as home:
        unknown = [turn_within(5, "shout")]
        error = await refused(UnknownName, home.open(A_B, expectations=unknown))

        assert error.known == ("auto_close", "warn")


# --- TTL ---


async def test_a_channel_ends_with_its_ttl() -> None:
    """L4."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, ttl=60)
        await home.pass_time(59)
        assert await status(home, channel) is ChannelState.ACTIVE

        await home.pass_time(1)
        assert await closed(channel) == "ttl_expired"
        assert EV_CHANNEL_EXPIRED in await home.types(channel)
        assert await status(home, channel) is ChannelState.EXPIRED


async def test_after_an_outage_a_ttl_leaves_the_participants_60_s() -> None:
    """R8."""
    log, clock = MemoryLog(), ManualClock()
    async with house(log, "alice", "bob", clock=clock) as home:
        channel = await home.open(A_B, ttl=3600)
    clock.advance(THREE_DAYS)
    async with house(log, "alice", "bob", clock=clock) as home:
        await home.pass_time(59)
        assert await status(home, channel) is ChannelState.ACTIVE

        await home.pass_time(1)
        assert await closed(home.handle("alice", channel)) == "ttl_expired"


# --- outages ---


async def test_an_outage_expires_nothing(open_log: OpenLog) -> None:
    """R8, X17: turn deadlines start again when the hub does."""
    clock = ManualClock()
    async with house(open_log(), "alice", "bob", clock=clock) as home:
        channel = await home.open(A_B)
        await home.pass_time(100)
    clock.advance(THREE_DAYS)
    async with house(open_log(), "alice", "bob", clock=clock) as home:
        await home.hub.tick()
        await home.pass_time(119)
        assert await violations(home, channel) == []

        await home.pass_time(1)
        assert len(await violations(home, channel)) == 1
        await home.pass_time(479)
        assert await status(home, channel) is ChannelState.ACTIVE
        await home.pass_time(1)
        assert await closed(home.handle("bob", channel)) == "expectation_violated:turn_within"


async def test_an_invitation_outlives_an_outage() -> None:
    """L1, R8."""
    log, clock = MemoryLog(), ManualClock()
    async with house(log, "alice", "bob", clock=clock):
        pass
    async with house(log, "alice", clock=clock) as home:
        opening = begin(home.open(A_B, target="bob", channel_id="patient"))
        await quiet()
        opening.cancel()
    clock.advance(THREE_DAYS)
    async with house(log, "alice", clock=clock) as home:
        await home.pass_time(29)
        await home.agent("bob")
        channel = await home.open(A_B, channel_id="patient")

        assert await status(home, channel) is ChannelState.ACTIVE


async def test_two_hubs_tell_a_violation_once() -> None:
    """Each may try; the log accepts one."""
    log, clock = MemoryLog(), ManualClock()
    async with (
        house(log, "alice", "bob", clock=clock) as first,
        house(log, clock=clock) as second,
    ):
        channel = await first.open(A_B)
        async with house(log, clock=clock) as third:
            clock.advance(120)
            for home in (first, second, third):
                await home.hub.tick()

            assert len(await violations(first, channel)) == 1


# --- sweeping in the background ---


async def test_timers_fire_by_themselves_at_the_right_moment() -> None:
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=30) as home:
        channel = await home.open(A_B)
        for seconds in (100, 19.5):
            home.clock.advance(seconds)
            await quiet()
            assert await violations(home, channel) == []
        home.clock.advance(0.5)
        await quiet()
        (warning,) = await violations(home, channel)

        floor = (await home.hub.state(channel.channel_id)).floor_at
        assert warning.created_at == floor + timedelta(seconds=120)


async def test_something_that_falls_due_sooner_is_not_slept_through() -> None:
    """The sweeper sleeps towards a far moment when a channel with a near one is opened."""
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=10_000) as home:
        await home.open(A_B, ttl=9_000, expectations=[])
        await quiet()
        near = await home.open(A_B, ttl=7, expectations=[])
        home.clock.advance(7)
        await quiet()

        assert await status(home, near) is ChannelState.EXPIRED


async def test_many_channels_fall_due_each_at_its_time() -> None:
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=30) as home:
        channels = [await home.open(A_B, ttl=10 * n, expectations=[]) for n in range(1, 11)]
        expired = []
        for _ in channels:
            home.clock.advance(10)
            await quiet()
            over = await home.hub.list_channels(state="expired")
            expired.append(len(over))

        assert expired == list(range(1, 11))


async def test_a_channel_that_closed_in_time_is_left_alone() -> None:
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=30) as home:
        channel = await home.open(A_B, ttl=100)
        await channel.close("done")
        before = await home.wal(channel)
        home.clock.advance(THREE_DAYS)
        await quiet()

        assert await home.wal(channel) == before


async def test_a_failed_write_stops_the_timers_for_a_second() -> None:
    log = FailingLog()
    async with house(log, "alice", "bob", ttl_sweep_interval=30) as home:
        channel = await home.open(A_B, ttl=60, expectations=[])
        await home.hub.audit_log.flush()
        log.fail_append = LogUnavailable("here", because="the disk is full")
        home.clock.advance(60)
        await quiet()
        assert await status(home, channel) is ChannelState.ACTIVE

        home.clock.advance(1)
        await quiet()
        assert await status(home, channel) is ChannelState.EXPIRED


class Moody(TurnTaking[State]):
    """A program's own channel type, whose deadlines cannot be computed once the channel is a minute old."""

    manifest = Manifest(type="moody")
    state_type = State
    clock: ClassVar = ManualClock()

    def route(self, state: State, envelope: Envelope) -> Decision:
        return Speak(state.creator_id, Basis(kind="adapter"))

    def due(self, state: State, awake_since: datetime) -> Sequence[Deadline]:
        if self.clock.now() - state.created_at >= timedelta(minutes=1):
            raise LookupError("a fault in the adapter")
        return super().due(state, awake_since)


async def test_an_adapter_that_fails_stops_only_the_timers_of_its_channel() -> None:
    clock = Moody.clock
    async with house(
        MemoryLog(), "alice", "bob", ttl_sweep_interval=30, clock=clock, adapters=[Moody()]
    ) as home:
        await home["alice"].open(type="moody", target="bob", ttl=60, expectations=[])
        channel = await home.open(A_B, ttl=70, expectations=[])
        for _ in range(7):
            clock.advance(10)
            await quiet()

        assert await status(home, channel) is ChannelState.EXPIRED


async def test_nothing_happens_by_itself_without_sweeping() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, ttl=60)
        home.clock.advance(THREE_DAYS)
        await quiet()
        assert await status(home, channel) is ChannelState.ACTIVE

        await home.hub.tick()
        assert await status(home, channel) is ChannelState.EXPIRED


# --- a clock that is set back ---


async def test_created_at_never_runs_backwards(open_log: OpenLog) -> None:
    """R7: on the channels, in the directory and in the audit."""
    clock = ManualClock()
    async with house(open_log(), "alice", "bob", clock=clock) as home:
        channel = await home.open(A_B_A)
        clock.set_back(3600)
        await channel.send("hello")
        await home.agent("carol")
        await channel.close()
    clock.set_back(3600)
    async with house(open_log(), "alice", clock=clock) as home:
        await home.agent("dora")
        logs = [
            await home.wal(channel),
            await home.hub.read_wal("_directory"),
            await home.hub.audit_log.read_all(),
        ]
        for lines in logs:
            times = [line.created_at for line in lines]
            assert times == sorted(times)


async def test_ids_sort_although_the_clock_was_set_back() -> None:
    """E1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        ids = []
        for _ in range(3):
            ids.append((await channel.send("hello")).envelope_id)
            home.clock.set_back(10)

        assert ids == sorted(ids)


# --- memory ---


def test_a_channel_that_goes_on_leaves_no_moments_behind() -> None:
    """Each line puts off a silence of a day: without letting go, a busy day is kept in memory."""
    timers, members = (
        Timers(ManualClock(NOON)),
        [Registration(agent_id=n, passport=Passport(name=n)) for n in ("a", "b")],
    )
    first = on_log(members, channel_id="busy")[0]
    entry = Entry(*Channels(MemoryLog(), built_in()).begin(first))
    for second in range(20 * FEW_MOMENTS):
        entry.state = replace(entry.state, created_at=NOON + timedelta(seconds=second))
        timers.watch(entry)

    assert len(timers) <= FEW_MOMENTS + MOMENTS_PER_CHANNEL
    assert timers.pause_until_next(10 * THREE_DAYS) == timers.seconds_left(entry)


def test_ids_of_one_source_strictly_grow() -> None:
    """E1: sortable and unique, also within one millisecond."""
    new_id = sortable_ids(ManualClock())
    ids = [new_id() for _ in range(1000)]

    assert ids == sorted(set(ids))


def test_ids_grow_with_time() -> None:
    clock = ManualClock()
    earlier = sortable_ids(clock)()
    clock.advance(0.001)

    assert earlier < sortable_ids(clock)()


def test_ids_grow_although_the_clock_is_set_back() -> None:
    """R7."""
    clock = ManualClock()
    new_id = sortable_ids(clock)
    earlier = new_id()
    clock.set_back(3600)

    assert earlier < new_id()


def test_an_id_is_safe_in_a_path_and_an_address() -> None:
    made = sortable_ids(ManualClock())()

    assert ID_PATTERN.fullmatch(made)
    assert len(made) == 26
    assert made == made.lower()


def test_two_sources_do_not_give_the_same_id() -> None:
    clock = ManualClock()
    assert sortable_ids(clock)() != sortable_ids(clock)()
