"""Page 08, rule 7: hubs whose clocks are an hour apart end nothing early."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from turnline.core.expectations import GRACE_SECONDS, turn_within
from turnline.hub.entry import Entry
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


@pytest.mark.parametrize("cached", [1, 4096])
@pytest.mark.parametrize(
    "given", [{"ttl": 1000, "expectations": []}, {"expectations": [turn_within(1000, "auto_close")]}]
)
async def test_rule_7_a_deadline_is_counted_from_when_the_line_it_is_measured_from_was_met(
    given: dict[str, Any], cached: int
) -> None:
    """Not from the last line, which a hub with another clock has perhaps written since."""
    log, clock = MemoryLog(), ManualClock()
    async with (
        house(log, "alice", clock=clock, follow=True) as slow,
        house(log, "bob", clock=HourAhead(clock), follow=True, cached_channels=cached) as fast,
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


async def test_rule_7_a_hub_that_meets_several_lines_at_once_counts_from_then() -> None:
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
