"""What a person has not pulled yet: some in memory, a place in each channel for the rest."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from tests.hub.scenes import closed, house, quiet, until
from turnline.client.unread import Unread
from turnline.core.envelope import SCHEMA_VERSION, Envelope
from turnline.core.graph import sequence
from turnline.errors import ChannelQuarantined, LogUnavailable
from turnline.hub.seat import Reading
from turnline.log.memory import MemoryLog
from turnline.testing.lines import NOON

ROOM = 10


def line(channel_id: str, seq: int, *, sender: str = "alice") -> Envelope:
    return Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id=f"{channel_id}-{seq}",
        channel_id=channel_id,
        seq=seq,
        sender_id=sender,
        event_type="text",
        event_data={"text": str(seq)},
        created_at=NOON,
    )


class Lines:
    """Channels as a seat reads them, few lines at a time."""

    agent_id = "user"

    def __init__(self, unread_of: dict[str, list[Envelope]], *, at_a_time: int = 4) -> None:
        self.of = unread_of
        self.at_a_time = at_a_time
        self.reads: list[str] = []
        self.fails: list[Exception] = []
        self.slept = 0.0

    async def read(self, channel_id: str, after: int) -> Reading:
        self.reads.append(channel_id)
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop()
        found = [one for one in self.of[channel_id] if one.seq > after][: self.at_a_time]
        return Reading(found, found[-1].seq if found else after)

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds


def written(*channels: str, lines: int) -> Lines:
    return Lines({name: [line(name, seq) for seq in range(1, lines + 1)] for name in channels})


def unread(log: Lines) -> Unread:
    """Everything that is on the log, and nothing of it pulled."""
    found = Unread(lambda: log, room=ROOM)
    for seq in range(max(len(lines) for lines in log.of.values())):
        for lines in log.of.values():
            found.put(lines[seq])
    return found


async def pulled(found: Unread) -> list[str]:
    said = []
    while found:
        said.append((await found.get()).envelope_id)
    return said


def in_order(channel_id: str, said: list[str]) -> list[int]:
    return [int(one.rpartition("-")[2]) for one in said if one.startswith(f"{channel_id}-")]


async def test_envelopes_that_are_large_wait_on_the_log_and_not_in_memory() -> None:
    """Otherwise a person who pulls nothing costs a thousand times the largest line."""
    large = written("c", lines=8)
    large.of["c"] = [replace(one, event_data={"text": str(one.seq) * 1000}) for one in large.of["c"]]
    found = Unread(lambda: large, room=ROOM, room_bytes=2_500)

    for one in large.of["c"]:
        found.put(one)

    assert found.in_memory == 3
    assert in_order("c", await pulled(found)) == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_what_does_not_fit_is_read_again_in_order_and_once() -> None:
    log = written("one", "two", "three", lines=50)
    said = await pulled(unread(log))

    assert len(said) == len(set(said)) == 150
    assert [in_order(name, said) for name in log.of] == [list(range(1, 51))] * 3


async def test_nobody_who_does_not_pull_costs_a_reading() -> None:
    log = written("one", lines=50)
    found = unread(log)
    await quiet()

    assert log.reads == []
    assert bool(found)


async def test_no_more_is_held_than_there_is_room_for() -> None:
    log = written("one", "two", lines=50)
    log.at_a_time = 100
    found = unread(log)
    while found:
        await found.get()
        await quiet()
        assert found.in_memory <= ROOM


async def test_what_comes_while_the_past_is_read_comes_after_it() -> None:
    log = written("one", lines=30)
    found, said = unread(log), list[int]()
    while found:
        said.append((await found.get()).seq)
        if len(log.of["one"]) < 100:
            log.of["one"].append(line("one", len(log.of["one"]) + 1))
            found.put(log.of["one"][-1])

    assert said == list(range(1, 101))


async def test_a_line_that_has_not_been_put_yet_is_not_taken_before() -> None:
    """It stands on the log already, and whoever reads the channel is about to put it in."""
    log = written("one", lines=28)
    log.at_a_time = 100
    found = unread(log)
    late = line("one", 29)
    log.of["one"].append(late)
    said = await pulled(found)
    found.put(late)

    assert said + await pulled(found) == [f"one-{seq}" for seq in range(1, 30)]


async def test_what_is_of_no_concern_is_passed_over() -> None:
    log = written("one", lines=30)
    log.of["one"][15:25] = [line("one", seq, sender="user") for seq in range(16, 26)]

    assert in_order("one", await pulled(unread(log))) == [*range(1, 16), *range(26, 31)]


async def test_a_log_that_cannot_be_read_is_asked_again() -> None:
    log = written("one", lines=30)
    log.fails = [LogUnavailable("memory:", because="of the test")]

    assert in_order("one", await pulled(unread(log))) == list(range(1, 31))
    assert log.slept > 0


async def test_a_channel_that_cannot_be_read_costs_no_other_one() -> None:
    log = written("one", "two", lines=30)
    log.fails = [ChannelQuarantined("one", cause=ValueError("of the test"))]
    said = await pulled(unread(log))

    assert in_order("one", said) == [1, 2, 3, 4, 5]
    assert in_order("two", said) == list(range(1, 31))


async def test_a_person_who_never_pulls_leaves_no_task_behind() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        before = len(asyncio.all_tasks())
        for _ in range(400):
            channel = await home.open(sequence(["alice", "user"]), message="hello")
            await home.people["user"].channel(channel.channel_id).send("bye")
            assert await closed(channel) == "sequence_complete"
        await until(lambda: len(asyncio.all_tasks()) <= before)


async def test_closing_ends_the_reading() -> None:
    log = written("one", lines=30)
    found = unread(log)
    log.fails = [LogUnavailable("memory:", because="of the test")] * 1000
    for _ in range(ROOM):
        await found.get()
    await quiet()
    await found.stop()
    reads = len(log.reads)
    await quiet()

    assert len(log.reads) == reads > 0
