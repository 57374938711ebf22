"""The client of an agent: it acks invitations and takes its turns."""

from __future__ import annotations

import asyncio

from tests.hub.scenes import A_B, House, answers, closed, house, quiet, until
from turnline.client.channel import Channel
from turnline.client.turn import Turn
from turnline.core.envelope import Envelope
from turnline.core.governance import Passport
from turnline.core.graph import sequence
from turnline.log.memory import MemoryLog


class Stuck:
    """A handler that begins and does not end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = False

    async def __call__(self, turn: Turn) -> str:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "never"


async def stuck_turn(home: House) -> tuple[Channel, Stuck]:
    """Bob works on a turn."""
    stuck = Stuck()
    home["bob"].on_turn(stuck)
    channel = await home.open(A_B, message="hello")
    await stuck.begun.wait()
    return channel, stuck


async def test_an_agent_acks_invitations_by_itself() -> None:
    """L1."""
    async with house(MemoryLog(), "alice", "bob", "carol") as home:
        channel = await home.open(sequence(["alice", "bob", "carol"]))

        assert (await channel.info()).status == "active"


async def test_a_handler_is_asked_for_every_turn_of_every_channel() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:

        async def echo(turn: Turn) -> str:
            return f"turn {turn.number}"

        for client in home.agents.values():
            client.on_turn(echo)
        graph = sequence(["alice", "bob"] * 5)
        channels = [await home.open(graph, message="turn 1") for _ in range(10)]

        for channel in channels:
            assert (await channel.result()).text == "turn 10"


async def test_a_handler_that_is_set_late_is_asked_for_what_waits_already() -> None:
    """W6: nothing ever waits for a turn nobody was told about."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channels = [await home.open(A_B, message="hello") for _ in range(3)]
        await quiet()
        home["bob"].on_turn(answers("one", "two", "three"))

        assert {await closed(channel) for channel in channels} == {"sequence_complete"}


async def test_a_late_handler_is_not_asked_for_what_is_over() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        await quiet()
        await channel.close("enough")
        await quiet()
        home["bob"].on_turn(answers())
        await quiet()

        assert "turn.claimed" not in await home.types(channel)


async def test_a_callback_that_is_set_late_is_told_of_the_floor_and_leaves_it_to_a_handler() -> None:
    """L6: an agent driven by `on_envelope` goes on after a restart as well."""
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
    async with house(log, "alice", "bob") as home:
        await quiet()
        heard: list[Envelope] = []
        home["bob"].on_envelope(heard.append)
        await until(lambda: heard)
        home["bob"].on_turn(answers("bye"))

        assert heard[0].event_data == {"text": "hello"}
        assert await closed(home.handle("alice", channel)) == "sequence_complete"


async def test_watching_does_not_take_the_turn() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        heard: list[Envelope] = []
        home["bob"].on_envelope(heard.append)
        home["bob"].on_turn(answers("bye"))
        channel = await home.open(A_B, message="hello")
        await closed(channel)
        await until(lambda: heard[-1].event_type == "channel.closed")

        assert [e.event_type for e in heard] == [
            "channel.invite",
            "channel.opened",
            "text",
            "channel.closed",
        ]


async def test_a_client_that_closes_releases_its_turn() -> None:
    """T1: the handler is cancelled, and the next process takes the turn up at once."""
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel, stuck = await stuck_turn(home)
        await home["bob"].close()

        assert stuck.cancelled
        assert (await home.types(channel))[-1] == "turn.released"
    async with house(log, "alice", "bob") as home:
        home["bob"].on_turn(answers("bye"))

        assert (await home.handle("alice", channel).result()).text == "bye"


async def test_a_process_that_dies_with_a_turn_leaves_it_to_the_next() -> None:
    """T1: its claim is on the log, and its worker is gone; nothing has to time out."""
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel, _ = await stuck_turn(home)
        claimed = (await channel.state()).claim
        assert claimed is not None
        await home.hub.close()  # What the client does after that reaches no log.
    async with house(log, "alice", "bob") as home:
        assert (await home.types(channel))[-1] == "turn.claimed"
        home["bob"].on_turn(answers("bye"))
        result = await home.handle("alice", channel).result()

        assert (result.text, result.turns) == ("bye", 2)
        replaced = [e.event_data.get("replaces") for e in await home.wal(channel)]
        assert claimed.seq in replaced


async def test_no_turn_begins_while_a_client_closes() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        _, stuck = await stuck_turn(home)
        others = [await home.open(A_B) for _ in range(5)]
        closing = asyncio.create_task(home["bob"].close())
        for other in others:
            await other.send("hello")
        await closing
        await quiet()

        claimed = [(await other.state()).claim for other in others]
        assert stuck.cancelled
        assert claimed == [None] * 5


async def test_turns_of_several_channels_are_worked_on_at_once() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        begun, let = list[str](), asyncio.Event()

        @home["bob"].on_turn
        async def bob(turn: Turn) -> str:
            begun.append(turn.channel.channel_id)
            await let.wait()
            return "bye"

        channels = [await home.open(A_B, message="hello") for _ in range(10)]
        await until(lambda: len(begun) == 10)
        let.set()

        assert {await closed(channel) for channel in channels} == {"sequence_complete"}


async def test_t1_a_process_claims_no_more_turns_at_once_than_it_says() -> None:
    """What it has no room for is claimed by others with the same agent."""
    async with house(MemoryLog(), "alice") as home:
        home.agents["bob"] = await home.door.register(passport=Passport(name="bob"), turns_at_once=2)
        let = asyncio.Semaphore(0)

        async def when_let(turn: Turn) -> str:
            await let.acquire()
            return "done"

        home["bob"].on_turn(when_let)
        channels = [await home.open(A_B, message="hello") for _ in range(5)]

        async def claimed() -> list[bool]:
            return [(await one.state()).claim is not None for one in channels]

        await quiet()
        assert sum(await claimed()) == 2
        for _ in channels:
            let.release()
        assert [await closed(one) for one in channels] == ["sequence_complete"] * 5
