from __future__ import annotations

import asyncio
from datetime import timedelta

from turnline.flow.testing.clock import START, JumpingClock


async def test_whoever_sleeps_is_woken_by_the_jump_that_takes_it_so_far() -> None:
    clock = JumpingClock()
    soon, late = asyncio.ensure_future(clock.sleep(60)), asyncio.ensure_future(clock.sleep(3600))
    await asyncio.sleep(0)

    clock.jump_to(START + timedelta(minutes=1))
    await soon

    assert not late.done()
    clock.jump_to(START + timedelta(hours=2))
    await late
    assert clock.monotonic() == 7200


async def test_no_time_is_no_sleep() -> None:
    clock = JumpingClock()
    await clock.sleep(0)

    assert clock.now() == START


def test_it_never_goes_back() -> None:
    clock = JumpingClock()
    clock.jump_to(START + timedelta(days=1))
    clock.jump_to(START)

    assert clock.now() == START + timedelta(days=1)
