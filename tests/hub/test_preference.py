"""Which worker takes a turn first (T1): a matter of speed; whoever is left takes it in the end."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given, strategies as st
from msgspec.structs import replace

from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_TURN_CLAIMED, EV_TURN_FAILED
from turnline.core.governance import Passport
from turnline.errors import ChannelClosed, TurnTaken
from turnline.hub.seat import Seat
from turnline.hub.turns import PAUSE_SECONDS, SEEN_SECONDS, Workers, preferred
from turnline.log.memory import MemoryLog
from turnline.testing import ManualClock
from turnline.testing.lines import line

from .scenes import A_B, answers, begin, closed, house, quiet, refused

SAFETY_SECONDS = 60.0
NAMES = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8, unique=True)


@given(st.text(), NAMES)
def test_the_preferred_worker_is_one_of_them_and_the_same_in_any_order(
    channel: str, names: list[str]
) -> None:
    found = preferred(channel, names)

    assert found in names
    assert found == preferred(channel, reversed(names))


@given(st.text(), NAMES, st.text(min_size=1, max_size=20))
def test_a_worker_that_comes_moves_only_the_channels_it_takes(
    channel: str, names: list[str], comer: str
) -> None:
    after = preferred(channel, [*names, comer])

    assert after in (comer, preferred(channel, names))


def test_channels_are_spread_over_the_workers() -> None:
    counts = Counter(preferred(f"channel-{n}", ["a", "b", "c", "d"]) for n in range(4_000))

    assert min(counts.values()) > 800


def claimed(worker: str, agent: str = "ada") -> Envelope:
    return replace(line("c", 1, data={"agent_id": agent, "worker": worker}), event_type="turn.claimed")


def test_nobody_waits_for_workers_of_another_agent_or_of_long_ago() -> None:
    clock = ManualClock()
    workers = Workers(clock)
    channel = next(f"c{n}" for n in range(100) if preferred(f"c{n}", ["me", "elsewhere:1:1"]) != "me")
    workers.note(claimed("elsewhere:1:1/x"))

    assert workers.first_for(channel, "ada", "me") == "elsewhere:1:1/x"
    assert workers.first_for(channel, "bob", "me") == "me"
    clock.advance(SEEN_SECONDS + 1)
    assert workers.first_for(channel, "ada", "me") == "me"


async def test_t6_a_worker_that_is_not_preferred_waits_a_moment_and_takes_the_turn_if_nobody_does() -> None:
    async with house(MemoryLog(), "alice", "bob", follow=True) as home:
        home["bob"].on_turn(answers("here"))
        elsewhere = [
            f"elsewhere:{n}:1/bob" for n in range(50)
        ]  # One of them is preferred, as good as surely.
        for worker in elsewhere:
            home.hub.turns.workers.note(claimed(worker, home["bob"].agent_id))
        channel = await home.open(A_B, message="hello")
        await quiet()
        before = await home.types(channel)
        home.clock.advance(PAUSE_SECONDS)
        await closed(channel)

    assert "turn.claimed" not in before


async def test_a_turn_that_is_left_to_another_takes_no_place_meanwhile() -> None:
    """With room for one turn at a time: one that is ours is taken while another's is left alone."""
    async with house(MemoryLog(), "alice", follow=True) as home:
        bob = home.agents["bob"] = await home.door.register(None, Passport(name="bob"), turns_at_once=1)
        bob.on_turn(answers("ours", "left"))
        assert isinstance(bob.seat, Seat)
        home.hub.turns.workers.note(claimed("elsewhere:1:1/bob", bob.agent_id))
        names = {
            home.hub.turns.workers.first_for(f"c{n}", bob.agent_id, bob.seat.worker): f"c{n}"
            for n in range(50)
        }
        left = await home.open(A_B, message="hello", channel_id=names["elsewhere:1:1/bob"])
        await quiet()
        ours = await home.open(A_B, message="hello", channel_id=names[bob.seat.worker])

        assert (await asyncio.wait_for(ours.result(), SAFETY_SECONDS)).text == "ours"
        assert not (await left.state()).is_over
        home.clock.advance(PAUSE_SECONDS)
        assert (await left.result()).text == "left"


async def test_x14_of_a_turn_that_another_took_nothing_is_kept() -> None:
    """It has claimed, at another hub, before we begin to wait; a worker leaves most channels to others."""
    async with house(MemoryLog(), "alice", "bob", follow=True) as home:
        turns, bob = home.hub.turns, home["bob"].agent_id
        turns.workers.note(claimed("elsewhere:1:1/bob", bob))
        left = next(f"c{n}" for n in range(50) if turns.workers.first_for(f"c{n}", bob, "me") != "me")
        channel = await home.open(A_B, message="hello", channel_id=left)
        await refused(TurnTaken, turns.claim(left, bob, worker="me", turn=2))
        kept = turns.remembered
        data = {"agent_id": bob, "worker": "elsewhere:1:1/bob", "turn": 2, "lease_seconds": 30.0}
        (claim,) = await home.hub.write(left, EV_TURN_CLAIMED, data, audience=[])
        await refused(TurnTaken, turns.claim(left, bob, worker="me", turn=2))
        waiting = begin(turns.wait_unclaimed(left))
        await quiet()
        failed = {"agent_id": bob, "error": {"type": "Away", "message": "gone"}}
        await home.hub.write(left, EV_TURN_FAILED, failed, claim=claim.seq)
        await waiting

        assert await closed(channel) == "turn_failed"
        assert (kept, turns.remembered) == (1, 0)


async def test_a_hub_that_follows_nobody_waits_for_nobody() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        home["bob"].on_turn(answers("here"))
        for n in range(50):
            home.hub.turns.workers.note(claimed(f"elsewhere:{n}:1/bob", home["bob"].agent_id))
        channel = await home.open(A_B, message="hello")

        assert await closed(channel)


async def test_nothing_is_kept_of_a_turn_on_a_channel_that_has_closed() -> None:
    async with house(MemoryLog(), "alice", "bob", follow=True) as home:
        turns, bob = home.hub.turns, home["bob"].agent_id
        turns.workers.note(claimed("elsewhere:1:1/bob", bob))
        left = next(f"c{n}" for n in range(50) if turns.workers.first_for(f"c{n}", bob, "me") != "me")
        channel = await home.open(A_B, message="hello", channel_id=left)
        await channel.close("enough")
        await refused(ChannelClosed, turns.claim(left, bob, worker="me", turn=2))

        assert turns.remembered == 0
