"""Deadlines run on the monotonic clock: setting the clock of a live process changes none of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import pytest

from tests.turn_lines import claim_own
from turnline.client.channel import Channel
from turnline.core.channel import ChannelState
from turnline.core.event_types import (
    EV_CHANNEL_EXPIRED,
    EV_EXPECTATION_VIOLATED,
    EV_TURN_PAUSED,
    EV_TURN_RESUMED,
)
from turnline.core.expectations import max_silence, reply_within, turn_within
from turnline.core.graph import sequence
from turnline.errors import InviteTimeout
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

from .scenes import A_B, A_B_A, House, begin, house, quiet, sqlite

HOUR: Final = 3600.0
DAY: Final = 86_400.0
JUMPS: Final = pytest.mark.parametrize("forward", [-HOUR, DAY], ids=["an hour back", "a day forward"])
LIMITS: Final = [
    {"ttl": 100, "expectations": []},
    {"expectations": [turn_within(100, "auto_close")]},
    {"expectations": [reply_within(100, "auto_close")]},
    {"expectations": [max_silence(100, "auto_close")]},
]


@JUMPS
@pytest.mark.parametrize("limit", LIMITS, ids=["ttl", "turn_within", "reply_within", "max_silence"])
async def test_a_deadline_comes_when_its_seconds_have_passed_although_the_clock_was_set(
    limit: dict[str, Any], forward: float
) -> None:
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=30) as home:
        channel = await home.open(A_B_A, **limit)
        await channel.send("hello")
        home.clock.advance(50)
        await quiet()
        home.clock.set_back(-forward)
        for _ in range(5):
            home.clock.advance(9)
            await quiet()
        assert (await home.hub.state(channel.channel_id)).status is ChannelState.ACTIVE

        home.clock.advance(5)
        await quiet()
        assert (await home.hub.state(channel.channel_id)).is_over


@JUMPS
async def test_a_channel_that_is_opened_after_the_jump_has_its_full_time(forward: float) -> None:
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=30) as home:
        home.clock.advance(500)
        home.clock.set_back(-forward)
        channel = await home.open(A_B, ttl=100, expectations=[])
        home.clock.advance(99)
        await quiet()
        assert (await home.hub.state(channel.channel_id)).status is ChannelState.ACTIVE

        home.clock.advance(1)
        await quiet()
        assert (await home.hub.state(channel.channel_id)).status is ChannelState.EXPIRED


@JUMPS
async def test_an_invitation_times_out_although_the_clock_was_set(forward: float) -> None:
    async with house(MemoryLog(), "alice") as home:
        await home.person("user", auto_ack_invites=False)
        opening = begin(home.open(sequence(["alice", "user"]), channel_id="quiet"))
        await quiet()
        home.clock.set_back(-forward)
        home.clock.advance(29)
        await quiet()
        assert not opening.done()

        home.clock.advance(1)
        with pytest.raises(InviteTimeout):
            await opening


async def test_a_floor_that_was_given_while_the_clock_was_behind_has_its_full_time() -> None:
    """The lines of that hour all have one time: the next is never earlier than the last."""
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=30) as home:
        channel = await home.open(A_B_A, expectations=[turn_within(100, "auto_close")])
        home.clock.advance(50)
        home.clock.set_back(HOUR)
        home.clock.advance(40)
        await channel.send("hello")
        for _ in range(30):  # More changes of clock than a channel keeps.
            home.clock.advance(3)
            await channel.interject("one moment")
            await quiet()
        assert not (await home.hub.state(channel.channel_id)).is_over

        home.clock.advance(10)
        await quiet()
        assert (await home.hub.state(channel.channel_id)).is_over


async def pause(home: House, channel: Channel) -> None:
    """Let alice's turn wait for an event."""
    claim = await claim_own(home["alice"].seat, channel.channel_id, 1)
    paused = {"agent_id": home["alice"].agent_id, "reason": "event"}
    await home.hub.write(channel.channel_id, EV_TURN_PAUSED, paused, claim=claim.seq)


async def resume(home: House, channel: Channel) -> None:
    waits = (await home.hub.state(channel.channel_id)).pause
    assert waits is not None
    await home.hub.write(channel.channel_id, EV_TURN_RESUMED, {"pause": waits.seq})


@JUMPS
async def test_a_ttl_does_not_count_a_pause_in_which_the_clock_was_set(forward: float) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, ttl=1000, expectations=[])
        await pause(home, channel)
        home.clock.set_back(-forward)
        await home.pass_time(700)
        await resume(home, channel)
        await home.pass_time(999)
        assert not (await home.hub.state(channel.channel_id)).is_over

        await home.pass_time(1)
        assert (await home.hub.state(channel.channel_id)).is_over


@JUMPS
async def test_a_turn_that_is_resumed_after_the_clock_was_set_has_its_full_time(forward: float) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, expectations=[turn_within(100, "auto_close")])
        await pause(home, channel)
        await home.pass_time(10)
        home.clock.set_back(-forward)
        await home.pass_time(700)
        await resume(home, channel)
        await home.pass_time(99)
        assert not (await home.hub.state(channel.channel_id)).is_over

        await home.pass_time(1)
        assert (await home.hub.state(channel.channel_id)).is_over


async def test_nothing_fires_twice_when_the_clock_is_set_back_and_forth() -> None:
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=30) as home:
        channel = await home.open(A_B, ttl=1000, expectations=[turn_within(100, "warn")])
        for forward in (DAY, -DAY, -HOUR, HOUR) * 3:
            home.clock.set_back(-forward)
            home.clock.advance(99)
            await quiet()

        types = await home.types(channel)
        assert types.count(EV_EXPECTATION_VIOLATED) == 1
        assert types.count(EV_CHANNEL_EXPIRED) == 1


# --- across a restart ---


async def test_a_clock_that_is_two_hours_behind_the_newest_line_is_reported_when_the_hub_opens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with house(sqlite(tmp_path), "alice", "bob", clock=clock) as home:
        await home.open(A_B)
        assert home.hub.health().clock_behind_seconds == 0
    clock.set_back(2 * HOUR)
    with caplog.at_level(logging.WARNING, "turnline.hub.hub"):
        async with house(sqlite(tmp_path), "alice", "bob", clock=clock) as home:
            assert home.hub.health().clock_behind_seconds == 2 * HOUR
            (line,) = await home.audited("clock_behind")

    assert line["seconds"] == 2 * HOUR
    assert "The clock is 2:00:00 behind the newest line of the log" in caplog.text


async def test_a_clock_that_is_an_hour_behind_is_not_reported(tmp_path: Path) -> None:
    """Clocks of several machines differ."""
    clock = ManualClock()
    async with house(sqlite(tmp_path), "alice", "bob", clock=clock) as home:
        await home.open(A_B)
    clock.set_back(HOUR)
    async with house(sqlite(tmp_path), "alice", "bob", clock=clock) as home:
        assert home.hub.health().clock_behind_seconds == 0
        assert await home.audited("clock_behind") == []


async def test_after_a_restart_with_a_clock_that_is_behind_a_ttl_counts_from_the_newest_line(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with house(sqlite(tmp_path), "alice", "bob", clock=clock) as home:
        channel = await home.open(A_B_A, ttl=1000, expectations=[])
        clock.advance(400)
        await channel.send("hello")
    clock.set_back(DAY)
    async with house(sqlite(tmp_path), "alice", "bob", clock=clock) as home:
        await home.pass_time(599)
        assert (await home.hub.state(channel.channel_id)).status is ChannelState.ACTIVE

        await home.pass_time(1)
        assert (await home.hub.state(channel.channel_id)).status is ChannelState.EXPIRED
