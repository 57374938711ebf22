"""A step's hold on an SQLite database: how long, and what it keeps from landing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from turnline.errors import LogConflict, WriteRefused
from turnline.flow.data.sqlite_hold import HOLD_SECONDS
from turnline.testing.lines import line, lines
from turnline.testing.manual_clock import ManualClock

from .stage import can_write, emails, opened, sqlite, stored, unit


async def test_f7_a_step_that_goes_on_too_long_after_its_first_write_is_undone(tmp_path: Path) -> None:
    """It waits for something else, and nobody's packet could land."""
    log, clock = sqlite(tmp_path), ManualClock()
    async with opened(log, clock=clock) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.flush()
            clock.advance(HOLD_SECONDS)
            await log.append("c", [line("c", 1)], after=0)  # Would fail if the file were held.
            with pytest.raises(WriteRefused, match="after its first write"):
                await work.session.execute(text("INSERT INTO company SELECT 'x', 1, 1, 'late'"))
            with pytest.raises(WriteRefused):
                await work.db["Lead"].list()
            with pytest.raises(WriteRefused):
                await log.append_within(work, "c", [line("c", 2)], after=1)

        assert await stored(data) == await stored(data, "Company") == []
        assert len(await lines(log, "c")) == 1


async def test_f7_a_connection_that_was_taken_away_is_not_used_again(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(sqlite(tmp_path), clock=clock) as data:
        async with unit(data) as work:
            await work.session.execute(text("DELETE FROM lead"))
            clock.advance(HOLD_SECONDS)
            async with unit(data) as other:
                await other.db["Lead"].add(email="jane@example.com")
                await other.commit_alone()
        for name in ("a", "b"):
            async with unit(data) as work:
                await work.db["Lead"].add(email=name)
                await work.commit_alone()

        assert await emails(data) == ["a", "b", "jane@example.com"]


async def test_f7_a_step_that_ends_in_time_is_not_undone_later(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(sqlite(tmp_path), clock=clock) as data:
        async with unit(data) as work:
            await work.session.execute(text("DELETE FROM lead"))
            clock.advance(HOLD_SECONDS - 1)
            await work.db["Lead"].add(email="jane@example.com")
            await work.commit_alone()
        clock.advance(HOLD_SECONDS)
        await asyncio.sleep(0)

        assert await emails(data) == ["jane@example.com"]


async def test_f7_while_its_packet_is_decided_again_a_step_has_no_limit(tmp_path: Path) -> None:
    log, clock = sqlite(tmp_path), ManualClock()
    async with opened(log, clock=clock) as data:
        await log.append("c", [line("c", 1)], after=0)
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            with pytest.raises(LogConflict):
                await log.append_within(work, "c", [line("c", 1, envelope_id="mine")], after=0)
            clock.advance(HOLD_SECONDS)
            await asyncio.sleep(0)
            await log.append_within(work, "c", [line("c", 2, envelope_id="mine")], after=1)

        assert await emails(data) == ["jane@example.com"]


async def test_steps_that_write_wait_for_each_other(tmp_path: Path) -> None:
    async with opened(sqlite(tmp_path)) as data, unit(data) as first, unit(data) as second:
        await first.session.execute(text("DELETE FROM lead"))
        sending = asyncio.create_task(second.session.execute(text("DELETE FROM lead")))
        await asyncio.sleep(0)
        assert not second.holds_database
        await first.rollback()
        await sending

        assert second.holds_database


async def test_whoever_stops_waiting_is_not_waited_for(tmp_path: Path) -> None:
    async with opened(sqlite(tmp_path)) as data, unit(data) as first, unit(data) as third:
        await first.session.execute(text("DELETE FROM lead"))
        async with unit(data) as second:
            sending = asyncio.create_task(second.session.execute(text("DELETE FROM lead")))
            await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        await first.rollback()
        await third.session.execute(text("DELETE FROM lead"))

        assert third.holds_database


@pytest.mark.parametrize(
    ("statement", "holds"),
    [
        ("SELECT 1", False),
        ("  select * from lead", False),
        ("-- why\nSELECT 1", False),
        ("/* a * b */ -- c\n /**/ SELECT 1", False),
        ("VALUES (1)", False),
        ("EXPLAIN QUERY PLAN SELECT 1", False),
        ("PRAGMA table_info('lead')", False),
        ("PRAGMA user_version", False),
        ("WITH x AS (SELECT 1) SELECT * FROM x", True),
        ("DELETE FROM lead", True),
        ("/* SELECT */ DELETE FROM lead", True),
        ("/**/" * 200 + "DELETE FROM lead", True),
        ("WITH x AS (SELECT 1) DELETE FROM lead", True),
        ("REPLACE INTO company SELECT 'x', 1, 1, ''", True),
        ("CREATE TABLE mine (a)", True),
        ("PRAGMA user_version = 1", True),
        ("SAVEPOINT mine", True),
    ],
)
async def test_what_is_not_known_to_read_is_taken_for_a_write(
    tmp_path: Path, statement: str, holds: bool
) -> None:
    log = sqlite(tmp_path)
    async with opened(log) as data, unit(data) as work:
        await work.session.execute(text(statement))

        assert work.holds_database is holds
        assert can_write(log.path) is not holds
