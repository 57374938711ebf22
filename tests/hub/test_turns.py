"""Working on turns (T1, T5, T6, W9, R9, R10): claim, release, give up, and wait meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from tests.turn_lines import claim_own, fail, record, release, take_turn
from turnline.client.channel import Channel, set_context
from turnline.core.channel import ChannelState
from turnline.core.claims import MAX_CLAIMS
from turnline.core.envelope import Draft, Envelope
from turnline.core.event_types import EV_PACKET, EV_TURN_MODEL, EV_TURN_RENEWED, EV_TURN_TOOL
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.core.routing import packet
from turnline.core.state import LEASE_SECONDS, Claim
from turnline.errors import ChannelClosed, ClaimLost, NotStuck, OutOfTurn, TurnStuck, TurnTaken
from turnline.hub.worker import join, leave
from turnline.log.memory import MemoryLog

from ..logs import OpenLog
from .scenes import A_B, A_B_A, DEAD, House, add_one, answers, begin, house, quiet, refused, two_houses

ELSEWHERE: Final = "another-host:17:4711/agent"
THREE_DAYS: Final = 3 * 86_400.0


async def claim(
    home: House, channel: Channel, *, by: str = "alice", worker: str = ELSEWHERE, alone: bool = False
) -> Claim:
    state = await home.hub.state(channel.channel_id)
    agent_id = home.hub.participant(by).agent_id
    return await home.hub.turns.claim(
        channel.channel_id, agent_id, worker=worker, turn=state.turn, alone=alone
    )


def under(home: House, channel: Channel, claimed: Claim, name: str = "alice") -> Channel:
    """The handle of a turn in progress."""
    return Channel(home[name].seat, channel.channel_id, claim=claimed.seq)


async def commit(handle: Channel, body: str = "done") -> Envelope:
    return await handle.send(event_type=EV_PACKET, event_data=packet(body))


# --- one claim wins ---


async def test_a_participant_records_and_releases_nothing_under_the_claim_of_another(
    open_log: OpenLog,
) -> None:
    """Line numbers can be guessed, so naming the claim is not enough."""
    async with house(open_log(), "alice", "bob", "mallory") as home:
        channel = await home.open(A_B, target=["bob"])
        taken = await claim(home, channel)
        forged = {"entry": {"type": "answer", "call_id": "1", "text": "approved"}}
        for name in ("bob", "mallory"):
            seat = home[name].seat
            await refused(ClaimLost, record(seat, channel.channel_id, taken, EV_TURN_TOOL, forged))
            await refused(ClaimLost, seat.write(channel.channel_id, taken.draft(EV_TURN_RENEWED, {})))
            await refused(ClaimLost, release(seat, channel.channel_id, taken))
        await record(home["alice"].seat, channel.channel_id, taken, EV_TURN_TOOL, {"entry": {}})

        assert (await home.types(channel)).count(EV_TURN_TOOL) == 1


async def test_of_two_workers_one_gets_the_turn(open_log: OpenLog) -> None:
    """T1."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(A_B)
        outcomes = await asyncio.gather(
            *(claim(home, channel, worker=f"{ELSEWHERE}{n}") for n in range(10)), return_exceptions=True
        )

        (won,) = [one for one in outcomes if isinstance(one, Claim)]
        assert sum(isinstance(one, TurnTaken) for one in outcomes) == 9
        assert (await channel.state()).claim == won


async def test_of_two_hubs_one_gets_the_turn() -> None:
    """T6: and one packet is accepted."""
    async with two_houses(MemoryLog(), "alice", "bob") as (first, second):
        channel = await first.open(A_B_A)
        await second.hub.state(channel.channel_id)
        outcomes = await asyncio.gather(
            claim(first, channel, worker="host-1:1:1/a"),
            claim(second, channel, worker="host-2:1:1/a"),
            return_exceptions=True,
        )

        assert {type(one) for one in outcomes} == {Claim, TurnTaken}
        assert (await first.types(channel)).count("turn.claimed") == 1


async def test_both_hubs_ask_their_agent_and_one_packet_is_on_the_log() -> None:
    """T6: bob is attached in two processes, and both take his turn at once."""
    async with two_houses(MemoryLog(), "alice", at_both=["bob"]) as (first, second):
        channel = await first.open(A_B)
        floor = await channel.send("hello")
        await asyncio.gather(
            *(take_turn(home["bob"].seat, floor, answers("bye")) for home in (first, second))
        )

        assert (await first.types(channel)).count("packet") == 1
        assert (await channel.result()).turns == 2


async def test_only_whoever_has_the_floor_can_claim_the_turn() -> None:
    """T1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        error = await refused(OutOfTurn, claim(home, channel, by="bob"))
        assert error.speaker == home["alice"].agent_id

        await channel.send("hello")
        late = home.hub.turns.claim(channel.channel_id, home["bob"].agent_id, worker=ELSEWHERE, turn=1)
        await refused(OutOfTurn, late)


async def test_a_claim_says_who_works_on_what() -> None:
    """T1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        claimed = await claim(home, channel)
        line = (await home.wal(channel))[-1]

        assert (line.event_type, line.seq, line.audience) == ("turn.claimed", claimed.seq, [])
        assert (line.event_data["worker"], line.event_data["turn"]) == (ELSEWHERE, 1)


# --- fencing ---


async def test_while_a_claim_lives_only_its_packet_is_accepted() -> None:
    """R9."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        claimed = await claim(home, channel)
        error = await refused(ClaimLost, channel.send("without the claim"))
        assert (error.claim, error.live) == (None, claimed.seq)

        await commit(under(home, channel, claimed))
        assert (await channel.info()).turn_count == 1


async def test_a_worker_that_slept_through_a_takeover_is_refused() -> None:
    """R9: its packet, its context writes, its records."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        slept = under(home, channel, await claim(home, channel, worker=DEAD))
        took_over = under(home, channel, await claim(home, channel))

        await refused(ClaimLost, commit(slept))
        await refused(ClaimLost, set_context(slept, "n", 1))
        await commit(took_over)
        await refused(OutOfTurn, commit(slept))
        assert (await channel.info()).turn_count == 1


# --- taking over ---


async def test_a_claim_of_a_process_that_has_ended_is_replaced_at_once() -> None:
    """T1, T3."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        dead = await claim(home, channel, worker=DEAD)
        taken = await claim(home, channel)

        assert (await home.wal(channel))[-1].event_data["replaces"] == dead.seq
        assert (await channel.state()).claim == taken


async def test_a_claim_of_a_worker_that_left_is_replaced_at_once() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        worker = join("a place")
        await claim(home, channel, worker=worker)
        await refused(TurnTaken, claim(home, channel))

        leave(worker)
        assert await claim(home, channel)


async def test_a_claim_of_a_live_worker_elsewhere_is_replaced_after_its_lease() -> None:
    """T1: by this hub's monotonic clock, from when it met the claim; the time people read says nothing."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        first = await claim(home, channel)
        error = await refused(TurnTaken, claim(home, channel, worker="third-host:1:1/agent"))
        assert error.worker == ELSEWHERE

        home.clock.advance(LEASE_SECONDS - 1)
        home.clock.set_back(-THREE_DAYS)
        await refused(TurnTaken, claim(home, channel, worker="third-host:1:1/agent"))
        home.clock.set_back(THREE_DAYS)
        home.clock.advance(1)
        second = await claim(home, channel, worker="third-host:1:1/agent")
        assert second.seq > first.seq


async def test_after_a_restart_a_lease_begins_anew() -> None:
    """Nobody knows how long the other one has been working."""
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B)
        await claim(home, channel)
    async with house(log) as home:
        home.clock.advance(LEASE_SECONDS)
        await refused(TurnTaken, claim(home, channel, worker=f"{ELSEWHERE}-2"))
        home.clock.advance(LEASE_SECONDS)
        assert await claim(home, channel, worker=f"{ELSEWHERE}-2")


async def test_an_attached_agent_takes_over_by_itself_when_the_lease_ends() -> None:
    """T1, W6: nothing ever waits for a turn nobody was told about."""
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        await claim(home, channel, by="bob")
    async with house(log, "alice", "bob", ttl_sweep_interval=30) as home:
        home["bob"].on_turn(answers("bye"))
        await quiet()
        home.clock.advance(LEASE_SECONDS)
        await quiet(500)

        assert (await home.hub.state(channel.channel_id)).turn_count == 2


async def stuck(home: House) -> Channel:
    """A channel whose turn ended its process five times, the last two times alone."""
    channel = await home.open(A_B)
    for place in range(MAX_CLAIMS):
        await claim(home, channel, worker=DEAD, alone=place >= SUSPECT_CLAIMS)
    await refused(ClaimLost, claim(home, channel, worker=DEAD))
    return channel


async def test_n3_a_turn_that_ends_its_process_again_and_again_is_stuck_and_listed() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await stuck(home)

        assert (await home.types(channel))[-1] == "turn.paused"
        assert (await channel.info()).status is ChannelState.ACTIVE
        listed = await home.hub.list_channels(waiting_for="stuck")
        assert [one.channel_id for one in listed] == [channel.channel_id]


async def test_n3_a_turn_that_is_given_up_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await stuck(home)

    (said,) = [one.getMessage() for one in caplog.records if one.name == "turnline.hub.turns"]
    assert said == (
        f"turn 1 of {home['alice'].agent_id} on channel {channel.channel_id} is given up: "
        "its process ended each time that it was taken."
    )


async def test_n3_waiting_for_the_result_of_a_stuck_channel_says_how_to_retry() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await stuck(home)

        with pytest.raises(TurnStuck, match=f"turnline channels retry {channel.channel_id}"):
            await channel.result()


async def test_n3_a_retry_resumes_the_same_channel() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        home["alice"].on_turn(answers("hello"))
        home["bob"].on_turn(answers("bye"))
        channel = await stuck(home)

        await home.hub.turns.retry(channel.channel_id)

        assert (await channel.result()).text == "bye"


async def test_n3_only_a_stuck_turn_can_be_retried() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)

        await refused(NotStuck, home.hub.turns.retry(channel.channel_id))


async def test_a_released_turn_is_anybodys_at_once_and_goes_on_after_its_last_record() -> None:
    """T3: what it wrote up to there stays; what it wrote later will be written again."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        first = await claim(home, channel)
        await set_context(under(home, channel, first), "draft", 1)
        await home.hub.write(channel.channel_id, EV_TURN_MODEL, {"text": "hm"}, claim=first.seq, audience=[])
        await set_context(under(home, channel, first), "draft", 2)
        await home.hub.turns.release(channel.channel_id, first.seq)
        second = await claim(home, channel)
        await commit(under(home, channel, second))

        assert (await channel.state()).context_vars == {"draft": 1}


# --- giving up (T5) ---


async def test_what_a_failed_turn_wrote_is_undone_and_what_others_wrote_stays() -> None:
    """T5, C3."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A, knobs={"context_vars": {"n": 1, "route": "north"}})
        claimed = await claim(home, channel)
        await add_one(under(home, channel, claimed))
        await set_context(under(home, channel, claimed), "route", "south")
        await set_context(home.handle("bob", channel), "seen_by", "bob")
        assert (await channel.state()).context_vars == {"n": 2, "route": "south", "seen_by": "bob"}

        error = {"type": "ModelError", "message": "overloaded"}
        await fail(home["alice"].seat, channel.channel_id, claimed, error)
        assert (await channel.state()).context_vars == {"n": 1, "route": "north", "seen_by": "bob"}
        failed = next(e for e in await home.wal(channel) if e.event_type == "turn.failed")
        assert failed.event_data["error"] == error


# --- interjections (W9) ---


async def test_a_persons_word_during_a_claim_lands_after_the_packet() -> None:
    """W9: it moves neither the floor nor the turn count."""
    async with house(MemoryLog(), "alice", "bob", people=["user"]) as home:
        channel = await home.open(A_B_A)
        claimed = await claim(home, channel)
        interjecting = begin(home.handle("user", channel).send("wait a moment"))
        await quiet()
        assert not interjecting.done()
        await set_context(under(home, channel, claimed), "n", 1)
        packed = await commit(under(home, channel, claimed))
        said = await interjecting

        assert said.seq == packed.seq + 1
        assert said.decision is None
        info = await channel.info()
        assert (info.turn_count, info.speaker_id) == (1, home["bob"].agent_id)


async def test_interjections_that_wait_land_in_the_order_they_came() -> None:
    """W9."""
    async with house(MemoryLog(), "alice", "bob", people=["user"]) as home:
        channel = await home.open(A_B_A)
        claimed = await claim(home, channel)
        sending = []
        for number in range(5):
            sending.append(begin(home.handle("user", channel).send(str(number))))
            await quiet()
        await commit(under(home, channel, claimed))
        seqs = [(await one).seq for one in sending]

        assert seqs == sorted(seqs)


@pytest.mark.parametrize("name", ["bob", "user"])
async def test_without_a_claim_an_interjection_lands_at_once(name: str) -> None:
    """W9."""
    async with house(MemoryLog(), "alice", "bob", people=["user"]) as home:
        channel = await home.open(A_B_A)
        said = await home.handle(name, channel).interject("by the way")

        assert said.decision is None
        assert (await channel.info()).turn_count == 0


async def test_an_agent_interjects_only_if_it_says_so() -> None:
    """W9."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        bob = home.handle("bob", channel)
        error = await refused(OutOfTurn, bob.send("by the way"))
        assert (error.sender, error.speaker) == (home["bob"].agent_id, home["alice"].agent_id)

        await bob.send("by the way", interject=True)
        assert (await channel.info()).speaker_id == home["alice"].agent_id


@pytest.mark.parametrize("ending", ["release", "fail", "close"])
async def test_an_interjection_waits_for_the_claim_not_for_a_packet(ending: str) -> None:
    """W9: a turn that ends otherwise lets it through as well, or says why not."""
    async with house(MemoryLog(), "alice", "bob", people=["user"]) as home:
        channel = await home.open(A_B_A)
        claimed = await claim(home, channel)
        interjecting = begin(home.handle("user", channel).send("wait"))
        await quiet()
        if ending == "release":
            await home.hub.turns.release(channel.channel_id, claimed.seq)
            assert (await interjecting).event_type == "text"
            return
        if ending == "fail":
            await fail(home["alice"].seat, channel.channel_id, claimed, {})
        else:
            await channel.close()
        with pytest.raises(ChannelClosed):
            await interjecting


async def test_an_interjection_is_let_through_when_another_hubs_packet_is_met() -> None:
    """W9, T6: this hub hears of the packet when somebody else speaks here."""
    async with two_houses(MemoryLog(), "alice", "bob") as (first, second):
        channel = await first.open(A_B_A)
        claimed = await claim(first, channel)
        parked = begin(speak(second, channel, first["bob"].agent_id, interject=True))
        await quiet()
        assert not parked.done()
        await commit(under(first, channel, claimed))
        await refused(OutOfTurn, speak(second, channel, first["alice"].agent_id))

        assert (await parked).event_type == "text"


async def speak(home: House, channel: Channel, agent_id: str, **fields: Any) -> Envelope:
    """Speak at a hub where one is not attached."""
    words = {"text": "by the way"}
    said = Draft(
        envelope_id=home.hub.new_id(), sender_id=agent_id, event_type="text", event_data=words, **fields
    )
    return (await home.hub.post(channel.channel_id, said))[0]


async def test_t1_a_hub_says_how_long_its_workers_may_be_silent() -> None:
    async with house(MemoryLog(), "alice", "bob", lease_seconds=7) as home:
        channel = await home.open(A_B)
        await channel.send("go")
        claim = await claim_own(home["bob"].seat, channel.channel_id, 2)

        assert claim.lease_seconds == 7
        assert (await channel.state()).claim == claim


class OtherProcess:
    """See `turnline.hub.worker.Process`: everybody elsewhere has ended."""

    def join(self, place: str) -> str:
        return f"simulated:1:1/{place}"

    def leave(self, worker: str) -> None: ...

    def is_here(self, worker: str) -> bool:
        return worker.startswith("simulated:1:1/")

    def is_near(self, worker: str) -> bool:
        return False

    def is_gone(self, worker: str) -> bool:
        return not self.is_here(worker)


async def test_t1_who_is_gone_is_for_the_process_to_say_that_the_hub_was_told_it_is_in() -> None:
    async with house(MemoryLog(), "alice", "bob", process=OtherProcess()) as home:
        channel = await home.open(A_B)
        await claim(home, channel)
        taken = await claim_own(home["alice"].seat, channel.channel_id, 1)

        assert taken.worker.startswith("simulated:1:1/")
        await refused(TurnTaken, claim(home, channel))
