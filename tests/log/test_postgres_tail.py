"""Rows commit out of order, and a tail of `PostgresLog` skips none; notices are a wake-up, not the truth."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from psycopg import AsyncConnection, sql

from turnline.core.codec import NO_HASH
from turnline.log.base import Head
from turnline.log.postgres import PostgresLog
from turnline.log.postgres_schema import APPEND
from turnline.log.postgres_work import Append, parameters
from turnline.testing.lines import line

from ..postgres import Postgres, run
from .postgres_stage import place_of

PATIENCE_SECONDS = 60
NEVER_SECONDS = 3600.0
WRITERS = 6
EACH_WRITES = 40


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.fresh()


@pytest.fixture
async def log(url: str) -> AsyncIterator[PostgresLog]:
    log = PostgresLog(url, poll_seconds=0.01)
    yield log
    await log.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncConnection]:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        yield connection


async def begin(connection: AsyncConnection, channel_id: str) -> None:
    """Append a channel's first line, and do not commit."""
    work = Append(channel_id, [line(channel_id, 1)], after=0, answer=asyncio.Future())
    work.seal(NO_HASH)
    await connection.execute("BEGIN")
    cursor = await connection.execute(APPEND, parameters([work]))
    answer = await cursor.fetchone()
    assert answer is not None
    assert answer[0] == "written"


def twin(url: str, after: int) -> list[tuple[str, int]]:
    """What a tail would tell that asks for higher numbers than the last one it saw."""
    rows = run(
        url, f"SELECT channel, position FROM turnline_records WHERE position > {after} ORDER BY position"
    )
    return [(str(channel), int(position)) for channel, position in rows]


async def told(log: PostgresLog, count: int, *, after: int = 0) -> list[Head]:
    heads: list[Head] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for head in log.tail(after=after):
            heads.append(head)
            if len(heads) == count:
                break
    return heads


async def test_a_commit_that_comes_late_is_not_skipped_and_its_twin_skips_it(
    log: PostgresLog, url: str
) -> None:
    async with connected(url) as slow:
        await log.append("first", [line("first", 1)], after=0)
        await begin(slow, "slow")
        await log.append("later", [line("later", 1)], after=0)
        (first,) = await told(log, 1)
        listed = await log.channels()
        seen = twin(url, 0)
        await slow.execute("COMMIT")

    assert first.channel_id == "first"
    assert [name for name, _ in seen] == ["first", "later"]
    assert twin(url, seen[-1][1]) == []
    assert [head.channel_id for head in await told(log, 2, after=first.position)] == ["slow", "later"]
    start = max(head.position for head in listed)
    assert {head.channel_id for head in await told(log, 2, after=start)} == {"slow", "later"}


async def test_while_a_commit_is_awaited_nothing_behind_it_is_told(log: PostgresLog, url: str) -> None:
    """Whoever went on from `later` would never hear of `slow`."""
    async with connected(url) as slow:
        await begin(slow, "slow")
        await log.append("later", [line("later", 1)], after=0)
        horizon = run(url, "SELECT turnline_horizon()")
        page = run(url, "SELECT * FROM turnline_tail(0, 10)")
        head = await log.head("later")
        await slow.execute("ROLLBACK")

    assert (horizon, page) == ([(0,)], [])
    assert head is not None
    assert head.position == 0
    assert [head.channel_id for head in await told(log, 1)] == ["later"]


async def test_a_busy_channel_is_told_as_far_as_it_is_certain(log: PostgresLog, url: str) -> None:
    """Its newest append is behind one under way; the one before is not."""
    await log.append("busy", [line("busy", 1)], after=0)
    async with connected(url) as slow:
        await begin(slow, "slow")
        await log.append("busy", [line("busy", 2)], after=1)

        assert [(head.channel_id, head.seq) for head in await told(log, 1)] == [("busy", 1)]
        await slow.execute("ROLLBACK")


async def test_a_transaction_that_is_not_the_logs_holds_up_nothing(log: PostgresLog, url: str) -> None:
    async with connected(url) as other:
        await other.execute("BEGIN")
        await other.execute("SELECT pg_current_xact_id(), pg_advisory_xact_lock_shared(1, 1)")
        await log.append("c", [line("c", 1)], after=0)

        assert [head.channel_id for head in await told(log, 1)] == ["c"]
        await other.execute("ROLLBACK")


async def test_no_append_of_many_that_commit_in_any_order_is_missed(log: PostgresLog, url: str) -> None:
    seeded = random.Random(7)

    async def write(name: str) -> None:
        async with connected(url) as connection:
            for n in range(EACH_WRITES):
                await begin(connection, f"{name}-{n}")
                for _ in range(seeded.randrange(4)):
                    await connection.execute("SELECT")
                await connection.execute(seeded.choice(("COMMIT", "COMMIT", "ROLLBACK")))

    async with asyncio.timeout(PATIENCE_SECONDS):
        following = asyncio.create_task(_until_last(log))
        await asyncio.gather(*(write(f"w{n}") for n in range(WRITERS)))
        await log.append("last", [line("last", 1)], after=0)
        heard = await following

    committed = {head.channel_id for head in await log.channels()}
    assert len(committed) < WRITERS * EACH_WRITES
    assert heard == committed


async def _until_last(log: PostgresLog) -> set[str]:
    heard: set[str] = set()
    async for head in log.tail():
        heard.add(head.channel_id)
        if head.channel_id == "last":
            break
    return heard


async def test_positions_go_on_past_the_bits_that_a_lock_has(log: PostgresLog, url: str) -> None:
    run(url, f"SELECT setval('turnline_positions', {2**31 - 2})")
    async with connected(url) as slow:
        await log.append("before", [line("before", 1)], after=0)
        await begin(slow, "slow")
        await log.append("later", [line("later", 1)], after=0)
        assert run(url, "SELECT turnline_horizon()") == [(2**31 - 1,)]
        await slow.execute("COMMIT")

    assert [head.channel_id for head in await told(log, 3)] == ["before", "slow", "later"]


async def test_a_notice_of_another_process_wakes_a_tail_that_hardly_polls(url: str) -> None:
    patient, other = PostgresLog(url, poll_seconds=NEVER_SECONDS), PostgresLog(url)
    await other.append("c", [line("c", 1)], after=0)
    tail = patient.tail()
    async with asyncio.timeout(PATIENCE_SECONDS):
        first = await anext(tail)
        await _listened(url)
        await other.append("d", [line("d", 1)], after=0)
        second = await anext(tail)

    assert [first.channel_id, second.channel_id] == ["c", "d"]
    await patient.close()
    await other.close()


async def _listened(url: str) -> None:
    """Return when somebody listens."""
    where = f"application_name = '{place_of(url)}' AND query LIKE 'LISTEN %' AND state = 'idle'"
    while not await asyncio.to_thread(run, url, f"SELECT 1 FROM pg_stat_activity WHERE {where}"):
        pass


async def test_without_a_notice_the_poll_finds_it(log: PostgresLog, url: str) -> None:
    async with connected(url) as silent:
        waiting = asyncio.create_task(told(log, 1))
        await begin(silent, "silent")
        await silent.execute("COMMIT")

        assert [head.channel_id for head in await waiting] == ["silent"]


async def test_no_notice_is_sent_within_an_appends_transaction(log: PostgresLog, url: str) -> None:
    """All commits of the server would queue up for one lock."""
    async with connected(url) as listening, connected(url) as writing:
        ((name,),) = run(url, "SELECT 'turnline_' || 'turnline_positions'::regclass::oid")
        await listening.execute(sql.SQL("LISTEN {}").format(sql.Identifier(name)))
        await begin(writing, "silent")
        await writing.execute("COMMIT")
        await listening.execute("SELECT")
        silent = [notice async for notice in listening.notifies(timeout=0)]
        await log.append("c", [line("c", 1)], after=0)
        heard = [notice async for notice in listening.notifies(timeout=PATIENCE_SECONDS, stop_after=1)]

    assert silent == []
    assert len(heard) == 1


async def test_a_tail_ends_when_the_log_is_closed(url: str) -> None:
    log = PostgresLog(url, poll_seconds=NEVER_SECONDS)
    await log.append("c", [line("c", 1)], after=0)
    heard = asyncio.Event()

    async def follow() -> int:
        async for _ in log.tail():
            heard.set()
        return 1

    async with asyncio.timeout(PATIENCE_SECONDS):
        following = asyncio.create_task(follow())
        await heard.wait()
        await log.close()
        assert await following
