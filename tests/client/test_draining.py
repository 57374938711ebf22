"""Draining: a process that stops takes no further turn, ends what it can, and releases the rest (T1, X20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.hub.scenes import A_B, House, SlowLog, answers, begin, house, quiet, types
from tests.turn_lines import claim_own
from turnline.client.channel import Channel
from turnline.client.turn import Turn, TurnHandler
from turnline.hub.turns import PAUSE_SECONDS
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

LONG_SECONDS = 60.0
"""Nobody waits so long; a test that does is stuck."""


@asynccontextmanager
async def two() -> AsyncIterator[tuple[House, House]]:
    """Two processes; bob works in both."""
    log, clock = MemoryLog(), ManualClock()
    async with (
        house(log, "alice", "bob", clock=clock, follow=True) as here,
        house(log, "bob", clock=clock, follow=True) as there,
    ):
        yield here, there


def held(begun: asyncio.Event, go: asyncio.Event) -> TurnHandler:
    async def handler(turn: Turn) -> str:
        begun.set()
        await go.wait()
        return "the first"

    return handler


async def asked(home: House) -> tuple[Channel, asyncio.Event]:
    """Bob, here, works on a turn until he is let."""
    begun, go = asyncio.Event(), asyncio.Event()
    home["bob"].on_turn(held(begun, go))
    channel = await home.open(A_B, message="hello", expectations=[])
    await begun.wait()
    return channel, go


async def test_a_turn_in_progress_may_end() -> None:
    async with two() as (here, there):
        channel, go = await asked(here)
        there["bob"].on_turn(answers("the second"))
        draining = begin(here["bob"].close(grace_seconds=LONG_SECONDS))
        await quiet()
        assert not draining.done()
        go.set()
        await draining

        assert (await here.handle("alice", channel).result()).text == "the first"


async def test_x20_what_does_not_end_in_time_is_released_and_another_process_takes_it_up_at_once() -> None:
    """At once: no lease has passed, for no time has."""
    async with two() as (here, there):
        channel, _ = await asked(here)
        there["bob"].on_turn(answers("the second"))
        await quiet()
        await here["bob"].close(grace_seconds=0.01)
        done = await there.hub.wait_beyond(channel.channel_id, (await channel.state()).seq)

        assert done
        assert (await here.handle("alice", channel).result()).text == "the second"
        lines = await here.wal(channel)
        assert types(lines).count("turn.released") == 1
        assert all("replaces" not in line.event_data for line in lines)


async def test_whoever_waits_for_anothers_turn_is_not_waited_for() -> None:
    async with two() as (here, there):
        channel, go = await asked(here)
        there["bob"].on_turn(answers("the second"))
        await quiet()
        await there["bob"].close(grace_seconds=LONG_SECONDS)
        go.set()

        assert (await here.handle("alice", channel).result()).text == "the first"


async def test_no_further_turn_begins_while_others_may_end() -> None:
    async with two() as (here, there):
        first, go = await asked(here)
        draining = begin(here["bob"].close(grace_seconds=LONG_SECONDS))
        await quiet()
        second = await here["alice"].open("consulting", "bob", message="and this?")
        there["bob"].on_turn(answers("the second"))
        await quiet()
        here.clock.advance(PAUSE_SECONDS)  # by chance, the channel prefers whoever is about to leave
        told = await second.result()
        go.set()
        await draining

        assert told.text == "the second"
        assert (await here.handle("alice", first).result()).text == "the first"


async def test_a_claim_whose_worker_is_cancelled_while_it_is_written_is_not_left_behind() -> None:
    log = SlowLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B)
        log.held = channel.channel_id
        claiming = begin(claim_own(home["alice"].seat, channel.channel_id, 1))
        await quiet()
        claiming.cancel()
        await quiet()
        log.let.set()
        await asyncio.gather(claiming, return_exceptions=True)

        assert claiming.cancelled()
        assert (await home.types(channel))[-2:] == ["turn.claimed", "turn.released"]


async def test_stopping_does_not_wait_for_a_log_that_never_answers() -> None:
    """The claim that could not be released ends with its lease."""
    log = SlowLog()
    async with house(log, "alice", "bob") as home:
        channel, _ = await asked(home)
        log.held = channel.channel_id
        async with asyncio.timeout(LONG_SECONDS):
            await home["bob"].close()

        assert (await home.types(channel))[-1] == "turn.claimed"
        log.let.set()
