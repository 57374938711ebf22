"""The engine: claims that ride with the floor, pauses, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.hub.scenes import CountingLog, FailingLog, Wrapped, answers, closed, house, quiet
from turnline.core import event_types as ev
from turnline.core.channel import ChannelRow, child_id
from turnline.core.claims import Paused
from turnline.core.envelope import Draft, Envelope
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.state import LEASE_SECONDS
from turnline.core.transitions import AgentTarget, FromSpeaker, TerminateTarget
from turnline.core.views import Floor, Notice
from turnline.errors import ClaimLost, LogUnavailable, TurnTaken
from turnline.hub.request import OpenRequest
from turnline.hub.retry import RETRY_SECONDS
from turnline.hub.seat import Claimed, Seat
from turnline.log.memory import MemoryLog
from turnline.turns.engine import Engine
from turnline.turns.work import Done, Work

from .scenes import engaged, says


class Appends(Wrapped):
    """Notes what was appended together, by channel."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[str, list[str]]] = []

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        await super().append(channel_id, envelopes, after=after, row=row)
        self.batches.append((channel_id, [one.event_type for one in envelopes]))

    def of(self, channel_id: str) -> list[list[str]]:
        return [types for name, types in self.batches if name == channel_id]


# --- N6: the claim rides with the floor ---


async def test_n6_the_claim_of_the_next_turn_is_in_the_append_that_gives_the_floor() -> None:
    log = Appends()
    async with engaged(log, says) as scene:
        channel_id = await scene.open(target=[])
        await scene.ended(channel_id)

    assert log.of(channel_id) == [
        [ev.EV_CHANNEL_INVITE, ev.EV_CHANNEL_OPENED, ev.EV_TURN_CLAIMED],
        [ev.EV_PACKET, ev.EV_TURN_CLAIMED],
        [ev.EV_PACKET, ev.EV_CHANNEL_CLOSED],
    ]


async def test_n6_the_claim_rides_also_while_the_next_speakers_last_turn_is_just_ending() -> None:
    """Two answer each other at once: the task of the turn before is still there when the floor comes back."""
    log, turns = Appends(), 6
    there_and_back = [
        Transition(FromSpeaker("alice"), AgentTarget("bob")),
        Transition(FromSpeaker("bob"), AgentTarget("alice")),
    ]
    graph = TransitionGraph("alice", there_and_back, TerminateTarget("done"), max_turns=turns)
    async with house(log, "alice", "bob") as home:
        for name in ("alice", "bob"):
            home[name].on_turn(answers(*["ok"] * turns))
        channel = await home.open(graph, message="hello")
        await closed(channel)

    _, *batches, last = log.of(channel.channel_id)
    assert batches == [[ev.EV_PACKET, ev.EV_TURN_CLAIMED]] * (turns - 2)
    assert last == [ev.EV_PACKET, ev.EV_CHANNEL_CLOSED]


async def test_n6_no_claim_rides_to_a_participant_without_a_performer() -> None:
    async with engaged(MemoryLog(), None) as scene:
        channel_id = await scene.open()

        assert (await scene.hub.state(channel_id)).claim is None


async def test_n6_the_opener_says_its_first_word_itself() -> None:
    log, graph = Appends(), TransitionGraph("player", [], TerminateTarget("done"))
    async with engaged(log, says) as scene:
        request = OpenRequest(type="workflow", target=["ann"], knobs={"graph": graph.to_dict()})
        channel_id = await scene.hub.open_channel(request, scene.seat.agent_id)
        text = Draft(envelope_id="first", sender_id="", event_type=ev.EV_TEXT, event_data={"text": "hello"})
        await scene.seat.post(channel_id, text)
        await scene.ended(channel_id)

    opening = [ev.EV_CHANNEL_INVITE, ev.EV_CHANNEL_INVITE_ACK, ev.EV_CHANNEL_OPENED]
    assert log.of(channel_id) == [opening, [ev.EV_TEXT, ev.EV_CHANNEL_CLOSED]]


async def test_n6_a_claim_rides_only_while_a_place_is_free() -> None:
    log, entered, go = Appends(), asyncio.Event(), asyncio.Event()

    async def waits(work: Work) -> Done:
        entered.set()
        await go.wait()
        return Done(data={"body": "here"})

    async with engaged(log, waits, places=1) as scene:
        first = await scene.open(target=[])
        await entered.wait()
        second = await scene.open(target=[])
        assert log.of(second) == [[ev.EV_CHANNEL_INVITE, ev.EV_CHANNEL_OPENED]]
        go.set()
        await scene.ended(first)
        await scene.ended(second)


async def test_n6_interjections_that_waited_for_the_packet_come_before_the_claim() -> None:
    log, entered, go = Appends(), asyncio.Event(), asyncio.Event()

    async def waits(work: Work) -> Done:
        entered.set()
        await go.wait()
        return Done(data={"body": work.speaker})

    async with engaged(log, waits) as scene:
        channel_id = await scene.open()
        await entered.wait()
        ann = scene.home.people["ann"].channel(channel_id)
        interjecting = asyncio.create_task(ann.interject("wait, please"))
        await asyncio.sleep(0)
        go.set()
        await interjecting
        await scene.ended(channel_id)

    assert [ev.EV_PACKET, ev.EV_TEXT, ev.EV_TURN_CLAIMED] in log.of(channel_id)


async def test_n6_a_claim_that_did_not_land_leaves_its_place() -> None:
    log = FailingLog()
    async with engaged(log, says, places=1) as scene:
        log.fails_on, log.fail_append = "c1", LogUnavailable("memory:", because="it is away")
        with pytest.raises(LogUnavailable):
            await scene.open(target=[], channel_id="c1")
        await scene.ended(await scene.open(target=[], channel_id="c1"))


# --- N1: waiting holds nothing ---


async def test_n1_a_paused_turn_holds_no_claim_no_place_and_no_task() -> None:
    async def waits(work: Work) -> Done | Paused:
        if work.speaker == "two" or any(one.event_type == ev.EV_TIMER_FIRED for one in work.lines):
            return Done(data={"body": "done"})
        return Paused(reason="time", seconds=60)

    async with engaged(CountingLog(), waits, places=1) as scene:
        first, second = await scene.open(target=[]), await scene.open(target=[])
        states = [await scene.paused(one) for one in (first, second)]
        await quiet()
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]

        assert [one.claim for one in states] == [None, None]
        assert not [name for name in names if "Engine" in name]
        await scene.home.pass_time(60)
        for one in (first, second):
            assert (await scene.ended(one)).pending_close_reason == "done"


async def test_n1_a_pause_survives_fifty_restarts_without_a_line() -> None:
    log = MemoryLog()

    async def waits(work: Work) -> Done | Paused:
        if work.speaker == "two" or any(one.event_type == ev.EV_TIMER_FIRED for one in work.lines):
            return Done(data={"body": "done"})
        return Paused(reason="time", seconds=60)

    async with engaged(log, waits) as scene:
        channel_id = await scene.open(target=[])
        before = (await scene.paused(channel_id)).seq
    for _ in range(50):
        async with engaged(log, waits) as scene:
            await scene.paused(channel_id)
    async with engaged(log, waits) as scene:
        assert (await scene.hub.state(channel_id)).seq == before
        await scene.home.pass_time(60)
        await scene.ended(channel_id)


async def test_n1_a_child_that_closes_resumes_its_parent() -> None:
    async def asks(work: Work) -> Done | Paused:
        if work.speaker == "two":
            return Done(data={"body": "two"})
        child = await work.children.state("0")
        if child is None:
            request = OpenRequest(type="conversation", target=["ann"], message="Sure?")
            await work.children.open("0", request)
        elif child.is_over:
            return Done(data={"body": f"it closed with {child.pending_close_reason}"})
        return Paused(reason="children", children=[work.children.id_of("0")])

    async with engaged(MemoryLog(), asks) as scene:
        channel_id = await scene.open()
        await scene.paused(channel_id)
        child = child_id(channel_id, 1, "0")
        await scene.home.people["ann"].channel(child).close("agreed")
        await scene.ended(channel_id)
        said = [one.event_data["body"] for one in await scene.lines(channel_id) if one.event_type == "packet"]

    assert said == ["it closed with agreed", "two"]


async def test_n1_only_a_child_of_the_channel_resumes_it() -> None:
    """A turn cannot learn when a channel closes that is not below its own."""

    async def waits(work: Work) -> Paused:
        await work.children.open("0", OpenRequest(type="conversation", target=["ann"]))
        return Paused(reason="children", children=["stranger"])

    async with engaged(MemoryLog(), waits) as scene:
        ben = await scene.home.person("ben")
        stranger = await ben.open("conversation", ["ann"], channel_id="stranger")
        early = await scene.open(target=[])
        await scene.paused(early)
        await stranger.close()
        late = await scene.open(target=[])
        await scene.paused(late)
        await scene.home.pass_time(3600)

        assert [(await scene.hub.state(one)).pause is None for one in (early, late)] == [False, False]


# --- what goes wrong ---


async def test_a_performer_that_raises_fails_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    async def raises(work: Work) -> Done:
        raise ValueError("no luck")

    async with engaged(MemoryLog(), raises) as scene:
        channel_id = await scene.open(target=[])
        state = await scene.ended(channel_id)
        failed = next(one for one in await scene.lines(channel_id) if one.event_type == ev.EV_TURN_FAILED)

    assert state.pending_close_reason == "turn_failed"
    assert failed.event_data["error"] == {"type": "ValueError", "message": "no luck"}


async def test_a_performer_that_hangs_is_released_when_the_engine_stops() -> None:
    entered = asyncio.Event()

    async def hangs(work: Work) -> Done:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    log = MemoryLog()
    async with engaged(log, hangs) as scene:
        channel_id = await scene.open(target=[])
        await entered.wait()
    async with engaged(log, says) as scene:
        await scene.ended(channel_id)
        lines = await scene.types(channel_id)

    assert lines.count(ev.EV_TURN_RELEASED) == 1


@pytest.mark.parametrize("away_at", [ev.EV_TURN_CLAIMED, ev.EV_TURN_PAUSED, ev.EV_TURN_RESUMED, ev.EV_PACKET])
async def test_a_log_that_is_away_loses_no_turn(away_at: str) -> None:
    """The performer pauses for a child that has closed already; then it ends."""

    class Away(Wrapped):
        failed = False

        async def append(
            self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
        ) -> None:
            is_there = any(one.event_type == away_at for one in envelopes) and channel_id == "c1" and after
            if is_there and not self.failed:
                self.failed = True
                raise LogUnavailable("memory:", because="it is away")
            await super().append(channel_id, envelopes, after=after, row=row)

    async def asks(work: Work) -> Done | Paused:
        if work.speaker == "two":
            return Done(data={"body": "two"})
        if any(one.event_type == ev.EV_TURN_RESUMED for one in work.lines):
            return Done(data={"body": "one"})
        request = OpenRequest(type="conversation", target=["ann"], message="Sure?")
        child = await work.children.open("0", request)
        await scene.home.people["ann"].channel(child).close("agreed")
        return Paused(reason="children", children=[child])

    log = Away()
    async with engaged(log, asks) as scene:
        channel_id = await scene.open(channel_id="c1", target=[])
        ending = asyncio.create_task(scene.ended(channel_id))
        while not ending.done():
            await asyncio.sleep(0.01)
            scene.home.clock.advance(1)
        state = await ending
        said = [one.event_type for one in await scene.lines(channel_id)].count(ev.EV_PACKET)

    assert (log.failed, state.pending_close_reason, said) == (True, "done", 2)


class AwaySeat(Seat):
    """A seat whose log is away when it is first asked to wait for the end of a claim."""

    waits = 0

    async def wait_unclaimed(self, channel_id: str) -> None:
        self.waits += 1
        if self.waits == 1:
            raise LogUnavailable("memory:", because="it is away")
        await super().wait_unclaimed(channel_id)


async def test_a_turn_of_another_worker_is_taken_over_also_where_the_log_was_away_meanwhile() -> None:
    log = MemoryLog()
    async with engaged(log, None) as scene:
        channel_id = await scene.open(target=[])
        await scene.hub.turns.claim(channel_id, "one", worker="elsewhere:1:1/one", turn=1)
    async with engaged(log, says, seat_class=AwaySeat) as scene:
        for seconds in (RETRY_SECONDS, LEASE_SECONDS):
            await quiet()
            scene.home.clock.advance(seconds)
        await quiet()

        assert (await scene.hub.state(channel_id)).pending_close_reason == "done"


async def test_a_claim_that_came_with_the_floor_is_released_by_an_engine_that_stops_before_it_begins() -> (
    None
):
    async with engaged(MemoryLog(), says) as scene:
        scene.hub.detach(scene.seat.agent_id)
        scene.hub.attach(scene.seat.agent_id, Deaf(scene.engine))
        channel_id = await scene.open(target=[])
        claimed = (await scene.hub.state(channel_id)).claim
        await scene.engine.stop()

        assert claimed is not None
        assert (await scene.hub.state(channel_id)).claim is None


class Deaf:
    """Offers the places of an engine, and does not wake it."""

    def __init__(self, engine: Engine) -> None:
        self.offer = engine.offer
        self.withdraw = engine.withdraw

    def wake(self, notice: Notice) -> None:
        """Pass nothing on."""


async def test_a_worker_writes_only_under_the_claims_of_those_that_it_plays() -> None:
    entered = asyncio.Event()

    async def hangs(work: Work) -> Done:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with engaged(MemoryLog(), hangs) as scene:
        channel_id = await scene.open()
        await entered.wait()
        claim = (await scene.hub.state(channel_id)).claim
        assert claim is not None
        ann: Any = scene.home.people["ann"].seat
        for event_type, data in ((ev.EV_PACKET, {"body": "mine"}), (ev.EV_TURN_RELEASED, {})):
            with pytest.raises(ClaimLost):
                await ann.write(channel_id, claim.draft(event_type, data))


class TakenSeat(Seat):
    """Another worker has every turn, and keeps it."""

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        raise TurnTaken(channel_id, turn=floor.turn, worker="elsewhere")

    async def wait_unclaimed(self, channel_id: str) -> None:
        await asyncio.Event().wait()


async def test_n6_no_claim_rides_to_a_channel_whose_task_waits_for_something_else() -> None:
    """It would hold the turn until its lease is over: the task may wait for longer."""
    async with engaged(MemoryLog(), says, seat_class=TakenSeat) as scene:
        channel_id = await scene.open()
        await quiet()
        floor = Floor(speaker="one", turn=1, seq=9, unexplained=0)

        assert scene.engine.offer(channel_id, floor) == ""
        assert scene.engine.offer("another", floor) != ""


class SlowSeat(Seat):
    """A seat whose claims are never answered."""

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def test_n6_a_claim_that_came_with_the_floor_is_released_if_the_engine_stops_before_the_turn() -> None:
    async with engaged(MemoryLog(), says, seat_class=SlowSeat) as scene:
        channel_id = await scene.open(target=[])
        await quiet()
        claimed = await scene.hub.state(channel_id)
        await scene.engine.stop()

        assert claimed.claim is not None
        assert (await scene.hub.state(channel_id)).claim is None
