"""Appending inside somebody else's transaction: both land, or neither (F7)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from turnline.errors import LogError, LogUnavailable
from turnline.log.base import JoinsTransactions
from turnline.log.joined import Write
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line, lines

from .joined_contract import JoinedContract, JoiningLog


class Plain:
    """A transaction by the standard library: rows of a table `mine`."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.holds_database = False
        self.at_commit: Callable[[], None] = lambda: None
        """Called instead of COMMIT's own success."""

    @property
    def has_writes(self) -> bool:
        return self.holds_database

    def insert(self, value: str) -> None:
        if not self.holds_database:
            self.connection.execute("BEGIN IMMEDIATE")
            self.holds_database = True
        self.connection.execute("INSERT INTO mine VALUES (?)", (value,))

    async def commit_with(self, write: Write) -> None:
        try:
            write(self.connection)
            fault, self.at_commit = self.at_commit, lambda: None
            fault()
            if self.connection.in_transaction:
                self.connection.execute("COMMIT")
        except LogError:
            raise
        except BaseException:
            await self.rollback()
            raise
        self.holds_database = False

    async def rollback(self) -> None:
        self.holds_database = False
        with suppress(sqlite3.Error):
            self.connection.execute("ROLLBACK")


def failing(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = code, "SQLITE_IOERR_TEST"
    return error


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log.db", durability="process")
    with closing(sqlite3.connect(log.path)) as connection:
        connection.execute("CREATE TABLE mine (value TEXT)")
    yield log
    await log.close()


@pytest.fixture
def transaction(log: SqliteLog) -> Iterator[Plain]:
    transaction = Plain(log.path)
    yield transaction
    transaction.connection.close()


def mine(log: SqliteLog) -> list[str]:
    with closing(sqlite3.connect(log.path)) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM mine ORDER BY value")]


class TestJoinedSqlite(JoinedContract):
    def rows(self, log: JoiningLog) -> list[str]:
        assert isinstance(log, SqliteLog)
        return mine(log)

    def damage_heads(self, log: JoiningLog) -> None:
        assert isinstance(log, SqliteLog)
        with closing(sqlite3.connect(log.path)) as connection, connection:
            connection.execute("UPDATE turnline_heads SET hash = x'00'")


def test_a_log_says_whether_it_can_join(log: SqliteLog) -> None:
    assert isinstance(log, JoinsTransactions)
    assert not isinstance(MemoryLog(), JoinsTransactions)


async def test_f7_whoever_follows_the_log_is_woken(tmp_path: Path) -> None:
    """By its bell: this log looks for the appends of others once an hour."""
    log = SqliteLog(tmp_path / "log.db", poll_seconds=3600)
    with closing(sqlite3.connect(log.path)) as connection:
        connection.execute("CREATE TABLE mine (value TEXT)")
    transaction = Plain(log.path)
    told = asyncio.ensure_future(anext(aiter(log.tail())))
    await asyncio.sleep(0)
    transaction.insert("row")
    await log.append_within(transaction, "c", [line("c", 1)], after=0)
    async with asyncio.timeout(60):
        head = await told

    assert (head.channel_id, head.seq) == ("c", 1)
    transaction.connection.close()
    await log.close()


# --- an error from COMMIT means unknown ---


async def test_a_commit_that_failed_but_landed_is_a_success(log: SqliteLog, transaction: Plain) -> None:
    def lose_the_answer() -> None:
        transaction.connection.execute("COMMIT")
        raise failing(sqlite3.SQLITE_IOERR_UNLOCK)

    transaction.at_commit = lose_the_answer
    transaction.insert("row")
    await log.append_within(transaction, "c", [line("c", 1)], after=0)

    assert mine(log) == ["row"]
    assert len(await lines(log, "c")) == 1


async def test_a_commit_that_failed_and_did_not_land_is_unavailable(
    log: SqliteLog, transaction: Plain
) -> None:
    def fail() -> None:
        raise failing(sqlite3.SQLITE_IOERR_WRITE)

    transaction.at_commit = fail
    transaction.insert("row")
    with pytest.raises(LogUnavailable, match="SQLITE_IOERR_TEST"):
        await log.append_within(transaction, "c", [line("c", 1)], after=0)

    assert mine(log) == []
    assert await lines(log, "c") == []


async def test_a_failed_sync_is_never_a_success_even_if_it_can_be_read(
    log: SqliteLog, transaction: Plain
) -> None:
    def fail_to_sync() -> None:
        transaction.connection.execute("COMMIT")
        raise failing(sqlite3.SQLITE_IOERR_FSYNC)

    transaction.at_commit = fail_to_sync
    transaction.insert("row")
    with pytest.raises(LogUnavailable):
        await log.append_within(transaction, "c", [line("c", 1)], after=0)

    assert len(await lines(log, "c")) == 1
