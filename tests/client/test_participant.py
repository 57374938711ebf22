"""What an agent's client and a person's have in common: opening, listening, leaving."""

from __future__ import annotations

import asyncio

import pytest

from tests.hub.scenes import A_B, A_B_A, answers, closed, house, is_closed, quiet, until
from turnline.client.agent_client import AgentClient
from turnline.client.participant import ParticipantClient
from turnline.core.envelope import Envelope
from turnline.core.expectations import turn_within
from turnline.core.governance import Passport, Registration
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
