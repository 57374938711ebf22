"""A seat: what one participant can do at a hub, and nothing beyond."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable

import pytest

from tests.turn_lines import claim_own, fail, release
from turnline.core.governance import Passport, Resume, Rule
from turnline.errors import ChannelClosed, ClaimLost, NotDue, NotParticipant, OutOfTurn
from turnline.hub.hub import PAGE_BYTES, PAGE_LINES
from turnline.hub.seat import Seat
from turnline.log.memory import MemoryLog

from ..logs import OpenLog
from .scenes import A_B, A_B_A, CountingLog, House, add_one, draft, house, refused


def seat_of(home: House, name: str) -> Seat:
    return Seat(home.hub, home.hub.participant(name))


async def asked(seat: Seat, channel_id: str) -> AsyncIterator[Awaitable[object]]:
    yield seat.read(channel_id, 0)
    yield seat.state(channel_id)
    yield seat.metadata(channel_id)
    yield seat.read_next(channel_id, 0)
    yield seat.close_channel(channel_id, "mine")
    yield seat.answer_invite(channel_id)
    yield seat.answer_invite(channel_id, rejected_because="no")


async def test_a_stranger_gets_nothing_of_a_channel() -> None:
    """Membership holds on every read."""
    async with house(MemoryLog(), "alice", "bob", "eve") as home:
        channel = await home.talk()
        before = await home.wal(channel)
        async for asking in asked(seat_of(home, "eve"), channel.channel_id):
            with pytest.raises(NotParticipant):
                await asking
        await refused(NotParticipant, home["eve"].channel(channel.channel_id).send("hello"))
        await refused(NotParticipant, add_one(home["eve"].channel(channel.channel_id)))

        assert await home.wal(channel) == before


async def test_the_sender_is_the_seats_whatever_the_draft_says() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        forged = draft(home["alice"])
        await refused(OutOfTurn, seat_of(home, "bob").post(channel.channel_id, forged))


async def test_a_channel_is_read_in_stretches(open_log: OpenLog) -> None:
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.talk()
        for _ in range(PAGE_LINES):
            await add_one(channel)
        bob, since, read = seat_of(home, "bob"), 0, []
        while (reading := await bob.read(channel.channel_id, since)).seq > since:
            since = reading.seq
            read.append(len(reading.envelopes))

        assert since == len(await home.wal(channel))
        assert read == [2, 0]  # The invitation and the opening; nobody is shown a context write.


async def test_a_reading_costs_one_page_however_long_the_channel_is() -> None:
    """A client that asks for the first line again and again does not get the whole channel into memory."""
    log = CountingLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.talk()
        for _ in range(40):
            await channel.send(event_type="app.note", event_data={"text": "x" * (PAGE_BYTES // 4)})
        log.read_of.clear()
        reading = await seat_of(home, "bob").read(channel.channel_id, 3)
        read = log.read_of[channel.channel_id]
        since, count = reading.seq, len(reading.envelopes)
        while (reading := await seat_of(home, "bob").read(channel.channel_id, since)).seq > since:
            since, count = reading.seq, count + len(reading.envelopes)

        assert read <= 5
        assert count == 40


async def test_what_was_read_is_ones_own() -> None:
    """Changing it changes nothing for anybody else."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello", knobs={"context_vars": {"list": [1]}})
        seat = seat_of(home, "bob")
        (await seat.read(channel.channel_id, 3)).envelopes[0].event_data["text"] = "forged"
        (await seat.state(channel.channel_id)).context_vars["list"].append(2)

        assert (await seat.read(channel.channel_id, 3)).envelopes[0].event_data == {"text": "hello"}
        assert (await seat.state(channel.channel_id)).context_vars == {"list": [1]}


async def test_an_invitation_is_answered_once() -> None:
    """L1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        await refused(NotDue, seat_of(home, "bob").answer_invite(channel.channel_id))
        await channel.close()
        await refused(ChannelClosed, seat_of(home, "bob").answer_invite(channel.channel_id))


async def test_a_seat_claims_releases_and_fails_for_its_participant() -> None:
    """T1, T5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        alice, bob = seat_of(home, "alice"), seat_of(home, "bob")
        claim = await claim_own(alice, channel.channel_id, 1)
        assert (claim.agent_id, claim.worker) == (alice.agent_id, alice.worker)
        await refused(ClaimLost, fail(bob, channel.channel_id, claim, {}))

        await release(alice, channel.channel_id, claim)
        await refused(ClaimLost, release(alice, channel.channel_id, claim))
        again = await claim_own(alice, channel.channel_id, 1)
        await fail(alice, channel.channel_id, again, {"type": "Tired", "message": ""})
        assert (await channel.info()).close_reason == "turn_failed"


async def test_whoever_leaves_gives_up_what_it_claimed() -> None:
    """T1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        seat = seat_of(home, "alice")
        claim = await claim_own(seat, channel.channel_id, 1)
        seat.leave()

        assert (await claim_own(seat_of(home, "alice"), channel.channel_id, 1)).seq > claim.seq


async def test_waiting_ends_with_the_channel() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.close()
        seat, end = seat_of(home, "bob"), len(await home.wal(channel))

        assert [one.seq for one in (await seat.read_next(channel.channel_id, end - 1)).envelopes] == [end]
        assert not (await seat.read_next(channel.channel_id, end)).envelopes


async def test_what_a_participant_may_know_of_the_others() -> None:
    """Whom it may address, and the open channels it is on; never anybody's `auth`."""
    async with house(MemoryLog(), "alice", "bob") as home:
        resume = Resume(capabilities=["sums"], summary="Adds up.")
        await home.door.register(None, Passport(name="carol", auth={"token": "s3cret"}), resume)
        await home.agent("dan", rule=Rule(addressable_by=["bob"]))
        await (await home.talk()).close()
        channel = await home.talk()
        await home.talk(by="bob", to="carol")
        alice = seat_of(home, "alice")
        peers = await alice.peers()

        assert [one.name for one in peers] == ["bob", "carol"]
        assert (peers[1].capabilities, peers[1].summary) == (["sums"], "Adds up.")
        assert "s3cret" not in repr(peers)
        assert [one.channel_id for one in await alice.channels()] == [channel.channel_id]
