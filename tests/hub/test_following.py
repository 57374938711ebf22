"""T1, T6: several hubs on one log; what one appends reaches whoever is attached to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from turnline.client.channel import Channel, set_context
from turnline.client.turn import Turn
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CHANNEL_INVITE, EV_TEXT
from turnline.core.governance import Passport
from turnline.core.graph import round_robin, sequence
from turnline.core.views import Notice
from turnline.errors import LogUnavailable
from turnline.hub.retry import RETRY_SECONDS
from turnline.log.base import Head
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog

from .scenes import A_B, CountingLog, FailingLog, House, Wrapped, answers, begin, house, quiet, refused, until


@asynccontextmanager
async def houses(tmp_path: Path, *agents: tuple[str, ...]) -> AsyncIterator[list[House]]:
    """A hub for each group of agents, as if each were in a process of its own."""
    async with AsyncExitStack() as stack:
        found = []
        for names in agents:
            log = SqliteLog(tmp_path / "log.db", poll_seconds=0.005)
            found.append(await stack.enter_async_context(house(log, *names, follow=True)))
        yield found


async def knows(home: House, name: str) -> None:
    while name not in [one.name for one in home.hub.participants()]:  # noqa: ASYNC110  Nobody is told.
        await asyncio.sleep(0)


async def test_t6_agents_of_two_hubs_take_turns_on_one_channel(tmp_path: Path) -> None:
    async with houses(tmp_path, ("alice",), ("bob",)) as (here, there):
        for home, name in ((here, "alice"), (there, "bob")):

            async def handler(turn: Turn, name: str = name) -> str:
                return f"{name} {turn.number}"

            home[name].on_turn(handler)
        await knows(here, "bob")
        graph = round_robin(["alice", "bob"], max_turns=6)
        channel = await here["alice"].open("workflow", ["bob"], {"graph": graph.to_dict()}, message="go")
        await channel.result()
        said = [line.event_data["body"] for line in await here.wal(channel) if line.event_type == "packet"]

    assert said == ["bob 2", "alice 3", "bob 4", "alice 5", "bob 6"]


async def test_c1_context_variables_are_the_same_at_every_hub(tmp_path: Path) -> None:
    async with houses(tmp_path, ("alice",), ("bob",)) as (here, there):
        await knows(here, "bob")
        ours = await here["alice"].open("workflow", ["bob"], {"graph": A_B.to_dict()})
        theirs = there["bob"].channel(ours.channel_id)
        await set_context(ours, "route", "north")
        await set_context(theirs, "stops", [1])

        async with asyncio.timeout(10):
            for channel in (theirs, ours):
                while (await channel.state()).context_vars != {"route": "north", "stops": [1]}:  # noqa: ASYNC110
                    await asyncio.sleep(0)  # The tail is read; nobody is told.


async def test_t6_a_fork_of_one_hub_is_taken_up_by_whoever_has_the_floor_at_another(tmp_path: Path) -> None:
    async with houses(tmp_path, ("alice",), ("bob",)) as (here, there):
        there["bob"].on_turn(answers("two", "two, otherwise"))
        await knows(here, "bob")
        channel = await here["alice"].open("workflow", ["bob"], {"graph": A_B.to_dict()}, message="one")
        await channel.result()
        said = next(line.seq for line in await here.wal(channel) if line.event_type == "text")
        fork = here["alice"].channel(await here.hub.fork(channel.channel_id, at=said))

        assert (await fork.result()).text == "two, otherwise"


async def test_l6_who_registers_at_one_hub_is_known_at_the_other(tmp_path: Path) -> None:
    async with houses(tmp_path, ("alice",), ()) as (here, there):
        await knows(there, "alice")
        await there.agent("carol")
        await knows(here, "carol")


async def test_t6_whoever_waits_at_one_hub_is_woken_by_what_another_appends(tmp_path: Path) -> None:
    async with houses(tmp_path, ("alice", "bob"), ()) as (here, there):
        channel = await here.open(A_B)
        seen = (await there.hub.state(channel.channel_id)).seq
        waiting = asyncio.create_task(there.hub.wait_beyond(channel.channel_id, seen))
        await asyncio.sleep(0)
        await channel.send("hello")

        assert await waiting


async def test_a_hub_that_follows_reads_nothing_of_what_it_appended_itself() -> None:
    log = CountingLog()
    async with house(log, "alice", "bob", follow=True) as home:
        channel = await home.open(sequence(["alice", "bob"]))
        await channel.send("one")
        await home.handle("bob", channel).send("two")
        for _ in range(50):
            await asyncio.sleep(0)

    assert log.read_of[channel.channel_id] == 0


class ToldFirstLog(CountingLog):
    """Whoever follows it is told of an append before its writer is answered."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        await super().append(channel_id, envelopes, after=after, row=row)
        await quiet()


async def test_a_channel_is_left_alone_while_its_first_line_is_on_its_way() -> None:
    """Read by then it would be there twice, and one half would not hear of the other."""
    log = ToldFirstLog()
    async with house(log, "alice", "bob", follow=True) as home:
        channel = await home.open(A_B)
        await quiet()

    assert log.read_of[channel.channel_id] == 0


async def test_w6_a_turn_is_told_of_although_somebody_has_read_the_channel_before(tmp_path: Path) -> None:
    """Whoever asks for its state brings it into memory; the tail comes later."""
    log = LateLog()
    async with house(log, "alice", follow=True) as here:
        await quiet()
        log.is_late = True
        async with house(log, "bob", follow=True) as there:
            there["bob"].on_turn(answers("at once"))
            await knows(here, "bob")
            opening = begin(here["alice"].open("consulting", "bob", message="hello", channel_id="asked"))
            await until(lambda: "asked" in log.inner.records)  # type: ignore[attr-defined]
            await there.hub.state("asked")
            log.let.set()

            assert (await (await opening).result()).text == "at once"


async def missed(here: House, there: House, failing: FailingLog) -> Channel:
    """Return a channel with a line of `here` that `there` was told of, and could not read."""
    await knows(here, "bob")
    channel = await here.open(A_B, target=["bob"], expectations=[])
    await until(lambda: "bob" in there.agents)
    await there.hub.state(channel.channel_id)
    await quiet()
    failing.fail_read = LogUnavailable("test", because="it is away")
    await channel.send("hello")
    await quiet()
    return channel


async def test_what_others_appended_and_could_not_be_read_is_read_later() -> None:
    """The tail has told of it, and does not tell of it again."""
    shared = MemoryLog()
    failing = FailingLog(shared)
    async with (
        house(shared, "alice", follow=True) as here,
        house(failing, "bob", clock=here.clock, follow=True) as there,
    ):
        channel = await missed(here, there, failing)
        assert EV_TEXT not in [one.event_type for one in await there.hub.read_recent(channel.channel_id, 0)]
        here.clock.advance(RETRY_SECONDS)
        await quiet()

        assert (await there.hub.state(channel.channel_id)).turn_count == 1


async def test_a_channel_that_is_read_later_is_not_forgotten_meanwhile() -> None:
    """Otherwise its old object would replace the one at which a person waits by then."""
    shared = MemoryLog()
    failing = FailingLog(shared)
    async with (
        house(shared, "alice", people=("carol",), follow=True) as here,
        house(failing, "bob", clock=here.clock, follow=True, cache_bytes=1) as there,
    ):
        channel = await missed(here, there, failing)
        other = await here.open(A_B, target=["bob"], expectations=[])
        await there.hub.state(other.channel_id)
        await there.hub.state(channel.channel_id)
        waiting = begin(there.hub.wait_beyond(channel.channel_id, 100))
        await quiet()

        here.clock.advance(RETRY_SECONDS)
        await quiet()
        await channel.close("enough")
        await quiet()

        assert waiting.done()


class UnsureLog(Wrapped):
    """The first line of a channel is written, and told, before it is answered with an error."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        await super().append(channel_id, envelopes, after=after, row=row)
        if envelopes[0].event_type == EV_CHANNEL_INVITE:
            await quiet()
            raise LogUnavailable("test", because="the answer was lost")


async def test_l1_who_is_invited_is_told_although_whoever_opened_the_channel_got_an_error() -> None:
    async with house(UnsureLog(), "alice", "bob", follow=True) as home:
        await refused(LogUnavailable, home.open(A_B, channel_id="asked"))
        await quiet()

        assert (await home.hub.state("asked")).status == "active"


class BusyLog(Wrapped):
    """While somebody lists the channels, others register."""

    def __init__(self, log: MemoryLog, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(log)
        self._meanwhile = meanwhile

    async def channels(
        self, *, closed: bool | None = None, after: str = "", limit: int | None = None
    ) -> list[Head]:
        await self._meanwhile()
        return await super().channels(closed=closed, after=after, limit=limit)


async def test_l6_who_registers_while_a_hub_is_being_opened_is_known_there() -> None:
    shared = MemoryLog()
    async with house(shared, "alice", follow=True) as here:
        busy = BusyLog(shared, partial(here.agent, "bob"))
        async with house(busy, follow=True) as there:
            await knows(there, "bob")


class LateLog(Wrapped):
    """The tails that are read once it is late say nothing until they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.is_late = False
        self.let = asyncio.Event()

    async def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        is_late = self.is_late
        async for head in self.inner.tail(after=after):
            if is_late:
                await self.let.wait()
            yield head


class Broken:
    """A receiver that cannot be woken."""

    def wake(self, notice: Notice) -> None:
        raise RuntimeError(f"{notice.channel_id} at {notice.seq}")


async def test_a_receiver_that_cannot_be_woken_costs_its_channel_and_the_others_are_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with houses(tmp_path, ("alice",), ("bob",)) as (here, there):
        there["bob"].on_turn(answers("I am here."))
        carl = await there.hub.enrol(Passport(name="carl"), None, None)
        there.hub.attach(carl.agent_id, Broken())
        await knows(here, "bob")
        await knows(here, "carl")
        asking = begin(here["alice"].open("consulting", "carl", message="And you?"))
        await until(lambda: "could not be followed" in caplog.text)
        channel = await here["alice"].open("consulting", "bob", message="Hello?")
        told = await channel.result()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    assert told.text == "I am here."


async def test_listeners_hear_that_a_channel_closed_elsewhere_although_the_hub_had_evicted_it() -> None:
    shared, heard = MemoryLog(), list[tuple[str, str]]()
    async with (
        house(shared, "alice", "bob", follow=True) as here,
        house(shared, follow=True, cache_bytes=1) as there,
    ):
        there.hub.add_listener(lambda line: heard.append((line.channel_id, line.event_type)))
        first, _ = await here.open(A_B, channel_id="one"), await here.open(A_B, channel_id="two")
        await quiet()
        await first.close("enough")
        await quiet()

    assert ("one", EV_CHANNEL_CLOSED) in heard


class SlowLog(Wrapped):
    """A read that has begun gives its lines once it is let; what lands meanwhile is not among them."""

    def __init__(self, inner: MemoryLog) -> None:
        super().__init__(inner)
        self.slow = ""
        self.let = asyncio.Event()

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        lines = [line async for line in self.inner.read(channel_id, after=after)]
        if channel_id == self.slow:
            await self.let.wait()
        for line in lines:
            yield line


async def test_t1_what_lands_while_the_hub_reads_the_channel_for_another_reaches_its_receivers() -> None:
    shared = MemoryLog()
    slow = SlowLog(shared)
    async with (
        house(shared, "alice", follow=True) as here,
        house(slow, "bob", follow=True, cached_channels=1) as there,
    ):
        there["bob"].on_turn(answers("at once"))
        await knows(here, "bob")
        first = await here.open(A_B, target=["bob"], channel_id="one", expectations=[])
        await here.open(A_B, target=["bob"], channel_id="two")
        await quiet()
        slow.slow = "one"
        reading = begin(there.hub.state("one"))
        await quiet()
        await first.send("hello")
        await quiet()
        slow.let.set()

        assert (await first.result()).text == "at once"
        await reading
        await quiet()
        assert there.hub.health().open_channels == 1
