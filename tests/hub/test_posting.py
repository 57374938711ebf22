"""Posting: decide, append, fold, deliver, in that order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tests.turn_lines import claim_own
from turnline.client.channel import Channel, set_context
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CONTEXT_SET, EV_PACKET
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.routing import packet
from turnline.core.transitions import StayTarget, TerminateTarget, TransitionCondition, register_condition
from turnline.errors import (
    BadDraft,
    ChannelBusy,
    ChannelClosed,
    ContextMismatch,
    HubClosed,
    LogConflict,
    LogUnavailable,
    OutOfTurn,
    ReservedEventType,
)
from turnline.hub.posting import MAX_PARKED, MAX_WAITING
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

from ..logs import OpenLog
from .scenes import (
    A_B,
    A_B_A,
    SAFETY_SECONDS,
    CountingLog,
    FailingLog,
    House,
    SlowLog,
    Wrapped,
    add_one,
    begin,
    draft,
    house,
    quiet,
    refused,
    two_houses,
    types,
    until,
)

TASKS = 100
INCREMENTS = 100


class OrderLog(Wrapped):
    """Writes down when an append was through."""

    def __init__(self) -> None:
        super().__init__()
        self.happened: list[str] = []

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        await asyncio.sleep(0)  # Whoever is told too early is told here.
        await super().append(channel_id, envelopes, after=after, row=row)
        self.happened += [f"on the log: {channel_id} {envelope.seq}" for envelope in envelopes]


class OvertakingLog(Wrapped):
    """Before the next append to a channel, somebody else appends to it."""

    def __init__(self) -> None:
        super().__init__()
        self.overtake: Envelope | None = None

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        other, self.overtake = self.overtake, None
        if other is not None:
            await self.inner.append(channel_id, [other], after=after)
        await super().append(channel_id, envelopes, after=after, row=row)


class StuckLog(Wrapped):
    """Says that somebody else was faster, whatever is appended to one channel."""

    stuck: str | None = None

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if channel_id == self.stuck:
            raise LogConflict(channel_id, after=after, found=after + 1)
        await super().append(channel_id, envelopes, after=after, row=row)


async def seqs(home: House, channel: Channel) -> int:
    return len(await home.wal(channel))


# --- the order ---


async def test_nothing_is_told_before_it_is_on_the_log() -> None:
    log = OrderLog()
    async with house(log, "alice", "bob") as home:
        for client in home.agents.values():
            client.on_envelope(lambda e: log.happened.append(f"told: {e.channel_id} {e.seq}"))
        home.hub.add_listener(lambda e: log.happened.append(f"told: {e.channel_id} {e.seq}"))
        channel = await home.open(A_B_A)
        for name in ("alice", "bob", "alice"):
            await home.handle(name, channel).send("hello")
        await quiet()

    told = [line.removeprefix("told: ") for line in log.happened if line.startswith("told")]
    assert told
    for line in told:
        assert log.happened.index(f"on the log: {line}") < log.happened.index(f"told: {line}")


async def test_the_state_is_the_one_the_answer_speaks_of() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        said = await channel.send("hello")

        assert (await home.hub.state(channel.channel_id)).seq == said.seq


# --- refusals ---


async def refusals(home: House, channel: Channel) -> AsyncIterator[tuple[type[Exception], Any]]:
    bob = home.handle("bob", channel)
    yield OutOfTurn, bob.send("me first")
    yield BadDraft, channel.send(event_data={"text": float("nan")})
    yield BadDraft, channel.send("hello", envelope_id="not an id")
    yield BadDraft, channel.send("hello", envelope_id="\ud800")
    yield ReservedEventType, channel.send(event_type=EV_CHANNEL_CLOSED, event_data={"reason": "mine"})
    yield ContextMismatch, channel.send(event_type=EV_CONTEXT_SET, event_data={"expect": {"n": 1}})


async def test_a_refused_draft_writes_nothing(open_log: OpenLog) -> None:
    """E2, E4."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open()
        before = await seqs(home, channel)
        async for kind, sending in refusals(home, channel):
            await refused(kind, sending)

        assert await seqs(home, channel) == before


async def test_a_draft_that_cannot_be_looked_up_harms_nobody_else(open_log: OpenLog) -> None:
    """E2: text that is not Unicode, sent beside a good draft."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open()
        good, bad = await asyncio.gather(
            add_one(channel), channel.send("x", envelope_id="\udcff"), return_exceptions=True
        )

        assert isinstance(good, Envelope)
        assert isinstance(bad, BadDraft)


# --- others on the same log ---


async def test_a_conflict_means_read_fold_and_decide_again() -> None:
    log = MemoryLog()
    async with two_houses(log, "alice", "bob", "carol") as (first, second):
        channel = await first.open(A_B_A, target=["bob"])
        await second.hub.state(channel.channel_id)
        await add_one(channel)
        said = await second.hub.post(channel.channel_id, draft(first["alice"]))

        assert [envelope.seq for envelope in said] == [await seqs(first, channel)]
        assert (await second.hub.state(channel.channel_id)).context_vars == {"n": 1}


async def test_what_was_acceptable_before_a_conflict_can_be_refused_after_it() -> None:
    log = OvertakingLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B)
        async with house(log.inner, clock=home.clock) as elsewhere:
            await elsewhere.hub.state(channel.channel_id)
            await add_one(channel)
            closing = {"reason": "enough"}
            before = await seqs(home, channel)
            await elsewhere.hub.write(channel.channel_id, EV_CHANNEL_CLOSED, closing)
        error = await refused(ChannelClosed, channel.send("hello"))

        assert error.reason == "enough"
        assert await seqs(home, channel) == before + 1


async def test_a_refusal_is_decided_against_the_end_of_the_log() -> None:
    """Elsewhere the floor has come to bob: his hub, which has not heard of it, must not turn him away."""
    async with two_houses(MemoryLog(), "alice", "bob") as (first, second):
        channel = await first.open(A_B_A)
        await second.hub.state(channel.channel_id)
        await channel.send("over to you")
        said = await second.hub.post(channel.channel_id, draft(first["bob"]))

        assert types(said) == ["text"]


async def test_an_overtaken_draft_keeps_its_place_behind_what_overtook_it() -> None:
    log = OvertakingLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open()
        last = (await home.wal(channel))[-1]
        other = draft(home["bob"], "acme.note", data={})
        log.overtake = Envelope(
            schema_version=1,
            envelope_id="elsewhere",
            channel_id=channel.channel_id,
            seq=last.seq + 1,
            sender_id=other.sender_id,
            event_type=other.event_type,
            created_at=last.created_at,
        )
        said = await channel.send("hello")

        assert said.seq == last.seq + 2
        assert types((await home.wal(channel))[-2:]) == ["acme.note", "text"]


async def test_a_log_that_conflicts_for_ever_is_an_error_not_a_hang() -> None:
    log = StuckLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open()
        log.stuck = channel.channel_id
        with pytest.raises(Exception, match="conflicts in a row"):
            await channel.send("hello")
        log.stuck = None
        assert await channel.send("hello")


# --- many at once ---


async def test_drafts_that_wait_together_are_appended_together_and_answered_each() -> None:
    log = CountingLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B_A)
        before = log.appends[channel.channel_id]
        one, no, two, said = await asyncio.gather(
            add_one(channel),
            home.handle("bob", channel).send("me first"),
            add_one(channel),
            channel.send("hello"),
            return_exceptions=True,
        )

        assert log.appends[channel.channel_id] == before + 1
        assert isinstance(no, OutOfTurn)
        assert [e.seq for e in (one, two, said) if isinstance(e, Envelope)] == [4, 5, 6]


async def test_a_draft_sees_those_that_wait_before_it() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        hello, welcome = await asyncio.gather(
            channel.send("hello"), home.handle("bob", channel).send("welcome")
        )

        assert welcome.seq == hello.seq + 1


async def test_more_drafts_than_may_wait_for_a_channel_are_refused() -> None:
    """Every queue has a limit with a name."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        sending = [begin(add_one(channel)) for _ in range(MAX_WAITING + 1)]
        outcomes = await asyncio.gather(*sending, return_exceptions=True)

        (busy,) = [one for one in outcomes if isinstance(one, ChannelBusy)]
        assert busy.waiting == MAX_WAITING
        assert (await channel.state()).context_vars == {"n": MAX_WAITING}


async def test_interjections_that_wait_do_not_keep_a_turn_from_ending() -> None:
    """One member's messages are refused before they fill the channel; the speaker's packet is accepted."""
    async with house(MemoryLog(), "alice", "bob", people=["ned"]) as home:
        channel = await home.open(A_B)
        claim = await claim_own(home["alice"].seat, channel.channel_id, 1)
        ned = home.handle("ned", channel)
        sending = [begin(ned.send("and?")) for _ in range(MAX_WAITING + 1)]
        await until(lambda: sum(one.done() for one in sending) > MAX_WAITING - MAX_PARKED)
        for one in sending[:MAX_PARKED]:
            one.cancel()
        await quiet()
        late = begin(ned.send("still there?"))  # The places of senders that went away are free.
        await quiet()
        turn = Channel(home["alice"].seat, channel.channel_id, claim=claim.seq)
        await turn.send(event_type=EV_PACKET, event_data=packet("done"))
        outcomes = await asyncio.gather(*sending, return_exceptions=True)

        assert sum(isinstance(one, ChannelBusy) for one in outcomes) == MAX_WAITING + 1 - MAX_PARKED
        assert (await late).event_data == {"text": "still there?"}


async def test_a_sender_that_goes_away_leaves_the_others_their_answers() -> None:
    log = SlowLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open()
        log.held = channel.channel_id
        sending = [begin(add_one(channel)) for _ in range(3)]
        await quiet()
        sending[0].cancel()
        log.let.set()
        outcomes = await asyncio.gather(*sending, return_exceptions=True)

        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert all(isinstance(one, Envelope) for one in outcomes[1:])


async def test_10_000_increments_by_100_tasks_make_10_000(open_log: OpenLog) -> None:
    """C1."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open()

        async def count() -> None:
            for _ in range(INCREMENTS):
                await add_one(channel)

        await asyncio.gather(*(count() for _ in range(TASKS)))
        assert (await channel.state()).context_vars == {"n": TASKS * INCREMENTS}


# --- when the log fails ---


async def test_a_failing_log_reaches_every_sender_and_the_channel_works_afterwards(open_log: OpenLog) -> None:
    log = FailingLog(open_log())
    async with house(log, "alice", "bob") as home:
        channel = await home.open()
        before = await seqs(home, channel)
        log.fails_on = channel.channel_id
        log.fail_append = LogUnavailable("here", because="the disk is full")
        outcomes = await asyncio.gather(*(add_one(channel) for _ in range(3)), return_exceptions=True)

        assert [type(one) for one in outcomes] == [LogUnavailable] * 3
        assert await seqs(home, channel) == before
        await add_one(channel)
        assert (await channel.state()).context_vars == {"n": 1}


# --- the hub closes ---


async def test_what_was_posted_before_the_hub_closes_is_written() -> None:
    log = SlowLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open()
        log.held = channel.channel_id
        sending = begin(add_one(channel))
        await quiet()
        closing = begin(home.hub.close())
        await quiet()
        log.let.set()
        await closing

        assert (await sending).event_type == EV_CONTEXT_SET


async def test_an_interjection_that_still_waits_is_told_that_the_hub_closed() -> None:
    """W9: it was not written, so its sender must not think so."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open()
        await claim_own(home["alice"].seat, channel.channel_id, 1)
        interjecting = begin(home.handle("bob", channel).interject("wait"))
        await quiet()
        await home.hub.close()

        await refused(HubClosed, _result(interjecting))


async def test_set_context_through_a_closed_hub_is_refused() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open()
        await home.hub.close()
        await refused(HubClosed, set_context(channel, "n", 1))


async def _result(task: asyncio.Task[Any]) -> Any:
    return await task


async def test_a_draft_is_answered_although_the_task_before_it_was_cancelled_before_its_first_step() -> None:
    """A loop that ends cancels every task once; what is posted on the way out must not wait for ever."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        known = asyncio.all_tasks()
        posting = begin(channel.send("the first"))
        while not (started := asyncio.all_tasks() - known - {posting}):  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0)
        for task in started:
            task.cancel()

        async with asyncio.timeout(SAFETY_SECONDS):
            assert await channel.send("the second")
            assert await posting


class RunningClock(ManualClock):
    """Every look at the monotonic clock is a second later."""

    def monotonic(self) -> float:
        self.advance(1)
        return super().monotonic()


async def test_a_batch_of_costly_decisions_lets_others_work_between_them() -> None:
    rounds = 0
    seen = list[int]()

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    @register_condition
    @dataclass(frozen=True)
    class Costly(TransitionCondition):
        name: ClassVar[str] = "costly_in_a_batch"

        def evaluate(self, state: Any, envelope: Envelope) -> bool:
            seen.append(rounds)
            return True

    graph = TransitionGraph("alice", [Transition(Costly(), StayTarget())], TerminateTarget())
    async with house(MemoryLog(), "alice", "bob", clock=RunningClock()) as home:
        channel = await home.open(graph)
        working = begin(others())
        await asyncio.gather(*(channel.send(f"{number}") for number in range(20)))
        working.cancel()

    assert len(seen) == 20
    assert len(set(seen)) == 20


async def test_an_interjection_that_waited_is_answered_if_the_append_with_the_packet_fails() -> None:
    log = FailingLog()
    async with house(log, "alice", "bob", people=["ann"]) as home:
        channel = await home.open(A_B)
        await channel.send("hello")
        bob = home["bob"]
        turn = (await channel.state()).turn
        claim = await claim_own(bob.seat, channel.channel_id, turn)
        aside = begin(home.handle("ann", channel).interject("wait"))
        await quiet()
        log.fails_on, log.fail_append = channel.channel_id, LogUnavailable("test", because="it is away")
        said = draft(bob, EV_PACKET, data=packet("bye"), claim=claim.seq)
        await refused(LogUnavailable, home.hub.post(channel.channel_id, said))

        await refused(LogUnavailable, aside)
