"""`SystemChannel`: decide on what is known, append, and decide again after another writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from itertools import count

import pytest

from tests.logs import LogPlace, OpenLog
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope, JsonObject
from turnline.errors import ChannelQuarantined, DuplicateEnvelope, LogUnavailable
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.system_channel import LINES_PER_SLICE, MAX_CONFLICTS, SystemChannel, SystemLine
from turnline.testing import ManualClock, damage_memory

CHANNEL = "_numbers"
NUMBER = "number.added"
AWAY = LogUnavailable("memory:", because="a test says so")

_ids = count()


def new_id() -> str:
    return f"line-{next(_ids)}"


class Numbers:
    """A system channel that counts: each line is the number after the last known one."""

    def __init__(
        self, log: Log, clock: ManualClock | None = None, *, max_conflicts: int = MAX_CONFLICTS
    ) -> None:
        self.known: list[int] = []
        self.decisions = 0
        now = (clock or ManualClock()).now
        self.channel = SystemChannel(log, CHANNEL, now, new_id, apply=self.apply, max_conflicts=max_conflicts)

    def apply(self, line: Envelope) -> None:
        if line.event_type == NUMBER:
            self.known.append(line.event_data["number"])

    def decide(self) -> list[SystemLine]:
        self.decisions += 1
        return [number(max(self.known, default=0) + 1)]

    async def add(self) -> None:
        await self.channel.append(self.decide)


def number(value: int, **given: object) -> SystemLine:
    return SystemLine(NUMBER, {"number": value}, **given)  # type: ignore[arg-type]


async def data(log: Log) -> list[JsonObject]:
    return [line.event_data async for line in log.read(CHANNEL)]


class StageLog(MemoryLog):
    """Runs `before` before each append, and fails or loses the answer of one append or reading."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], Awaitable[object]] | None = None
        self.appends = 0
        self.is_away = False
        self.is_answer_lost = False

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        self.appends += 1
        await asyncio.sleep(0)  # As every log on a disk: other tasks run meanwhile.
        if self.is_away:
            raise AWAY
        if self.before is not None:
            await self.before()
        await super().append(channel_id, envelopes, after=after, row=row)
        if self.is_answer_lost:
            raise AWAY

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        async for line in super().read(channel_id, after=after):
            yield line
            if self.is_away:
                raise AWAY


class RivalLog(StageLog):
    """Lets a rival append first, a number of times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.before = self._overtake
        self._left = times

    async def _overtake(self) -> None:
        if self._left == 0:
            return
        self._left -= 1
        head = await self.head(CHANNEL)
        seq = 0 if head is None else head.seq
        line = Envelope(
            schema_version=1,
            envelope_id=new_id(),
            channel_id=CHANNEL,
            seq=seq + 1,
            sender_id="hub",
            event_type=NUMBER,
            event_data={"number": seq + 1},
            created_at=ManualClock().now(),
        )
        await MemoryLog.append(self, CHANNEL, [line], after=seq)


# --- races ---


async def test_two_writers_on_one_log_never_decide_on_the_same_line(open_log: OpenLog) -> None:
    one, two = Numbers(open_log()), Numbers(open_log())
    for _ in range(10):
        await asyncio.gather(one.add(), two.add(), one.add())
    await asyncio.gather(one.channel.catch_up(), two.channel.catch_up())

    assert one.known == two.known == list(range(1, 31))
    assert one.decisions + two.decisions > 30


async def test_the_loser_of_a_race_may_decide_to_write_nothing(open_log: OpenLog) -> None:
    logs = [open_log() for _ in range(4)]
    writers = [Numbers(log) for log in logs]

    def decide(writer: Numbers) -> list[SystemLine]:
        return [] if writer.known else [number(1)]

    await asyncio.gather(*(one.channel.append(partial(decide, one)) for one in writers))

    assert await data(logs[0]) == [{"number": 1}]


async def test_tasks_of_one_process_wait_for_each_other_and_do_not_conflict() -> None:
    log = StageLog()
    numbers = Numbers(log)
    await asyncio.gather(*(numbers.add() for _ in range(20)))

    assert numbers.known == list(range(1, 21))
    assert log.appends == 20


@pytest.mark.parametrize("limit", [3, MAX_CONFLICTS])
async def test_a_writer_that_always_loses_stops_at_the_limit(limit: int) -> None:
    log = RivalLog(times=limit)
    numbers = Numbers(log, max_conflicts=limit)
    with pytest.raises(LogUnavailable, match=f"first in {limit} appends to '_numbers'"):
        await numbers.add()

    assert log.appends == numbers.decisions == limit
    await numbers.add()
    assert numbers.known == list(range(1, limit + 2))


async def test_a_writer_that_loses_less_often_than_the_limit_succeeds() -> None:
    numbers = Numbers(RivalLog(times=2), max_conflicts=3)
    await numbers.add()

    assert numbers.known == [1, 2, 3]


async def test_an_error_of_the_decision_reaches_the_caller_and_nothing_is_written() -> None:
    log = MemoryLog()

    def refuse() -> list[SystemLine]:
        raise PermissionError("not you")

    with pytest.raises(PermissionError):
        await Numbers(log).channel.append(refuse)

    assert await data(log) == []


async def test_an_id_that_the_channel_has_is_refused() -> None:
    numbers = Numbers(MemoryLog())
    await numbers.channel.append(lambda: [number(1, envelope_id="one")])
    with pytest.raises(DuplicateEnvelope):
        await numbers.channel.append(lambda: [number(2, envelope_id="one")])

    assert numbers.known == [1]


# --- reading ---


async def test_lines_of_one_append_are_written_together_and_applied_in_order(open_log: OpenLog) -> None:
    log = open_log()
    numbers = Numbers(log)
    written = await numbers.channel.append(lambda: [number(1), number(2), number(3)])

    assert numbers.known == [1, 2, 3]
    assert [(line.seq, line.sender_id, line.audience) for line in written] == [
        (seq, "hub", []) for seq in (1, 2, 3)
    ]
    assert [line async for line in log.read(CHANNEL)] == written


async def test_readings_that_overlap_apply_each_line_once() -> None:
    numbers = Numbers(log := MemoryLog())
    other = Numbers(log)
    for _ in range(3 * LINES_PER_SLICE):
        await numbers.add()
    await asyncio.gather(*(other.channel.catch_up() for _ in range(3)))

    assert other.known == numbers.known


async def test_other_tasks_run_while_a_long_channel_is_read() -> None:
    numbers = Numbers(log := MemoryLog())
    await numbers.channel.append(lambda: [number(1)] * (3 * LINES_PER_SLICE))
    late = Numbers(log)
    reading = asyncio.create_task(late.channel.catch_up())
    seen = []
    for _ in range(3):
        await asyncio.sleep(0)
        seen.append(len(late.known))
    await reading

    assert seen == [LINES_PER_SLICE, 2 * LINES_PER_SLICE, 3 * LINES_PER_SLICE]


async def test_a_line_that_is_not_known_here_is_passed_over(open_log: OpenLog) -> None:
    log = open_log()
    newer = Numbers(log)
    await newer.channel.append(lambda: [number(1), SystemLine("number.imagined", {"i": 1}), number(2)])
    numbers = Numbers(log)
    await numbers.add()

    assert numbers.known == [1, 2, 3]
    assert numbers.channel.seq == 4


async def test_a_line_that_cannot_be_applied_is_not_skipped() -> None:
    log = MemoryLog()
    channel = SystemChannel(log, CHANNEL, ManualClock().now, new_id)
    await channel.append(lambda: [number(1), SystemLine(NUMBER, {}), number(2)])
    numbers = Numbers(log)

    for _ in range(2):
        with pytest.raises(KeyError):
            await numbers.channel.catch_up()
        assert (numbers.known, numbers.channel.seq) == ([1], 1)


async def test_a_line_is_never_dated_before_the_one_that_it_follows() -> None:
    log = MemoryLog()
    ahead, here = ManualClock(), ManualClock()
    ahead.advance(60)
    earlier = here.now() - timedelta(hours=1)
    await Numbers(log, ahead).add()
    numbers = Numbers(log, here)
    await numbers.channel.append(lambda: [number(2), number(3, at=earlier)])
    here.advance(120)
    await numbers.channel.append(lambda: [number(4), number(5, at=earlier)])
    times = [line.created_at async for line in log.read(CHANNEL)]

    assert times == [ahead.now()] * 3 + [here.now()] * 2


# --- damage ---


async def three_lines(log: Log, damage: Callable[[str, int], None], seq: int) -> None:
    numbers = Numbers(log)
    for _ in range(3):
        await numbers.add()
    damage(CHANNEL, seq)


async def test_nothing_is_appended_after_a_damaged_line(open_log: OpenLog, log_place: LogPlace) -> None:
    await three_lines(open_log(), log_place.damage, 2)
    log = open_log()
    numbers = Numbers(log)
    with pytest.raises(ChannelQuarantined, match=CHANNEL):
        await numbers.channel.catch_up()
    head = await log.head(CHANNEL)

    assert numbers.known == [1]
    assert numbers.channel.damage is not None
    for _ in range(2):
        with pytest.raises(ChannelQuarantined):
            await numbers.add()
    assert await log.head(CHANNEL) == head


async def test_a_channel_with_known_damage_is_not_written_at_all() -> None:
    log = StageLog()
    await three_lines(log, lambda channel_id, seq: damage_memory(log, channel_id, seq), 3)
    numbers = Numbers(log)
    with pytest.raises(ChannelQuarantined):
        await numbers.channel.catch_up()
    log.appends = 0
    with pytest.raises(ChannelQuarantined):
        await numbers.add()

    assert log.appends == 0


async def test_damage_that_a_conflict_reveals_ends_the_append() -> None:
    log = MemoryLog()
    await three_lines(log, lambda channel_id, seq: damage_memory(log, channel_id, seq), 2)
    numbers = Numbers(log)
    with pytest.raises(ChannelQuarantined):
        await numbers.add()

    assert numbers.decisions == 1


async def test_a_decision_to_write_nothing_needs_no_readable_end() -> None:
    log = MemoryLog()
    await three_lines(log, lambda channel_id, seq: damage_memory(log, channel_id, seq), 2)
    numbers = Numbers(log)
    with pytest.raises(ChannelQuarantined):
        await numbers.channel.catch_up()

    assert await numbers.channel.append(list) == []


async def test_a_channel_that_was_repaired_continues() -> None:
    log = MemoryLog()
    await three_lines(log, lambda channel_id, seq: damage_memory(log, channel_id, seq), 2)
    numbers = Numbers(log)
    with pytest.raises(ChannelQuarantined):
        await numbers.channel.catch_up()
    damage_memory(log, CHANNEL, 2)
    await numbers.channel.catch_up()
    await numbers.add()

    assert numbers.known == [1, 2, 3, 4]
    assert numbers.channel.damage is None


@pytest.mark.parametrize("seq", [1, 3])
async def test_a_channel_whose_lines_are_not_read_continues_after_a_damaged_one(
    open_log: OpenLog, log_place: LogPlace, seq: int
) -> None:
    await three_lines(open_log(), log_place.damage, seq)
    log = open_log()
    channel = SystemChannel(log, CHANNEL, ManualClock().now, new_id)
    await channel.catch_up()
    written = await channel.append(lambda: [number(4)])

    assert [line.seq for line in written] == [4]
    assert [one.seq for one in await log.channels() if one.channel_id == CHANNEL] == [4]


async def test_a_channel_whose_lines_are_not_read_is_found_at_its_end(open_log: OpenLog) -> None:
    log, clock = open_log(), ManualClock()
    await Numbers(log, clock).channel.append(lambda: [number(1), number(2)])
    channel = SystemChannel(open_log(), CHANNEL, clock.now, new_id)
    await channel.catch_up()

    assert (channel.seq, channel.last_at) == (2, clock.now())


# --- a log that is away ---


async def test_an_append_that_failed_changes_nothing_and_can_be_repeated() -> None:
    log = StageLog()
    numbers = Numbers(log)
    await numbers.add()
    log.is_away = True
    with pytest.raises(LogUnavailable):
        await numbers.add()
    assert numbers.known == [1]

    log.is_away = False
    await numbers.add()
    assert numbers.known == [1, 2]


async def test_an_append_whose_answer_was_lost_is_not_written_twice() -> None:
    log = StageLog()
    numbers = Numbers(log)

    def decide() -> list[SystemLine]:
        return [] if numbers.known else [number(1)]

    log.is_answer_lost = True
    with pytest.raises(LogUnavailable):
        await numbers.channel.append(decide)
    log.is_answer_lost = False
    await numbers.channel.append(decide)

    assert await data(log) == [{"number": 1}]
    assert numbers.known == [1]


async def test_a_reading_that_failed_continues_where_it_ended() -> None:
    log = StageLog()
    await Numbers(log).channel.append(lambda: [number(1), number(2), number(3)])
    numbers = Numbers(log)
    log.is_away = True
    with pytest.raises(LogUnavailable):
        await numbers.channel.catch_up()
    assert (numbers.known, numbers.channel.damage) == ([1], None)

    log.is_away = False
    await numbers.channel.catch_up()
    assert numbers.known == [1, 2, 3]
