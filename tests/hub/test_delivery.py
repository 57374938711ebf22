"""Delivery: who is told, derived from what is on the log."""

from __future__ import annotations

import asyncio

import pytest

from turnline.client.turn import Turn
from turnline.core.envelope import Envelope
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.transitions import AgentTarget, Always, FromSpeaker, StayTarget, TerminateTarget
from turnline.core.views import Notice
from turnline.errors import NameTaken
from turnline.hub.hub import Hub
from turnline.log.memory import MemoryLog
from turnline.network.workflow_helpers import set_context

from ..logs import OpenLog
from .scenes import A_B, A_B_A, DEAD, House, answers, begin, bob_is_away, closed, house, quiet, until

B_FIRST = sequence(["bob", "alice"])


class Woken:
    """A receiver that writes down what it is told."""

    def __init__(self) -> None:
        self.with_: list[Notice] = []

    def wake(self, notice: Notice) -> None:
        self.with_.append(notice)


def told(home: House, name: str) -> list[Envelope]:
    """What `name` is told from now on."""
    heard: list[Envelope] = []
    home[name].on_envelope(heard.append)
    return heard


def texts(heard: list[Envelope]) -> list[str]:
    return [e.event_data.get("text", "") for e in heard if e.event_type == "text"]


# --- the floor ---


async def test_whoever_gets_the_floor_is_asked() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        home["bob"].on_turn(answers("bye"))
        channel = await home.open(A_B, message="hello")

        assert (await channel.result()).text == "bye"


async def test_the_same_speaker_is_asked_again() -> None:
    """W4: StayTarget."""
    stay = Transition(FromSpeaker("bob"), StayTarget())
    graph = TransitionGraph(
        "alice", [stay, Transition(Always(), AgentTarget("bob"))], TerminateTarget(), max_turns=5
    )
    async with house(MemoryLog(), "alice", "bob") as home:
        home["bob"].on_turn(answers("one", "two", "three", "four"))
        channel = await home.open(graph, message="count")

        assert (await channel.result()).text == "four"


@pytest.mark.parametrize(
    ("type_", "names", "order"),
    [
        ("consulting", ["bob"], ["alice", "bob"]),
        ("conversation", ["bob"], ["alice", "bob", "alice", "bob"]),
        ("discussion", ["bob", "carol"], ["alice", "bob", "carol", "alice"]),
    ],
)
async def test_on_every_type_of_channel_whoever_is_next_is_asked(
    type_: str, names: list[str], order: list[str]
) -> None:
    async with house(MemoryLog(), "alice", *names) as home:

        async def work(turn: Turn) -> str:
            if turn.number == len(order):
                await turn.channel.send("the last word")
                await turn.channel.close()
            return f"turn {turn.number}"

        for client in home.agents.values():
            client.on_turn(work)
        channel = await home["alice"].open(type=type_, target=names, message="turn 1")
        await closed(channel)
        by_id = {client.agent_id: name for name, client in home.agents.items()}
        spoke = [by_id[e.sender_id] for e in await home.wal(channel) if e.event_type in ("text", "packet")]

        assert spoke[: len(order)] == order  # The next may speak before the channel is closed.


@pytest.mark.parametrize("message", [None, "go"])
async def test_the_first_speaker_is_asked_though_nobody_spoke_to_it(message: str | None) -> None:
    """W6: nothing ever waits for a turn nobody was told about."""
    async with house(MemoryLog(), "alice", "bob") as home:
        seen = []

        @home["bob"].on_turn
        async def bob(turn: Turn) -> str:
            seen.append(turn.envelope.event_data.get("text"))
            return "first"

        channel = await home.open(B_FIRST, message=message)
        await channel.wait_for(lambda e: e.sender_id == home["bob"].agent_id)

        assert seen == [message]
        assert (await channel.info()).turn_count == 1


async def test_an_opener_that_is_the_first_speaker_says_the_first_word_itself() -> None:
    """W6: its handler is not asked for a turn that its program is about to take."""
    async with house(MemoryLog(), "alice", "bob") as home:
        home["alice"].on_turn(answers("from the handler"))
        channel = await home.open(A_B)
        await quiet()
        assert (await channel.info()).turn_count == 0

        assert (await channel.send("from the program")).decision is not None


async def test_the_floor_is_told_again_after_a_restart(open_log: OpenLog) -> None:
    """L6: this is all there is to recovery."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
    async with house(open_log(), "alice") as home:
        bob = await home.agent("bob")
        bob.on_turn(answers("bye"))

        assert await closed(home.handle("alice", channel)) == "sequence_complete"


async def test_whoever_attaches_is_told_of_every_floor_that_waits_for_it() -> None:
    """L6: for many channels at once, each with the line that gave the floor."""
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        waiting = [await home.open(A_B, message="hello") for _ in range(50)]
        others = [await home.open(A_B) for _ in range(5)]
        await waiting[0].close()
    async with house(log) as home:
        woken = Woken()
        home.hub.attach(home.hub.participant("bob").agent_id, woken)
        floors = {channel.channel_id: 4 for channel in waiting[1:]}
        await until(lambda: len(woken.with_) >= len(floors))

        assert {one.channel_id: one.floor.seq for one in woken.with_ if one.floor is not None} == floors
        assert not floors.keys() & {channel.channel_id for channel in others}


async def test_a_participant_that_attaches_is_woken_for_its_suspects_last() -> None:
    """N3: a suspect holds back other turns once it is known."""
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        suspect, *others = [await home.open(A_B, message="hello") for _ in range(20)]
    hub = await Hub.open(log, ttl_sweep_interval=0)
    bob = hub.participant("bob").agent_id
    for _ in range(SUSPECT_CLAIMS):
        await hub.turns.claim(suspect.channel_id, bob, worker=DEAD, turn=2)
    await hub.close()
    async with house(log) as home:
        woken = Woken()
        home.hub.attach(bob, woken)
        await until(lambda: len(woken.with_) > len(others))

        order = [one.channel_id for one in woken.with_]
        assert order == [one.channel_id for one in (*others, suspect)]


async def test_whoever_attaches_is_told_of_invitations_that_wait_for_it() -> None:
    """L1, L6."""
    async with bob_is_away() as home:
        opening = begin(home.open(A_B, target="bob"))
        await quiet()
        woken = Woken()
        home.hub.attach(home.hub.participant("bob").agent_id, woken)
        (pending,) = await home.hub.list_channels(state="pending")

        assert [(one.channel_id, one.is_invited) for one in woken.with_] == [(pending.channel_id, True)]
        opening.cancel()


async def test_a_participant_has_one_receiver() -> None:
    async with house(MemoryLog(), "alice") as home:
        with pytest.raises(NameTaken):
            home.hub.attach(home["alice"].agent_id, Woken())


async def test_everybody_is_told_what_others_say_and_nobody_what_it_said_itself() -> None:
    async with house(MemoryLog(), "alice", "bob", "carol") as home:
        heard = {name: told(home, name) for name in ("alice", "bob", "carol")}
        channel = await home.open(sequence(["alice", "bob", "carol"]))
        for name in ("alice", "bob", "carol"):
            await home.handle(name, channel).send(f"from {name}")
        await quiet()

        assert texts(heard["alice"]) == ["from bob", "from carol"]
        assert texts(heard["bob"]) == ["from alice", "from carol"]
        assert texts(heard["carol"]) == ["from alice", "from bob"]
        assert {lines[-1].event_type for lines in heard.values()} == {"channel.closed"}


async def test_a_private_word_is_told_to_its_audience_only() -> None:
    async with house(MemoryLog(), "alice", "bob", "carol") as home:
        heard = {name: told(home, name) for name in ("bob", "carol")}
        channel = await home.open(A_B_A)
        await channel.send("psst", audience=["carol"])
        await quiet()

        assert texts(heard["carol"]) == ["psst"]
        assert texts(heard["bob"]) == [""]  # He has the floor, and that is all he is told.
        assert heard["bob"][-1].event_data == {}
        assert (await home.handle("bob", channel).send("my turn")).decision is not None


async def test_a_private_word_is_nowhere_to_be_read_by_others() -> None:
    async with house(MemoryLog(), "alice", "bob", "carol") as home:
        channel = await home.open(A_B_A)
        await channel.send("psst", audience=["carol"])
        await channel.close()
        seen = {
            name: texts([e async for e in home.handle(name, channel).stream()])
            for name in ("alice", "bob", "carol")
        }

        assert seen == {"alice": ["psst"], "bob": [""], "carol": ["psst"]}
        assert (await home.handle("bob", channel).result()).text == ""


async def test_context_writes_and_turn_notes_are_told_to_nobody() -> None:
    """C3."""
    async with house(MemoryLog(), "alice", "bob") as home:
        heard = told(home, "alice")
        home["bob"].on_turn(answers("bye"))
        channel = await home.open(A_B)
        await set_context(home.handle("bob", channel), "n", 1)
        await channel.send("hello")
        await closed(channel)
        await quiet()

        assert {e.event_type for e in heard} == {"channel.opened", "packet", "channel.closed"}


# --- slow consumers ---


async def test_a_slow_consumer_holds_up_nobody() -> None:
    """Neither the others on its channel, nor itself on another one."""
    async with house(MemoryLog(), "alice", "bob", "carol") as home:
        never, heard = asyncio.Event(), told(home, "carol")
        stuck, free = [await home.open(sequence(["alice", "carol", "bob"])) for _ in range(2)]

        @home["bob"].on_envelope
        async def bob(envelope: Envelope) -> None:
            heard.append(envelope)
            if envelope.channel_id == stuck.channel_id:
                await never.wait()

        for channel in (stuck, free):
            for name in ("alice", "carol", "bob"):
                await home.handle(name, channel).send(f"{name} on {channel.channel_id}")
        await until(lambda: texts(heard).count(f"carol on {free.channel_id}") == 1)

        assert await closed(stuck) == await closed(free) == "sequence_complete"
        assert f"carol on {stuck.channel_id}" not in texts(heard)


async def test_a_consumer_that_was_slow_hears_everything_in_order() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        let, heard = asyncio.Event(), list[str]()
        channel = await home.talk()

        @home["bob"].on_envelope
        async def bob(envelope: Envelope) -> None:
            await let.wait()
            heard.append(envelope.event_data.get("text", ""))

        for number in range(500):
            await channel.send(str(number))
        let.set()
        await until(lambda: len(heard) >= 500)

        assert [one for one in heard if one] == [str(number) for number in range(500)]
