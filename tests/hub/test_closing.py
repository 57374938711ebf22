"""L3, L4: how channels end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.turn_lines import claim_own
from turnline.client.channel import Channel
from turnline.client.turn import Turn
from turnline.core.channel import ChannelRow, ChannelState
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_PACKET
from turnline.core.graph import Transition, TransitionGraph, round_robin
from turnline.core.routing import Finish, ToolOutcome, packet
from turnline.core.transitions import AgentTarget, TerminateTarget, TurnFailed
from turnline.errors import ChannelClosed
from turnline.log.memory import MemoryLog

from .scenes import A_B, A_B_A, CountingLog, House, answers, closed, house, refused, types

Ending = Callable[[House], Awaitable[Channel]]


# --- L4: ways to close ---


async def by_graph(home: House) -> Channel:
    channel = await home.open(A_B, message="hello")
    await home.handle("bob", channel).send("bye")
    return channel


async def by_max_turns(home: House) -> Channel:
    return await home.open(round_robin(["alice", "bob"], max_turns=1), message="hello")


async def by_finish(home: House) -> Channel:
    channel = await home.open(A_B_A)
    finish = ToolOutcome(tool="done", succeeded=True, returned=Finish("solved"))
    await channel.send(event_type=EV_PACKET, event_data=packet("done", [finish]))
    return channel


async def by_request(home: House) -> Channel:
    channel = await home.open(A_B_A)
    await home.handle("bob", channel).close("bored")
    return channel


async def by_ttl(home: House) -> Channel:
    channel = await home.open(A_B_A, ttl=90)
    await home.pass_time(90)
    return channel


async def by_expectation(home: House) -> Channel:
    channel = await home.open(A_B_A)
    await home.pass_time(600)
    return channel


async def by_failed_turn(home: House) -> Channel:
    @home["bob"].on_turn
    async def bob(turn: Turn) -> str:
        raise RuntimeError("out of ideas")

    channel = await home.open(A_B_A, message="hello")
    await closed(channel)
    return channel


async def by_adapter(home: House) -> Channel:
    channel = await home["alice"].open(type="consulting", target="bob", message="a question")
    await home.handle("bob", channel).send("an answer")
    return channel


WAYS: list[tuple[Ending, str]] = [
    (by_graph, "sequence_complete"),
    (by_max_turns, "max_turns"),
    (by_finish, "solved"),
    (by_request, "bored"),
    (by_ttl, "ttl_expired"),
    (by_expectation, "expectation_violated:turn_within"),
    (by_failed_turn, "turn_failed"),
    (by_adapter, "consulting_complete"),
]


@pytest.mark.parametrize(("end", "reason"), WAYS, ids=[end.__name__ for end, _ in WAYS])
async def test_every_way_to_close_has_its_reason_on_the_log_and_in_the_metadata(
    end: Ending, reason: str
) -> None:
    """L4; L3: the last line is the close, and it came with what led to it."""
    log = CountingLog()
    async with house(log, "alice", "bob") as home:
        channel = await end(home)
        lines = await home.wal(channel)
        info = await channel.info()

        assert lines[-1].event_type == EV_CHANNEL_CLOSED
        assert lines[-1].event_data["reason"] == info.close_reason == reason
        assert info.status is (ChannelState.EXPIRED if end is by_ttl else ChannelState.CLOSED)
        assert info.closed_at == lines[-1].created_at
        assert (await channel.result()).reason == reason
        await home.hub.audit_log.flush()
        assert [one.channel_id for one in await log.channels(closed=False)] == ["_audit", "_directory"]


@pytest.mark.parametrize("end", [end for end, _ in WAYS], ids=[end.__name__ for end, _ in WAYS])
async def test_nobody_speaks_after_the_last_word(end: Ending) -> None:
    """L3."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await end(home)
        before = await home.wal(channel)
        for name in ("alice", "bob"):
            handle = home.handle(name, channel)
            await refused(ChannelClosed, handle.send("one more thing"))
            await refused(ChannelClosed, handle.interject("one more thing"))
            await handle.close("again")  # It is closed already, and stays as it is.

        assert await home.wal(channel) == before


@pytest.mark.parametrize("end", [by_graph, by_finish, by_ttl, by_expectation, by_failed_turn])
async def test_what_ends_a_channel_and_the_close_are_one_append(end: Ending) -> None:
    """L3: no crash falls between them."""

    class Batches(CountingLog):
        def __init__(self) -> None:
            super().__init__()
            self.last: dict[str, list[str]] = {}

        async def append(
            self, channel_id: str, envelopes: Any, *, after: int, row: ChannelRow | None = None
        ) -> None:
            await super().append(channel_id, envelopes, after=after, row=row)
            self.last[channel_id] = types(envelopes)

    log = Batches()
    async with house(log, "alice", "bob") as home:
        channel = await end(home)

        last = log.last[channel.channel_id]
        assert last[-1] == EV_CHANNEL_CLOSED
        assert len(last) > 1


async def test_a_turn_in_flight_is_abandoned_when_the_channel_closes() -> None:
    """L3, T5: what it wrote never counted, and its packet is refused."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        claim = await claim_own(home["alice"].seat, channel.channel_id, 1)
        await home.handle("bob", channel).close("enough")
        late = Channel(home["alice"].seat, channel.channel_id, claim=claim.seq)

        assert (await home.types(channel))[-2:] == ["turn.abandoned", EV_CHANNEL_CLOSED]
        await refused(ChannelClosed, late.send("too late"))


async def test_a_failed_turn_can_have_a_rule_of_its_own() -> None:
    """T5."""
    graph = TransitionGraph(
        "bob", [Transition(TurnFailed(), AgentTarget("alice"))], TerminateTarget("mended")
    )
    async with house(MemoryLog(), "alice", "bob") as home:
        home["alice"].on_turn(answers("I take over"))

        @home["bob"].on_turn
        async def bob(turn: Turn) -> str:
            raise RuntimeError("out of ideas")

        channel = await home.open(graph)
        result = await channel.result()

        assert (result.reason, result.text) == ("mended", "I take over")
