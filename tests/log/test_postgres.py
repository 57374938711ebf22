"""`PostgresLog` on a real server: the contract, and what is PostgreSQL's own."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from turnline.core.codec import NO_HASH, SALT_BYTES, seal_all
from turnline.errors import CorruptRecord, LogConflict, LogUnavailable, MissingExtra
from turnline.log.address import open_log
from turnline.log.base import Log
from turnline.log.chain import Chain
from turnline.log.postgres import PostgresLog
from turnline.log.postgres_schema import FORMAT
from turnline.log.postgres_writer import MAX_BATCH
from turnline.log.sqlite import SqliteLog
from turnline.testing import Damage, DurableLogContract
from turnline.testing.lines import closing_line, line, lines, say

from ..postgres import Postgres, run
from .database_contract import DatabaseContract, DatabaseLog
from .postgres_stage import damage_postgres, on_another, own_folder, place_of, running, torn_copy, written

CUTS = 5
BYTES_BETWEEN_CUTS = 1_700
"""About what an append of the contract's takes."""


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.fresh()


@pytest.fixture
async def log(url: str) -> AsyncIterator[PostgresLog]:
    log = PostgresLog(url)
    yield log
    await log.close()


class TestPostgresLog(DurableLogContract):
    @pytest.fixture(autouse=True)
    def place(self, postgres: Postgres, url: str, log: PostgresLog, request: pytest.FixtureRequest) -> None:
        self.server, self.url = postgres, url
        if "torn" in request.node.name:  # What is cut has to be behind the last checkpoint.
            run(url, "CHECKPOINT")
        self.begin = written(url)

    def damage(self, log: Log, channel_id: str, seq: int, damage: Damage) -> None:
        damage_postgres(self.url, channel_id, seq, damage)

    async def reopen(self, log: Log) -> Log:
        await log.close()
        return PostgresLog(self.url)

    def address(self, log: Log) -> str:
        return self.url

    async def torn(self, log: Log, folder: Path) -> AsyncIterator[Log]:
        end = written(self.url)
        for n in range(CUTS):
            with own_folder() as own:
                cut = max(self.begin, end - n * BYTES_BETWEEN_CUTS)
                torn_copy(self.server.folder, own / "torn", cut=cut)
                with running(own / "torn") as server:
                    torn = PostgresLog(on_another(server, self.url))
                    yield torn
                    await torn.close()


class TestPostgresTables(DatabaseContract):
    most = MAX_BATCH
    words: ClassVar = {name: f"turnline_{name}" for name in ("heads", "records", "snapshots")} | {
        "zero": "'\\x00'"
    }

    def execute(self, log: DatabaseLog, statement: str) -> None:
        run(log.database.url, statement)

    def again(self, log: DatabaseLog) -> DatabaseLog:
        return PostgresLog(log.database.url)


async def test_appends_that_wait_together_share_a_transaction(log: PostgresLog) -> None:
    names = [f"c{n}" for n in range(200)]
    await asyncio.gather(*(log.append(name, [line(name, 1)], after=0) for name in names))

    stats = log.stats()
    assert stats.works == 200
    assert stats.transactions <= 2
    assert 100 <= stats.largest_batch <= MAX_BATCH
    assert stats.waiting == 0


async def test_an_append_that_comes_while_a_lane_ends_is_not_left_waiting(
    log: PostgresLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnline.log.postgres_writer.LANES", 1)
    async with asyncio.timeout(60):
        for seq in range(1, 50):
            await log.append("c", [line("c", seq)], after=seq - 1)


async def test_one_append_the_server_cannot_write_costs_nobody_else_of_its_batch(
    log: PostgresLog, url: str
) -> None:
    run(url, "ALTER TABLE turnline_records ADD CHECK (envelope_id <> 'poison')")
    poison = log.append("b", [line("b", 1, envelope_id="poison")], after=0)
    others = [log.append(name, [line(name, 1)], after=0) for name in "ac"]
    refused, *fine = await asyncio.gather(poison, *others, return_exceptions=True)

    assert isinstance(refused, LogUnavailable)
    assert "23514" in str(refused)
    assert fine == [None, None]
    assert [head.channel_id for head in await log.channels()] == ["a", "c"]


async def test_several_logs_on_one_database_take_turns_on_a_channel(log: PostgresLog, url: str) -> None:
    other = PostgresLog(url)
    for seq in range(1, 9):
        await (log, other)[seq % 2].append("c", [line("c", seq)], after=seq - 1)

    assert await lines(log, "c") == [line("c", seq) for seq in range(1, 9)]
    await other.close()


async def test_of_two_that_begin_a_channel_at_once_one_is_told_of_a_conflict(
    log: PostgresLog, url: str
) -> None:
    other = PostgresLog(url)
    for name in (f"c{n}" for n in range(300)):
        outcomes = await asyncio.gather(
            log.append(name, [line(name, 1, envelope_id="ours")], after=0),
            other.append(name, [line(name, 1, envelope_id="theirs")], after=0),
            return_exceptions=True,
        )
        assert sorted(map(repr, outcomes)) == [repr(LogConflict(name, after=0, found=1)), "None"]
    await other.close()


async def test_records_and_hashes_are_those_of_sqlite(log: PostgresLog, url: str, tmp_path: Path) -> None:
    """The salts are drawn once: a line that is on a log already keeps its bytes on another."""
    sqlite, chain = SqliteLog(tmp_path / "log.db"), Chain("kanal-ü")
    written = [line("kanal-ü", 1), line("kanal-ü", 2), closing_line("kanal-ü", 3)]
    lines_kept = [chain.keep(one) for one in seal_all(written, NO_HASH, salt=bytes(SALT_BYTES))]
    for kept in (log, sqlite):
        await kept.append("kanal-ü", lines_kept[:2], after=0)
        await kept.append("kanal-ü", lines_kept[2:], after=2)
    await sqlite.close()

    query = "SELECT seq, envelope_id, hash, head, payload FROM {} ORDER BY seq"
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        assert (
            run(url, query.format("turnline_records"))
            == connection.execute(
                query.format("turnline_records LEFT JOIN turnline_contents USING (position)")
            ).fetchall()
        )


async def test_a_channel_whose_head_is_gone_is_not_begun_again(log: PostgresLog, url: str) -> None:
    await log.append("a", [line("a", 1), line("a", 2)], after=0)
    run(url, "DELETE FROM turnline_heads WHERE channel = 'a'")

    with pytest.raises(CorruptRecord):
        await log.append("a", [line("a", 1, envelope_id="new")], after=0)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 1001, "ü" * 501])
async def test_an_id_that_postgresql_cannot_keep_is_refused_and_nobodys(log: PostgresLog, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be kept"):
        await log.append("c", [line("c", 1, envelope_id=name)], after=0)
    with pytest.raises(ValueError, match="cannot be kept"):
        await log.append(name, [line(name, 1, envelope_id="fine")], after=0)

    assert await log.find("c", name) is None
    assert await log.find(name, "fine") is None
    assert await log.head(name) is None
    assert await lines(log, name) == []


async def test_tables_of_somebody_else_or_of_another_format_are_not_touched(url: str) -> None:
    run(url, "CREATE TABLE turnline_records (mine integer)")
    with pytest.raises(LogUnavailable, match="not a Turnline log"):
        PostgresLog(url)
    assert run(url, "SELECT * FROM turnline_records") == []
    run(url, "DROP TABLE turnline_records")
    log = PostgresLog(url)
    await log.close()
    for number in (-1, FORMAT + 1):
        run(url, f"UPDATE turnline_format SET number = {number}")
        with pytest.raises(LogUnavailable, match=f"its format is {number}, this program reads {FORMAT}"):
            PostgresLog(url)


async def test_logs_that_are_opened_at_once_make_the_tables_once(url: str) -> None:
    logs = await asyncio.gather(*(asyncio.to_thread(PostgresLog, url) for _ in range(6)))

    await asyncio.gather(*(say(log, "c", f"w{n}") for n, log in enumerate(logs)))
    assert len(await lines(logs[0], "c")) == 6
    for log in logs:
        await log.close()


def test_a_user_who_may_not_make_tables_is_told(postgres: Postgres) -> None:
    url = postgres.fresh(user="log_reader")
    run(postgres.address(), "CREATE ROLE log_reader LOGIN")
    run(postgres.address(), f"REVOKE ALL ON SCHEMA {place_of(url)} FROM PUBLIC")
    run(postgres.address(), f"GRANT USAGE ON SCHEMA {place_of(url)} TO log_reader")

    with pytest.raises(LogUnavailable, match="may not make them"):
        PostgresLog(url)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
async def test_settings_are_checked_on_each_connection_and_power_is_said_only_if_they_hold(
    log: PostgresLog, url: str, setting: str
) -> None:
    assert log.durability == "power"
    run(url, f"ALTER SYSTEM SET {setting} = off")
    try:
        run(url, "SELECT pg_reload_conf()")
        while run(url, f"SHOW {setting}") != [("off",)]:
            pass
        weaker = PostgresLog(url)
        await log.channels()
    finally:
        run(url, f"ALTER SYSTEM RESET {setting}")
        run(url, "SELECT pg_reload_conf()")
    while run(url, f"SHOW {setting}") != [("on",)]:
        pass

    assert weaker.durability == "process"
    assert log.durability == "process"
    await weaker.close()


async def test_tables_that_a_crash_empties_do_not_survive_power(url: str) -> None:
    log = PostgresLog(url)
    run(url, "ALTER TABLE turnline_records SET UNLOGGED")
    again = PostgresLog(url)

    assert (log.durability, again.durability) == ("power", "process")
    await log.close()
    await again.close()


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("turnline.log.postgres", "psycopg")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)

    for scheme in ("postgresql", "postgres"):
        with pytest.raises(MissingExtra, match=r"\[postgres\]"):
            open_log(f"{scheme}://host/name")


async def test_both_schemes_open_it(url: str) -> None:
    for scheme in ("postgresql", "postgres"):
        log = open_log(url.replace("postgresql", scheme, 1))
        assert isinstance(log, PostgresLog)
        await log.close()
