"""A step's unit of work: nothing lands but by its one commit, and nothing is held before it has to be."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError, StatementError

from turnline.errors import CommitRefused, DataUnavailable, WriteRefused
from turnline.flow.data.database import Database
from turnline.log.joined import Statements
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line, lines

from .stage import can_write, emails, opened, sqlite, stored, unit

PATIENCE_SECONDS: Final = 60.0
"""Nothing here takes so long; what does is stuck."""


@contextmanager
def statements(data: Database) -> Iterator[list[str]]:
    """What is sent to the database through SQLAlchemy meanwhile."""
    seen: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        seen.append(statement.split(maxsplit=1)[0])

    event.listen(data.engine.sync_engine, "before_cursor_execute", note)
    yield seen
    event.remove(data.engine.sync_engine, "before_cursor_execute", note)


def connections(data: Database) -> int:
    pool: Any = data.engine.sync_engine.pool
    return int(pool.checkedout())


# --- what is held ---


async def test_f7_a_unit_that_is_not_used_costs_no_connection(tmp_path: Path) -> None:
    async with opened(sqlite(tmp_path)) as data, unit(data) as work:
        assert work.session is not None
        assert not work.has_writes
        assert connections(data) == 0


async def test_f7_whoever_only_reads_holds_neither_connection_nor_lock(tmp_path: Path) -> None:
    async with opened(sqlite(tmp_path)) as data, unit(data) as work:
        await work.db["Lead"].list()
        await work.db["Lead"].get("00000000-0000-0000-0000-000000000000")

        assert not work.has_writes
        assert connections(data) == 0


async def test_f7_what_is_staged_holds_nobody_up_until_it_is_sent(tmp_path: Path) -> None:
    log = sqlite(tmp_path)
    async with opened(log) as data, unit(data) as work:
        await work.db["Lead"].add(email="jane@example.com")
        assert work.has_writes
        assert not work.holds_database
        assert can_write(log.path)
        await work.flush()

        assert work.holds_database
        assert not can_write(log.path)
        await work.rollback()
        assert can_write(log.path)


async def test_f7_a_read_before_the_first_write_does_not_spoil_it(tmp_path: Path) -> None:
    """In a read transaction SQLite would refuse to write, because the log has moved on meanwhile."""
    log = sqlite(tmp_path)
    async with opened(log) as data:
        async with unit(data) as work:
            await work.session.execute(text("SELECT * FROM lead"))
            await log.append("c", [line("c", 1)], after=0)
            await work.db["Lead"].add(email="jane@example.com")
            await work.session.execute(text("SELECT * FROM lead"))
            await log.append_within(work, "c", [line("c", 2)], after=1)

        assert await emails(data) == ["jane@example.com"]
        assert len(await lines(log, "c")) == 2


@pytest.mark.usefixtures("everywhere")
async def test_a_plain_statement_sees_what_is_staged() -> None:
    async with opened() as data, unit(data) as work:
        await work.db["Lead"].add(email="jane@example.com")
        counted = text("SELECT count(*) FROM lead")

        assert await work.session.scalar(counted) == 1
        assert (await work.session.execute(counted)).scalar_one() == 1
        assert (await work.session.scalars(counted)).one() == 1


async def test_f7_a_step_that_is_cancelled_while_it_waits_for_the_file_leaves_it_free(tmp_path: Path) -> None:
    log = sqlite(tmp_path)
    async with opened(log) as data:
        with closing(sqlite3.connect(log.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with unit(data) as work:
                await work.db["Lead"].add(email="jane@example.com")
                sending = asyncio.create_task(work.flush())
                while connections(data) == 0:  # noqa: ASYNC110  a pool has no event of its own
                    await asyncio.sleep(0)
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                other.execute("ROLLBACK")

        assert can_write(log.path)
        assert await stored(data) == []


async def test_f7_whoever_could_not_have_the_file_does_not_keep_others_from_it(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", busy_timeout_seconds=0.01)
    async with opened(log) as data, unit(data) as work:
        await work.db["Lead"].add(email="jane@example.com")
        with closing(sqlite3.connect(log.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(OperationalError, match="locked"):
                await work.flush()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await log.database.turnstile.take(timeout_seconds=2 * PATIENCE_SECONDS)


# --- what lands ---


async def test_f7_what_is_not_committed_is_undone(tmp_path: Path) -> None:
    async with opened(sqlite(tmp_path)) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="staged@example.com")
        async with unit(data) as work:
            await work.db["Lead"].add(email="sent@example.com")
            await work.flush()
        async with unit(data) as work:
            await work.session.execute(
                text("INSERT INTO company SELECT 'x', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, ''")
            )

        assert await stored(data) == await stored(data, "Company") == []
        assert connections(data) == 0


@pytest.mark.usefixtures("everywhere")
async def test_f7_commit_alone_commits_and_ends_the_unit() -> None:
    async with opened() as data, unit(data) as work:
        before = connections(data)  # In memory there is one that keeps the database alive.
        await work.db["Lead"].add(email="jane@example.com")
        await work.commit_alone()

        assert not work.has_writes
        assert connections(data) == before
        assert await emails(data) == ["jane@example.com"]


@pytest.mark.usefixtures("everywhere")
async def test_f7_commit_alone_with_nothing_to_commit_asks_nothing() -> None:
    async with opened() as data, unit(data) as work:
        await work.db["Lead"].list()
        with statements(data) as seen:
            await work.commit_alone()

        assert seen == []


@pytest.mark.usefixtures("everywhere")
async def test_closing_twice_is_allowed_also_after_a_commit() -> None:
    async with opened() as data:
        work = data.begin([], {})
        await work.close()
        await work.close()
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.commit_alone()
            await work.rollback()

        assert await emails(data) == ["jane@example.com"]


@pytest.mark.usefixtures("everywhere")
async def test_what_has_ended_cannot_be_committed() -> None:
    async with opened() as data, unit(data) as work:
        await work.db["Lead"].add(email="jane@example.com")
        await work.rollback()
        with pytest.raises(CommitRefused):
            await work.commit_with(lambda _: None)

        assert await stored(data) == []


@pytest.mark.usefixtures("everywhere")
async def test_closing_waits_for_the_commit_that_is_on_its_way() -> None:
    """The sender of a packet was cancelled: its rows land with the packet, or neither does."""
    async with opened() as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            committing = asyncio.create_task(work.commit_alone())
            await asyncio.sleep(0)
            await work.close()
            await committing

        assert await emails(data) == ["jane@example.com"]


async def test_a_unit_is_closed_although_whoever_closes_it_is_cancelled(tmp_path: Path) -> None:
    log = sqlite(tmp_path)
    async with opened(log) as data:
        work = data.begin([], {})
        await work.session.execute(text("DELETE FROM lead"))
        closing_it = asyncio.create_task(work.close())
        await asyncio.sleep(0)
        closing_it.cancel()
        await asyncio.gather(closing_it, return_exceptions=True)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while connections(data):  # noqa: ASYNC110  a pool has no event of its own
                await asyncio.sleep(0)
            await log.database.turnstile.take(timeout_seconds=2 * PATIENCE_SECONDS)

        assert can_write(log.path)


# --- what is refused ---


@pytest.mark.usefixtures("everywhere")
async def test_f12_what_the_database_refuses_undoes_the_whole_step() -> None:
    async with opened() as data:
        async with unit(data) as work:
            await work.db["Company"].add(name="Acme")
            await work.flush()
            for _ in range(2):
                await work.db["Lead"].add(email="jane@example.com")
            with pytest.raises(WriteRefused, match=r"UNIQUE constraint failed: lead\.email"):
                await work.db["Lead"].list()
            assert work.has_writes, "it must not land as if it had written nothing"
            with pytest.raises(WriteRefused, match="an earlier write"):
                await work.commit_alone()

        assert await stored(data) == await stored(data, "Company") == []


async def test_what_the_database_refuses_only_at_the_end_is_the_step_s_error_too(tmp_path: Path) -> None:
    log = sqlite(tmp_path)
    async with opened(log) as data:
        async with unit(data) as work:
            await work.session.execute(text("PRAGMA defer_foreign_keys = ON"))
            await work.db["Lead"].add(
                email="jane@example.com", company="00000000-0000-0000-0000-000000000000"
            )
            with pytest.raises(WriteRefused, match="FOREIGN KEY"):
                await log.append_within(work, "c", [line("c", 1)], after=0)

        assert await stored(data) == []
        assert await lines(log, "c") == []
        assert can_write(log.path)


@pytest.mark.usefixtures("everywhere")
async def test_what_fails_before_it_is_sent_is_not_lost_silently() -> None:
    async with opened() as data:
        async with unit(data) as work:
            lead = work.db["Lead"].model(email="jane@example.com")
            work.session.add(lead)
            vars(lead)["seen_at"] = object()  # Past every check, as a bug in a library would.
            with pytest.raises(StatementError):
                await work.session.flush()
            assert not work.session.new
            assert work.has_writes
            with pytest.raises(WriteRefused):
                await work.commit_alone()

        assert await stored(data) == []


@pytest.mark.usefixtures("everywhere")
async def test_a_savepoint_keeps_the_rest_of_the_step() -> None:
    async with opened() as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            savepoint = await work.session.begin_nested()
            await work.db["Lead"].add(email="jane@example.com")
            with pytest.raises(WriteRefused):
                await work.flush()
            await savepoint.rollback()
            await work.db["Lead"].add(email="john@example.com")
            await work.commit_alone()

        assert await emails(data) == ["jane@example.com", "john@example.com"]


@pytest.mark.usefixtures("everywhere")
async def test_a_rollback_of_the_step_s_own_begins_anew() -> None:
    async with opened() as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="undone@example.com")
            await work.flush()
            await work.session.rollback()
            assert not work.holds_database
            await work.db["Lead"].add(email="jane@example.com")
            await work.commit_alone()

        assert await emails(data) == ["jane@example.com"]


async def test_after_the_database_has_undone_a_step_by_itself_nothing_of_it_lands(tmp_path: Path) -> None:
    """`OR ROLLBACK` ends the transaction behind SQLAlchemy's back; what follows would land alone."""
    log = sqlite(tmp_path)
    async with opened(log) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.flush()
            columns = "id, created_at, updated_at, email"
            twin = f"INSERT OR ROLLBACK INTO lead ({columns}) SELECT 'x', 1, 1, email FROM lead"
            with pytest.raises(Exception, match="UNIQUE"):
                await work.session.execute(text(twin))
            with pytest.raises(WriteRefused, match="has undone it"):
                await work.session.execute(text("INSERT INTO company SELECT 'x', 1, 1, 'alone'"))
            with pytest.raises(WriteRefused):
                await log.append_within(work, "c", [line("c", 1)], after=0)

        assert await stored(data) == await stored(data, "Company") == []
        assert await lines(log, "c") == []


@pytest.mark.usefixtures("everywhere")
async def test_a_write_that_fails_undoes_everything() -> None:
    async with opened() as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")

            def write(_: Statements) -> None:
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await work.commit_with(write)

        assert await stored(data) == []


async def test_a_database_that_fails_is_told_apart_from_a_step_that_does(tmp_path: Path) -> None:
    path = tmp_path / "own.db"
    async with opened(url=f"sqlite:///{path}") as data, unit(data) as work:
        await work.db["Lead"].add(email="jane@example.com")
        await work.flush()

        def lose(_: Statements) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with pytest.raises(sqlite3.OperationalError):
            await work.commit_with(lose)
        async with unit(data) as another:
            await another.session.execute(text("DROP TABLE lead"))
            await another.db["Lead"].add(email="jane@example.com")
            with pytest.raises(DataUnavailable, match="no such table"):
                await another.commit_alone()

        assert await stored(data) == []
