"""Heartbeats (T1, T6, R9): a worker that is silent for long is alive, one that stopped not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from tests.turn_lines import claim_own, perform_turn, record, take_turn
from turnline.client.channel import Channel, set_context
from turnline.client.turn import Turn, TurnChannel, TurnHandler
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_PACKET, EV_TURN_CLAIMED, EV_TURN_MODEL, EV_TURN_RENEWED
from turnline.core.graph import TransitionGraph
from turnline.core.routing import packet
from turnline.core.state import LEASE_SECONDS
from turnline.errors import ClaimLost, LogUnavailable, OutOfTurn, TurnTaken
from turnline.hub.seat import Seat
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock
from turnline.turns.engine import BEATS_PER_LEASE
from turnline.turns.work import Done, Work

from .scenes import A_B, A_B_A, FailingLog, House, answers, begin, house, quiet, refused

BEAT: Final = LEASE_SECONDS / 3
TEN_MINUTES: Final = 600.0


class Office:
    """Two hubs on one log, as on two hosts: a worker at each, and one clock."""

    def __init__(self, here: House, there: House, channel: Channel, floor: Envelope) -> None:
        self.here = here
        self.there = there
        self.channel = channel
        self.floor = floor
        self.seats = [
            Seat(home.hub, home.hub.participant("bob"), f"host-{n}:1:1/bob")
            for n, home in enumerate((here, there))
        ]

    async def pass_time(self, seconds: float, step: float = BEAT / 2) -> None:
        """Let time pass for both, little by little, and let them do what they do."""
        while seconds > 0:
            self.here.clock.advance(min(step, seconds))
            seconds -= step
            await quiet()

    async def count(self, event_type: str) -> int:
        return (await self.here.types(self.channel)).count(event_type)

    async def workers(self) -> list[str]:
        lines = await self.here.wal(self.channel)
        return [one.event_data["worker"] for one in lines if one.event_type == EV_TURN_CLAIMED]


@asynccontextmanager
async def office(graph: TransitionGraph = A_B) -> AsyncIterator[Office]:
    """Bob, at both, has the floor."""
    log, clock = MemoryLog(), ManualClock()
    async with (
        house(log, "alice", "bob", clock=clock, follow=True) as here,
        house(log, "bob", clock=clock, follow=True) as there,
    ):
        channel = await here.open(graph, expectations=[])
        floor = await channel.send("hello")
        yield Office(here, there, channel, floor)


def held(until: asyncio.Event, said: str = "done") -> TurnHandler:
    async def handler(turn: Turn) -> str:
        await until.wait()
        return said

    return handler


async def test_t1_a_turn_that_is_silent_for_ten_minutes_stays_with_its_worker() -> None:
    async with office() as both:
        go = asyncio.Event()
        first = begin(take_turn(both.seats[0], both.floor, held(go, "the first")))
        await quiet()
        second = begin(take_turn(both.seats[1], both.floor, answers("the second")))
        await both.pass_time(TEN_MINUTES)
        go.set()
        await asyncio.gather(first, second)

        assert await both.workers() == ["host-0:1:1/bob"]
        assert (await both.channel.result()).text == "the first"
        assert await both.count(EV_TURN_RENEWED) == TEN_MINUTES / BEAT


async def test_a_turn_that_is_over_soon_costs_no_line() -> None:
    async with office() as both:
        await take_turn(both.seats[0], both.floor, answers("done"))
        await both.pass_time(TEN_MINUTES)

        assert await both.count(EV_TURN_RENEWED) == 0


async def test_what_is_written_under_the_claim_is_a_sign_of_life() -> None:
    """No heartbeat is written beside it, and the lease is counted from it."""
    async with office() as both:
        seat = both.seats[0]

        async def perform(work: Work) -> Done:
            for n in range(6):
                await seat.sleep(BEAT * 0.9)
                if n % 2:
                    await work.record(EV_TURN_MODEL, {"n": n})
                else:
                    await set_context(TurnChannel(seat, work), "n", n)
            return Done(data=packet("done"))

        first = begin(perform_turn(seat, both.floor, perform))
        await quiet()
        second = begin(take_turn(both.seats[1], both.floor, answers("the second")))
        await both.pass_time(6 * BEAT, step=BEAT / 10)
        await asyncio.gather(first, second)

        assert await both.count(EV_TURN_RENEWED) == 0
        assert await both.workers() == ["host-0:1:1/bob"]


async def test_what_others_write_is_no_sign_of_life() -> None:
    async with office() as both:
        claim = await claim_own(both.seats[0], both.channel.channel_id, 2)  # And no heart beats.
        second = begin(take_turn(both.seats[1], both.floor, answers("the second")))
        for n in range(6):
            await both.pass_time(BEAT)
            if n < 2:
                await set_context(both.channel, "n", n)
        await second

        assert (await both.workers())[1:] == ["host-1:1:1/bob"]
        assert (await both.here.wal(both.channel))[claim.seq].event_type == "context.set"


async def test_t6_a_worker_that_stops_is_replaced_after_its_lease_and_its_late_packet_refused() -> None:
    """Rule 9: as after a SIGSTOP, the first one's heart beats no more, and then it goes on."""
    async with office(A_B_A) as both:
        seat = both.seats[0]
        claim = await claim_own(seat, both.channel.channel_id, 2)
        renew = partial(seat.write, both.channel.channel_id, claim.draft(EV_TURN_RENEWED, {}))
        for _ in range(BEATS_PER_LEASE):
            await both.pass_time(BEAT)
            await renew()
        beats = await both.count(EV_TURN_RENEWED)
        second = begin(take_turn(both.seats[1], both.floor, answers("the second")))
        await quiet()
        await both.pass_time(LEASE_SECONDS - BEAT)
        assert not second.done()
        await both.pass_time(BEAT)
        await second

        late = Channel(seat, both.channel.channel_id, claim=claim.seq)
        await refused(ClaimLost, record(seat, late.channel_id, claim, EV_TURN_MODEL, {}))
        await refused(OutOfTurn, late.send(event_type=EV_PACKET, event_data=packet("the first")))
        assert beats == 3
        assert [
            e.event_data["body"] for e in await both.here.wal(both.channel) if e.event_type == EV_PACKET
        ] == ["the second"]


async def test_a_hub_that_slept_itself_replaces_nobody_who_has_been_heard_of_meanwhile() -> None:
    """Its clock says that the lease is over; the log, which it has not read yet, that the worker is alive."""
    log, clock = MemoryLog(), ManualClock()
    async with house(log, "alice", "bob", clock=clock) as here, house(log, "bob", clock=clock) as there:
        channel = await here.open(A_B)
        await channel.send("hello")
        seats = [Seat(home.hub, home.hub.participant("bob"), f"host-{home}:1:1") for home in (here, there)]
        claim = await claim_own(seats[0], channel.channel_id, 2)
        await refused(TurnTaken, claim_own(seats[1], channel.channel_id, 2))
        await here.hub.write(channel.channel_id, EV_TURN_RENEWED, {}, claim=claim.seq, audience=[])
        clock.advance(LEASE_SECONDS)

        await refused(TurnTaken, claim_own(seats[1], channel.channel_id, 2))
        await refused(TurnTaken, claim_own(seats[1], channel.channel_id, 2))  # Now the lease is counted anew.
        clock.advance(LEASE_SECONDS)
        assert await claim_own(seats[1], channel.channel_id, 2)


async def test_turn_within_does_not_hear_heartbeats() -> None:
    """W11: measured from the moment the floor was given."""
    log = MemoryLog()
    async with house(log, "alice", "bob", follow=True) as home:
        channel = await home.open(A_B)
        floor = await channel.send("hello")
        working = begin(take_turn(home["bob"].seat, floor, held(asyncio.Event())))
        await quiet()
        for _ in range(6):
            await home.pass_time(BEAT)
            await quiet()

        assert (await home.types(channel)).count("expectation.violated") == 1
        assert (await home.types(channel)).count(EV_TURN_RENEWED) >= 5
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_hub_that_follows_nobody_writes_no_heartbeats() -> None:
    """Within one process a live worker is never replaced: the embedded path pays nothing."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, expectations=[])
        floor, go = await channel.send("hello"), asyncio.Event()
        working = begin(take_turn(home["bob"].seat, floor, held(go)))
        await quiet()
        tasks = len(asyncio.all_tasks())
        home.clock.advance(TEN_MINUTES)
        await quiet()
        go.set()
        await working

        assert (await home.types(channel)).count(EV_TURN_RENEWED) == 0
        assert tasks <= 3  # The test's, the turn's, and the inbox's.


async def test_a_heart_beats_on_after_an_outage_of_the_log() -> None:
    log = FailingLog()
    async with house(log, "alice", "bob", follow=True) as home:
        channel = await home.open(A_B, expectations=[])
        floor, go = await channel.send("hello"), asyncio.Event()
        working = begin(take_turn(home["bob"].seat, floor, held(go)))
        await quiet()
        log.fail_append = LogUnavailable("test", because="it is away")
        for _ in range(3):
            home.clock.advance(BEAT)
            await quiet()
        go.set()
        await working

        assert (await home.types(channel)).count(EV_TURN_RENEWED) == 2
