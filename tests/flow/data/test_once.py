"""N4: rows that a function of `once` writes commit with the record of its result, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.flow.stage import Stage, flows_of, stage
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogUnavailable
from turnline.flow.data.database import Database, open_data
from turnline.flow.work import Services
from turnline.log.base import Log
from turnline.log.joined import Transaction
from turnline.log.memory import MemoryLog
from turnline.log.postgres import PostgresLog
from turnline.log.sqlite import SqliteLog

from ...postgres import Postgres
from .stage import MODELS, emails, sqlite

Ctx = dict[str, Any]
Joining = SqliteLog | PostgresLog
FLOW = """
spec:
  context: {models: [{name: Lead}]}
  steps: [{id: only, runner: work}]
"""
RETRIED = FLOW.replace("runner: work", "runner: work, retry: {attempts: 2, backoff: 1s}")


@pytest.fixture(params=["sqlite", "postgres"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Joining]:
    """A log in whose own database the rows are."""
    if request.param == "sqlite":
        log: Joining = sqlite(tmp_path)
    else:
        server: Postgres = request.getfixturevalue("postgres")
        log = PostgresLog(server.fresh())
    yield log
    await log.close()


@asynccontextmanager
async def at_work(
    log: Log, work: Callable[[Ctx], Any], flow: str = FLOW, *, url: str | None = None
) -> AsyncIterator[tuple[Stage, Database]]:
    flows = flows_of(flow)
    data = await open_data(MODELS, log=log, url=url)
    services = Services(flows=flows, nodes={"work": work}, data=data)
    try:
        async with stage(log=log, services=services) as house:
            yield house, data
    finally:
        await data.close()


async def run(house: Stage) -> tuple[str, list[str]]:
    """How a run ended, and the keys that were recorded in it."""
    run_id = await house.runs.start("main", {})
    done = await house.ended(run_id)
    keys = [one.event_data["key"] for one in await house.wal(run_id) if one.event_type == "turn.once"]
    return "" if done.error is None else done.error.message, keys


def adding(ctx: Ctx, email: str) -> Callable[[], Any]:
    """A function that adds a row, with the handle that `ctx` has when it runs."""

    async def add() -> str:
        row = await ctx["_db"]["Lead"].add(email=email)
        return str(row.email)

    return add


async def test_rows_of_the_function_land_with_its_record_and_others_with_the_packet(log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        await ctx["_db"]["Lead"].add(email="lost")
        await ctx["_once"]("kept", adding(ctx, "kept"))
        raise ValueError("no luck")

    async with at_work(log, work) as (house, data):
        assert await run(house) == ("no luck", ["kept"])
        assert await emails(data) == ["kept"]


async def test_a_handle_that_the_node_took_before_writes_for_the_function_too(log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        db = ctx["_db"]
        leads = db["Lead"]
        await leads.add(email="lost")

        async def add() -> int:
            await db["Lead"].add(email="kept-1")
            await leads.add(email="kept-2")
            return len(await leads.list())

        assert await ctx["_once"]("add", add) == 2
        raise ValueError("no luck")

    async with at_work(log, work) as (house, data):
        assert await run(house) == ("no luck", ["add"])
        assert await emails(data) == ["kept-1", "kept-2"]


async def test_a_node_that_succeeds_has_both(log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        await ctx["_db"]["Lead"].add(email="packet")
        await ctx["_once"]("record", adding(ctx, "record"))

    async with at_work(log, work) as (house, data):
        assert await run(house) == ("", ["record"])
        assert await emails(data) == ["packet", "record"]


async def test_the_next_attempt_does_not_write_the_rows_again(log: Joining) -> None:
    tries = list[str]()

    async def work(ctx: Ctx) -> None:
        tries.append(await ctx["_once"]("add", adding(ctx, f"try-{len(tries) + 1}")))
        if len(tries) == 1:
            raise ValueError("no luck")

    async with at_work(log, work, RETRIED) as (house, data):
        run_id = await house.runs.start("main", {})
        await house.paused(run_id, "retry")
        await house.pass_time(1)

        assert (await house.ended(run_id)).status == "succeeded"
        assert (tries, await emails(data)) == (["try-1", "try-1"], ["try-1"])


async def test_rows_that_the_database_refuses_leave_no_record(log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        await ctx["_once"]("first", adding(ctx, "same"))
        await ctx["_once"]("second", adding(ctx, "same"))

    async with at_work(log, work) as (house, data):
        error, keys = await run(house)

        assert "unique" in error.lower()
        assert (keys, await emails(data)) == (["first"], ["same"])


async def test_a_result_that_is_not_json_leaves_no_rows(log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        async def add() -> object:
            await ctx["_db"]["Lead"].add(email="lost")
            return object()

        await ctx["_once"]("add", add)

    async with at_work(log, work) as (house, data):
        error, keys = await run(house)

        assert "once('add'): result is a object; expected JSON" in error
        assert (keys, await emails(data)) == ([], [])


async def test_a_function_that_raises_leaves_no_rows(log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        async def add() -> None:
            await ctx["_db"]["Lead"].add(email="lost")
            await ctx["_session"].flush()
            raise LookupError("gone")

        try:
            await ctx["_once"]("add", add)
        except LookupError:
            await ctx["_db"]["Lead"].add(email="instead")

    async with at_work(log, work) as (house, data):
        assert await run(house) == ("", [])
        assert await emails(data) == ["instead"]


class _Away(SqliteLog):
    """A log that cannot be reached when the first record with rows is written."""

    is_away = True

    async def append_within(
        self,
        transaction: Transaction,
        channel_id: str,
        envelopes: Sequence[Envelope],
        *,
        after: int,
        row: ChannelRow | None = None,
    ) -> None:
        if self.is_away and transaction.has_writes:
            self.is_away = False
            raise LogUnavailable("sqlite:", because="it is away")
        await super().append_within(transaction, channel_id, envelopes, after=after, row=row)


async def test_a_record_that_does_not_land_leaves_no_rows_and_the_function_runs_again(tmp_path: Path) -> None:
    log, ran = _Away(tmp_path / "log.db", durability="process"), list[int]()

    async def work(ctx: Ctx) -> None:
        ran.append(len(ran))
        await ctx["_once"]("add", adding(ctx, f"try-{len(ran)}"))

    async with at_work(log, work) as (house, data):
        running = asyncio.ensure_future(run(house))
        while not running.done():
            house.clock.advance(1)
            await asyncio.sleep(0.01)

        assert await running == ("", ["add"])
        assert await emails(data) == ["try-2"]
    await log.close()


async def test_functions_with_rows_run_at_the_same_time(log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        await asyncio.gather(*(ctx["_once"](key, adding(ctx, key)) for key in "abc"))
        raise ValueError("no luck")

    async with at_work(log, work) as (house, data):
        error, keys = await run(house)

        assert (error, sorted(keys), await emails(data)) == ("no luck", ["a", "b", "c"], ["a", "b", "c"])


async def test_a_function_inside_of_a_function_has_rows_and_a_record_of_its_own(log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        async def outer() -> None:
            await ctx["_db"]["Lead"].add(email="lost")
            await ctx["_once"]("inner", adding(ctx, "kept"))
            raise ValueError("no luck")

        await ctx["_once"]("outer", outer)

    async with at_work(log, work) as (house, data):
        assert await run(house) == ("no luck", ["inner"])
        assert await emails(data) == ["kept"]


async def test_a_sync_node_writes_rows_with_an_async_function(log: Joining) -> None:
    def work(ctx: Ctx) -> None:
        ctx["_once"]("add", adding(ctx, "kept"))
        raise ValueError("no luck")

    async with at_work(log, work) as (house, data):
        assert await run(house) == ("no luck", ["add"])
        assert await emails(data) == ["kept"]


# --- sessions ---


async def test_the_session_inside_of_the_function_is_its_own(log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        outside = ctx["_session"]

        async def add() -> bool:
            ctx["_session"].add(ctx["_db"]["Lead"].model(email="kept"))
            return ctx["_session"] is outside

        assert await ctx["_once"]("add", add) is False
        raise ValueError("no luck")

    async with at_work(log, work) as (house, data):
        assert await run(house) == ("no luck", ["add"])
        assert await emails(data) == ["kept"]


async def _adds(session: Any, ctx: Ctx) -> None:
    session.add(ctx["_db"]["Lead"].model(email="lost"))


async def _executes(session: Any, ctx: Ctx) -> None:
    await session.execute(text("SELECT 1"))


async def _passes_it(session: Any, ctx: Ctx) -> None:
    await ctx["_db"]["Lead"].add(session, email="lost")


@pytest.mark.parametrize("use", [_adds, _executes, _passes_it])
async def test_a_session_that_was_taken_outside_is_refused_inside(use: Any, log: Joining) -> None:
    async def work(ctx: Ctx) -> None:
        session = ctx["_session"]
        await ctx["_once"]("add", lambda: use(session, ctx))

    async with at_work(log, work) as (house, data):
        error, keys = await run(house)

        assert 'Take ctx["_session"] inside of the function' in error
        assert (keys, await emails(data)) == ([], [])


async def test_a_step_that_locks_the_database_cannot_record(tmp_path: Path) -> None:
    ran = list[str]()

    async def work(ctx: Ctx) -> None:
        await ctx["_db"]["Lead"].add(email="lost")
        await ctx["_session"].flush()
        await ctx["_once"]("charge", lambda: ran.append("charge"))

    log = sqlite(tmp_path)
    async with at_work(log, work) as (house, data):
        error, keys = await run(house)

        assert "locked until its packet" in error
        assert (keys, ran, await emails(data)) == ([], [], [])
    await log.close()


# --- another database ---


async def _with_db(ctx: Ctx) -> None:
    await ctx["_once"]("add", adding(ctx, "lost"))


async def _with_an_earlier_db(ctx: Ctx) -> None:
    db = ctx["_db"]
    await ctx["_once"]("add", lambda: db["Lead"].add(email="lost"))


async def _with_session(ctx: Ctx) -> None:
    await ctx["_once"]("add", lambda: ctx["_session"].execute(text("SELECT 1")))


@pytest.mark.parametrize("work", [_with_db, _with_an_earlier_db, _with_session])
@pytest.mark.parametrize("kind", ["memory", "other file"])
async def test_where_the_log_has_another_database_the_function_is_refused(
    kind: str, work: Any, tmp_path: Path
) -> None:
    log = MemoryLog() if kind == "memory" else sqlite(tmp_path)
    url = None if kind == "memory" else f"sqlite:///{tmp_path / 'data.db'}"
    async with at_work(log, work, url=url) as (house, data):
        error, keys = await run(house)

        assert "once('add')" in error
        assert "`database:`" in error
        assert (keys, await emails(data)) == ([], [])
    await log.close()


async def test_a_function_without_rows_may_stand_beside_another_database(tmp_path: Path) -> None:
    async def work(ctx: Ctx) -> None:
        await ctx["_db"]["Lead"].add(email="kept")
        await ctx["_once"]("n", lambda: 1)

    log = sqlite(tmp_path)
    async with at_work(log, work, url=f"sqlite:///{tmp_path / 'data.db'}") as (house, data):
        assert await run(house) == ("", ["n"])
        assert await emails(data) == ["kept"]
    await log.close()
