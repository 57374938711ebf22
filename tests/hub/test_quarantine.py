"""E5, R6: one bad channel costs that channel, never the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from turnline.core.adapter import Manifest
from turnline.core.adapters import TurnTaking
from turnline.core.envelope import Basis, Decision, Envelope, Speak
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CHANNEL_OPENED
from turnline.core.governance import Registration
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.state import State
from turnline.core.transitions import Always, StayTarget, TerminateTarget, register_condition
from turnline.errors import ChannelQuarantined, CorruptRecord, UnknownName
from turnline.log.memory import MemoryLog

from ..logs import FullLog, LogPlace, OpenLog
from .scenes import A_B_A, SAFETY_SECONDS, House, add_one, house, on_log, refused, types

ALWAYS_ALICE: Final = TransitionGraph("alice", [Transition(Always(), StayTarget())], TerminateTarget("over"))


class Echo(TurnTaking[State]):
    """A program's own channel type: the opener speaks for ever."""

    manifest = Manifest(type="echo")
    state_type = State

    def route(self, state: State, envelope: Envelope) -> Decision:
        return Speak(state.creator_id, Basis(kind="adapter"))


class Broken(Echo):
    """The same type in the next version of the program, which has a fault."""

    def fold(self, state: State, envelope: Envelope) -> State:
        raise LookupError("a fault in the adapter")


def register(name_: str) -> None:
    """Do what the program does that knows the condition."""

    @register_condition
    @dataclass(frozen=True)
    class Custom:
        name: ClassVar[str] = name_

        def evaluate(self, state: Any, envelope: Envelope) -> bool:
            return True


def custom_channel(members: Sequence[Registration], condition: str, channel_id: str) -> list[Envelope]:
    """An open channel whose graph has a condition that only its own program knows."""
    graph = ALWAYS_ALICE.to_dict()
    graph["transitions"][0]["when"] = {"name": condition, "args": {}}
    floor = Speak(members[0].agent_id, Basis(kind="initial"))
    return on_log(
        members,
        (EV_CHANNEL_OPENED, {}, floor),
        channel_id=channel_id,
        type="workflow",
        knobs={"graph": graph},
    )


async def assert_quarantined(home: House, bad: str, good: str, cause: type[Exception]) -> None:
    """Touching `bad` raises; `good` works; the hub says which is which."""
    for touch in (home.hub.state(bad), home["alice"].channel(bad).send("hello")):
        error = await refused(ChannelQuarantined, touch)
        assert (error.channel_id, type(error.cause)) == (bad, cause)
    await add_one(home["alice"].channel(good))
    assert [bad] == list(home.hub.health().quarantined)
    assert good in {one.channel_id for one in await home.hub.list_channels()}


async def test_a_damaged_record_costs_its_channel(open_log: OpenLog, log_place: LogPlace) -> None:
    log = open_log()
    async with house(log, "alice", "bob") as home:
        bad, good = [(await home.open(A_B_A)).channel_id for _ in range(2)]
    log_place.damage(bad, 2)
    async with house(open_log(), "alice", "bob") as home:
        await assert_quarantined(home, bad, good, CorruptRecord)
        (noted,) = await home.audited("quarantined")
        assert noted["channel_id"] == bad


async def test_an_unknown_channel_type_costs_its_channels(open_log: OpenLog) -> None:
    async with house(open_log(), "alice", "bob", adapters=[Echo()]) as home:
        bad = (await home["alice"].open(type="echo", target="bob")).channel_id
        good = (await home.open(A_B_A)).channel_id
    async with house(open_log(), "alice", "bob") as home:
        await assert_quarantined(home, bad, good, UnknownName)


async def test_a_fault_in_an_adapters_fold_costs_its_channels() -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob", adapters=[Echo()]) as home:
        bad = (await home["alice"].open(type="echo", target="bob")).channel_id
        good = (await home.open(A_B_A)).channel_id
    async with house(log, "alice", "bob", adapters=[Broken()]) as home:
        await assert_quarantined(home, bad, good, LookupError)


async def test_giving_the_channel_type_again_heals_its_channels(open_log: OpenLog) -> None:
    async with house(open_log(), "alice", "bob", adapters=[Echo()]) as home:
        bad = (await home["alice"].open(type="echo", target="bob")).channel_id
    async with house(open_log(), "alice", "bob"):
        pass
    async with house(open_log(), "alice", "bob", adapters=[Echo()]) as home:
        assert await home["alice"].channel(bad).send("here I am again")
        assert home.hub.health().quarantined == {}


async def test_an_unregistered_condition_costs_its_channel_until_it_is_registered(open_log: OpenLog) -> None:
    condition = f"custom_{token_hex(4)}"
    log = open_log()
    async with house(log, "alice", "bob") as home:
        good = (await home.open(A_B_A)).channel_id
        await log.append("bad", custom_channel(home.hub.participants(), condition, "bad"), after=0)
    async with house(open_log(), "alice", "bob") as home:
        alice = home["alice"]
        error = await refused(ChannelQuarantined, alice.channel("bad").send("hello"))
        assert isinstance(error.cause, UnknownName)
        assert condition in str(error)
        assert list(home.hub.health().quarantined) == ["bad"]
        assert await alice.channel(good).send("hello")

        register(condition)
        assert await alice.channel("bad").send("hello")
        assert home.hub.health().quarantined == {}


async def test_a_closed_channel_never_needs_its_custom_classes(open_log: OpenLog) -> None:
    log = open_log()
    async with house(log, "alice", "bob") as home:
        await log.append("old", custom_channel(home.hub.participants(), "long_forgotten", "old"), after=0)
        await home["alice"].channel("old").interject("hello")
        await home["bob"].channel("old").close("enough")
    async with house(open_log(), "alice", "bob") as home:
        old = home["bob"].channel("old")

        assert (await old.result()).text == "hello"
        assert (await old.info()).close_reason == "enough"
        assert types(await home.wal(old))[-1] == EV_CHANNEL_CLOSED
        assert [one.close_code for one in await home.hub.list_channels(state="closed")] == ["enough"]


async def test_a_damaged_directory_costs_the_registrations_behind_the_damage(
    open_log: OpenLog, log_place: LogPlace
) -> None:
    log = open_log()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B_A)
        log_place.damage("_directory", 2)
        await channel.send("hello")
    async with house(open_log(), "alice") as home:
        assert (await home["alice"].channel(channel.channel_id).info()).turn_count == 1
        assert list(home.hub.health().quarantined) == ["_directory"]
        error = await refused(ChannelQuarantined, home.agent("carol"))
        assert isinstance(error.cause, CorruptRecord)


async def test_a_damaged_audit_costs_only_the_audit(open_log: OpenLog, log_place: LogPlace) -> None:
    log = open_log()
    async with house(log, "alice", "bob"):
        await _flushed(log)
        log_place.damage("_audit", 1)
    async with house(open_log(), "alice", "bob") as home:
        assert await home.open(A_B_A)
        await refused(CorruptRecord, home.audited("registered"))


async def test_damage_that_happens_while_the_channel_is_in_memory_is_met_when_it_is_read(
    open_log: OpenLog, log_place: LogPlace
) -> None:
    log = open_log()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(ALWAYS_ALICE)
        log_place.damage(channel.channel_id, 1)
        assert await channel.send("still going")
        await refused(CorruptRecord, home.wal(channel))


async def _flushed(log: FullLog) -> None:
    """Wait until the audit's first lines are on the log."""
    async for head in log.tail():
        if head.channel_id == "_audit":
            return


async def test_a_channel_whose_first_line_names_another_channel_is_quarantined(open_log: OpenLog) -> None:
    log = open_log()
    async with house(log, "alice", "bob") as home:
        good = (await home.open(A_B_A)).channel_id
        (line,) = on_log(home.hub.participants(), channel_id="another")
        await log.append("bad", [replace(line, channel_id="bad")], after=0)
    async with asyncio.timeout(SAFETY_SECONDS), house(open_log(), "alice", "bob") as home:
        await assert_quarantined(home, "bad", good, CorruptRecord)
