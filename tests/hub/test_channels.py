"""The channels a hub has in memory: hydrated when touched, forgotten when idle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from msgspec.structs import replace

from turnline.client.channel import Channel
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelFilter, ChannelRow, ChannelSpec, ChannelState
from turnline.core.envelope import Draft, Envelope
from turnline.core.event_types import (
    EV_CHANNEL_CLOSED,
    EV_CHANNEL_INVITE,
    EV_CHANNEL_OPENED,
    EV_CONTEXT_SET,
    EV_TEXT,
)
from turnline.core.fold import FOLD_VERSION
from turnline.core.governance import Passport, Registration
from turnline.core.graph import round_robin, sequence
from turnline.core.state import State
from turnline.errors import LogUnavailable, UnknownChannel
from turnline.hub.channels import (
    ENTRY_BYTES,
    GIVE_BACK_BYTES,
    GIVE_BACK_SECONDS,
    LOOKS_PER_ENTRY,
    RECENT_ENVELOPES,
    SNAPSHOT_EVERY,
    Channels,
    Entry,
)
from turnline.hub.request import OpenRequest
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing.lines import NOON, row

from ..faults.simulation.loop import SeededLoop
from ..logs import FullLog, OpenLog
from .scenes import (
    A_B,
    CountingLog,
    FailingLog,
    House,
    Wrapped,
    add_one,
    begin,
    closed,
    house,
    on_log,
    quiet,
    refused,
    sqlite,
    until,
)

OLD_CHANNELS = 1000
LINES_EACH = 100
FOR_EVER = round_robin(["alice", "bob"])


def old_channel(channel_id: str, members: Sequence[Registration], *, lines: int) -> list[Envelope]:
    """A conversation that is over, as it stands on the log."""
    said = [(EV_TEXT, {"text": "hello"}, None)] * (lines - 2)
    return on_log(members, *said, (EV_CHANNEL_CLOSED, {"reason": "done"}, None), channel_id=channel_id)


def old_row(name: str, lines: int) -> ChannelRow:
    return row(name, seq=lines, status=ChannelState.CLOSED, closed_at=NOON)


async def write_history(log: Log, members: Sequence[Registration], *, channels: int, lines: int) -> None:
    """Many closed channels, appended in big batches."""
    names = [f"old-{number:04}" for number in range(channels)]
    for first in range(0, channels, 100):
        await asyncio.gather(
            *(
                log.append(name, old_channel(name, members, lines=lines), after=0, row=old_row(name, lines))
                for name in names[first : first + 100]
            )
        )


async def history_with_one_open_channel(log: FullLog, *, channels: int, lines: int) -> str:
    """Return the id of the open one."""
    async with house(log, "alice", "bob") as home:
        await write_history(log, home.hub.participants(), channels=channels, lines=lines)
        return (await home.open(A_B)).channel_id


def member(name: str) -> Registration:
    return Registration(agent_id=name, passport=Passport(name=name))


async def fill(channel: Channel, count: int = SNAPSHOT_EVERY + 10) -> None:
    for _ in range(count):
        await add_one(channel)


async def hydrated(log: Log, channel_id: str) -> State:
    async with house(log) as home:
        return await home.hub.state(channel_id)


# --- hydrating ---


async def test_opening_costs_the_open_channels_not_the_history(tmp_path: Path) -> None:
    """100,000 envelopes in 1,000 closed channels, one open: the first post reads the open one only."""
    open_one = await history_with_one_open_channel(sqlite(tmp_path), channels=OLD_CHANNELS, lines=LINES_EACH)
    log = CountingLog(sqlite(tmp_path))
    async with house(log, "alice", "bob") as home:
        await home["alice"].channel(open_one).send("hello")

        assert home.hub.health().cached_channels == 1
        assert {name for name in log.read_of if not name.startswith("_")} == {open_one}
        assert log.read_of.total() < 20


def channels_in(reads: Counter[str]) -> set[str]:
    return {name for name in reads if not name.startswith("_")}


async def test_opening_a_hub_reads_no_channel_and_attaching_reads_those_that_wait(open_log: OpenLog) -> None:
    """Y8: the index says who is waited for, and where."""
    async with house(open_log(), "alice", "bob", "carol") as home:
        for_bob = {(await home.open(A_B, message="hello")).channel_id for _ in range(20)}
        for_carol = await home.open(sequence(["alice", "carol"]), message="hello")
        await home.open(A_B)
        await home["alice"].channel(min(for_bob)).close("enough")
    log = CountingLog(open_log())
    async with house(log) as home:
        assert (channels_in(log.reads), home.hub.health().open_channels) == (set(), 21)

        await home.agent("bob")
        await until(lambda: channels_in(log.reads) >= for_bob - {min(for_bob)})
        await quiet()
        assert channels_in(log.reads) == for_bob - {min(for_bob)}

        await home.agent("carol")
        await until(lambda: for_carol.channel_id in log.reads)
        assert channels_in(log.reads) == for_bob - {min(for_bob)} | {for_carol.channel_id}


async def test_a_channel_that_closes_while_a_hub_is_being_opened_is_not_open_there() -> None:
    class Meanwhile(Wrapped):
        """Before the index is read, another hub closes the channel."""

        close_first: Channel | None = None

        async def rows(
            self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
        ) -> list[ChannelRow]:
            if self.close_first is not None:
                await self.close_first.close("enough")
            return await super().rows(where, after=after, limit=limit)

    shared = MemoryLog()
    async with house(shared, "alice", "bob") as other:
        log = Meanwhile(shared)
        log.close_first = await other.open(A_B)
        async with house(log) as home:
            assert home.hub.health().open_channels == 0


async def test_a_channel_whose_lines_came_without_a_row_is_read_when_the_hub_opens() -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        lines = on_log(home.hub.participants(), (EV_CHANNEL_OPENED, {}, None), channel_id="bare")
    await log.append("bare", lines, after=0)
    async with house(log) as home:
        assert home.hub.health().open_channels == 1


async def test_a_closed_channel_is_read_when_somebody_asks_for_it(open_log: OpenLog) -> None:
    await history_with_one_open_channel(open_log(), channels=3, lines=10)
    log = CountingLog(open_log())
    async with house(log, "alice") as home:
        info = await home["alice"].channel("old-0001").info()

        assert (info.status, info.close_reason, info.seq) == ("closed", "done", 10)
        assert log.read_of["old-0001"] == 10
        assert "old-0002" not in log.read_of


async def test_many_that_ask_at_once_cost_one_reading() -> None:
    log = CountingLog()
    await history_with_one_open_channel(log, channels=1, lines=10)
    async with house(log) as home:
        await asyncio.gather(*(home.hub.state("old-0000") for _ in range(20)))

        assert log.read_of["old-0000"] == 10


async def test_a_channel_nobody_opened_is_unknown(open_log: OpenLog) -> None:
    async with house(open_log(), "alice") as home:
        for asked in (home.hub.state("nowhere"), home.hub.read_wal("nowhere"), _info(home, "nowhere")):
            assert (await refused(UnknownChannel, asked)).name == "nowhere"


async def test_the_hubs_own_channels_are_nobodys() -> None:
    """What is in the directory and the audit is not for participants."""
    async with house(MemoryLog(), "alice") as home:
        for name in ("_directory", "_audit"):
            await refused(UnknownChannel, _info(home, name))
            await refused(UnknownChannel, home["alice"].channel(name).send("hello"))

        assert home.hub.health().quarantined == {}


async def test_a_log_that_cannot_be_read_for_a_moment_is_no_reason_to_quarantine() -> None:
    log = FailingLog()
    await history_with_one_open_channel(log, channels=1, lines=10)
    async with house(log) as home:
        log.fail_read = LogUnavailable("here", because="the network is down")
        await refused(LogUnavailable, home.hub.state("old-0000"))

        assert home.hub.health().quarantined == {}
        assert (await home.hub.state("old-0000")).seq == 10


# --- the cache ---


async def test_more_channels_than_are_cached_all_work() -> None:
    async with house(MemoryLog(), "alice", "bob", cache_bytes=4 * ENTRY_BYTES) as home:
        channels = await asyncio.gather(*(home.open(A_B) for _ in range(40)))
        await asyncio.gather(*(channel.send("hello") for channel in channels))
        await asyncio.gather(*(home.handle("bob", channel).send("bye") for channel in channels))

        assert {await closed(channel) for channel in channels} == {"sequence_complete"}
        assert home.hub.health().cached_channels <= 4


async def test_a_cache_of_one_is_enough(open_log: OpenLog) -> None:
    async with house(open_log(), "alice", "bob", cache_bytes=1) as home:
        channels = await asyncio.gather(*(home.open(FOR_EVER) for _ in range(8)))
        for _ in range(3):
            await asyncio.gather(*(add_one(channel) for channel in channels))

        states = [await channel.state() for channel in channels]
        assert [state.context_vars for state in states] == [{"n": 3}] * 8


async def test_the_cache_counts_bytes_and_closed_channels_leave_it_first() -> None:
    """Y8: of a small open channel and a large closed one, the closed one was used last and leaves."""
    log, large = CountingLog(), "x" * 40_000
    async with house(log, "alice", "bob", cache_bytes=11 * ENTRY_BYTES) as home:
        small, closing, other = [await home.open(FOR_EVER) for _ in range(3)]
        await closing.send(large)
        await closing.close("enough")
        assert home.hub.health().cached_channels == 3
        await other.send(large)

        log.reads.clear()
        for channel in (small, other, closing):
            await channel.state()
        assert channels_in(log.reads) == {closing.channel_id}


async def test_a_state_that_grows_counts_for_the_cache() -> None:
    """A context variable stays in the state after its line has left the recent ones."""
    async with house(MemoryLog(), "alice", "bob", cache_bytes=12 * ENTRY_BYTES) as home:
        full, other = await home.open(FOR_EVER), await home.open(FOR_EVER)
        await full.send(event_type=EV_CONTEXT_SET, event_data={"set": {"all": "x" * 60_000}}, audience=[])
        await fill(full, RECENT_ENVELOPES)
        await other.state()
        await quiet()
        await other.send("y" * 40_000)

        assert home.hub.health().cached_channels == 1


async def test_whoever_waits_for_a_channel_keeps_it_in_memory() -> None:
    """Otherwise the waiter would listen to a copy that nobody tells anything."""
    async with house(MemoryLog(), "alice", "bob", cache_bytes=1) as home:
        watched = await home.open(A_B)
        ending = begin(closed(watched))
        await quiet()
        others = [await home.open(FOR_EVER) for _ in range(5)]
        for other in others:
            await add_one(other)
        await watched.send("hello")
        await home.handle("bob", watched).send("bye")

        assert await ending == "sequence_complete"


def test_where_more_are_in_use_than_fit_an_append_looks_at_few_of_them() -> None:
    """Else ten thousand that wait for as many channels would make every post cost ten thousand looks."""
    looks = 0

    class Looked(Entry):
        @property
        def is_idle(self) -> bool:
            nonlocal looks
            looks += 1
            return super().is_idle

    members = [member("alice"), member("bob")]
    channels = Channels(MemoryLog(), built_in(), cache_bytes=10 * ENTRY_BYTES)
    entries = [Looked(*channels.begin(on_log(members, channel_id=f"c{n}")[0])) for n in range(1000)]
    with ExitStack() as stack:
        for entry in entries:
            stack.enter_context(entry.pinned())
            channels.keep(entry)
        assert len(channels) == 1000
        assert looks <= 1000 * LOOKS_PER_ENTRY
    for entry in entries[:100]:
        channels.keep(entry)

    assert len(channels) == 10


def test_memory_that_turns_have_freed_goes_back_to_the_system_also_when_it_is_quiet_again() -> None:
    loop = SeededLoop(Random(1))  # type: ignore[abstract]
    trims = list[float]()
    first = on_log([member("alice"), member("bob")], channel_id="c")[0]
    large = replace(first, event_data={"text": "x" * (GIVE_BACK_BYTES // 4)})

    async def pass_lines(channels: Channels, entry: Entry, lines: int) -> None:
        for _ in range(lines):
            entry.advance(entry.state, [large])
            channels.keep(entry)

    async def scene() -> None:
        channels = Channels(MemoryLog(), built_in(), trim=lambda: trims.append(loop.time()))
        entry = Entry(*channels.begin(first))
        await pass_lines(channels, entry, 3)
        await asyncio.sleep(10 * GIVE_BACK_SECONDS)
        assert trims == []
        await pass_lines(channels, entry, 1)
        await asyncio.sleep(GIVE_BACK_SECONDS / 2)
        await pass_lines(channels, entry, 1)
        await asyncio.sleep(10 * GIVE_BACK_SECONDS)
        await channels.settle()

    loop.run(scene())

    assert [round(later - trims[0], 3) for later in trims] == [0.0, GIVE_BACK_SECONDS]


async def test_a_slow_arbiter_does_not_split_a_channel_in_two() -> None:
    """While it thinks, the channel may fall out of the cache; whoever waits on it is told all the same."""

    class Slow:
        async def may_open(self, opener: Registration, spec: ChannelSpec) -> None: ...

        async def may_post(self, sender: Registration, draft: Draft, channel: object) -> None:
            await quiet(20)

    async with house(MemoryLog(), "alice", "bob", cache_bytes=1, arbiter=Slow()) as home:
        channels = [await home.open(A_B) for _ in range(5)]
        endings = [begin(closed(channel)) for channel in channels]
        await asyncio.gather(*(channel.send("hello") for channel in channels))
        await asyncio.gather(*(home.handle("bob", channel).send("bye") for channel in channels))

        assert {await ending for ending in endings} == {"sequence_complete"}


async def test_two_that_open_one_id_at_once_open_one_channel(open_log: OpenLog) -> None:
    """L6."""
    async with house(open_log(), "alice", "bob") as home:
        one, two = await asyncio.gather(*(home.open(A_B, channel_id="the-one") for _ in range(2)))
        await one.send("hello")

        assert one.channel_id == two.channel_id == "the-one"
        assert (await home.types(two)).count(EV_CHANNEL_INVITE) == 1


async def test_opening_an_id_that_is_just_being_opened_waits_for_the_same_answers() -> None:
    """L6: the first line is on the log before whoever wrote it hears so; both openers meet on one entry."""

    class LateAnswer(CountingLog):
        let = asyncio.Event()

        async def append(
            self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
        ) -> None:
            await super().append(channel_id, envelopes, after=after, row=row)
            if channel_id == "the-one":
                await self.let.wait()

    log = LateAnswer()
    async with house(log, "alice", "bob") as home:
        opening = [begin(home.open(A_B, channel_id="the-one"))]
        await quiet()
        opening.append(begin(home.open(A_B, channel_id="the-one")))
        await quiet()
        log.let.set()

        assert [(await one).channel_id for one in opening] == ["the-one"] * 2


async def test_a_channel_that_another_hub_opened_meanwhile_is_the_one_that_is_opened() -> None:
    """L6: two processes start the same script at once."""

    class Overtaken(CountingLog):
        rival: House | None = None

        async def append(
            self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
        ) -> None:
            rival, self.rival = self.rival, None
            if rival is not None:
                await rival.hub.open_channel(_request("the-one"), rival.hub.participant("alice").agent_id)
            await super().append(channel_id, envelopes, after=after, row=row)

    log = Overtaken()
    async with house(log, "alice", "bob") as home, house(log.inner, "bob") as rival:
        await rival.hub.open_channel(_request("warm-up"), home["alice"].agent_id)
        log.rival = rival
        channel = await home.open(A_B, channel_id="the-one")

        assert (await channel.send("hello")).seq == 4
        assert (await home.types(channel)).count(EV_CHANNEL_INVITE) == 1


# --- snapshots ---


async def test_hydrating_from_a_snapshot_equals_folding_from_scratch(open_log: OpenLog) -> None:
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(FOR_EVER, knobs={"context_vars": {"route": "north"}})
        await fill(channel)
        await channel.send("hello")
        live = await home.hub.state(channel.channel_id)
    counting = CountingLog(open_log())
    from_snapshot = await hydrated(counting, channel.channel_id)
    deleting = open_log()
    await deleting.delete_snapshots()
    from_scratch = await hydrated(deleting, channel.channel_id)

    assert counting.read_of[channel.channel_id] < SNAPSHOT_EVERY
    assert live == from_snapshot == from_scratch


async def test_a_damaged_or_outdated_snapshot_is_ignored(open_log: OpenLog) -> None:
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(FOR_EVER)
        await fill(channel)
        live = await home.hub.state(channel.channel_id)
    kept = open_log()
    seq, good = await kept.load_snapshot(channel.channel_id) or (0, b"")
    await kept.close()
    assert good
    beyond = good.replace(f'"seq":{seq},'.encode(), b'"seq":9999,', 1)
    another_fold = good.replace(b'"turn_count":', b'"turn_count":9', 1).replace(
        f'"version":{FOLD_VERSION}'.encode(), b'"version":0', 1
    )
    for found_seq, body in [
        (seq, b"\x00 not JSON"),
        (seq, b'{"type":"workflow","state":{"seq":"many"}}'),
        (seq, b'{"type":"unheard_of","state":{}}'),
        (seq - 1, good),
        (9999, beyond),
        (seq, another_fold),
    ]:
        log = open_log()
        await log.save_snapshot(channel.channel_id, seq=found_seq, body=body)
        assert await hydrated(log, channel.channel_id) == live


async def test_a_log_without_snapshots_will_do() -> None:
    class Plain:
        """Everything of a log, and nothing more."""

        def __init__(self) -> None:
            inner = MemoryLog()
            self.address, self.durability = inner.address, inner.durability
            self.append, self.read, self.find = inner.append, inner.read, inner.find
            self.head, self.channels, self.tail = inner.head, inner.channels, inner.tail
            self.rows, self.row, self.without_row = inner.rows, inner.row, inner.without_row
            self.end, self.close = inner.end, inner.close

    log = Plain()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(FOR_EVER)
        await fill(channel)
        live = await home.hub.state(channel.channel_id)

    assert await hydrated(log, channel.channel_id) == live


async def _info(home: House, channel_id: str) -> object:
    return await home["alice"].channel(channel_id).info()


def _request(channel_id: str) -> OpenRequest:
    return OpenRequest(type="workflow", target=["bob"], knobs={"graph": A_B.to_dict()}, channel_id=channel_id)
