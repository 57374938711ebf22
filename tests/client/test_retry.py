"""What the log could not take or give is tried again: nobody is told of it twice (T1, L1; rule 4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.client.test_inbox import Forward
from tests.hub.scenes import A_B, House, Wrapped, answers, begin, closed, house, quiet
from turnline.client.channel import Channel
from turnline.client.inbox import Inbox
from turnline.client.link import LocalLink
from turnline.client.participant import AgentClient
from turnline.client.turn import Turn
from turnline.core.channel import ChannelMetadata, ChannelRow
from turnline.core.envelope import Envelope
from turnline.core.governance import Registration
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.state import LEASE_SECONDS, State
from turnline.core.step_targets import FanOutTarget
from turnline.core.transitions import FromSpeaker, TerminateTarget
from turnline.core.views import Floor
from turnline.errors import LogUnavailable, NotDue
from turnline.hub.delivery import Receiver
from turnline.hub.retry import RETRY_SECONDS, retry
from turnline.hub.seat import Claimed, Reading, Seat
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

AWAY = LogUnavailable("here", because="it is away")


class MoodyLog(Wrapped):
    """Some appends it refuses, by the type of their first line; of some the answer is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.is_away = False

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        first = envelopes[0].event_type
        if self.is_away or self.refused[first] > 0:
            self.refused[first] -= 1
            raise AWAY
        await super().append(channel_id, envelopes, after=after, row=row)
        if self.lost[first] > 0:
            self.lost[first] -= 1
            raise AWAY


async def ended(home: House, channel: Channel) -> str:
    """The channel's reason, a few moments later."""
    for _ in range(8):
        await quiet()
        home.clock.advance(RETRY_SECONDS)
    return await closed(channel)


async def test_work_is_done_again_while_the_log_is_away_and_not_where_it_is_refused() -> None:
    clock, tries = ManualClock(), list[float]()

    async def work() -> str:
        tries.append(clock.monotonic())
        if len(tries) < 3:
            raise AWAY
        return "done"

    async def refuse() -> None:
        raise NotDue("c", timer="t")

    doing = begin(retry(clock, work, "the work is not done"))
    for _ in range(3):
        await quiet()
        clock.advance(RETRY_SECONDS)

    assert await doing == "done"
    assert tries == [0.0, RETRY_SECONDS, 2 * RETRY_SECONDS]
    with pytest.raises(NotDue):
        await retry(clock, refuse, "the work is not done")


async def test_t1_a_claim_of_which_no_answer_came_is_found_to_be_ours() -> None:
    """It is live, under our own name: whoever took it for somebody else's would wait for ever."""
    log = MoodyLog()
    async with house(log, "alice", "bob") as home:
        log.lost["turn.claimed"] = 1
        home["bob"].on_turn(answers("done"))
        channel = await home.open(A_B, message="hello")

        assert await ended(home, channel) == "sequence_complete"
        assert (await home.types(channel)).count("turn.claimed") == 1


async def test_t1_a_claim_of_which_no_answer_came_and_that_is_over_by_then_is_made_anew() -> None:
    log = MoodyLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        log.lost["turn.claimed"] = 1
        home["bob"].on_turn(answers("done"))
        await quiet()
        live = (await channel.state()).claim
        claim = live or next(e for e in await home.wal(channel) if e.event_type == "turn.claimed")
        await home.hub.turns.release(channel.channel_id, claim.seq)

        assert await ended(home, channel) == "sequence_complete"
        assert (await home.types(channel)).count("turn.claimed") == 2


@pytest.mark.parametrize("mood", ["refused", "lost"])
async def test_t1_a_packet_that_cannot_be_written_is_written_later_and_its_turn_is_not_repeated(
    mood: str,
) -> None:
    log = MoodyLog()
    async with house(log, "alice", "bob") as home:
        getattr(log, mood).update({"packet": 3})
        home["bob"].on_turn(answers("said once", "said twice"))
        channel = await home.open(A_B, message="hello")

        assert await ended(home, channel) == "sequence_complete"
        assert (await channel.result()).text == "said once"
        assert (await home.types(channel)).count("turn.claimed") == 1


async def test_t5_a_turn_that_cannot_be_given_up_is_given_up_later() -> None:
    log = MoodyLog()
    async with house(log, "alice", "bob") as home:
        log.refused["turn.abandoned"] = 1

        async def handler(turn: Turn) -> str:
            raise ValueError("never")

        home["bob"].on_turn(handler)
        channel = await home.open(A_B, message="hello")

        assert await ended(home, channel) == "turn_failed"
        assert log.refused["turn.abandoned"] == 0, "it was never to be written"


async def test_l1_an_invitation_is_answered_once_the_log_can_be_written() -> None:
    log = MoodyLog()
    async with house(log, "alice", "bob") as home:
        log.refused["channel.ack"] = 2
        opening = begin(home.open(A_B))
        for _ in range(3):
            await quiet()
            home.clock.advance(RETRY_SECONDS)

        assert (await (await opening).info()).status == "active"


async def test_whoever_is_closed_while_the_log_is_away_stops_all_the_same() -> None:
    log, begun = MoodyLog(), list[int]()
    async with house(log, "alice", "bob") as home:

        async def handler(turn: Turn) -> str:
            begun.append(turn.number)
            await asyncio.Event().wait()
            return "never"

        home["bob"].on_turn(handler)
        await home.open(A_B, message="hello")
        await quiet()
        log.is_away = True
        await home["bob"].close()
        log.is_away = False
        home.clock.advance(RETRY_SECONDS)
        await quiet()

        assert begun == [2]


class MoodySeat(Seat):
    """Whatever it is asked for the first time, the log is away."""

    moods: Counter[str]

    async def read(self, channel_id: str, after: int) -> Reading:
        self._be_moody("read")
        return await super().read(channel_id, after)

    async def metadata(self, channel_id: str) -> ChannelMetadata:
        self._be_moody("metadata")
        return await super().metadata(channel_id)

    async def state(self, channel_id: str) -> State:
        self._be_moody("state")
        return await super().state(channel_id)

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        self._be_moody("claim_turn")
        return await super().claim_turn(floor, channel_id, claim_id=claim_id, alone=alone)

    async def wait_unclaimed(self, channel_id: str) -> None:
        self._be_moody("wait_unclaimed")
        await super().wait_unclaimed(channel_id)

    def _be_moody(self, what: str) -> None:
        self.moods[what] += 1
        if self.moods[what] == 1:
            raise AWAY


class MoodyLink(LocalLink):
    """Hands out moody seats."""

    def __init__(self, home: House) -> None:
        super().__init__(home.hub)
        self._home = home

    async def attach(self, registration: Registration, receiver: Receiver) -> Seat:
        self._home.hub.attach(registration.agent_id, receiver)
        seat = MoodySeat(self._home.hub, registration)
        seat.moods = Counter()
        return seat


async def test_what_could_not_be_read_is_read_later() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        heard = list[str]()

        async def deliver(envelope: Envelope) -> None:
            heard.append(envelope.event_type)

        channel = await home.talk()
        await home["bob"].close()
        inbox = Inbox(deliver)
        inbox.start(await MoodyLink(home).attach(home.hub.participant("bob"), Forward(inbox)))
        await channel.send("hello")
        await quiet()
        assert heard == []
        home.clock.advance(RETRY_SECONDS)
        await quiet()
        await inbox.stop()

        assert heard == ["text"]


async def test_w6_a_first_speaker_that_could_not_look_who_opened_looks_again() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        await home["bob"].close()
        bob = AgentClient(home.hub.participant("bob"))
        await bob.attach(MoodyLink(home))
        bob.on_turn(answers("first"))
        opening = begin(home.open(sequence(["bob"]), target=["bob"]))
        await quiet()
        home.clock.advance(RETRY_SECONDS)
        channel = await opening

        assert await ended(home, channel) == "sequence_complete"
        await bob.close()


async def test_t1_a_turn_of_another_worker_is_taken_over_also_where_the_log_was_away_meanwhile() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello", expectations=[])
        await home["bob"].close()
        bob = AgentClient(home.hub.participant("bob"))
        await home.hub.turns.claim(channel.channel_id, bob.agent_id, worker="elsewhere:1:1/bob", turn=2)
        await bob.attach(MoodyLink(home))
        bob.on_turn(answers("done"))
        for seconds in (RETRY_SECONDS, RETRY_SECONDS, LEASE_SECONDS, RETRY_SECONDS):
            await quiet()
            home.clock.advance(seconds)
        await quiet()

        assert (await channel.state()).pending_close_reason == "sequence_complete"
        await bob.close()


async def test_p1_a_step_that_could_not_be_looked_at_is_worked_on_later() -> None:
    graph = TransitionGraph(
        "alice", [Transition(FromSpeaker("alice"), FanOutTarget(["bob"]))], TerminateTarget("done")
    )
    async with house(MemoryLog(), "alice", "bob") as home:
        await home["alice"].close()
        alice = AgentClient(home.hub.participant("alice"))
        await alice.attach(MoodyLink(home))
        home["bob"].on_turn(answers("agreed"))
        channel = await alice.open("workflow", ["bob"], {"graph": graph.to_dict()}, message="well?")

        assert await ended(home, channel) == "done"
        await alice.close()
