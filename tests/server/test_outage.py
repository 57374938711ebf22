"""A server whose log is away: its health says so, and neither the process nor a run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.log.postgres_stage import Stoppable, own_folder, stoppable
from turnline.hub.timers import SystemClock
from turnline.log.postgres import PostgresLog

from .stage import Ctx, Server, served

WORK = "{trigger: {path: /work}, steps: [{id: first, runner: wait}, {id: second, runner: same}]}"
PATIENCE_SECONDS = 60.0


@pytest.fixture
def postgres_server() -> Iterator[Stoppable]:
    with own_folder() as folder, stoppable(folder / "data") as server:
        yield server


async def healths(server: Server) -> list[tuple[int, str]]:
    answers = [await server.get(path, token="") for path in ("/health", "/ready")]
    return [(answer.status_code, answer.json()["status"]) for answer in answers]


async def until(server: Server, expected: list[tuple[int, str]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await healths(server) != expected:  # noqa: ASYNC110  whoever wants to know has to ask
            await asyncio.sleep(0)


async def test_an_outage_of_postgresql_degrades_health_and_ends_neither_the_process_nor_a_run(
    postgres_server: Stoppable,
) -> None:
    working, go_on = asyncio.Event(), asyncio.Event()

    async def wait(ctx: Ctx) -> Ctx:
        working.set()
        await go_on.wait()
        return {"waited": True}

    def same(ctx: Ctx) -> Ctx:
        return {"done": True}

    def log() -> PostgresLog:
        return PostgresLog(postgres_server.url)

    async with served(WORK, log=log, clock=SystemClock(), wait=wait, same=same) as server:
        assert await healths(server) == [(200, "ok"), (200, "ready")]
        started = await server.post("/work", {}, Prefer="respond-async")
        run_id = started.json()["data"]["run_id"]
        await working.wait()
        await asyncio.to_thread(postgres_server.stop_at_once)
        go_on.set()  # Its packet cannot be written now.
        await until(server, [(200, "degraded"), (503, "not_ready")])
        assert (await server.post("/work", {})).status_code == 503

        await asyncio.to_thread(postgres_server.start)
        run = await server.ended(run_id)
        await until(server, [(200, "ok"), (200, "ready")])

    assert run["status"] == "succeeded"
