"""Who commits to a SQLite log: the event loop while the disk is quick, else the writer's thread."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from turnline.errors import LogConflict
from turnline.log.joined import Statements
from turnline.log.sqlite import SqliteLog
from turnline.log.sqlite_file import LogFile
from turnline.log.sqlite_work import Append, OwnHead, Work
from turnline.log.sqlite_writer import LOOP_BYTES, LOOP_SECONDS, PACE_COMMITS, QUICK_COMMITS, Pace, Writer
from turnline.testing.lines import line

WAITS = ("busy_timeout", "wal_autocheckpoint")
QUICK = LOOP_SECONDS / 10
SLOW = LOOP_SECONDS * 3
STALL = LOOP_SECONDS * PACE_COMMITS * 1.1


class Disk:
    """A clock by which each commit takes as long as the disk says."""

    def __init__(self) -> None:
        self.sync_seconds = QUICK
        self._now = 0.0
        self._is_over = True

    def monotonic(self) -> float:
        self._is_over = not self._is_over
        self._now += self.sync_seconds if self._is_over else 0.0
        return self._now


class Stuck(Work):
    """A write that waits, in the thread that commits, until another thread lets it go."""

    heads: Sequence[OwnHead] = ()
    size = 0

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def write(self, connection: Statements) -> None:
        self.begun.set()
        assert self.go.wait(30), "the event loop does not answer"

    def landed(self, connection: Statements) -> bool:
        return False


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "log.db", durability="power", busy_timeout_seconds=10)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def writer(file: LogFile, disk: Disk) -> AsyncIterator[Writer]:
    writer = Writer(file, committed=lambda _: None, monotonic=disk.monotonic)
    yield writer
    writer.close()


def size_of_wal(file: LogFile) -> int:
    return Path(f"{file.path}-wal").stat().st_size


class Appends:
    """Appends one line after another."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._seq = 0

    async def one(self, text: str = "") -> bool:
        """Append a line. Return whether the loop committed it."""
        before = self._writer.stats().loop_commits
        await self._writer.submit(Append("c", [line("c", self._seq + 1, data={"t": text})], after=self._seq))
        self._seq += 1
        return self._writer.stats().loop_commits > before

    async def many(self, count: int) -> list[bool]:
        return [await self.one() for _ in range(count)]


@pytest.mark.parametrize(
    ("commits", "is_quick"),
    [
        ([], True),
        ([QUICK] * 20, True),
        ([STALL], False),
        ([SLOW], True),
        ([SLOW] * 20, False),
        ([*[QUICK] * 7, SLOW] * 4, True),
        ([STALL, *[QUICK] * (QUICK_COMMITS - 1)], False),
        ([STALL, *[QUICK] * QUICK_COMMITS], True),
        ([STALL, *[QUICK] * (QUICK_COMMITS - 1), STALL, QUICK], False),
        ([STALL, *[SLOW] * 1000], False),
        ([STALL, *[QUICK, SLOW] * QUICK_COMMITS], True),
    ],
)
def test_the_loop_commits_while_commits_are_quick(commits: list[float], is_quick: bool) -> None:
    pace = Pace()
    for seconds in commits:
        pace.note(seconds)

    assert pace.is_quick is is_quick


def test_a_log_can_keep_its_commits_out_of_the_loop() -> None:
    pace = Pace(0)
    for _ in range(1000):
        pace.note(0)

    assert not pace.is_quick


async def test_a_slow_sync_moves_commits_to_the_thread_and_quick_ones_move_them_back(
    writer: Writer, disk: Disk
) -> None:
    appends = Appends(writer)
    assert await appends.many(5) == [True] * 5
    disk.sync_seconds = STALL
    assert await appends.many(5) == [True, False, False, False, False]
    disk.sync_seconds = QUICK

    assert await appends.many(QUICK_COMMITS + 3) == [False] * QUICK_COMMITS + [True] * 3


async def test_the_loop_keeps_answering_while_the_thread_commits(writer: Writer, disk: Disk) -> None:
    disk.sync_seconds = STALL
    await Appends(writer).one()
    stuck = Stuck()
    answer = writer.submit(stuck)
    assert await asyncio.to_thread(stuck.begun.wait, 30)

    assert not answer.done()
    stuck.go.set()
    await answer


async def test_the_loop_does_not_wait_for_another_program_that_writes(file: LogFile, writer: Writer) -> None:
    appends = Appends(writer)
    assert await appends.one()
    with closing(sqlite3.connect(file.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(appends.one())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        other.execute("ROLLBACK")

    assert not await waiting
    assert await appends.one()


async def test_the_loop_does_not_wait_for_a_transaction_that_has_the_turn(
    file: LogFile, writer: Writer
) -> None:
    appends = Appends(writer)
    place = await file.turnstile.take(timeout_seconds=10)
    waiting = asyncio.create_task(appends.one())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waiting.done()
    file.turnstile.leave(place)

    assert not await waiting


def test_the_connection_of_the_loop_waits_for_no_lock_and_makes_no_checkpoint(file: LogFile) -> None:
    with closing(file.connect_for_loop()) as connection:
        found = [connection.execute(f"PRAGMA {one}").fetchone() for one in WAITS]

    assert found == [(0,)] * len(WAITS)


async def test_large_batches_are_encoded_and_committed_in_the_thread(writer: Writer) -> None:
    appends = Appends(writer)

    assert not await appends.one("x" * LOOP_BYTES)
    assert await appends.one("x" * (LOOP_BYTES // 2))


async def test_the_thread_makes_the_checkpoints_of_what_the_loop_commits(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "log.db", durability="power", busy_timeout_seconds=10)
    file.checkpoint_pages = 80
    writer = Writer(file, committed=lambda _: None, monotonic=Disk().monotonic)
    committed = await Appends(writer).many(200)
    size = size_of_wal(file)
    writer.close()

    assert 5 <= committed.count(False) <= 40
    assert size < 80 * 3 * 2048


async def test_a_refused_work_leaves_nothing_behind_and_the_loop_goes_on(writer: Writer) -> None:
    appends = Appends(writer)
    await appends.one()
    with pytest.raises(LogConflict):
        await writer.submit(Append("c", [line("c", 1)], after=0))

    assert await appends.one()


async def test_works_of_one_loop_turn_share_a_commit_and_fall_alone(writer: Writer) -> None:
    await Appends(writer).one()
    works = [Append(f"c{n}", [line(f"c{n}", 1)], after=0) for n in range(9)]
    works.insert(4, Append("c", [line("c", 1)], after=0))
    before = writer.stats()
    found = await asyncio.gather(*map(writer.submit, works), return_exceptions=True)

    assert [type(one) for one in found] == [type(None)] * 4 + [LogConflict] + [type(None)] * 5
    assert writer.stats().transactions == before.transactions + 1
    assert writer.stats().loop_commits == before.loop_commits + 1


async def test_what_waits_for_the_loop_is_written_when_the_log_is_closed(
    file: LogFile, writer: Writer
) -> None:
    answer = writer.submit(Append("c", [line("c", 1)], after=0))
    writer.close()
    await answer

    with closing(sqlite3.connect(file.path)) as connection:
        assert connection.execute("SELECT count(*) FROM turnline_records").fetchone() == (1,)


async def test_a_second_event_loop_is_served_by_the_thread(writer: Writer) -> None:
    assert await Appends(writer).one()
    work = Append("d", [line("d", 1)], after=0)

    async def elsewhere() -> None:
        await writer.submit(work)

    before = writer.stats()
    await asyncio.to_thread(asyncio.run, elsewhere())
    assert writer.stats().works == before.works + 1
    assert writer.stats().loop_commits == before.loop_commits


async def test_a_tail_hears_of_own_appends_without_asking_the_file(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", poll_seconds=3600, loop_seconds=math.inf)
    tail = aiter(log.tail())
    await log.append("a", [line("a", 1)], after=0)
    assert (await anext(tail)).seq == 1
    asked = log.stats().tail_queries
    for seq in range(2, 52):
        await log.append("a", [line("a", seq)], after=seq - 1)
        await log.append(f"b{seq}", [line(f"b{seq}", 1), line(f"b{seq}", 2)], after=0)
        heads = [await anext(tail), await anext(tail)]
        assert [(one.channel_id, one.seq) for one in heads] == [("a", seq), (f"b{seq}", 2)]
        await log.save_snapshot("a", seq=seq, body=b"{}")

    assert log.stats().tail_queries == asked
    assert heads[-1] == await log.head("b51")
    await log.close()


async def test_a_tail_asks_the_file_when_another_process_has_written_in_between(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", poll_seconds=3600)
    other = SqliteLog(tmp_path / "log.db")
    await log.append("a", [line("a", 1)], after=0)
    tail = aiter(log.tail())
    await anext(tail)
    for seq in (2, 3):  # While it waits, it has asked the file and has found nothing.
        waiting = asyncio.ensure_future(anext(tail))
        for _ in range(20):
            await log.head("a")
        await log.append("a", [line("a", seq)], after=seq - 1)
        await waiting
    asked = log.stats().tail_queries
    await other.append("b", [line("b", 1)], after=0)
    await log.append("a", [line("a", 4)], after=3)
    heads = [await anext(tail), await anext(tail)]

    assert [(one.channel_id, one.seq) for one in heads] == [("b", 1), ("a", 4)]
    assert log.stats().tail_queries == asked + 1
    await other.close()
    await log.close()
