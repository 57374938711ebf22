"""A turn (T1, T4, T5, C3, W8, W10): claim it, work on it, commit it with one packet."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.hub.scenes import (
    A_B,
    A_B_A,
    FailingLog,
    House,
    add_one,
    answers,
    begin,
    closed,
    house,
    quiet,
    refused,
    until,
)
from tests.turn_lines import take_turn
from turnline.agent.agent import Agent
from turnline.agent.scripted import ScriptedModel
from turnline.client.channel import Channel, set_context, update_context
from turnline.client.run import run
from turnline.client.turn import Turn, TurnHandler
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_PACKET, EV_TURN_CLAIMED, EV_TURN_RELEASED
from turnline.core.graph import Transition, TransitionGraph, round_robin, sequence
from turnline.core.routing import Handoff, ToolOutcome, packet
from turnline.core.transitions import AgentTarget, Always, ContextEquals, TerminateTarget, TurnFailed
from turnline.core.views import Message
from turnline.errors import ChannelClosed, LogUnavailable
from turnline.hub.retry import RETRY_SECONDS
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog


async def played(home: House, handler: TurnHandler, **given: Any) -> Channel:
    """Alice says hello, bob's turn is `handler`'s; return the channel once it has closed."""
    home["bob"].on_turn(handler)
    channel = await home.open(A_B, message="hello", **given)
    await closed(channel)
    return channel


async def packets(home: House, channel: Channel) -> list[Envelope]:
    return [e for e in await home.wal(channel) if e.event_type == "packet"]


def says(text: str, envelope: Envelope) -> bool:
    return text in str(envelope.event_data)


# --- T4: the packet ---


@pytest.mark.parametrize(
    ("said", "data"),
    [
        ("bye", {"body": "bye", "routing": {"kind": "text"}}),
        (None, {"body": "", "routing": {"kind": "text"}}),
        ("", {"body": "", "routing": {"kind": "text"}}),
        (packet("bye", context_updates={"n": 1}), packet("bye", context_updates={"n": 1})),
    ],
    ids=["text", "none", "empty", "packet"],
)
async def test_what_a_handler_returns_is_the_packet(said: str | JsonObject | None, data: JsonObject) -> None:
    """T4: an empty round still commits, and the graph moves on."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await played(home, answers(said))
        (one,) = await packets(home, channel)

        assert one.event_data == data
        assert (await channel.info()).close_reason == "sequence_complete"


async def test_a_turn_is_claimed_then_committed() -> None:
    """T1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await played(home, answers("bye"))

        assert (await home.types(channel))[-4:] == ["text", "turn.claimed", "packet", "channel.closed"]


@pytest.mark.parametrize("returns", [None, "and once more"])
async def test_a_handler_that_speaks_through_its_turn_commits_once(returns: str | None) -> None:
    """T4."""
    async with house(MemoryLog(), "alice", "bob") as home:

        async def handler(turn: Turn) -> str | None:
            await turn.channel.send("said by hand")
            return returns

        channel = await played(home, handler)

        assert await packets(home, channel) == []
        assert (await channel.result()).text == "said by hand"
        assert (await channel.info()).turn_count == 2


async def test_a_handler_that_speaks_and_is_asked_again_speaks_once_a_turn() -> None:
    """T4: the floor has come back to it when it returns."""
    async with house(MemoryLog(), "alice", "bob") as home:

        async def handler(turn: Turn) -> None:
            await turn.channel.send(f"turn {turn.number}")

        home["bob"].on_turn(handler)
        channel = await home.open(sequence(["alice", "bob", "bob", "bob"]), message="hello")

        assert await closed(channel) == "sequence_complete"
        assert (await channel.result()).text == "turn 4"


async def test_a_handler_that_closes_the_channel_is_done() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:

        async def handler(turn: Turn) -> str:
            await turn.channel.close("that is all")
            return "too late"

        channel = await played(home, handler)

        assert (await channel.info()).close_reason == "that is all"
        assert await packets(home, channel) == []


async def test_a_handler_learns_what_gave_it_the_floor() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        turns: list[Turn] = []

        async def handler(turn: Turn) -> str:
            turns.append(turn)
            return "bye"

        channel = await played(home, handler)
        (turn,) = turns

        assert (turn.number, turn.envelope.event_data) == (2, {"text": "hello"})
        assert turn.channel.channel_id == channel.channel_id
        assert turn.claim.agent_id == home["bob"].agent_id


async def test_a_handler_is_shown_the_conversation() -> None:
    """W10: names on the others' lines, its own as its own, the older ones summed up."""
    async with house(MemoryLog(), "alice", "bob") as home:
        shown: list[list[Message]] = []

        async def handler(turn: Turn) -> str:
            shown.append(await turn.messages())
            return f"bob {turn.number}"

        home["bob"].on_turn(handler)
        channel = await home.open(sequence(["alice", "bob"] * 3))
        for number in (1, 3, 5):
            if number > 1:
                await channel.wait_for(partial(says, f"bob {number - 1}"))
            await set_context(channel, "n", number)
            await channel.send(f"alice {number}")
        await closed(channel)

        assert shown[0] == [Message("other", "alice", "alice 1")]
        assert shown[1][-1] == Message("other", "alice", "alice 3")
        assert shown[1][1] == Message("own", "bob", "bob 2")
        assert shown[2][0] == Message("note", "", "Earlier, not shown: 1 messages by alice (1).")
        assert len(shown[2]) == 5


# --- C3: context in a turn ---


async def test_a_turn_reads_its_own_writes_and_two_increments_make_two() -> None:
    """C3."""
    async with house(MemoryLog(), "alice", "bob") as home:

        async def handler(turn: Turn) -> str:
            await asyncio.gather(add_one(turn.channel), add_one(turn.channel))
            seen = (await turn.channel.state()).context_vars["n"]
            await set_context(turn.channel, "m", seen + 1)  # As seed 004 spells it.
            await set_context(turn.channel, "m", (await turn.channel.state()).context_vars["m"] + 1)
            return f"n is {seen}"

        channel = await played(home, handler)

        assert (await channel.result()).text == "n is 2"
        assert (await channel.result()).context_vars == {"n": 2, "m": 4}


async def test_what_a_turn_writes_is_tagged_with_it_and_seen_by_its_own_rules() -> None:
    """C2, C3."""
    done = Transition(ContextEquals("done", True), TerminateTarget("approved"))
    graph = TransitionGraph("alice", [done, Transition(Always(), AgentTarget("bob"))], TerminateTarget())
    async with house(MemoryLog(), "alice", "bob") as home:

        @home["bob"].on_turn
        async def bob(turn: Turn) -> str:
            written = await set_context(turn.channel, "done", True)
            assert written.causation_id == turn.claim.envelope_id
            return "fine by me"

        channel = await home.open(graph, message="please review")

        assert await closed(channel) == "approved"


# --- T5: giving up ---


def raises(error: Exception) -> TurnHandler:
    async def handler(turn: Turn) -> str:
        await update_context(turn.channel, set={"written": "in the turn"}, increment={"n": 1})
        raise error

    return handler


async def test_a_handler_that_raises_gives_the_turn_up() -> None:
    """T5: what it wrote is undone, the error is on the log, the channel closes."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await played(home, raises(ValueError("no such customer")), knobs={"context_vars": {"n": 1}})
        failed = next(e for e in await home.wal(channel) if e.event_type == "turn.failed")
        result = await channel.result()

        assert failed.event_data["error"] == {"type": "ValueError", "message": "no such customer"}
        assert failed.event_data["agent_id"] == home["bob"].agent_id
        assert (result.reason, result.context_vars) == ("turn_failed", {"n": 1})


async def test_a_rule_for_failed_turns_goes_first() -> None:
    """T5: an observer's write stays."""
    mend = Transition(TurnFailed(), AgentTarget("alice"))
    graph = TransitionGraph(
        "alice", [mend, Transition(Always(), AgentTarget("bob"))], TerminateTarget(), max_turns=3
    )
    async with house(MemoryLog(), "alice", "bob", people=["user"]) as home:

        @home["bob"].on_turn
        async def bob(turn: Turn) -> str:
            await set_context(turn.channel, "by", "bob")
            await set_context(home.handle("user", turn.channel), "seen", True)
            raise ValueError("no such customer")

        home["alice"].on_turn(answers("I will do it"))
        channel = await home.open(graph, message="hello")
        result = await channel.result()

        assert (result.reason, result.text, result.context_vars) == (
            "max_turns",
            "I will do it",
            {"seen": True},
        )


@pytest.mark.parametrize(
    "said",
    [
        packet("over to you", [ToolOutcome(tool="t", succeeded=True, returned=Handoff("nobody"))]),
        {"body": 5},
        {"colour": "red"},
        {"body": "x", "context_updates": {"_mine": 1}},
        {"body": float("nan")},
        {"body": "x" * (1024 * 1024)},
    ],
    ids=["handoff to nobody", "body", "key", "reserved", "nan", "size"],
)
async def test_a_packet_that_is_refused_fails_the_turn_and_never_wedges_the_channel(said: JsonObject) -> None:
    """W8, T5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await played(home, answers(said))

        assert (await channel.info()).close_reason == "turn_failed"


async def test_an_error_from_another_channel_fails_the_turn_like_any_other() -> None:
    """T5: `ChannelClosed` of a channel the handler used is not the end of its own."""
    async with house(MemoryLog(), "alice", "bob") as home:
        other = await home.talk()
        await other.close()

        async def handler(turn: Turn) -> str:
            await other.send("are you there?")
            return "not reached"

        channel = await played(home, handler)

        assert (await channel.info()).close_reason == "turn_failed"


async def test_an_error_message_is_cut_and_has_no_traceback() -> None:
    """T5: K1's rule holds for the log as well."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await played(home, raises(RuntimeError("x" * 10_000)))
        failed = next(e for e in await home.wal(channel) if e.event_type == "turn.failed")

        assert len(failed.event_data["error"]["message"]) == 500
        assert __file__ not in str(await home.wal(channel))


# --- what is not the turn's fault ---


async def test_a_log_that_fails_when_the_packet_is_written_neither_fails_nor_repeats_the_turn() -> None:
    """An outage ends no runs. The worker keeps its claim, and writes the packet later."""
    log = FailingLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        attempts: list[int] = []

        async def handler(turn: Turn) -> str:
            attempts.append(turn.claim.seq)
            if len(attempts) == 1:
                log.fail_append = LogUnavailable("here", because="the disk is full")
            return "bye"

        floor = (await home.wal(channel))[-1]
        taking = begin(take_turn(home["bob"].seat, floor, handler))
        await quiet()
        state = await channel.state()
        assert (len(attempts), state.turn_count) == (1, 1)

        home.clock.advance(RETRY_SECONDS)
        await taking
        assert (await channel.result()).text == "bye"
        assert len(attempts) == 1


async def test_a_turn_whose_channel_closes_meanwhile_is_dropped() -> None:
    """L3."""
    async with house(MemoryLog(), "alice", "bob") as home:
        let, working = asyncio.Event(), asyncio.Event()

        @home["bob"].on_turn
        async def bob(turn: Turn) -> str:
            working.set()
            await let.wait()
            return "too late"

        channel = await home.open(A_B, message="hello")
        await working.wait()
        await channel.close("enough")
        let.set()
        await quiet()

        assert (await home.types(channel))[-1] == "channel.closed"
        await refused(ChannelClosed, home.handle("bob", channel).send("really"))


async def test_a_floor_that_has_moved_on_is_not_taken() -> None:
    """T1: told late, or told twice."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        floor = await channel.send("hello")
        await home.handle("bob", channel).send("I was faster")
        await take_turn(home["bob"].seat, floor, answers())

        assert "turn.claimed" not in await home.types(channel)


async def test_a_turn_that_is_worked_on_is_not_begun_again() -> None:
    """T1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        floor = await channel.send("hello")
        let, begun = asyncio.Event(), list[int]()

        async def handler(turn: Turn) -> str:
            begun.append(turn.number)
            await let.wait()
            return "once"

        taking = [begin(take_turn(home["bob"].seat, floor, handler)) for _ in range(3)]
        await until(lambda: begun)
        await quiet()
        let.set()
        await asyncio.gather(*taking)

        assert begun == [2]
        assert len(await packets(home, channel)) == 1


async def test_a_failed_turn_is_logged_with_its_reason_and_the_place_of_the_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stumbles(turn: Turn) -> str:
        raise ValueError("no such customer")

    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await played(home, stumbles)

    (text,) = (one.getMessage() for one in caplog.records)
    what = f"turn 2 of 'bob' on channel {channel.channel_id}"
    assert text.startswith(f"{what} failed: ValueError: no such customer\n")
    assert f'File "{__file__}"' in text
    assert "in stumbles" in text


async def test_n6_agents_that_answer_each_other_claim_each_turn_once(tmp_path: Path) -> None:
    """The next floor may come while the task of the last turn ends: its claim is not released for that."""
    turns = 60
    agents = [Agent(name, config=ScriptedModel(*["Well said."] * turns)) for name in ("ann", "ben")]
    graph = round_robin([agent.name for agent in agents], max_turns=turns)
    path = tmp_path / "log.db"
    log = SqliteLog(path, durability="process")
    await run(graph, agents=agents, message="Begin.", log=log, channel_id="chat")
    log = SqliteLog(path)
    types = Counter([line.event_type async for line in log.read("chat")])
    await log.close()

    assert (types[EV_TURN_CLAIMED], types[EV_TURN_RELEASED], types[EV_PACKET]) == (turns, 0, turns)
