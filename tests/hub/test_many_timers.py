"""Timers of several hubs on one log (W11, L1, L4, R7, R8): each may try, one writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from turnline.client.channel import Channel
from turnline.core.envelope import Envelope
from turnline.core.expectations import GRACE_SECONDS, turn_within
from turnline.errors import InviteTimeout, LogUnavailable
from turnline.hub.sweep import LOOKS_AT_ONCE
from turnline.log.base import Head
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

from ..logs import FullLog
from .scenes import A_B, House, Wrapped, begin, house, quiet, until

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)


class SlowLog(Wrapped):
    """Counts how many channels are read at the same moment."""

    def __init__(self, inner: FullLog) -> None:
        super().__init__(inner)
        self.now = self.most = 0

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        self.now += not channel_id.startswith("_")
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        async for envelope in self.inner.read(channel_id, after=after):
            yield envelope
        self.now -= not channel_id.startswith("_")


async def test_channels_that_fell_due_while_no_hub_ran_are_looked_at_a_few_at_a_time() -> None:
    """Y8: and each is dealt with by its true deadline, which an outage puts off."""
    log, clock = MemoryLog(), ManualClock(NOON)
    async with house(log, "alice", "bob", clock=clock) as home:
        for _ in range(5 * LOOKS_AT_ONCE):
            await home.open(A_B, ttl=60, expectations=[])
    clock.advance(86_400)
    slow = SlowLog(log)
    async with house(slow, clock=clock) as home:
        assert slow.most == 0
        await home.hub.tick()
        assert (slow.most, home.hub.health().open_channels) == (LOOKS_AT_ONCE, 5 * LOOKS_AT_ONCE)

        clock.advance(GRACE_SECONDS)
        await home.hub.tick()
        assert home.hub.health().open_channels == 0


@asynccontextmanager
async def hubs(*clocks: ManualClock, **options: Any) -> AsyncIterator[list[House]]:
    """A hub for each clock, on one log, as on hosts of their own; alice and bob are at the first."""
    log = options.pop("log", None) or MemoryLog()
    async with AsyncExitStack() as stack:
        found = list[House]()
        for clock in clocks:
            names = [] if found else ["alice", "bob"]
            home = house(log, *names, clock=clock, follow=True, **options)
            found.append(await stack.enter_async_context(home))
        yield found


async def pass_time(homes: list[House], seconds: float) -> None:
    """Let time pass for all of them, and let what falls due fall due at once."""
    for clock in {home.clock for home in homes}:
        clock.advance(seconds)
    await asyncio.gather(*(home.hub.tick() for home in homes))
    await quiet()


async def known(homes: list[House], channel: Channel) -> None:
    """Wait until every hub has met the channel as the first has it."""
    seq = (await homes[0].hub.state(channel.channel_id)).seq
    for home in homes:
        await home.hub.wait_beyond(channel.channel_id, seq - 1)
    await quiet()  # Until the tails are read: a hub counts from when it met the lines.


@pytest.mark.parametrize(
    ("given", "seconds", "line"),
    [
        ({"expectations": [turn_within(120)]}, 120, "expectation.violated"),
        ({"expectations": [turn_within(600, "auto_close")]}, 600, "channel.closed"),
        ({"ttl": 60, "expectations": []}, 60, "channel.expired"),
    ],
)
async def test_timers_of_three_hubs_that_fall_due_at_once_write_one_line(
    given: dict[str, Any], seconds: float, line: str
) -> None:
    clock = ManualClock()
    async with hubs(clock, clock, clock) as homes:
        channel = await homes[0].open(A_B, **given)
        await known(homes, channel)
        await pass_time(homes, seconds - 1)
        assert line not in await homes[0].types(channel)

        await pass_time(homes, 1)
        assert (await homes[0].types(channel)).count(line) == 1


async def test_l1_an_invitation_that_nobody_answers_is_closed_once() -> None:
    clock = ManualClock()
    async with hubs(clock, clock) as homes:
        person = await homes[0].person("user", auto_ack_invites=False)
        opening = begin(homes[0].open(A_B, channel_id="quiet"))
        await quiet()
        await pass_time(homes, 30)
        with pytest.raises(InviteTimeout):
            await opening

        lines = await homes[1].hub.read_wal("quiet")
        assert [line.event_type for line in lines].count("channel.closed") == 1
        assert person.name == "user"


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_r7_a_clock_that_is_an_hour_off_ends_nobodys_turn(ahead: timedelta) -> None:
    async with hubs(ManualClock(NOON), ManualClock(NOON + ahead)) as homes:
        channel = await homes[0].open(A_B, ttl=3_000)
        await known(homes, channel)
        await pass_time(homes, 119)
        assert await homes[0].types(channel) == await homes[1].types(channel)
        assert "expectation.violated" not in await homes[0].types(channel)

        await pass_time(homes, 1)
        assert (await homes[0].types(channel)).count("expectation.violated") == 1
        await channel.send("hello")
        await pass_time(homes, 119)
        assert (await homes[0].types(channel)).count("expectation.violated") == 1
        assert not (await homes[0].hub.state(channel.channel_id)).is_over


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_r7_a_hub_whose_clock_is_an_hour_off_fires_when_it_is_alone(ahead: timedelta) -> None:
    """It counts from when it met the turn, so it is neither an hour early nor an hour late."""
    async with hubs(ManualClock(NOON), ManualClock(NOON + ahead)) as homes:
        channel = await homes[0].open(A_B)
        await known(homes, channel)
        await pass_time(homes[1:], 119)
        assert "expectation.violated" not in await homes[1].types(channel)

        await pass_time(homes[1:], 1)
        assert "expectation.violated" in await homes[1].types(channel)


class DeafLog(Wrapped):
    """Its tail cannot be read until it is let."""

    def __init__(self, inner: MemoryLog) -> None:
        super().__init__(inner)
        self.is_away = False
        self.asked = 0

    async def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        self.asked += 1
        if self.is_away:
            raise LogUnavailable("test", because="it is away")
        async for head in self.inner.tail(after=after):
            yield head
            if self.is_away:
                raise LogUnavailable("test", because="it is away")


async def test_r8_an_outage_of_the_log_expires_nothing() -> None:
    clock, log = ManualClock(), DeafLog(MemoryLog())
    async with hubs(clock, log=log) as [home]:
        channel = await home.open(A_B, ttl=300)
        log.is_away = True
        await channel.interject("the last that is heard of")
        await until(lambda: log.asked > 0)
        await quiet()
        for _ in range(590):
            clock.advance(1)
            await quiet(5)
        log.is_away = False
        clock.advance(1)
        await quiet()
        await home.hub.tick()
        assert await home.hub.state(channel.channel_id)

        await pass_time([home], 58)
        assert "expectation.violated" not in await home.types(channel)
        assert not (await home.hub.state(channel.channel_id)).is_over
        await pass_time([home], 2)
        assert (await home.hub.state(channel.channel_id)).is_over
