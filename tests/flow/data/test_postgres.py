"""PostgreSQL: what is not the same as on SQLite, and what becomes of a connection that is lost."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import text

from turnline.errors import (
    CommitRefused,
    DataUnavailable,
    MissingExtra,
    ModelsRefused,
    UnknownName,
    WriteRefused,
)
from turnline.flow.data import postgres as postgres_home
from turnline.flow.data.database import Database, open_data
from turnline.flow.data.postgres import CONNECTIONS
from turnline.flow.data.unit_of_work import SqlUnitOfWork
from turnline.flow.work import Services
from turnline.log.memory import MemoryLog

from ...postgres import Postgres, run
from ..stage import flows_of, stage
from .stage import MODELS, emails, model, opened, sqlite, stored, unit

CANARY: Final = "sk-canary-1234567890"
PATIENCE_SECONDS: Final = 60.0
"""Nothing here takes so long; what does is stuck."""
OWN: Final = "pid <> pg_backend_pid() AND application_name = current_setting('application_name')"


def connections(data: Database) -> int:
    pool: Any = data.engine.sync_engine.pool
    return int(pool.checkedout())


def cut_off(url: str) -> int:
    """End every connection to this place, as a server that restarts does; how many there were."""
    return len(run(url, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {OWN}"))


def waiting(url: str) -> bool:
    """Whether somebody waits for a lock."""
    return bool(run(url, f"SELECT 1 FROM pg_stat_activity WHERE {OWN} AND wait_event_type = 'Lock'"))


def everything_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


# --- where ---


async def test_f7_the_models_are_on_the_server_and_not_with_the_log(
    postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.fresh()
    async with opened(sqlite(tmp_path), url=url) as data:
        assert not data.shares_log
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.commit_alone()

    assert run(url, "SELECT email FROM lead") == [("jane@example.com",)]


async def test_a_field_has_the_server_s_own_type(postgres: Postgres) -> None:
    url = postgres.fresh()
    fields = {kind: kind for kind in ("string", "text", "integer", "number", "boolean", "date", "datetime")}
    fields |= {kind: kind for kind in ("uuid", "json", "decimal")}
    async with opened(url=url, models=[model("Every", fields, timestamps=False)]):
        found = dict(
            run(
                url,
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
                "WHERE attrelid = 'every'::regclass AND attnum > 0",
            )
        )

    assert found == {
        "id": "character varying(36)",
        "string": "character varying",
        "text": "text",
        "integer": "bigint",
        "number": "double precision",
        "boolean": "boolean",
        "date": "date",
        "datetime": "timestamp with time zone",
        "uuid": "character varying(36)",
        "json": "jsonb",
        "decimal": "numeric",
    }


async def test_several_may_open_one_new_place_at_once(postgres: Postgres) -> None:
    url = postgres.fresh()

    async def open_and_add(name: str) -> None:
        async with opened(url=url) as data, unit(data) as work:
            await work.db["Lead"].add(email=name)
            await work.commit_alone()

    await asyncio.gather(*(open_and_add(str(n)) for n in range(4)))
    async with opened(url=url) as data:
        assert await emails(data) == ["0", "1", "2", "3"]


async def test_f12_names_that_are_longer_than_the_server_takes_are_cut(postgres: Postgres) -> None:
    url, table, field = postgres.fresh(), "t" * 55, "f" * 55
    models = [
        model(
            "Long",
            {field: {"type": "string", "unique": True}},
            table=table,
            relations={"r" * 55: {"model": "Long"}},
        )
    ]
    async with opened(url=url, models=models) as data:
        assert await data.migrate() == []
    async with opened(url=url, models=[model("Long", table=table)]) as data:
        assert len(data.changes) == 2, "the index of each of the two is dropped"


async def test_after_closing_nothing_of_it_is_left(postgres: Postgres) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data:
        await asyncio.gather(stored(data), stored(data))

    assert cut_off(url) == 0


# --- who connects ---


@pytest.mark.parametrize(
    "url",
    [
        "mysql://{0}:{0}@localhost/x",
        "postgresql://{0}:p@{0}@localhost/x",
        "postgresql://{0}:{0}@localhost:port/x",
        "postgresql:{0}@localhost",
        "{0}:{0}@localhost/x?password={0}",
        "mysql://localhost/x?password={0}",
    ],
)
async def test_an_address_nobody_knows_is_told_without_who_connects(url: str) -> None:
    with pytest.raises(UnknownName) as error:
        await open_data(MODELS, log=MemoryLog(), url=url.format(CANARY))

    assert CANARY not in everything_of(error.value) + repr(error.value) + error.value.name


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://{0}:{0}@127.0.0.1:1/app",
        "postgresql://{0}:{0}@/app?host=/nowhere",
        "postgresql:///app?host=/nowhere&password={0}&user={0}",
        "postgresql://{0}:{0}@/app?host={1}",
        "postgresql://{0}:{0}@/app?host={1}&sslmode={0}",
    ],
)
async def test_a_server_that_cannot_be_reached_is_told_without_who_connects(
    postgres: Postgres, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(DataUnavailable, match=r"postgresql://.*app cannot be used") as error:
        await open_data(MODELS, log=MemoryLog(), url=url.format(CANARY, postgres.folder))

    assert CANARY not in everything_of(error.value) + repr(error.value) + caplog.text


async def test_who_connects_is_nowhere_to_be_seen(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    run(postgres.address(), f'CREATE ROLE "{CANARY}" LOGIN')
    async with opened(url=postgres.fresh(user=CANARY, password=CANARY)) as data:
        await stored(data)
        shown = [repr(data), repr(vars(data)), repr(data.engine), str(data.engine.url), data.address]
        shown += [repr(data.engine.sync_engine.pool), data.engine.sync_engine.pool.status(), caplog.text]

        assert CANARY not in "".join(shown)


# --- what is held ---


async def test_f7_a_step_has_a_connection_only_while_it_needs_one(postgres: Postgres) -> None:
    async with opened(url=postgres.fresh()) as data:
        async with unit(data) as work:
            assert connections(data) == 0
            await work.db["Lead"].list()
            await work.db["Lead"].get("00000000-0000-0000-0000-000000000000")
            await work.db["Lead"].add(email="jane@example.com")
            assert connections(data) == 0
            await work.flush()
            assert connections(data) == 1
        assert connections(data) == 0
        assert await stored(data) == []


async def test_steps_beyond_the_limit_wait_for_a_connection(postgres: Postgres) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data:

        async def step(name: str) -> None:
            async with unit(data) as work:
                await work.db["Lead"].add(email=name)
                await work.flush()
                assert connections(data) <= CONNECTIONS
                await work.commit_alone()

        await asyncio.gather(*(step(f"{n}") for n in range(CONNECTIONS + 4)))

        assert len(await stored(data)) == CONNECTIONS + 4


async def test_f7_a_step_that_is_cancelled_while_it_waits_leaves_nothing(postgres: Postgres) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data, unit(data) as first:
        await first.db["Lead"].add(email="jane@example.com")
        await first.flush()
        async with unit(data) as second:
            await second.db["Lead"].add(email="jane@example.com")
            sending = asyncio.create_task(second.flush())
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not waiting(url):  # noqa: ASYNC110  the server tells nobody
                    await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        await first.commit_alone()

        assert connections(data) == 0
        assert await emails(data) == ["jane@example.com"]


# --- what lands ---


async def test_f7_a_select_that_writes_lands_too(postgres: Postgres) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data:
        run(url, "CREATE TABLE noted (a TEXT)")
        run(
            url, "CREATE FUNCTION note() RETURNS INT LANGUAGE sql AS 'INSERT INTO noted VALUES (1); SELECT 1'"
        )
        async with unit(data) as work:
            await work.session.execute(text("SELECT note()"))
            await work.db["Lead"].list()
            assert work.has_writes
            await work.commit_alone()

    assert run(url, "SELECT count(*) FROM noted") == [(1,)]


async def test_f7_after_an_error_that_a_step_has_passed_over_nothing_of_it_lands(postgres: Postgres) -> None:
    """The server would answer COMMIT with a rollback, and no error."""
    async with opened(url=postgres.fresh()) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.flush()
            with pytest.raises(Exception, match="no_such_table"):
                await work.session.execute(text("SELECT * FROM no_such_table"))
            with pytest.raises(WriteRefused, match="has undone it"):
                await work.session.execute(text("SELECT 1"))
            with pytest.raises(WriteRefused, match="has undone it"):
                await work.commit_alone()

        assert await stored(data) == []


async def test_an_error_under_a_savepoint_keeps_the_rest_of_the_step(postgres: Postgres) -> None:
    async with opened(url=postgres.fresh()) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            with pytest.raises(Exception, match="no_such_table"):
                async with work.session.begin_nested():
                    await work.session.execute(text("SELECT * FROM no_such_table"))
            await work.commit_alone()

        assert await emails(data) == ["jane@example.com"]


@pytest.mark.parametrize(
    "statement",
    [
        "START TRANSACTION",
        "ABORT",
        "rollback work",
        "PREPARE TRANSACTION 'x'",
        "/* a /* b */ c */ COMMIT",
        " -- a\n /**/ END",
        "ROLLBACK; SAVEPOINT a",
    ],
)
async def test_f12_a_step_cannot_commit_in_the_server_s_own_words(postgres: Postgres, statement: str) -> None:
    async with opened(url=postgres.fresh()) as data, unit(data) as work:
        with pytest.raises(CommitRefused):
            await work.session.execute(text(statement))


@pytest.mark.parametrize("statement", ["SELECT 1; COMMIT", "SELECT 1;COMMIT;BEGIN", "SELECT ';'; COMMIT;"])
async def test_f12_a_step_cannot_hide_a_commit_behind_another_statement(
    postgres: Postgres, statement: str
) -> None:
    async with opened(url=postgres.fresh()) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.flush()
            with pytest.raises(Exception, match="cannot insert multiple commands"):
                await work.session.execute(text(statement))

        assert await stored(data) == []


async def test_a_statement_may_have_a_semicolon_in_a_text(postgres: Postgres) -> None:
    async with opened(url=postgres.fresh()) as data, unit(data) as work:
        assert await work.session.scalar(text("SELECT 'a;b';")) == "a;b"


# --- what is refused ---


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("INSERT INTO lead SELECT * FROM lead", "UNIQUE constraint failed: lead.id"),
        ("UPDATE lead SET email = 'twin'", "UNIQUE constraint failed: lead.email"),
        ("UPDATE lead SET email = NULL", "NOT NULL constraint failed: lead.email"),
        ("DELETE FROM company", "FOREIGN KEY constraint failed: lead.company_id"),
        ("INSERT INTO theirs VALUES (:a)", "constraint failed: theirs_a_check"),
    ],
)
async def test_f12_a_refusal_names_the_field_and_no_value(
    postgres: Postgres, statement: str, told: str
) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data:
        run(url, "CREATE TABLE theirs (a TEXT CHECK (length(a) < 3))")
        async with unit(data) as work:
            company = await work.db["Company"].add(name=CANARY)
            for name in (CANARY, "john"):
                await work.db["Lead"].add(email=name, company=company)
            await work.flush()
            with pytest.raises(Exception, match="constraint failed") as error:
                await work.session.execute(text(statement), {"a": CANARY} if ":a" in statement else {})

            assert told in str(error.value)
            assert CANARY not in everything_of(error.value)


async def test_f12_what_the_server_refuses_only_at_the_end_is_the_step_s_error_too(
    postgres: Postgres,
) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data:
        nobody = "00000000-0000-0000-0000-000000000000"
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com", company=nobody)
            with pytest.raises(
                WriteRefused, match=r"FOREIGN KEY constraint failed: lead\.company_id"
            ) as error:
                await work.commit_alone()

        assert nobody not in everything_of(error.value)
        assert await stored(data) == []


async def test_a_value_that_the_server_quotes_is_not_told(postgres: Postgres) -> None:
    async with opened(url=postgres.fresh()) as data, unit(data) as work:
        with pytest.raises(Exception, match="invalid text representation") as error:
            await work.session.execute(text("SELECT CAST(:a AS TEXT)::INT"), {"a": CANARY})

        assert CANARY not in everything_of(error.value)


async def test_f12_whoever_may_not_change_the_tables_is_told(postgres: Postgres) -> None:
    run(postgres.address(), "CREATE ROLE data_reader LOGIN")
    url = postgres.fresh()
    async with opened(url=url):
        run(url, "GRANT SELECT ON ALL TABLES IN SCHEMA pg_catalog TO data_reader")
    now = [model("Lead", {"new": "string"}, version="v2")]
    with pytest.raises(DataUnavailable, match="must be owner of"):
        await open_data(now, log=MemoryLog(), url=url.replace("://postgres:", "://data_reader:"))


async def test_f12_tables_of_other_schemas_are_nobody_s(postgres: Postgres) -> None:
    first, second = postgres.fresh(), postgres.fresh()
    async with opened(url=first), opened(url=second, models=[model("Lead", {"email": "integer"})]) as data:
        assert data.changes == ["new table lead"]
    with pytest.raises(ModelsRefused):
        await open_data(MODELS, log=MemoryLog(), url=second)


# --- what is lost ---


async def test_a_connection_that_was_lost_while_nobody_used_it_is_nobody_s_error(postgres: Postgres) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data:
        assert await stored(data) == []
        assert cut_off(url) == 1
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            await work.commit_alone()

        assert await emails(data) == ["jane@example.com"]


@pytest.mark.parametrize(
    "way",
    [
        lambda work: work.commit_alone(),
        lambda work: work.flush(),
        lambda work: work.db["Lead"].list(),
        lambda work: work.session.execute(text("SELECT 1")),
    ],
    ids=["commit", "flush", "list", "session"],
)
async def test_f7_a_step_whose_connection_is_lost_is_not_wrong_and_nothing_of_it_lands(
    postgres: Postgres, way: Callable[[SqlUnitOfWork], Awaitable[object]]
) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="lost@example.com")
            await work.flush()
            assert cut_off(url) == 1
            await work.db["Lead"].add(email="later@example.com")
            with pytest.raises(DataUnavailable):
                await way(work)
        async with unit(data) as work:
            await work.db["Lead"].add(email="again@example.com")
            await work.commit_alone()

        assert await emails(data) == ["again@example.com"]
        assert connections(data) == 0


async def test_f7_a_step_that_passes_over_a_lost_connection_does_not_land_without_its_rows(
    postgres: Postgres,
) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="lost@example.com")
            await work.flush()
            cut_off(url)
            for _ in range(2):
                with pytest.raises(DataUnavailable):
                    await work.db["Lead"].list()
            assert work.has_writes
            with pytest.raises(DataUnavailable):
                await work.commit_alone()

        assert await stored(data) == []


async def test_f7_a_connection_that_is_lost_before_the_commit_alone_is_no_success(postgres: Postgres) -> None:
    url = postgres.fresh()
    async with opened(url=url) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="lost@example.com")
            await work.flush()
            cut_off(url)
            with pytest.raises(DataUnavailable):
                await work.commit_alone()
            assert not work.has_writes

        assert await stored(data) == []
        assert connections(data) == 0


async def test_f7_a_step_whose_connection_was_lost_is_performed_again(postgres: Postgres) -> None:
    url, flow = postgres.fresh(), "{context: {models: [{name: Lead}]}, steps: [{id: save, runner: save}]}"
    attempts: list[int] = []

    async def save(ctx: dict[str, Any]) -> None:
        await ctx["_db"]["Lead"].add(email="jane@example.com")
        await ctx["_session"].flush()
        attempts.append(len(attempts))
        if len(attempts) == 1:
            cut_off(url)

    async with opened(url=url) as data:
        services = Services(flows=flows_of(flow), nodes={"save": save}, data=data)
        async with stage(services=services) as house:
            running = asyncio.create_task(house.run())
            while not running.done():
                house.clock.advance(1)
                await asyncio.sleep(0)

        assert (await running).status == "succeeded"
        assert attempts == [0, 1]
        assert await emails(data) == ["jane@example.com"]


async def test_f7_a_step_that_gets_no_connection_in_time_is_tried_again(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CONNECTIONS", 1), ("KEPT_CONNECTIONS", 1), ("WAIT_SECONDS", 0.01)):
        monkeypatch.setattr(postgres_home, name, value)
    async with opened(url=postgres.fresh()) as data, unit(data) as first, unit(data) as second:
        await first.session.execute(text("SELECT 1"))
        with pytest.raises(DataUnavailable, match="no connection was free"):
            await second.db["Lead"].list()
        await first.rollback()

        assert await second.db["Lead"].list() == []


async def test_f7_a_server_that_is_gone_when_a_step_commits_is_not_the_step_s_error(
    postgres: Postgres,
) -> None:
    """What is not sent before, is sent then."""
    url = postgres.fresh()
    run(postgres.address(), "CREATE ROLE guest LOGIN")
    async with opened(url=url) as owner:
        run(url, "GRANT ALL ON ALL TABLES IN SCHEMA " + run(url, "SELECT current_schema")[0][0] + " TO guest")
        assert await stored(owner) == []
    async with opened(url=url.replace("://postgres:", "://guest:")) as data, unit(data) as work:
        await work.db["Lead"].add(email="jane@example.com")
        run(postgres.address(), "ALTER ROLE guest NOLOGIN")
        cut_off(url)
        with pytest.raises(DataUnavailable, match="not permitted to log in"):
            await work.commit_alone()


async def test_f7_whoever_waits_too_long_for_a_row_is_tried_again(postgres: Postgres) -> None:
    async with opened(url=postgres.fresh()) as data, unit(data) as first, unit(data) as second:
        await first.db["Lead"].add(email="jane@example.com")
        await first.flush()
        await second.session.execute(text("SET LOCAL lock_timeout = '10ms'"))
        await second.db["Lead"].add(email="jane@example.com")
        with pytest.raises(DataUnavailable, match="lock timeout"):
            await second.commit_alone()
        assert not second.has_writes, "it has ended, and lets go of what it had"
        assert connections(data) == 1
        await first.commit_alone()

        assert await emails(data) == ["jane@example.com"]


# --- the driver ---


async def test_a_driver_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "turnline.flow.data.one_statement", raising=False)
    with pytest.raises(MissingExtra, match=r"\[postgres\]") as error:
        await open_data(MODELS, log=MemoryLog(), url="postgresql://localhost/app")

    assert error.value.extra == "postgres"


def test_the_driver_is_not_looked_for_on_another_database() -> None:
    code = """
import asyncio, sys
from turnline.flow.data.database import open_data
from turnline.flow.data.unit_of_work import SqlUnitOfWork
from turnline.log.memory import MemoryLog
async def main():
    await (await open_data([], log=MemoryLog())).close()
asyncio.run(main())
print('psycopg' in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
