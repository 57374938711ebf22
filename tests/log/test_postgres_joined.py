"""Appending inside somebody else's transaction on PostgreSQL: both land, or neither (F7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from threading import Thread
from typing import Any, Final

import psycopg
import pytest

from turnline.errors import LogConflict, LogError, LogUnavailable
from turnline.log.base import JoinsTransactions
from turnline.log.joined import Write
from turnline.log.nats import NatsLog
from turnline.log.postgres import PostgresLog
from turnline.testing.lines import line, lines

from ..postgres import Postgres, run
from .joined_contract import JoinedContract, JoiningLog

NEVER_SECONDS: Final = 3600.0
PATIENCE_SECONDS: Final = 60.0
LOOKS: Final = 1_000
"""For somebody who waits. Whoever does not has looked too early by then."""


class Plain:
    """A transaction by the driver alone: rows of a table `mine`."""

    def __init__(self, url: str) -> None:
        self.connection: psycopg.Connection[Any] = psycopg.connect(url)
        self.has_writes = False
        self.holds_database = False
        self.before_append: Callable[[], None] = lambda: None
        self.at_commit: Callable[[], None] = lambda: None
        """Called before COMMIT; what it raises is COMMIT's own failure."""

    def insert(self, value: str) -> None:
        self.connection.execute("INSERT INTO mine VALUES (%s)", (value,))
        self.has_writes = True

    def ask(self, query: str) -> object:
        row = self.connection.execute(query.encode()).fetchone()
        return row[0] if row else None

    async def commit_with(self, write: Write) -> None:
        statements: Any = self.connection
        try:
            self.before_append()
            write(statements)
            self.at_commit()
            self.connection.commit()
        except LogError:
            raise
        except BaseException:
            await self.rollback()
            raise
        self.has_writes = False

    async def rollback(self) -> None:
        self.has_writes = False
        with suppress(psycopg.Error):
            self.connection.rollback()


@pytest.fixture
def url(postgres: Postgres) -> str:
    url = postgres.fresh()
    run(url, "CREATE TABLE mine (value TEXT)")
    return url


@pytest.fixture
async def log(url: str) -> AsyncIterator[PostgresLog]:
    log = PostgresLog(url)
    yield log
    await log.close()


@pytest.fixture
def transaction(url: str) -> Iterator[Plain]:
    transaction = Plain(url)
    yield transaction
    transaction.connection.close()


def mine(url: str) -> list[str]:
    return [str(value) for (value,) in run(url, "SELECT value FROM mine ORDER BY value")]


class TestJoinedPostgres(JoinedContract):
    def rows(self, log: JoiningLog) -> list[str]:
        return mine(log.database.url)

    def damage_heads(self, log: JoiningLog) -> None:
        run(log.database.url, "UPDATE turnline_heads SET hash = '\\x00'")


async def test_a_log_says_whether_it_can_join(log: PostgresLog, url: str) -> None:
    assert isinstance(log, JoinsTransactions)
    assert not isinstance(NatsLog("nats://localhost/log"), JoinsTransactions)
    assert log.database.url == url
    assert url not in repr(log.database)


async def test_f7_a_log_that_has_not_seen_the_channel_joins_too(url: str, transaction: Plain) -> None:
    first, second = PostgresLog(url), PostgresLog(url)
    await first.append("c", [line("c", 1)], after=0)
    transaction.insert("row")
    await second.append_within(transaction, "c", [line("c", 2)], after=1)

    assert await lines(first, "c") == [line("c", 1), line("c", 2)]
    await first.close()
    await second.close()


async def test_f7_whoever_follows_the_log_is_woken_here_and_elsewhere(url: str, transaction: Plain) -> None:
    """By the bell and by a notice: both look for the appends of others once an hour."""
    logs = [PostgresLog(url, poll_seconds=NEVER_SECONDS) for _ in range(2)]
    await logs[0].append("c", [line("c", 1)], after=0)
    tails = [log.tail() for log in logs]
    async with asyncio.timeout(PATIENCE_SECONDS):
        first = [await anext(tail) for tail in tails]
        following = [asyncio.ensure_future(anext(tail)) for tail in tails]
        transaction.insert("row")
        await logs[0].append_within(transaction, "c", [line("c", 2)], after=1)
        second = [await told for told in following]

    assert [[head.seq for head in heads] for heads in (first, second)] == [[1, 1], [2, 2]]
    for log in logs:
        await log.close()


async def test_f7_nobody_is_kept_out_by_what_was_refused(log: PostgresLog, transaction: Plain) -> None:
    await log.append("c", [line("c", 1)], after=0)
    transaction.insert("row")
    with pytest.raises(LogConflict):
        await log.append_within(transaction, "c", [line("c", 1, envelope_id="mine")], after=0)
    await log.append("c", [line("c", 2)], after=1)
    await log.append_within(transaction, "c", [line("c", 3, envelope_id="mine")], after=2)

    assert [one.envelope_id for one in await lines(log, "c")] == ["c-1", "c-2", "mine"]


async def test_a_commit_with_the_log_survives_what_the_log_promises_whatever_a_step_has_set(
    log: PostgresLog, transaction: Plain
) -> None:
    found: list[object] = []
    transaction.connection.execute("SET LOCAL synchronous_commit = off")
    transaction.insert("row")
    transaction.at_commit = lambda: found.append(transaction.ask("SHOW synchronous_commit"))
    await log.append_within(transaction, "c", [line("c", 1)], after=0)

    assert found == ["on"]


async def test_a_client_that_is_paused_before_its_commit_is_ended_by_the_server(
    log: PostgresLog, transaction: Plain
) -> None:
    """Or its channel, and every tail, would wait for as long as it is."""
    found: list[object] = []
    setting = "SHOW idle_in_transaction_session_timeout"
    transaction.insert("row")
    transaction.at_commit = lambda: found.append(transaction.ask(setting))
    await log.append_within(transaction, "c", [line("c", 1)], after=0)

    assert found == ["10s"]
    assert transaction.ask(setting) == "0"


# --- connections that are lost ---


def end(transaction: Plain, url: str) -> None:
    """End its backend, as a crash of either side does."""
    pid = transaction.connection.info.backend_pid
    assert run(url, f"SELECT pg_terminate_backend({pid}, 5000)") == [(True,)]


@pytest.mark.parametrize("point", ["before_append", "at_commit"])
async def test_f7_a_crash_between_rows_and_packet_has_no_effect(
    log: PostgresLog, url: str, transaction: Plain, point: str
) -> None:
    transaction.insert("row")
    setattr(transaction, point, lambda: end(transaction, url))
    with pytest.raises(LogUnavailable):
        await log.append_within(transaction, "c", [line("c", 1)], after=0)

    assert (mine(url), await lines(log, "c")) == ([], [])
    await log.append("c", [line("c", 1)], after=0)


async def test_f7_its_twin_that_commits_rows_by_themselves_leaves_them_without_a_packet(
    log: PostgresLog, url: str, transaction: Plain
) -> None:
    transaction.insert("row")
    transaction.connection.commit()
    end(transaction, url)

    assert (mine(url), await lines(log, "c")) == (["row"], [])


async def test_a_commit_whose_answer_was_lost_is_a_success(
    log: PostgresLog, url: str, transaction: Plain
) -> None:
    def lose_the_answer() -> None:
        transaction.connection.commit()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    transaction.at_commit = lose_the_answer
    transaction.insert("row")
    await log.append_within(transaction, "c", [line("c", 1)], after=0)

    assert (mine(url), len(await lines(log, "c"))) == (["row"], 1)


@pytest.mark.parametrize("after", [0, 1])
async def test_a_commit_that_is_still_under_way_is_waited_for(
    log: PostgresLog, url: str, transaction: Plain, after: int
) -> None:
    """The server may be at it when the client has lost sight of it; who looks too early misses it."""
    if after:
        await log.append("c", [line("c", 1)], after=0)
    server = transaction.connection

    def commit_later() -> None:
        for _ in range(LOOKS):
            if run(url, "SELECT 1 FROM pg_locks WHERE NOT granted"):
                break
        server.commit()

    def lose_sight() -> None:
        transaction.connection = psycopg.connect(url)  # What is rolled back is another one.
        committing.start()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    committing = Thread(target=commit_later)
    transaction.at_commit = lose_sight
    transaction.insert("row")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await log.append_within(transaction, "c", [line("c", after + 1)], after=after)

    committing.join()
    server.close()
    assert (mine(url), len(await lines(log, "c"))) == (["row"], after + 1)
