"""A participant's handle on a channel (L5, C1, C3, E1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.hub.scenes import (
    A_B,
    A_B_A,
    SAFETY_SECONDS,
    House,
    add_one,
    begin,
    house,
    is_closed,
    quiet,
    refused,
    types,
)
from turnline.agent.messages import Usage
from turnline.client.channel import Channel, Line, RunResult, delete_context, set_context, update_context
from turnline.core.channel import ChannelState
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CONTEXT_SET, EV_PACKET
from turnline.core.routing import packet
from turnline.errors import BadDraft, ChannelClosed, ContextMismatch, UnknownChannel
from turnline.log.memory import MemoryLog


async def finished(home: House) -> Channel:
    channel = await home.open(A_B, message="hello")
    await home.handle("bob", channel).send("bye")
    return channel


# --- sending ---


async def test_a_send_returns_the_envelope_it_became() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        said = await channel.send("hello", causation_id="because", priority=2, envelope_id="mine")

        assert (said.sender_id, said.event_type, said.event_data) == (
            home["alice"].agent_id,
            "text",
            {"text": "hello"},
        )
        assert (said.envelope_id, said.causation_id, said.priority) == ("mine", "because", 2)
        assert said.created_at == home.clock.now()


async def test_every_send_has_an_id_of_its_own() -> None:
    """E1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        ids = [(await channel.send("hello")).envelope_id for _ in range(3)]

        assert len(set(ids)) == 3


async def test_an_applications_own_type_is_kept_and_delivered() -> None:
    """E3: it moves nothing."""
    async with house(MemoryLog(), "alice", "bob") as home:
        heard: list[Envelope] = []
        home["bob"].on_envelope(heard.append)
        channel = await home.open(A_B)
        note = await channel.send(event_type="acme.note", event_data={"stars": 5})
        await quiet()

        assert heard[-1] == note
        assert (await channel.info()).turn_count == 0


async def test_what_is_sent_is_copied() -> None:
    """E2: changing it afterwards changes nothing on the log."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        data: dict[str, Any] = {"text": "hello", "list": [1]}
        await channel.send(event_data=data)
        data["list"].append(2)

        assert (await home.wal(channel))[-1].event_data["list"] == [1]


# --- context variables ---


async def test_set_and_delete_context_tell_nobody_and_move_nothing() -> None:
    """C1, C2, C3."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, knobs={"context_vars": {"old": 1}})
        line = await set_context(channel, "route", {"to": "north"})
        await delete_context(home.handle("bob", channel), "old", "never set")
        state = await channel.state()

        assert (line.event_type, line.audience) == (EV_CONTEXT_SET, [])
        assert state.context_vars == {"route": {"to": "north"}}
        assert (state.turn_count, state.expected_next_speaker) == (0, home["alice"].agent_id)


async def test_update_context_applies_all_or_nothing() -> None:
    """C1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, knobs={"context_vars": {"n": 1, "old": True}})
        await update_context(
            channel, expect={"n": 1}, delete=["old"], set={"x": 1}, increment={"n": 2}, append={"l": "a"}
        )
        assert (await channel.state()).context_vars == {"n": 3, "x": 1, "l": ["a"]}

        error = await refused(ContextMismatch, update_context(channel, expect={"n": 1}, set={"x": 2}))
        assert (error.key, error.found) == ("n", 3)
        assert (await channel.state()).context_vars["x"] == 1


@pytest.mark.parametrize("parts", [{"set": {"_mine": 1}}, {"delete": ["_mine"]}, {"colour": 1}, {}])
async def test_a_context_update_that_is_none_is_refused(parts: dict[str, Any]) -> None:
    """C1, C4."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await refused(BadDraft, update_context(channel, **parts))


# --- L5: every participant's own handle ---


async def test_every_participant_has_its_own_handle() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob", people=["user"]) as home:
        channel = await home.open(A_B_A)
        for name in ("alice", "bob", "user"):
            handle = home.handle(name, channel)
            assert (await handle.info()).channel_id == channel.channel_id
            assert (await handle.interject("hi")).sender_id == (home.agents | home.people)[name].agent_id
        assert home["bob"].agent_id in repr(home.handle("bob", channel))


async def test_a_handle_on_a_channel_that_does_not_exist_says_so_when_it_is_used() -> None:
    async with house(MemoryLog(), "alice") as home:
        handle = home["alice"].channel("nowhere")
        await refused(UnknownChannel, handle.send("hello"))
        await refused(UnknownChannel, handle.result())


# --- result ---


async def test_a_result_says_how_it_ended() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, knobs={"context_vars": {"n": 1}})
        waiting = begin(channel.result())
        said = packet("hello", context_updates={"n": 2}) | {"usage": {"cost": 0.25}}
        await channel.send(event_type=EV_PACKET, event_data=said)
        answer = packet("bye") | {"usage": {"cost": 0.5}}
        await home.handle("bob", channel).send(event_type=EV_PACKET, event_data=answer)

        result = await waiting
        assert result == RunResult(
            channel_id=channel.channel_id,
            reason="sequence_complete",
            text="bye",
            transcript=[
                Line(speaker="alice", text="hello", why=result.transcript[0].why),
                Line(speaker="bob", text="bye", why=result.transcript[1].why),
            ],
            context_vars={"n": 2},
            turns=2,
            usage=Usage(cost=0.75),
        )
        assert [one.why and one.why.kind for one in result.transcript] == ["transition", "default"]


async def test_a_result_that_takes_too_long_is_a_timeout() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await refused(TimeoutError, channel.result(timeout=0.01))

        assert (await channel.info()).status is ChannelState.ACTIVE


# --- stream ---


async def test_a_stream_gives_what_was_said_and_what_is_said_until_the_end() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        streamed: list[Envelope] = []

        async def follow() -> None:
            async for envelope in channel.stream():
                streamed.append(envelope)

        following = begin(follow())
        await quiet()
        assert types(streamed)[-1] == "text"
        await home.handle("bob", channel).send("bye")
        await following

        assert types(streamed) == ["channel.opened", "text", "text", "channel.closed"]


async def test_a_stream_can_begin_behind_a_line() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await finished(home)
        lines = await home.wal(channel)

        assert [e async for e in channel.stream(since=4)] == lines[4:]
        assert [e async for e in channel.stream(since=len(lines) - 1)] == lines[-1:]


async def test_a_stream_that_begins_behind_the_last_line_ends_at_once() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await finished(home)
        end = (await channel.info()).seq

        assert [e async for e in channel.stream(since=end)] == []
        await refused(ChannelClosed, channel.wait_for(is_closed, since=end))


async def test_a_long_channel_is_streamed_whole() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        for number in range(600):
            await channel.send(str(number))
        await channel.close()
        said = [e.event_data["text"] async for e in channel.stream() if e.event_type == "text"]

        assert said == [str(number) for number in range(600)]


# --- waiting for something ---


async def test_waiters_never_take_events_from_each_other() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)

        def is_bobs(envelope: Envelope) -> bool:
            return envelope.sender_id == home["bob"].agent_id

        waiters = [begin(home.handle(n, channel).wait_for(is_bobs)) for n in ("alice", "alice", "bob")]
        await quiet()
        await channel.send("hello")
        said = await home.handle("bob", channel).send("bye")

        assert [await waiter for waiter in waiters] == [said] * 3


async def test_an_event_that_happened_before_the_wait_is_found() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await finished(home)
        found = await home["bob"].wait_for_channel_event(
            channel_id=channel.channel_id, predicate=is_closed, timeout=SAFETY_SECONDS
        )

        assert found.event_data["reason"] == "sequence_complete"


async def test_waiting_for_what_never_happens_ends_with_the_channel_or_the_time() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await refused(TimeoutError, channel.wait_for(lambda e: False, timeout=0.01))
        waiting = begin(channel.wait_for(lambda e: False))
        await quiet()
        await channel.close("enough")
        with pytest.raises(ChannelClosed, match="enough"):
            await waiting


async def test_a_waiter_that_is_cancelled_leaves_the_others_waiting() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        one, two = [begin(channel.wait_for(is_closed)) for _ in range(2)]
        await quiet()
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        await channel.close()

        assert (await two).event_type == "channel.closed"


async def test_a_state_is_a_copy() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        (await channel.state()).context_vars["mine"] = True
        await add_one(channel)

        assert (await channel.state()).context_vars == {"n": 1}
