from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from turnline.core.envelope import SCHEMA_VERSION, Envelope
from turnline.core.event_types import EV_CHANNEL_FORKED, EV_CHANNEL_INVITE, HUB
from turnline.errors import CorruptRecord, DuplicateEnvelope, LogConflict
from turnline.log.base import JoinsTransactions, Log, Snapshots
from turnline.log.forks import ForkingLog, with_forks
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.testing import Damage, LogContract, damage_memory
from turnline.testing.lines import NOON, closing_line, line, lines


class TestForkingLog(LogContract):
    """A log around another one is a log."""

    @pytest.fixture
    def log(self) -> ForkingLog:
        self.inner = MemoryLog()
        return ForkingLog(self.inner)

    def damage(self, log: Log, channel_id: str, seq: int, damage: Damage) -> None:
        damage_memory(self.inner, channel_id, seq, damage)


def invitation(channel_id: str) -> Envelope:
    return Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id=f"{channel_id}-1",
        channel_id=channel_id,
        seq=1,
        sender_id=HUB,
        event_type=EV_CHANNEL_INVITE,
        event_data={"channel_id": channel_id, "type": "conversation"},
        created_at=NOON,
    )


def forking(fork_id: str, origin: str, at: int) -> Envelope:
    return Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id=f"{fork_id}-begins",
        channel_id=fork_id,
        seq=at + 1,
        sender_id=HUB,
        event_type=EV_CHANNEL_FORKED,
        event_data={"forked_from": {"channel": origin, "seq": at}},
        created_at=NOON,
    )


async def forked(inner: Log, fork_id: str = "x-fork", *, at: int = 3) -> ForkingLog:
    """The channel `story` of five lines, and a fork of it with two lines of its own."""
    log = with_forks(inner)
    await log.append("story", [invitation("story"), *(line("story", seq) for seq in range(2, 6))], after=0)
    await log.append(fork_id, [forking(fork_id, "story", at), line(fork_id, at + 2)], after=at)
    return log


async def test_a_fork_reads_as_the_past_it_shares_and_then_its_own_lines_numbered_on() -> None:
    log = await forked(MemoryLog())

    read = await lines(log, "x-fork")
    assert [one.seq for one in read] == [1, 2, 3, 4, 5]
    assert {one.channel_id for one in read} == {"x-fork"}
    assert [one.envelope_id for one in read] == ["story-1", "story-2", "story-3", "x-fork-begins", "x-fork-5"]
    assert read[0].event_data == {
        "channel_id": "x-fork",
        "type": "conversation",
        "forked_from": {"channel": "story", "seq": 3},
    }


async def test_no_line_of_the_past_is_copied() -> None:
    inner = MemoryLog()
    await forked(inner)

    assert [one.seq for one in await lines(inner, "x-fork")] == [1, 2]
    assert len(await lines(inner, "story")) == 5


@pytest.mark.parametrize("after", range(6))
async def test_reading_on_from_anywhere_gives_what_stands_behind(after: int) -> None:
    log = await forked(MemoryLog())

    assert [one.seq async for one in log.read("x-fork", after=after)] == list(range(after + 1, 6))


async def test_heads_and_the_tail_number_a_fork_as_it_reads() -> None:
    log = await forked(MemoryLog())
    head = await log.head("x-fork")

    assert head is not None
    assert head.seq == 5
    assert {one.channel_id: one.seq for one in await log.channels()} == {"story": 5, "x-fork": 5}
    async with asyncio.timeout(60), aclosing(log.tail()) as tail:  # type: ignore[type-var]
        assert [(await anext(tail)).seq for _ in range(2)] == [5, 5]


async def test_an_envelope_is_found_in_the_past_up_to_the_fork_and_not_behind_it() -> None:
    log = await forked(MemoryLog())
    past, own = await log.find("x-fork", "story-3"), await log.find("x-fork", "x-fork-5")

    assert past is not None
    assert (past.seq, past.channel_id) == (3, "x-fork")
    assert own is not None
    assert own.seq == 5
    assert await log.find("x-fork", "story-4") is None


async def test_e1_an_id_of_the_past_is_taken_and_one_from_behind_the_fork_is_free() -> None:
    log = await forked(MemoryLog())

    with pytest.raises(DuplicateEnvelope):
        await log.append("x-fork", [line("x-fork", 6, envelope_id="story-2")], after=5)
    await log.append("x-fork", [line("x-fork", 6, envelope_id="story-5")], after=5)


async def test_a_conflict_tells_the_seq_as_the_fork_is_read() -> None:
    log = await forked(MemoryLog())

    with pytest.raises(LogConflict) as late:
        await log.append("x-fork", [line("x-fork", 5, envelope_id="other")], after=4)
    assert (late.value.after, late.value.found) == (4, 5)
    with pytest.raises(LogConflict):  # Nobody writes into the past.
        await log.append("x-fork", [line("x-fork", 2, envelope_id="other")], after=1)


async def test_the_origin_goes_on_by_itself_and_the_fork_does_not_see_it() -> None:
    log = await forked(MemoryLog())
    await log.append("story", [closing_line("story", 6)], after=5)

    assert [one.seq for one in await lines(log, "x-fork")] == [1, 2, 3, 4, 5]
    head = await log.head("x-fork")
    assert head is not None
    assert not head.closed


async def test_a_fork_of_a_fork_reads_through_both() -> None:
    log = await forked(MemoryLog())
    await log.append("y-fork", [forking("y-fork", "x-fork", 5), line("y-fork", 7)], after=5)

    read = await lines(log, "y-fork")
    assert [one.envelope_id for one in read[:5]] == [one.envelope_id for one in await lines(log, "x-fork")]
    assert [one.seq for one in read] == list(range(1, 8))
    assert {one.channel_id for one in read} == {"y-fork"}
    assert read[0].event_data["forked_from"] == {"channel": "x-fork", "seq": 5}


async def test_e5_a_fork_whose_origin_is_gone_or_damaged_says_so_and_its_origin_is_named() -> None:
    damaged, lost = MemoryLog(), MemoryLog()
    await forked(damaged)
    damage_memory(damaged, "story", 2)
    await with_forks(lost).append("x-fork", [forking("x-fork", "story", 3)], after=3)

    for inner in (damaged, lost):
        with pytest.raises(CorruptRecord, match="fork of 'story'") as error:
            await lines(with_forks(inner), "x-fork")
        assert error.value.channel_id == "x-fork"


async def test_an_id_that_ends_like_a_forks_and_is_none_is_a_channel_like_any_other() -> None:
    log = ForkingLog(MemoryLog())
    await log.append("my-fork", [line("my-fork", 1)], after=0)
    await log.append("my-fork", [line("my-fork", 2)], after=1)

    assert [one.seq for one in await lines(log, "my-fork")] == [1, 2]
    assert await log.origin("my-fork") is None


async def test_what_the_log_inside_can_do_the_one_around_it_can(tmp_path: object) -> None:
    sqlite = SqliteLog(f"{tmp_path}/log.db", durability="process")
    try:
        around = with_forks(sqlite)
        assert isinstance(around, JoinsTransactions)
        assert isinstance(around, Snapshots)
        assert around.database == sqlite.database
        assert not isinstance(with_forks(MemoryLog()), JoinsTransactions)
        await forked(sqlite)
        assert [one.seq for one in await lines(with_forks(sqlite), "x-fork")] == [1, 2, 3, 4, 5]
    finally:
        await sqlite.close()
