"""R7: hubs whose clocks are an hour apart end nothing early."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from turnline.core.expectations import GRACE_SECONDS, turn_within
from turnline.hub.channels import CACHE_BYTES, Entry
from turnline.hub.timers import Timers
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

from .scenes import A_B, house, quiet, until


class HourAhead(ManualClock):
    """Another clock, read an hour ahead."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self.monotonic, self.sleep = clock.monotonic, clock.sleep  # type: ignore[method-assign]

    def now(self) -> datetime:
        return self._clock.now() + timedelta(hours=1)


@pytest.mark.parametrize("cache_bytes", [1, CACHE_BYTES])
@pytest.mark.parametrize(
    "given", [{"ttl": 1000, "expectations": []}, {"expectations": [turn_within(1000, "auto_close")]}]
)
async def test_r7_a_deadline_is_counted_from_when_the_line_it_is_measured_from_was_met(
    given: dict[str, Any], cache_bytes: int
) -> None:
    """Not from the last line, which a hub with another clock has perhaps written since."""
    log, clock = MemoryLog(), ManualClock()
    async with (
        house(log, "alice", clock=clock, follow=True) as slow,
        house(log, "bob", clock=HourAhead(clock), follow=True, cache_bytes=cache_bytes) as fast,
    ):
        clock.advance(2000)  # They have been there for long: no grace hides it.
        await until(lambda: {"alice", "bob"} <= {one.name for one in slow.hub.participants()})
        channel = await slow.open(A_B, target=["bob"], **given)
        await channel.send("hello")
        await quiet()
        await slow.talk()  # Whoever has room for one channel forgets the other.
        await quiet()
        await fast.handle("bob", channel).interject("one moment")
        for seconds, over in ((0, False), (990, False), (11, True)):
            clock.advance(seconds)
            await quiet()
            await fast.hub.tick()
            await slow.hub.tick()
            assert (await channel.state()).is_over == over


async def test_r7_a_hub_that_meets_several_lines_at_once_counts_from_then() -> None:
    """The first may have been written by a slow clock, and the last by one like its own."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel, now = await home.open(A_B, ttl=1000, expectations=[]), home.clock.now()
        state = replace(await channel.state(), created_at=now - timedelta(hours=1), last_at=now)
        entry = Entry(home.hub.adapter("workflow"), state)
        clock = ManualClock(now - timedelta(days=1))
        timers = Timers(clock)
        clock.advance(86_400)
        timers.met(entry)

        assert timers.seconds_left(entry) == GRACE_SECONDS


async def test_a_line_of_a_clock_that_is_ahead_ages_at_a_hub_that_starts_later() -> None:
    """Otherwise a wait that is measured from that line lasts until the clocks agree."""
    log, clock = MemoryLog(), ManualClock()
    async with house(log, "alice", "bob", clock=HourAhead(clock)) as fast:
        channel = await fast.open(A_B, channel_id="c")
        line = (await fast.wal(channel))[-1]
    clock.advance(10)
    async with house(log, "alice", "bob", clock=clock) as slow:
        await slow.handle("alice", slow["alice"].channel("c")).send("hello")
        clock.advance(6)

        assert slow.hub.seconds_since(line) == 6
