"""The hub: what can be read (L5), starting again (L6), and closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from turnline.client.channel import Channel
from turnline.client.hub_client import HubClient
from turnline.client.link import LocalLink
from turnline.client.turn import Turn
from turnline.core.channel import ChannelRow, ChannelState
from turnline.core.governance import Passport
from turnline.core.graph import sequence
from turnline.errors import HubClosed, NameTaken, TurnlineError
from turnline.hub.hub import Hub
from turnline.hub.seat import Seat
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

from ..logs import OpenLog
from .scenes import A_B, A_B_A, CountingLog, House, answers, begin, closed, house, quiet, refused

# --- L5: reading ---


async def test_list_channels_filters_by_participant_and_status() -> None:
    """L5."""
    async with house(MemoryLog(), "alice", "bob", "carol") as home:
        talk = await home.talk(to="bob")
        done = await home.talk(to="carol")
        await done.close()
        await home.talk(by="bob", to="carol", ttl=60)
        await home.pass_time(60)

        async def listed(**wanted: Any) -> list[str]:
            return [one.channel_id for one in await home.hub.list_channels(**wanted)]

        assert len(await listed()) == 3
        assert await listed(state="active") == [talk.channel_id]
        assert await listed(state=ChannelState.CLOSED) == [done.channel_id]
        assert len(await listed(state="expired")) == 1
        assert await listed(agent_id="alice") == [talk.channel_id, done.channel_id]
        assert await listed(agent_id=home["alice"].agent_id, state="active") == [talk.channel_id]
        assert await listed(agent_id="nobody") == []


async def test_a_list_of_channels_reads_no_channel(open_log: OpenLog) -> None:
    """Y7."""
    async with house(open_log(), "alice", "bob") as home:
        talks = [await home.talk(to="bob") for _ in range(3)]
        await talks[0].close("enough")
    log = CountingLog(open_log())
    async with house(log) as home:
        listed = await home.hub.list_channels()
        mine = await Seat(home.hub, home.hub.participant("bob")).channels()

        assert {name for name in log.reads if not name.startswith("_")} == set()
        assert [one.channel_id for one in listed] == [one.channel_id for one in talks]
        assert [one.close_code for one in listed] == ["enough", "", ""]
        assert [one.channel_id for one in mine] == [one.channel_id for one in talks[1:]]
        assert sorted(mine[0].participants.values()) == ["alice", "bob"]


async def test_read_wal_reads_everything_or_what_came_since(open_log: OpenLog) -> None:
    """L5."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        await home.handle("bob", channel).send("bye")
        lines = await home.hub.read_wal(channel.channel_id)

        assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
        assert await home.hub.read_wal(channel.channel_id, since=3) == lines[3:]
        assert await home.hub.read_wal(channel.channel_id, since=len(lines)) == []


async def test_what_is_read_back_equals_what_was_answered(open_log: OpenLog) -> None:
    """E2."""
    data = {"text": "grüße 👋", "n": [1, 2.5, None, True], "deep": {"er": {"x": "\u2028"}}}
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        said = await channel.send(event_data=data, causation_id="because", priority=3, audience=["bob"])
        note = await channel.send(event_type="acme.note", event_data=data, audience=[])
    async with house(open_log()) as home:
        assert (await home.wal(channel))[-2:] == [said, note]


async def test_the_metadata_says_what_the_channel_was_opened_with() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        parent = await home.talk()
        channel = await home.open(A_B, labels={"ticket": "7"}, ttl=99, parent=parent.channel_id)
        info = await channel.info()

        assert (info.labels, info.ttl_seconds, info.type) == ({"ticket": "7"}, 99, "workflow")
        assert (info.parent_id, info.created_at) == (parent.channel_id, home.clock.now())
        assert info.knobs == {"graph": A_B.to_dict()}


# --- L6: starting again ---


async def script(home: House, *, stops_at: int, stopped: asyncio.Event, **given: Any) -> Channel:
    """A program: agents that say which turn it is, until the work stops in one of them."""

    async def work(turn: Turn) -> str:
        if turn.number >= stops_at:
            stopped.set()
            await asyncio.Event().wait()
        return f"turn {turn.number}"

    for name in ("alice", "bob"):
        client = await home.agent(name)
        client.on_turn(work)
    open_ones = await home.hub.list_channels(state="active")
    if open_ones and not given:
        return home["alice"].channel(open_ones[0].channel_id)
    order = ["alice", "bob"] * 4
    return await home["alice"].open(
        target="bob", knobs={"graph": sequence(order).to_dict()}, message="turn 1", **given
    )


@pytest.mark.parametrize("given", [{}, {"channel_id": "the-script"}], ids=["found", "by id"])
async def test_the_same_script_started_again_continues_what_was_open(
    open_log: OpenLog, given: dict[str, Any]
) -> None:
    """L6: stopped at every other turn, it says every line once."""
    for stop in (2, 4, 6):
        async with house(open_log()) as home:
            stopped = asyncio.Event()
            await script(home, stops_at=stop, stopped=stopped, **given)
            await stopped.wait()
    async with house(open_log()) as home:
        channel = await script(home, stops_at=99, stopped=asyncio.Event(), **given)

        assert await closed(channel) == "sequence_complete"
        said = [e.event_data for e in await home.wal(channel) if e.event_type in ("text", "packet")]
        assert [one.get("text") or one["body"] for one in said] == [f"turn {n}" for n in range(1, 9)]


async def test_a_script_that_registers_everybody_before_it_sets_handlers_goes_on_as_well() -> None:
    """L6: the floor that waited is not lost between `register` and `on_turn`."""
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, message="over to you")
    async with house(log, "alice", "bob") as home:
        await quiet()
        home["bob"].on_turn(answers("here I am"))

        assert (await home.handle("alice", channel).result()).text == "here I am"


async def test_registering_again_gives_the_same_participant(open_log: OpenLog) -> None:
    """L6."""
    ids = []
    for _ in range(2):
        async with house(open_log(), "alice", people=["user"]) as home:
            ids.append((home["alice"].agent_id, home.people["user"].agent_id))
    assert ids[0] == ids[1]


async def test_a_name_that_is_attached_in_this_process_is_taken() -> None:
    """L6; it is free again when its client closes."""
    async with house(MemoryLog(), "alice") as home:
        error = await refused(NameTaken, home.agent("alice"))
        assert error.name == "alice"

        await home["alice"].close()
        assert (await home.agent("alice")).name == "alice"


async def test_an_agent_does_not_come_back_as_a_person() -> None:
    async with house(MemoryLog(), "alice") as home:
        await home["alice"].close()
        await refused(NameTaken, home.person("alice"))


# --- closing the hub ---


async def test_closing_twice_is_closing_once(open_log: OpenLog) -> None:
    async with house(open_log(), "alice") as home:
        await home.hub.close()
        await home.hub.close()


async def uses(home: House, channel: Channel) -> AsyncIterator[Awaitable[object]]:
    yield home.agent("carol")
    yield home.open(A_B)
    yield channel.send("hello")
    yield channel.close()
    yield channel.info()
    yield home.hub.read_wal(channel.channel_id)
    yield home.hub.list_channels()
    yield home.hub.tick()


async def test_a_closed_hub_says_so_whatever_it_is_asked(open_log: OpenLog) -> None:
    async with house(open_log()) as home:
        door = HubClient(LocalLink(home.hub))
        alice = await door.register(None, Passport(name="alice"))
        bob = await door.register(None, Passport(name="bob"))
        home.agents |= {"alice": alice, "bob": bob}
        channel = await home.open(A_B)
        await home.hub.close()

        async for use in uses(home, channel):
            with pytest.raises(HubClosed):
                await use
        await door.close()


async def test_whoever_waits_for_a_channel_hears_that_the_hub_closed() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        waiting = begin((await home.open(A_B)).result())
        await quiet()
        await home.hub.close()
        with pytest.raises(HubClosed):
            await waiting


async def test_a_hub_closes_its_log_also_when_the_audit_cannot_be_written() -> None:
    class NoAudit(CountingLog):
        is_closed = False

        async def append(
            self, channel_id: str, envelopes: Any, *, after: int, row: ChannelRow | None = None
        ) -> None:
            if channel_id == "_audit":
                raise TurnlineError("no room")
            await super().append(channel_id, envelopes, after=after, row=row)

        async def close(self) -> None:
            self.is_closed = True

    log = NoAudit()
    hub = await Hub.open(log, ttl_sweep_interval=0, clock=ManualClock())
    await hub.enrol(Passport(name="alice"), None, None)
    with pytest.raises(TurnlineError):
        await hub.close()

    assert log.is_closed


async def test_health_says_what_the_log_is_and_what_is_open() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        done, _ = [await home.open(A_B) for _ in range(2)]
        await done.close()
        health = home.hub.health()

        assert (health.log, health.durability) == ("memory:", "none")
        assert (health.open_channels, health.cached_channels, health.quarantined) == (1, 2, {})
