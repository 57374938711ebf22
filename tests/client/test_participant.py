"""The client of a participant: opening, listening, leaving; an agent acks invitations and takes its turns."""

from __future__ import annotations

import asyncio

import pytest

from tests.hub.scenes import A_B, A_B_A, House, answers, closed, house, is_closed, quiet, until
from turnline.client.channel import Channel
from turnline.client.participant import AgentClient, ParticipantClient
from turnline.client.turn import Turn
from turnline.core.envelope import Envelope
from turnline.core.expectations import turn_within
from turnline.core.governance import Passport, Registration
from turnline.core.graph import sequence
from turnline.errors import ClientClosed
from turnline.log.memory import MemoryLog


async def test_open_takes_what_a_channel_can_be_opened_with() -> None:
    """L1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home["alice"].open(
            type="workflow",
            target="bob",
            knobs={"graph": A_B.to_dict(), "context_vars": {"n": 1}},
            ttl=60,
            message="hello",
            labels={"ticket": "7"},
            expectations=[turn_within(5)],
            ack_timeout=3,
            channel_id="ticket-7",
        )
        state = await channel.state()

        assert (state.channel_id, state.context_vars, state.turn_count) == ("ticket-7", {"n": 1}, 1)
        assert (state.spec.ttl_seconds, state.spec.labels) == (60, {"ticket": "7"})
        assert (state.spec.expectations, state.spec.ack_timeout_seconds) == ([turn_within(5)], 3)


async def test_c4_initial_context_variables_are_a_copy() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        tags = ["new"]
        channel = await home.open(A_B, knobs={"context_vars": {"tags": tags}})

        tags.append("changed afterwards")

        assert (await channel.state()).context_vars == {"tags": ["new"]}


async def test_a_callback_may_be_a_function_or_a_coroutine_and_there_may_be_several() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        heard: list[str] = []
        bob = home["bob"]

        @bob.on_envelope
        def first(envelope: Envelope) -> None:
            heard.append(f"first {envelope.event_type}")

        @bob.on_envelope
        async def second(envelope: Envelope) -> None:
            await asyncio.sleep(0)
            heard.append(f"second {envelope.event_type}")

        await (await home.open(A_B)).send("hello")
        await until(lambda: len(heard) == 6)

        assert heard == [
            f"{who} {what}"
            for what in ("channel.invite", "channel.opened", "text")
            for who in ("first", "second")
        ]


async def test_a_callback_that_raises_costs_that_call_only(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the other callbacks nor the next envelopes: of an agent, and of a person who listens late."""
    async with house(MemoryLog(), "alice", "bob", people=["user"]) as home:
        heard: dict[str, list[str]] = {"bob": [], "user": []}

        def broken(envelope: Envelope) -> None:
            raise RuntimeError("a fault in the callback")

        def listen(client: ParticipantClient) -> None:
            client.on_envelope(broken)
            client.on_envelope(lambda e: heard[client.name].append(e.event_type))

        listen(home["bob"])
        channel = await home.open(A_B, message="hello")
        await quiet()
        listen(home.people["user"])
        await home.handle("bob", channel).send("bye")
        await until(lambda: heard["user"][-1:] == ["channel.closed"])

        assert heard["user"] == ["channel.invite", "channel.opened", "text", "text", "channel.closed"]
        assert heard["bob"] == ["channel.invite", "channel.opened", "text", "channel.closed"]
        assert "a fault in the callback" in caplog.text


async def test_a_callback_can_answer() -> None:
    """An agent driven by `on_envelope` alone."""
    async with house(MemoryLog(), "alice", "bob") as home:

        @home["bob"].on_envelope
        async def bob(envelope: Envelope) -> None:
            if envelope.event_type == "text":
                await home["bob"].channel(envelope.channel_id).send(f"re: {envelope.event_data['text']}")

        channel = await home.open(A_B, message="hello")

        assert (await channel.result()).text == "re: hello"


async def test_a_callback_can_wait_for_the_channel_it_is_called_for() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        reasons: list[str] = []

        @home["bob"].on_envelope
        async def bob(envelope: Envelope) -> None:
            if envelope.event_type == "text":
                ended = await home["bob"].wait_for_channel_event(envelope.channel_id, is_closed)
                reasons.append(ended.event_data["reason"])

        channel = await home.open(A_B, message="hello")
        await channel.close("enough")
        await until(lambda: reasons)

        assert reasons == ["enough"]


async def test_a_client_says_who_it_is() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        alice, user = home["alice"], home.people["user"]

        assert (alice.name, alice.passport) == ("alice", Passport(name="alice"))
        assert (repr(alice), repr(user)) == ("AgentClient('alice')", "HumanClient('user')")
        assert alice.agent_id == home.hub.participant("alice").agent_id


async def test_a_client_that_is_not_attached_says_so() -> None:
    client = AgentClient(Registration(agent_id="alice-1", passport=Passport(name="alice")))
    with pytest.raises(RuntimeError, match="not attached"):
        await client.open(target="bob")


async def test_a_client_that_has_closed_can_be_closed_again_and_does_nothing_more() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        await home["alice"].close()
        await home["alice"].close()
        with pytest.raises(ClientClosed, match=r"The client of 'alice' is closed\. Register 'alice' again"):
            await home.talk()


async def test_closing_twice_does_not_take_the_seat_from_the_next_one() -> None:
    """L6: the program closes a client by hand, registers the name again, and closes everything in the end."""
    async with house(MemoryLog(), "alice", "bob") as home:
        first = home["bob"]
        await first.close()
        second = await home.agent("bob")
        await first.close()
        second.on_turn(answers("still here"))
        channel = await home.open(A_B, message="hello")

        assert (await channel.result()).text == "still here"


async def test_what_is_open_stays_open_when_a_client_closes() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A, message="hello")
        await home["bob"].close()
        await quiet()
        assert (await channel.info()).status == "active"

        (await home.agent("bob")).on_turn(answers("back again"))
        await channel.wait_for(lambda e: "back again" in str(e.event_data))
        await channel.close()
        assert await closed(channel) == "closed"


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
