"""`SqliteLog`: the contract, and what is SQLite's own. Damage of the file's bytes is in `tests/faults`."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from turnline.core.channel import ChannelFilter
from turnline.core.codec import unpack_id
from turnline.errors import CorruptRecord, DuplicateEnvelope, LogUnavailable
from turnline.log.base import Log
from turnline.log.joined import SqlValue
from turnline.log.listing import leading, page_query
from turnline.log.sqlite import SqliteLog
from turnline.log.sqlite_file import DIALECT
from turnline.log.sqlite_work import number_of
from turnline.log.sqlite_writer import MAX_BATCH
from turnline.testing import Damage, DurableLogContract, damage_sqlite
from turnline.testing.lines import line, lines, say

from .database_contract import DatabaseContract, DatabaseLog

ROOT = Path(__file__).parents[2]
CUTS = 60
WAL_HEADER_BYTES = 32


def change(path: Path, *statements: str) -> None:
    """Change the file as no log would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def torn_copies(path: Path, folder: Path) -> Iterator[Path]:
    """Make copies of a log in use, their write-ahead files cut at many places."""
    main, wal = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    (folder / "main.db").write_bytes(main)
    with closing(sqlite3.connect(folder / "main.db")) as alone:
        found = alone.execute("SELECT count(*) FROM turnline_records").fetchone()
    assert found == (0,), "all of it has to be in the part that is cut"
    for cut in range(WAL_HEADER_BYTES, len(wal) + 1, len(wal) // CUTS):
        copy = folder / f"torn-{cut}.db"
        copy.write_bytes(main)
        Path(f"{copy}-wal").write_bytes(wal[:cut])
        yield copy


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log.db")
    yield log
    await log.close()


class TestSqliteLog(DurableLogContract):
    def damage(self, log: Log, channel_id: str, seq: int, damage: Damage) -> None:
        assert isinstance(log, SqliteLog)
        damage_sqlite(log.path, channel_id, seq, damage)

    async def reopen(self, log: Log) -> Log:
        assert isinstance(log, SqliteLog)
        await log.close()
        return SqliteLog(log.path)

    async def torn(self, log: Log, folder: Path) -> AsyncIterator[Log]:
        assert isinstance(log, SqliteLog)
        for copy in list(torn_copies(log.path, folder)):
            torn = SqliteLog(copy)
            yield torn
            await torn.close()


class TestSqliteTables(DatabaseContract):
    most = MAX_BATCH
    words: ClassVar = {name: f"turnline_{name}" for name in ("heads", "records", "snapshots")} | {
        "zero": "x'00'"
    }

    def execute(self, log: DatabaseLog, statement: str) -> None:
        assert isinstance(log, SqliteLog)
        change(
            log.path,
            statement.replace(
                "channel = 'a'", "channel = (SELECT channel FROM turnline_names WHERE id = 'a')"
            ),
        )

    def again(self, log: DatabaseLog) -> DatabaseLog:
        assert isinstance(log, SqliteLog)
        return SqliteLog(log.path)


async def test_appends_that_wait_together_share_a_transaction(log: SqliteLog) -> None:
    """At most two: the one the writer had begun, and one for all who came while it could not go on."""
    names = [f"c{n}" for n in range(200)]
    with closing(sqlite3.connect(log.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        appends = [asyncio.create_task(log.append(name, [line(name, 1)], after=0)) for name in names]
        await asyncio.sleep(0)  # Each of them is submitted.
        other.execute("ROLLBACK")
        await asyncio.gather(*appends)

    stats = log.stats()
    assert stats.works == 200
    assert stats.transactions <= 2
    assert 100 <= stats.largest_batch <= MAX_BATCH
    assert stats.waiting == 0


async def test_a_channel_without_a_head_is_appended_to_where_it_ends(log: SqliteLog) -> None:
    await log.append("a", [line("a", 1), line("a", 2)], after=0)
    await log.append("b", [line("b", 1)], after=0)
    change(log.path, "DELETE FROM turnline_heads WHERE channel = 'a'")

    assert await say(log, "a", "new") == 3
    assert len(await lines(log, "a")) == 3


async def test_an_id_that_is_kept_as_bytes_is_unique_and_is_not_taken_for_a_text(log: SqliteLog) -> None:
    body = b"sixteen bytes ok"
    drawn, chosen = unpack_id(body), body.decode()
    ids = [drawn, f"{drawn}-1", chosen]
    await log.append("a", [line("a", seq, envelope_id=name) for seq, name in enumerate(ids, 1)], after=0)

    for seq, name in enumerate(ids, 1):
        found = await log.find("a", name)
        assert found is not None
        assert (found.seq, found.envelope_id) == (seq, name)
        with pytest.raises(DuplicateEnvelope):
            await log.append("a", [line("a", 4, envelope_id=name)], after=3)
    assert [one.envelope_id for one in await lines(log, "a")] == ids


async def test_listing_open_channels_costs_only_those(log: SqliteLog) -> None:
    query = "SELECT id, seq FROM turnline_heads CROSS JOIN turnline_names USING (channel) "
    query += "WHERE id > '' AND NOT closed ORDER BY id"
    with closing(sqlite3.connect(log.path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()

    assert "turnline_heads_open" in str(plan)


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (ChannelFilter(), "heads_created"),
        (ChannelFilter(is_run=True), "heads_runs"),
        (ChannelFilter(flow="leads"), "heads_flow"),
        (ChannelFilter(is_run=True, close_codes=["done"]), "heads_code"),
        (ChannelFilter(is_run=True, is_closed=True, close_codes=["done"], flow="leads"), "heads_flow_code"),
        (
            ChannelFilter(is_run=True, is_closed=True, but_close_codes=["done"], flow="leads"),
            "heads_flow_code",
        ),
        (ChannelFilter(labels={"k": "v"}), "t USING PRIMARY KEY"),
        (ChannelFilter(is_closed=False, flow="leads"), "heads_open"),
    ],
)
async def test_a_page_that_an_index_orders_is_walked_in_it(
    log: SqliteLog, where: ChannelFilter, index: str
) -> None:
    assert leading(where) == where
    query, values = page_query(DIALECT, where, after=None, limit=50, codes=["+done", "+failed", "failed"])
    with closing(sqlite3.connect(log.path)) as connection:
        plan = [one for *_, one in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]

    assert re.search(rf"{index}\b", plan[0])
    assert not any("TEMP B-TREE" in one for one in plan)


async def test_a_tail_ends_when_the_log_is_closed(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", poll_seconds=3600)
    await log.append("c", [line("c", 1)], after=0)
    heard = asyncio.Event()

    async def follow() -> int:
        async for _ in log.tail():
            heard.set()
        return 1

    async with asyncio.timeout(60):
        following = asyncio.create_task(follow())
        await heard.wait()
        await log.close()
        assert await following


def test_one_log_serves_several_event_loops_one_after_the_other(tmp_path: Path) -> None:
    """Making a log needs no running loop; each caller is answered in its own."""
    log = SqliteLog(tmp_path / "log.db")
    for seq in range(1, 4):
        asyncio.run(log.append("c", [line("c", seq)], after=seq - 1))

    assert [e.seq for e in asyncio.run(lines(log, "c"))] == [1, 2, 3]
    asyncio.run(log.close())


async def test_several_event_loops_at_once_are_answered_each_in_its_own(log: SqliteLog) -> None:
    def another(name: str) -> None:
        async def write() -> None:
            await asyncio.gather(*(say(log, "shared", f"{name}-{n}") for n in range(20)))

        asyncio.run(write())

    await asyncio.gather(*(asyncio.to_thread(another, name) for name in "abcd"))

    assert [e.seq for e in await lines(log, "shared")] == list(range(1, 81))


async def test_an_append_gives_up_on_a_file_that_stays_locked(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", busy_timeout_seconds=0.05)
    with closing(sqlite3.connect(log.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogUnavailable, match="locked"):
            await log.append("c", [line("c", 1)], after=0)
        other.execute("ROLLBACK")

    await log.append("c", [line("c", 1)], after=0)
    assert len(await lines(log, "c")) == 1
    await log.close()


async def test_reading_does_not_wait_for_a_writer(log: SqliteLog) -> None:
    await log.append("c", [line("c", 1)], after=0)
    with closing(sqlite3.connect(log.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert len(await lines(log, "c")) == 1


def test_a_full_disk_makes_the_log_read_only_until_there_is_room(tmp_path: Path) -> None:
    """A limit on file sizes stands in for the full disk, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.log.full_disk", str(tmp_path / "log.db")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "recovered"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE turnline_names SET id = 'q' WHERE id = 'a'",
        "UPDATE turnline_names SET id = x'ff' WHERE id = 'a'",
    ],
)
async def test_a_channel_whose_name_is_damaged_is_not_taken_for_one_that_never_was(
    log: SqliteLog, damage: str
) -> None:
    await log.append("a", [line("a", 1)], after=0)
    await log.append("b", [line("b", 1)], after=0)
    change(log.path, damage)

    for asked in (lines(log, "a"), log.head("a"), log.find("a", "a-1")):
        with pytest.raises(CorruptRecord, match="name is damaged"):
            await asked
    with pytest.raises(CorruptRecord, match="name is damaged"):
        await log.append("a", [line("a", 1, envelope_id="again")], after=0)
    assert await lines(log, "b") == [line("b", 1)]
    assert await lines(log, "never") == []
    assert await say(log, "never", "first") == 1


async def test_a_channel_that_is_named_while_it_is_looked_up_is_not_damaged(log: SqliteLog) -> None:
    await log.append("a", [line("a", 1)], after=0)
    (name,) = rows(log.path, "SELECT id, mark FROM turnline_names")
    change(log.path, "DELETE FROM turnline_names")

    class Slow:
        """Another program names the channel after each statement."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection = connection

        def execute(self, sql: str, parameters: Sequence[SqlValue] = (), /) -> sqlite3.Cursor:
            found = self._connection.execute(sql, parameters)
            change(
                log.path, f"INSERT OR IGNORE INTO turnline_names (id, mark) VALUES ('{name[0]}', {name[1]})"
            )
            return found

    with closing(sqlite3.connect(log.path)) as connection:
        assert number_of(Slow(connection), "a") is None
        assert number_of(Slow(connection), "a") is not None


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()
