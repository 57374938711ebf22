"""Where data models are kept, and what opening them does."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from turnline.errors import LogUnavailable, ModelsRefused, UnknownName
from turnline.flow.data.database import open_data
from turnline.flow.work import Data
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line, lines

from .stage import LEAD, MODELS, emails, model, opened, sqlite, stored, unit


async def test_f7_with_a_log_on_a_file_the_models_are_in_the_same_file(tmp_path: Path) -> None:
    log = sqlite(tmp_path)
    async with opened(log) as data:
        assert data.shares_log
        assert data.address == log.address
    with closing(sqlite3.connect(log.path)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}

    assert {"turnline_records", "turnline_heads", "lead", "company"} <= names


async def test_f7_the_log_s_own_address_is_the_log_s_own_file(tmp_path: Path) -> None:
    log = sqlite(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    async with opened(log, url=f"sqlite:///{tmp_path}/link/log.db") as data:
        assert data.shares_log


async def test_f7_with_a_log_in_memory_the_models_are_in_memory_too() -> None:
    async with opened(MemoryLog()) as first, opened(MemoryLog()) as second:
        async with unit(first) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.commit_alone()

        assert not first.shares_log
        assert await emails(first) == ["jane@example.com"]
        assert await stored(second) == []


async def test_f7_a_file_of_their_own_is_not_the_log_s(tmp_path: Path) -> None:
    async with opened(sqlite(tmp_path), url=f"sqlite:///{tmp_path}/deep/app.db") as data:
        assert not data.shares_log
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.commit_alone()
    async with opened(url=f"sqlite:///{tmp_path}/deep/app.db") as data:
        assert await emails(data) == ["jane@example.com"]


@pytest.mark.parametrize("url", ["app.db", "sqlite:///", "mysql://localhost/x", "", "sqlite:app.db"])
async def test_an_address_nobody_knows_is_told(url: str) -> None:
    with pytest.raises(UnknownName, match=r"sqlite:///app\.db"):
        await open_data(MODELS, log=MemoryLog(), url=url)


@pytest.mark.parametrize(
    "table", ["turnline_records", "turnline_heads", "turnline_snapshots", "turnline_heads_open"]
)
async def test_f12_the_log_s_own_tables_are_not_to_be_had(tmp_path: Path, table: str) -> None:
    log = sqlite(tmp_path)
    await log.append("c", [line("c", 1)], after=0)
    with pytest.raises(ModelsRefused, match="not free"):
        await open_data([model("Mine", table=table)], log=log)

    assert len(await lines(log, "c")) == 1
    await log.close()


async def test_a_database_of_their_own_may_have_any_table() -> None:
    async with opened(models=[model("Record", table="records")]) as data:
        assert await stored(data, "Record") == []


async def test_f12_a_log_opens_again_with_the_models_in_it(tmp_path: Path) -> None:
    for number in (1, 2):
        log = sqlite(tmp_path)
        async with opened(log) as data, unit(data) as work:
            await work.db["Lead"].add(email=str(number))
            await log.append_within(work, "c", [line("c", number)], after=number - 1)
    log = sqlite(tmp_path)
    async with opened(log) as data:
        assert await emails(data) == ["1", "2"]
        assert len(await lines(log, "c")) == 2


@pytest.mark.parametrize(("durability", "synchronous"), [("power", 2), ("process", 1)])
async def test_f7_a_row_survives_what_an_envelope_survives(
    tmp_path: Path, durability: str, synchronous: int
) -> None:
    log = SqliteLog(tmp_path / "log.db", durability=durability)  # type: ignore[arg-type]
    async with opened(log) as data, data.engine.connect() as connection:
        found = await connection.exec_driver_sql("PRAGMA synchronous")
        mode = await connection.exec_driver_sql("PRAGMA journal_mode")

        assert found.scalar_one() == synchronous
        assert mode.scalar_one() == "wal"


async def test_several_may_open_one_new_file_at_once(tmp_path: Path) -> None:
    async def open_and_add(name: str) -> None:
        async with opened(url=f"sqlite:///{tmp_path}/app.db") as data, unit(data) as work:
            await work.db["Lead"].add(email=name)
            await work.commit_alone()

    await asyncio.gather(*(open_and_add(str(n)) for n in range(4)))
    async with opened(url=f"sqlite:///{tmp_path}/app.db") as data:
        assert await emails(data) == ["0", "1", "2", "3"]


async def test_after_closing_nothing_of_it_is_left(tmp_path: Path) -> None:
    log = sqlite(tmp_path)
    async with opened(log):
        pass
    with pytest.raises(LogUnavailable):
        await log.head("c")
    assert os.listdir(tmp_path) == ["log.db"], "the last connection takes the other files along"


async def test_a_database_is_what_the_engine_takes_for_data(tmp_path: Path) -> None:
    async with opened() as database:
        data: Data = database

        assert data.begin([], {}).has_writes is False


def test_a_definition_is_read_without_a_database_library() -> None:
    code = "import sys, turnline.flow.data.versions; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
    assert LEAD.name == "Lead"
