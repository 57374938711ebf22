from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tests.logs import OpenLog
from turnline.client.channel import Channel, set_context, update_context
from turnline.client.turn import Turn, TurnHandler
from turnline.core.channel import ChannelState, ForkedFrom
from turnline.core.expectations import turn_within
from turnline.core.governance import Rule
from turnline.core.graph import TransitionGraph, round_robin, sequence
from turnline.core.state import State
from turnline.errors import (
    BadSpec,
    ChannelQuarantined,
    Denied,
    NotParticipant,
    UnknownChannel,
    UnknownName,
    UnknownParticipant,
)
from turnline.hub.history import EVERY, MAX_DEPTH
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing import damage_memory

from .scenes import (
    A_B,
    CountingLog,
    House,
    answers,
    closed,
    house,
    quiet,
    refused,
    types,
    until,
)

TURNS = 50
AMONG = ("alice", "bob", "carol")


@asynccontextmanager
async def talkers(log: Log, **options: Any) -> AsyncIterator[House]:
    """Three who say the number of their turn; alice also counts hers in the context while she works."""
    async with house(log, *AMONG, **options) as home:
        for name in AMONG:
            home[name].on_turn(counting(name))
        yield home


def counting(name: str) -> TurnHandler:
    async def handler(turn: Turn) -> str:
        if name == "alice":
            await update_context(turn.channel, increment={"turns": 1})
        return f"{name} takes turn {turn.number}"

    return handler


async def fifty_turns(home: House) -> Channel:
    channel = await home.open(round_robin(AMONG, max_turns=TURNS), message="go")
    assert await closed(channel) == "max_turns"
    return channel


def conversation(state: State) -> dict[str, object]:
    """What a state says of the conversation, whichever channel it is."""
    names = ("expected_next_speaker", "last_speaker_id", "last_envelope_id", "turn_count", "context_vars")
    also = (
        "said",
        "said_by",
        "participant_order",
        "turn_vars",
        "turn_writes",
        "pending_close_reason",
        "status",
    )
    return {name: getattr(state, name) for name in (*names, *also)}


async def test_state_at_is_what_the_log_added_up_to_after_every_line(open_log: OpenLog) -> None:
    async with talkers(open_log()) as home:
        channel = await fifty_turns(home)
        every = [(line, state) async for line, state in home.hub.history.states(channel.channel_id)]

        assert [line.seq for line, _ in every] == [line.seq for line in await home.wal(channel)]
        for line, state in every:
            assert await home.hub.state_at(channel.channel_id, line.seq) == state
        assert every[-1][1] == await home.hub.state(channel.channel_id)
        assert [state.turn_count for _, state in every][-1] == TURNS


async def test_a_fork_at_every_line_of_fifty_turns_has_the_state_of_then_and_runs_on_to_a_close(
    open_log: OpenLog,
) -> None:
    async with talkers(open_log()) as home:
        channel = await fifty_turns(home)
        before = await home.wal(channel)
    for begins in range(0, len(before), 6):  # The hub is started again in between.
        async with talkers(open_log()) as home:
            every = (line.seq for line in before[begins : begins + 6])
            await asyncio.gather(*(check_fork(home, channel.channel_id, seq) for seq in every))
            assert await home.wal(channel) == before


async def check_fork(home: House, channel_id: str, at: int) -> None:
    fork_id = await home.hub.fork(channel_id, at=at)
    then, shared = await home.hub.state_at(channel_id, at), await home.hub.state_at(fork_id, at)

    assert replace(shared, spec=then.spec) == then
    assert shared.spec == replace(then.spec, channel_id=fork_id, forked_from=ForkedFrom(channel_id, at))
    assert conversation(await home.hub.state_at(fork_id, at + 1)) == conversation(then)
    if then.expected_next_speaker == home["alice"].agent_id and not then.turn_count and then.said == []:
        assert (await home.hub.state(fork_id)).turn_count >= 1  # Her opening words are said in the fork.
    assert await closed(home["alice"].channel(fork_id)) == "max_turns"
    end = await home.hub.state(fork_id)
    assert (end.turn_count, end.context_vars["turns"]) == (TURNS, (TURNS - 1) // 3)


async def test_a_fork_is_there_after_a_restart_and_goes_on(open_log: OpenLog) -> None:
    async with talkers(open_log()) as home:
        channel = await fifty_turns(home)
    async with house(open_log(), "dora") as home:  # Nobody of the channel is here.
        fork_id = await home.hub.fork(channel.channel_id, at=40)
        forked = await home.hub.state(fork_id)
        lines = await home.hub.read_wal(fork_id)
    async with talkers(open_log()) as home:
        handle = home["alice"].channel(fork_id)

        assert await closed(handle) == "max_turns"
        assert (await home.hub.read_wal(fork_id))[: len(lines)] == lines
        assert await home.hub.state_at(fork_id, forked.seq) == forked
        assert [line.seq for line in await home.wal(handle)] == list(range(1, (await handle.info()).seq + 1))


async def test_whoever_has_the_floor_of_a_fork_is_told_and_sees_the_conversation_so_far() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(sequence(["alice", "bob", "alice"]), message="one")
        await home.handle("bob", channel).send("two")
        at = (await channel.info()).seq
        await channel.send("three")
        fork_id = await home.hub.fork(channel.channel_id, at=at)
        seen = list[list[str]]()

        async def handler(turn: Turn) -> str:
            seen.append([message.text for message in await turn.messages()])
            return "another three"

        home["alice"].on_turn(handler)

        assert await closed(home["bob"].channel(fork_id)) == "sequence_complete"
        assert seen == [["one", "two"]]
        assert (await home.hub.list_channels(agent_id="bob"))[-1].channel_id == fork_id


async def test_an_idle_speaker_that_attaches_later_is_told_of_the_floor_it_has_in_a_fork() -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, message="one")
        fork_id = await home.hub.fork(channel.channel_id, at=(await channel.info()).seq)
    async with house(log, "alice", "bob") as home:
        home["bob"].on_turn(answers("two", "two"))

        assert await closed(home["alice"].channel(fork_id)) == "sequence_complete"
        assert await closed(home["alice"].channel(channel.channel_id)) == "sequence_complete"


async def test_the_past_is_not_told_again_to_whoever_listens() -> None:
    async with house(MemoryLog(), "alice", "bob", "carol") as home:
        channel = await home.open(round_robin(AMONG, max_turns=4), message="one")
        await home.handle("bob", channel).send("two")
        heard = list[str]()
        home["carol"].on_envelope(lambda one: heard.append(one.event_type))
        await until(lambda: "text" in heard)
        heard.clear()
        await home.hub.fork(channel.channel_id, at=(await channel.info()).seq)
        await quiet()

        assert heard == ["text", "channel.forked"]  # What gave her the floor, and the fork itself.


async def test_a_claim_is_not_carried_over_and_both_turns_are_taken() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        working, go_on = list[str](), asyncio.Event()

        @home["bob"].on_turn
        async def work(turn: Turn) -> str:
            working.append(turn.channel.channel_id)
            await go_on.wait()
            return "done"

        channel = await home.open(A_B, message="one")
        await until(lambda: working)
        claimed = (await home.wal(channel))[-1]
        assert claimed.event_type == "turn.claimed"
        fork_id = await home.hub.fork(channel.channel_id, at=claimed.seq)
        assert (await home.hub.state_at(fork_id, claimed.seq + 1)).claim is None
        await until(lambda: working == [channel.channel_id, fork_id])
        go_on.set()

        assert await closed(channel) == await closed(home["alice"].channel(fork_id)) == "sequence_complete"


async def test_l3_a_fork_of_a_channel_that_is_over_is_over() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="one")
        await home.handle("bob", channel).send("two")
        last = (await channel.info()).seq
        fork = home["alice"].channel(await home.hub.fork(channel.channel_id, at=last))

        assert (await fork.info()).status is ChannelState.CLOSED
        assert await closed(fork) == "sequence_complete"
        assert await home.hub.log.channels(closed=False) == [
            head for head in await home.hub.log.channels(closed=False) if head.channel_id.startswith("_")
        ]


async def test_a_fork_of_an_invitation_is_open_for_nobody_is_asked_again() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="one")
        fork_id = await home.hub.fork(channel.channel_id, at=1)
        state = await home.hub.state(fork_id)

        assert (state.status, state.awaiting) == (ChannelState.ACTIVE, [])
        assert state.expected_next_speaker == home["bob"].agent_id
        assert types(await home.hub.read_wal(fork_id)) == [
            "channel.invite",
            "channel.forked",
            "channel.opened",
            "text",
        ]


@pytest.mark.parametrize("graph", [A_B, sequence(["bob", "alice"])], ids=["own turn", "said before the turn"])
async def test_w6_a_fork_between_the_opening_and_the_opening_words_says_them(graph: TransitionGraph) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(graph, message="one")
        opened = next(one.seq for one in await home.wal(channel) if one.event_type == "channel.opened")
        fork_id = await home.hub.fork(channel.channel_id, at=opened)
        origin, fork = await home.hub.state(channel.channel_id), await home.hub.state(fork_id)

        assert fork.expected_next_speaker == origin.expected_next_speaker == home["bob"].agent_id
        assert fork.turn_count == origin.turn_count
        assert [who for _, who in fork.said] == [home["alice"].agent_id]


async def test_deadlines_of_a_fork_are_measured_from_the_fork() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="one", ttl=1000, expectations=[turn_within(300)])
        last = (await channel.info()).seq
        await home.pass_time(500)
        fork = home["alice"].channel(await home.hub.fork(channel.channel_id, at=last))
        assert (await home.types(channel))[last:] == ["expectation.violated"]
        await home.pass_time(299)
        assert (await home.types(fork))[last:] == ["channel.forked"]
        await home.pass_time(300)

        assert (await channel.info()).status is ChannelState.EXPIRED
        assert (await home.types(fork))[last:] == ["channel.forked", "expectation.violated"]
        await home.pass_time(500)
        assert await closed(fork) == "ttl_expired"


async def test_a_fork_of_a_fork_has_the_past_of_both_and_a_shared_line_is_read_where_it_is() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(round_robin(["alice", "bob"], max_turns=6), message="one")
        at = (await channel.info()).seq
        first = home["bob"].channel(await home.hub.fork(channel.channel_id, at=at))
        await first.send("two, otherwise")
        seq = (await first.info()).seq
        second = await home.hub.fork(first.channel_id, at=seq)
        shared = await home.hub.fork(second, at=at)

        said = [one.event_data["text"] for one in await home.hub.read_wal(second) if one.event_type == "text"]
        assert said == ["one", "two, otherwise"]
        assert (await home.hub.state(second)).spec.forked_from == ForkedFrom(first.channel_id, seq)
        assert (await home.hub.state(shared)).spec.forked_from == ForkedFrom(channel.channel_id, at)


async def test_forks_of_forks_have_an_end() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel_id = (await home.talk()).channel_id
        for _ in range(MAX_DEPTH):
            channel_id = await home.hub.fork(channel_id, at=(await home.hub.state(channel_id)).seq)

        error = await refused(BadSpec, home.hub.fork(channel_id, at=(await home.hub.state(channel_id)).seq))
        assert f"{MAX_DEPTH} deep" in str(error)


async def test_members_and_operators_may_fork_and_the_audit_says_who() -> None:
    async with house(MemoryLog(), "alice", "bob", "eve") as home:
        channel = await home["alice"].open("conversation", "bob", message="hi")
        await refused(NotParticipant, home.hub.fork(channel.channel_id, at=3, by="eve"))
        await refused(UnknownParticipant, home.hub.fork(channel.channel_id, at=3, by="nobody"))
        by_bob = await home.hub.fork(channel.channel_id, at=3, by="bob")
        by_us = await home.hub.fork(channel.channel_id, at=3)

        forks = {one["channel_id"]: one["by"] for one in await home.audited("channel_forked")}
        assert forks == {by_bob: home["bob"].agent_id, by_us: "operator"}


async def test_a_rule_that_forbids_to_open_forbids_to_fork() -> None:
    async with house(MemoryLog(), "alice") as home:
        await home.agent("bob", rule=Rule(channel_types=["workflow"]))
        channel = await home["alice"].open("conversation", "bob", message="hi")

        await refused(Denied, home.hub.fork(channel.channel_id, at=3, by="bob"))


async def test_a_line_the_channel_does_not_have_is_refused_by_name() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        last = (await channel.info()).seq
        for seq in (0, -1, last + 1):
            error = await refused(UnknownName, home.hub.state_at(channel.channel_id, seq))
            assert f"1 to {last}" in str(error)
            await refused(UnknownName, home.hub.fork(channel.channel_id, at=seq))
            await refused(UnknownName, home.hub.why(channel.channel_id, seq))
        await refused(UnknownChannel, home.hub.state_at("nowhere", 1))
        await refused(UnknownChannel, home.hub.fork("_audit", at=1))


async def test_e5_a_fork_of_an_unreadable_channel_is_quarantined_and_names_it() -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, message="one")
        fork_id = await home.hub.fork(channel.channel_id, at=4)
    damage_memory(log, channel.channel_id, 2)
    async with house(log, "alice", "bob") as home:
        error = await refused(ChannelQuarantined, home.hub.state(fork_id))
        assert f"fork of {channel.channel_id!r}" in str(error)
        await refused(ChannelQuarantined, home.hub.fork(channel.channel_id, at=4))
        await refused(ChannelQuarantined, home.hub.state_at(channel.channel_id, 3))
        assert (await home.hub.state_at(channel.channel_id, 1)).status is ChannelState.PENDING
        await home.talk()


async def test_e5_a_fork_whose_own_first_line_is_damaged_costs_nobody_else() -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, message="one")
        fork_id = await home.hub.fork(channel.channel_id, at=4)
    damage_memory(log, fork_id, 1)
    async with house(log, "alice", "bob") as home:
        await refused(ChannelQuarantined, home.hub.state(fork_id))
        assert fork_id in home.hub.health().quarantined
        listed = [one.channel_id for one in await home.hub.list_channels()]
        assert listed == [channel.channel_id, fork_id]
        await home.talk()


async def test_moving_a_slider_over_a_long_channel_reads_a_page_at_a_time() -> None:
    log = CountingLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.talk(message="hi")
        for number in range(3 * EVERY):
            await set_context(channel, "number", number)
        last = (await channel.info()).seq
        assert (await home.hub.state_at(channel.channel_id, last - 1)).context_vars["number"] == 3 * EVERY - 2
        log.read_of.clear()
        for seq in range(last - 1, last - 11, -1):
            await home.hub.state_at(channel.channel_id, seq)

        assert log.read_of[channel.channel_id] <= 10 * EVERY


async def test_e1_sending_an_envelope_of_the_past_again_in_a_fork_is_answered_with_the_first() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        first = await channel.send("hello", envelope_id="the-first")
        fork = home["alice"].channel(await home.hub.fork(channel.channel_id, at=first.seq))
        again = await fork.send("hello", envelope_id="the-first")

        assert (again.seq, again.channel_id) == (first.seq, fork.channel_id)


async def test_a_hub_is_asked_why_the_floor_moved() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="one")
        said = (await channel.info()).seq
        told = await home.hub.why(channel.channel_id, said)

        assert (told.turn, told.speaker) == (1, "alice")
        assert [rule.kind for rule in told.rules if rule.decided] == ["transition"]
        assert (await home.hub.why(channel.channel_id, 1)).decision is None
