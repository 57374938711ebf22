"""What goes wrong around a turn that waits: races, late answers, a log that is away, workers that stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest
from msgspec.structs import replace

from tests.client.stage import told
from tests.hub.scenes import House, Wrapped, answers, closed, house, quiet, refused, types
from tests.turns.scenes import engaged, says
from tests.waits import WAITS, begin, help_out, join
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import Message, ToolCall
from turnline.agent.performer import CallSite
from turnline.agent.tool import tool
from turnline.client.channel import Channel
from turnline.client.injection import ChildrenInject
from turnline.client.turn import Turn
from turnline.core import event_types as ev
from turnline.core.channel import ChannelRow, child_id
from turnline.core.claims import Paused
from turnline.core.envelope import Envelope
from turnline.core.governance import Passport
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import LEASE_SECONDS
from turnline.core.transitions import AgentTarget, TurnFailed
from turnline.errors import AlreadyAnswered, LogUnavailable, Refused, UnknownQuestion
from turnline.hub.request import OpenRequest
from turnline.hub.seat import Reading, Seat
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call
from turnline.testing.manual_clock import ManualClock
from turnline.turns.children import consultation
from turnline.turns.people import People
from turnline.turns.work import Done, Perform, Work

USER_ADA = sequence(["user", "ada"])


@asynccontextmanager
async def two_processes(
    kind: str, noted: Counter[str], log: MemoryLog | None = None
) -> AsyncIterator[tuple[House, House]]:
    """Two hubs on one log with everybody on both, as two processes have them."""
    log, clock = log or MemoryLog(), ManualClock()
    async with house(log, clock=clock, follow=True) as first, house(log, clock=clock, follow=True) as second:
        for home in (first, second):
            home.people |= await join(home.door, kind, lambda _, what: noted.update([what]))
        yield first, second


async def open_question(home: House, channel: Channel) -> Envelope:
    return await channel.wait_for(lambda one: one.event_type == ev.EV_HUMAN_REQUESTED, timeout=10)


async def paused(home: House, channel: Channel) -> None:
    while (state := await home.hub.state(channel.channel_id)).pause is None:
        await home.hub.wait_beyond(channel.channel_id, state.seq)


async def settle(*homes: House, channel: Channel) -> None:
    """Let time pass until the channel has closed: workers that are not preferred wait a moment."""
    for _ in range(200):
        if (await homes[0].hub.state(channel.channel_id)).is_over:
            return
        await quiet()
        homes[0].clock.advance(0.1)
    raise AssertionError(await homes[0].types(channel))


# --- the performer ---


async def test_a_handler_that_is_cancelled_from_within_fails_its_turn() -> None:
    """It awaited a task of its own that was cancelled. Nothing stops the turn, so it must not be left."""

    async def handler(turn: Turn) -> str:
        raise asyncio.CancelledError

    async with house(MemoryLog(), "ada", people=["user"]) as home:
        home["ada"].on_turn(handler)
        channel = await home.open(USER_ADA, by="user", message="go")

        assert await closed(channel) == "turn_failed"
        assert ev.EV_TURN_FAILED in await home.types(channel)


async def test_a_performer_that_is_cancelled_with_its_channel_writes_nothing() -> None:
    entered = asyncio.Event()

    async def hangs(turn: Turn) -> str:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with house(MemoryLog(), "ada", people=["user"]) as home:
        home["ada"].on_turn(hangs)
        channel = await home.open(USER_ADA, by="user", message="go")
        await entered.wait()
        await channel.close("enough")
        await quiet()

        assert (await home.types(channel))[-2:] == [ev.EV_TURN_ABANDONED, ev.EV_CHANNEL_CLOSED]


# --- the log is away ---


class Away(Wrapped):
    """A log that is away when a line of this type is to be written for the first time.

    With `is_written` the line lands, and the writer is not told.
    """

    def __init__(self, event_type: str, *, is_written: bool = False) -> None:
        super().__init__()
        self.event_type = event_type
        self.is_written = is_written
        self.failed = 0

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if not self.failed and any(one.event_type == self.event_type for one in envelopes) and after > 3:
            self.failed += 1
            if self.is_written:
                await super().append(channel_id, envelopes, after=after, row=row)
            raise LogUnavailable("memory:", because="it is away")
        await super().append(channel_id, envelopes, after=after, row=row)


@pytest.mark.parametrize(
    "away_at",
    [ev.EV_TURN_MODEL, ev.EV_HUMAN_REQUESTED, ev.EV_TURN_PAUSED, ev.EV_TURN_TOOL, ev.EV_PACKET],
)
@pytest.mark.parametrize("kind", ["approval", "question"])
@pytest.mark.parametrize("is_written", [False, True])
async def test_n1_an_agent_whose_log_is_away_for_a_moment_repeats_no_model_call_and_no_tool(
    *, kind: str, away_at: str, is_written: bool
) -> None:
    """Its last reply is in the packet, and is not paid twice either."""
    log, noted = Away(away_at, is_written=is_written), Counter[str]()
    async with house(log) as home:
        home.people |= await join(home.door, kind, lambda _, what: noted.update([what]))
        channel = await begin(home.people["user"], kind, "c1")
        for _ in range(20):
            await quiet()
            await help_out(home.hub, home.people.values())
            home.clock.advance(1)
        result = await channel.result(timeout=10)
        lines = Counter(await home.types(channel))

    assert log.failed == 1
    assert (result.reason, result.text) == (WAITS[kind].reason, WAITS[kind].text)
    assert lines[ev.EV_HUMAN_REQUESTED] == lines[ev.EV_TURN_MODEL] == lines[ev.EV_TURN_TOOL] == 1
    assert noted == Counter(WAITS[kind].done)


@pytest.mark.parametrize("tool_name", ["charge", "delegate"])
async def test_a_log_that_is_away_within_a_tool_is_not_the_tools_answer(tool_name: str) -> None:
    """Once a result could not be recorded, once a channel could not be opened: the model is told neither."""

    async def charge_now() -> str:
        return "charged"

    async def charge(context: Context) -> str:
        return str(await context.once("charge", charge_now))

    log = Away(ev.EV_TURN_ONCE if tool_name == "charge" else ev.EV_CHANNEL_CHILD)
    calls = {"charge": call("charge"), "delegate": call("delegate", to="bob", task="please")}
    model = ScriptedModel(calls[tool_name], "done")
    async with house(log, "bob", people=["user"]) as home:
        home["bob"].on_turn(answers("charged"))
        await home.door.register(Agent("ada", config=model, tools=[charge]))
        channel = await home.people["user"].open(
            "workflow", ["ada"], {"graph": USER_ADA.to_dict()}, message="go"
        )
        await quiet()
        home.clock.advance(1)

        assert await closed(channel) == "sequence_complete"
    assert log.failed == 1
    assert told(model) == ["charged"]


@pytest.mark.parametrize("away_at", [ev.EV_CHANNEL_CHILD, ev.EV_CHANNEL_CLOSED])
async def test_a_tool_that_catches_every_error_does_not_catch_that_the_log_is_away(away_at: str) -> None:
    async def consult(children: ChildrenInject) -> str:
        try:
            child = await children.open("0", consultation("bob", "please"))
            await children.close(child, "enough")
        except Exception as error:
            return f"caught {type(error).__name__}"
        return "asked"

    log, model = Away(away_at), ScriptedModel(call("consult"), "done")
    async with house(log, "bob", people=["user"]) as home:
        await home.door.register(Agent("ada", config=model, tools=[consult]))
        channel = await home.people["user"].open(
            "workflow", ["ada"], {"graph": USER_ADA.to_dict()}, message="go"
        )
        await quiet()
        home.clock.advance(1)

        assert await closed(channel) == "sequence_complete"
    assert log.failed == 1
    assert told(model) == ["asked"]


async def test_a_log_that_is_away_at_the_release_leaves_a_claim_that_the_next_process_replaces() -> None:
    entered = asyncio.Event()

    async def hangs(work: Work) -> Done:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    log = Away(ev.EV_TURN_RELEASED)
    async with engaged(log, hangs) as scene:
        channel_id = await scene.open()
        await entered.wait()
    async with engaged(log, says) as scene:
        await scene.ended(channel_id)
        lines = await scene.types(channel_id)

    assert log.failed == 1
    assert ev.EV_TURN_RELEASED not in lines


class UnreadableSeat(Seat):
    """A seat whose log is away when it is first read from."""

    reads = 0

    async def read_next(self, channel_id: str, after: int) -> Reading:
        self.reads += 1
        if self.reads == 1:
            raise LogUnavailable("memory:", because="it is away")
        return await super().read_next(channel_id, after)


async def test_n2_who_waits_for_an_answer_in_this_process_waits_on_while_the_log_is_away() -> None:
    """A plain tool has begun: it must not be called again because it asked."""
    began = list[str]()

    async def asks(work: Work) -> Done:
        began.append(work.speaker)
        if work.speaker == "two":
            return Done(data={"body": "two"})
        people = People(work, work.state.spec.people, scene.seat.read_next)
        return Done(data={"body": await people.ask(CallSite(place="1.1", call=call("sure")), "sure?", None)})

    async with engaged(MemoryLog(), asks, seat_class=UnreadableSeat) as scene:
        channel_id = await scene.open()
        await quiet()
        await help_out(scene.hub, scene.home.people.values())
        await quiet()
        scene.home.clock.advance(1)
        await scene.ended(channel_id)
        said = [one.event_data["body"] for one in await scene.lines(channel_id) if one.event_type == "packet"]

    assert (began, said) == (["one", "two"], ["yes", "two"])


async def test_an_answer_that_cannot_be_written_is_told_to_the_person_and_can_be_given_again() -> None:
    log, noted = Away(ev.EV_HUMAN_ANSWERED), Counter[str]()
    async with house(log) as home:
        home.people |= await join(home.door, "approval", lambda _, what: noted.update([what]))
        channel, user = await begin(home.people["user"], "approval", "c1"), home.people["user"]
        asked = await open_question(home, channel)
        await refused(LogUnavailable, user.answer(asked, "yes"))
        await user.answer(asked, "yes")

        assert await closed(channel) == "sequence_complete"
    assert noted == WAITS["approval"].done


# --- answers ---


@pytest.mark.parametrize("kind", ["approval", "two approvals", "question", "fan-out", "nested", "delegation"])
async def test_n1_of_two_workers_one_takes_the_turn_whose_answer_has_come(kind: str) -> None:
    noted = Counter[str]()
    async with two_processes(kind, noted) as (first, second):
        channel = await begin(first.people["user"], kind, "c1")
        for _ in range(60):
            await quiet()
            await help_out(second.hub, second.people.values())
            first.clock.advance(0.1)
        await settle(first, second, channel=channel)
        result = await channel.result(timeout=10)
        lines = await first.types(channel)

    assert (result.reason, result.text) == (WAITS[kind].reason, WAITS[kind].text)
    assert noted == WAITS[kind].done
    assert lines.count(ev.EV_TURN_FAILED) == 0


async def test_n1b_an_answer_counts_once_and_a_late_one_is_refused() -> None:
    noted = Counter[str]()
    async with two_processes("approval", noted) as (first, second):
        channel = await begin(first.people["user"], "approval", "c1")
        asked = await open_question(first, channel)
        await paused(first, channel)
        user, elsewhere = first.people["user"], second.people["user"]
        outcomes = await asyncio.gather(
            user.answer(asked, "yes"), elsewhere.answer(asked, "yes"), return_exceptions=True
        )
        assert [type(one) for one in outcomes].count(AlreadyAnswered) == 1
        await settle(first, second, channel=channel)
        late = await asyncio.gather(user.answer(asked, "no"), return_exceptions=True)

        assert type(late[0]).__name__ in ("ChannelClosed", "UnknownQuestion")
    assert noted == WAITS["approval"].done


async def test_n1b_a_late_answer_to_a_turn_that_is_over_is_refused_on_an_open_channel() -> None:
    graph = sequence(["user", "ada", "user"])

    @tool(restarts=True)
    async def hurry(context: Context) -> str:
        return await context.input("quick?", timeout=60)

    ada = Agent("ada", config=ScriptedModel(call("hurry"), "too late"), tools=[hurry])
    async with house(MemoryLog(), people=["user"]) as home:
        home.agents["ada"] = await home.door.register(ada)
        channel = await home.open(graph, by="user", message="go")
        asked = await open_question(home, channel)
        await paused(home, channel)
        await home.pass_time(60)
        await quiet()

        await refused(UnknownQuestion, home.people["user"].answer(asked, "yes"))
        packet = next(one for one in await home.wal(channel) if one.event_type == ev.EV_PACKET)
        assert packet.event_data["body"] == "too late"


class Batches(Wrapped):
    """Notes what was appended together, and holds back one append until it is let."""

    def __init__(self, held: str, *, on: str = "") -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.held = held
        self.on = on
        """The channel whose append is held back; empty: any."""
        self.holds, self.let = asyncio.Event(), asyncio.Event()

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        found = types(envelopes)
        if self.held in found and self.on in ("", channel_id):
            self.holds.set()
            await self.let.wait()
        await super().append(channel_id, envelopes, after=after, row=row)
        self.batches.append(found)


async def test_n1b_an_answer_before_the_pause_makes_pause_and_resume_one_append() -> None:
    """The sibling call still runs when the person answers, so the pause comes after the answer."""
    running, go = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        running.set()
        await go.wait()
        return "slow"

    @tool(approval=True)
    async def pay() -> str:
        return "paid"

    log = Batches("nothing")
    model = ScriptedModel([call("pay"), call("slow")], "done")
    async with house(log, people=["user"]) as home:
        await home.door.register(Agent("ada", config=model, tools=[slow, pay]))
        channel = await home.people["user"].open(
            "workflow", ["ada"], {"graph": USER_ADA.to_dict()}, message="go"
        )
        await running.wait()
        await home.people["user"].answer(await open_question(home, channel), "yes")
        go.set()

        assert await closed(channel) == "sequence_complete"
    assert [ev.EV_TURN_PAUSED, ev.EV_TURN_RESUMED, ev.EV_TURN_CLAIMED] in log.batches


async def test_n1b_an_answer_at_another_hub_before_the_pause_resumes_the_turn() -> None:
    log, noted = Batches(ev.EV_TURN_PAUSED), Counter[str]()
    clock = ManualClock()
    async with (
        house(log, clock=clock, follow=True) as first,
        house(log.inner, people=["user"], clock=clock, follow=True) as second,
    ):
        first.people |= await join(first.door, "approval", lambda _, what: noted.update([what]))
        channel = await begin(first.people["user"], "approval", "c1")
        asked = await open_question(first, channel)
        await log.holds.wait()
        await second.people["user"].answer(asked, "yes")
        log.let.set()
        await settle(first, channel=channel)
        await channel.result(timeout=10)

    assert noted == WAITS["approval"].done


# --- places, drains, leases ---


async def test_n1_paused_turns_leave_their_place_to_others() -> None:
    """With one place, two turns wait for a person and a third one is taken."""

    @tool(approval=True)
    async def pay() -> str:
        return "paid"

    def script(messages: tuple[Message, ...]) -> str | ToolCall:
        return call("pay") if len(messages) == 1 and "pay" in str(messages[0]) else "done"

    async with house(MemoryLog(), people=["user"]) as home:
        ada = Agent("ada", config=ScriptedModel(script), tools=[pay])
        await home.door.register(ada, turns_at_once=1)
        user, knobs = home.people["user"], {"graph": USER_ADA.to_dict()}
        waiting = [await user.open("workflow", ["ada"], knobs, message="pay") for _ in range(2)]
        for one in waiting:
            await paused(home, one)
        assert (
            await closed(await user.open("workflow", ["ada"], knobs, message="talk")) == "sequence_complete"
        )
        for one in waiting:
            await user.answer(await open_question(home, one), "yes")
        assert [await closed(one) for one in waiting] == ["sequence_complete"] * 2


async def test_an_answer_while_every_place_is_taken_waits_for_one() -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def handler(turn: Turn) -> str | Paused:
        if turn.channel.channel_id == "busy":
            entered.set()
            await go.wait()
        elif not any(one.event_type == ev.EV_TIMER_FIRED for one in turn.lines):
            return Paused(reason="time", seconds=60)
        return "done"

    async with house(MemoryLog(), people=["user"]) as home:
        ada = await home.door.register(None, Passport(name="ada"), turns_at_once=1)
        ada.on_turn(handler)
        user, knobs = home.people["user"], {"graph": USER_ADA.to_dict()}
        waits = await user.open("workflow", ["ada"], knobs, message="go", channel_id="waits")
        await paused(home, waits)
        busy = await user.open("workflow", ["ada"], knobs, message="go", channel_id="busy")
        await entered.wait()
        await home.pass_time(60)
        await quiet()
        state = await home.hub.state("waits")
        assert (state.pause, state.claim) == (None, None)
        go.set()
        assert [await closed(one) for one in (busy, waits)] == ["sequence_complete"] * 2


async def test_a_worker_that_drains_leaves_a_resumed_turn_to_the_others() -> None:
    entered, noted = asyncio.Event(), Counter[str]()
    release = asyncio.Event()
    log, clock = MemoryLog(), ManualClock()
    async with house(log, clock=clock, follow=True) as first, house(log, clock=clock, follow=True) as second:
        first.people |= await join(first.door, "approval", lambda _, what: noted.update([what]))
        second.people |= await join(second.door, "approval", lambda _, what: noted.update([what]))

        async def busy(turn: Turn) -> str:
            entered.set()
            await release.wait()
            return "done"

        (await first.door.register(None, Passport(name="eve"))).on_turn(busy)
        channel = await begin(first.people["user"], "approval", "c1")
        asked = await open_question(first, channel)
        await paused(first, channel)
        await first.people["user"].open("consulting", ["eve"], message="go")
        await entered.wait()
        draining = asyncio.create_task(first.door.close(grace_seconds=60))
        await quiet()
        await second.people["user"].answer(asked, "yes")
        await settle(second, channel=channel)
        release.set()
        await draining

    assert noted == WAITS["approval"].done


@pytest.mark.parametrize("wakes_with", ["packet", "pause", "unit"])
async def test_a_worker_that_wakes_after_its_lease_is_refused_whatever_it_brings(wakes_with: str) -> None:
    log, clock = MemoryLog(), ManualClock()
    async with (
        house(log, "alice", "bob", clock=clock, follow=True) as first,
        house(log, clock=clock, follow=True) as second,
    ):
        channel = await first.open(sequence(["alice", "bob"]), message="go")
        await first["bob"].close()
        bob = first.hub.participant("bob")
        asleep = Seat(first.hub, bob, worker="elsewhere:1:1/bob")
        turn = (await first.hub.state(channel.channel_id)).turn
        claim = await first.hub.turns.claim(channel.channel_id, bob.agent_id, worker=asleep.worker, turn=turn)
        taker = await second.agent("bob")

        async def handler(turn: Turn) -> Paused:
            return Paused(reason="time", seconds=3600)

        taker.on_turn(handler)
        await quiet()
        clock.advance(LEASE_SECONDS)
        await quiet()
        assert (await second.hub.state(channel.channel_id)).pause is not None
        late: dict[str, tuple[str, dict[str, object]]] = {
            "packet": (ev.EV_PACKET, {"body": "late"}),
            "pause": (ev.EV_TURN_PAUSED, {"reason": "time", "seconds": 1}),
            "unit": (ev.EV_TURN_ONCE, {"key": "k", "result": 1}),
        }
        await refused(Refused, asleep.write(channel.channel_id, claim.draft(*late[wakes_with])))


# --- children ---


async def test_a_child_that_closes_while_its_parent_pauses_resumes_it() -> None:
    log, noted = Batches(ev.EV_TURN_PAUSED), Counter[str]()
    async with house(log) as home:
        home.people |= await join(home.door, "fan-out", lambda _, what: noted.update([what]))
        channel = await begin(home.people["user"], "fan-out", "c1")
        await log.holds.wait()
        assert await help_out(home.hub, home.people.values()) == 1
        await quiet()
        log.let.set()

        assert await closed(channel) == "done"


LEAVES: Final = TransitionGraph(
    "one", [Transition(TurnFailed(), AgentTarget("two"))], AgentTarget("two"), max_turns=3
)


def leaves_a_child(ends: str) -> Perform:
    """Return a performer: `one` opens a channel and does not wait for it, `two` waits for ever."""

    async def perform(work: Work) -> Done | Paused:
        if work.speaker == "two":
            return Paused(reason="event", key="never")
        await work.children.open("0", OpenRequest(type="conversation", target=["ann"], message="Sure?"))
        if ends == "failure":
            raise ValueError("no luck")
        return Done(data={"body": "one"})

    return perform


@pytest.mark.parametrize("ends", ["packet", "failure"])
@pytest.mark.parametrize("is_away", [False, True])
async def test_children_that_a_turn_leaves_open_close_with_it(*, ends: str, is_away: bool) -> None:
    """Also if the log is away when they are to be closed."""
    log = Away(ev.EV_CHANNEL_CLOSED) if is_away else MemoryLog()
    async with engaged(log, leaves_a_child(ends)) as scene:
        channel_id = await scene.open(LEAVES, channel_id="c1")
        await scene.paused(channel_id)
        for _ in range(3):
            await quiet()
            scene.home.clock.advance(1)
        child = await scene.hub.state(child_id(channel_id, 1, "0"))

        assert child.pending_close_reason == CANCELLED


class DeadBeforeClosing(Wrapped):
    """The log of a process that dies after a turn's packet: it closes no channel any more."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if any(one.event_type == ev.EV_CHANNEL_CLOSED for one in envelopes):
            raise LogUnavailable("memory:", because="the process is dead")
        await super().append(channel_id, envelopes, after=after, row=row)


@pytest.mark.parametrize("ends", ["packet", "failure"])
async def test_children_that_a_dead_process_left_open_are_closed_by_the_next(ends: str) -> None:
    log = MemoryLog()
    async with engaged(DeadBeforeClosing(log), leaves_a_child(ends)) as scene:
        channel_id = await scene.open(LEAVES, channel_id="c1")
        await scene.paused(channel_id)
        await quiet()
        assert not (await scene.hub.state(child_id(channel_id, 1, "0"))).is_over
    async with engaged(log, None) as scene:
        await quiet()
        child = await scene.hub.state(child_id(channel_id, 1, "0"))

        assert child.pending_close_reason == CANCELLED
        assert not (await scene.hub.state(channel_id)).is_over


async def test_children_that_a_dead_process_left_open_are_closed_by_another_that_lives() -> None:
    log = MemoryLog()
    async with (
        engaged(log, None, follow=True) as other,
        engaged(DeadBeforeClosing(log), leaves_a_child("packet"), follow=True) as scene,
    ):
        channel_id = await scene.open(LEAVES, channel_id="c1")
        await scene.paused(channel_id)
        await quiet()
        child = await other.hub.state(child_id(channel_id, 1, "0"))

        assert child.pending_close_reason == CANCELLED


async def test_a_hub_that_lags_behind_closes_no_child_of_a_turn_that_it_has_not_read_of() -> None:
    async def perform(work: Work) -> Done | Paused:
        if work.speaker == "one":
            return Done(data={"body": "one"})
        child = await work.children.open("0", OpenRequest(type="conversation", target=["ann"]))
        return Paused(reason="children", children=[child])

    async with engaged(MemoryLog(), perform) as scene:
        channel_id = await scene.open(LEAVES, channel_id="c1")
        state = await scene.paused(channel_id)

        assert scene.hub.tree.left_open(replace(state, turn_count=state.turn_count - 1)) == []
        assert scene.hub.tree.left_open(replace(state, turn_count=state.turn_count + 1)) != []


async def test_a_child_that_is_opened_when_its_turn_has_ended_is_closed() -> None:
    """Its first line was on the way while another worker ended the turn."""
    log = Batches(ev.EV_CHANNEL_INVITE, on=child_id("c1", 1, "0"))
    async with engaged(log, leaves_a_child("packet")) as scene:
        channel_id = await scene.open(LEAVES, channel_id="c1")
        await log.holds.wait()
        claim = (await scene.hub.state(channel_id)).claim
        assert claim is not None
        await scene.seat.write(channel_id, claim.draft(ev.EV_PACKET, {"body": "another worker"}))
        log.let.set()
        await scene.paused(channel_id)
        await quiet()
        child = await scene.hub.state(child_id(channel_id, 1, "0"))

        assert child.pending_close_reason == CANCELLED


async def test_children_of_a_turn_close_when_a_person_closes_its_channel() -> None:
    noted = Counter[str]()
    async with house(MemoryLog()) as home:
        home.people |= await join(home.door, "nested", lambda _, what: noted.update([what]))
        channel = await begin(home.people["user"], "nested", "c1")
        await paused(home, channel)
        await channel.close("enough")
        await quiet()

        assert [one.close_code for one in await home.hub.list_channels()] == ["enough", CANCELLED]


async def test_a_channel_that_a_turn_opened_under_an_id_of_its_own_outlives_the_turn() -> None:
    """It is a conversation that goes on, such as one that a tool begins. No turn waits for it."""

    async def perform(work: Work) -> Done | Paused:
        if work.speaker == "two":
            return Paused(reason="event", key="never")
        request = OpenRequest(type="conversation", target=["ann"], channel_id="talk", parent_id="c1")
        await scene.seat.open(request)
        return Done(data={"body": "one"})

    log = MemoryLog()
    async with engaged(log, perform) as scene:
        channel_id = await scene.open(LEAVES, channel_id="c1")
        await scene.paused(channel_id)
        await quiet()
    async with engaged(log, None) as scene:
        await quiet()

        assert not (await scene.hub.state("talk")).is_over
