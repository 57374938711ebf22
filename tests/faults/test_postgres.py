"""X6: PostgreSQL stopped at once, backends ended, connections cut: what is acknowledged is there, once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar
from urllib.parse import quote

import psycopg
import pytest

from tests.faults.acknowledged import Writers
from tests.faults.counts import POSTGRES_CUTS, POSTGRES_STOPS
from tests.log.postgres_stage import Stoppable, Wire, own_folder, place_of, stoppable, wire_before
from tests.postgres import Postgres, run
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.log.postgres import PostgresLog

BETWEEN_CUTS = 3


class HastyLog(PostgresLog):
    """The twin: it acknowledges before the commit."""

    late: ClassVar[set[asyncio.Future[None]]] = set()

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        writing = asyncio.ensure_future(super().append(channel_id, envelopes, after=after, row=row))
        self.late.add(writing)
        writing.add_done_callback(lambda done: done.exception())
        await asyncio.sleep(0)


@asynccontextmanager
async def written_by(*urls: str, kind: type[PostgresLog] = PostgresLog) -> AsyncIterator[Writers]:
    # A log connects at once, and blocks: a wire before the server has to run meanwhile.
    logs = [await asyncio.to_thread(kind, url) for url in urls]
    try:
        yield Writers(logs)
    finally:
        for log in logs:
            await log.close()


async def wrongs(writers: Writers, url: str) -> list[str]:
    log = PostgresLog(url)
    try:
        return await writers.wrongs(log)
    finally:
        await log.close()


async def stop_and_start(server: Stoppable, number: int) -> None:
    """The whole server: by its own order, or by killing it."""
    await asyncio.to_thread(server.kill if number % 2 else server.stop_at_once)
    await asyncio.to_thread(server.start)


@pytest.fixture(scope="module")
def server() -> Iterator[Stoppable]:
    with own_folder() as folder, stoppable(folder / "data") as server:
        run(server.url, "ALTER SYSTEM SET wal_writer_delay = '10s'")
        run(server.url, "SELECT pg_reload_conf()")
        yield server


def place_on(server: Stoppable, name: str, *settings: str) -> str:
    """Return the address of an empty schema."""
    run(server.url, f"CREATE SCHEMA {name}")
    options = " ".join(f"-c{setting}" for setting in (f"search_path={name}", *settings))
    return f"{server.url}&options={quote(options)}"


async def test_x6_a_server_that_stops_at_once_keeps_what_it_acknowledged(server: Stoppable) -> None:
    url = place_on(server, "synced")
    async with written_by(url, url) as writers:
        async with writers.writing():
            for number in range(POSTGRES_STOPS):
                await writers.go_on()
                await stop_and_start(server, number)
            await writers.go_on()

        assert {log.durability for log in writers.logs} == {"power"}
    assert await wrongs(writers, url) == []


async def test_x6_twin_a_server_that_answers_before_it_syncs_is_caught(server: Stoppable) -> None:
    url = place_on(server, "hasty", "synchronous_commit=off")
    async with written_by(url, url) as writers:
        assert {log.durability for log in writers.logs} == {"process"}
        run(server.url, "CHECKPOINT")  # The tables, at least, are to be there afterwards.
        async with writers.writing():
            await writers.go_on()
            await stop_and_start(server, 0)

    assert "lost" in str(await wrongs(writers, url))


async def test_x6_backends_terminated_in_mid_append_lose_nothing_and_double_nothing(
    postgres: Postgres,
) -> None:
    url = postgres.fresh()
    cut = 0
    busy = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
        f"application_name = '{place_of(url)}' AND state = 'active' AND query LIKE '%turnline_append%'"
    )
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as killer,
        written_by(url, url) as writers,
        writers.writing(),
    ):
        while cut < POSTGRES_CUTS:
            cut += len(await (await killer.execute(busy.encode())).fetchall())
            await writers.go_on(BETWEEN_CUTS)

    assert await wrongs(writers, url) == []


@asynccontextmanager
async def wired(postgres: Postgres) -> AsyncIterator[Wire]:
    with own_folder() as folder:
        async with wire_before(postgres.folder, folder) as wire:
            yield wire


async def test_x6_connections_cut_behind_the_commit_lose_nothing_and_double_nothing(
    postgres: Postgres,
) -> None:
    url = postgres.fresh()
    answers = itertools.count(1)
    async with wired(postgres) as wire:
        async with written_by(wire.address(url), wire.address(url)) as writers, writers.writing():
            wire.cut_answer = lambda data: b"written" in data and next(answers) % 3 == 0
            while wire.cuts < POSTGRES_CUTS:
                await writers.go_on(BETWEEN_CUTS)
            wire.cut_answer = lambda _: False

        assert await wrongs(writers, url) == []


async def test_x6_twin_an_answer_that_is_lost_and_taken_for_a_failure_doubles_it(postgres: Postgres) -> None:
    """What the id prevents: whoever asks the server in words of their own does it twice."""
    url = postgres.fresh()
    run(url, "CREATE TABLE twin (number integer)")
    async with wired(postgres) as wire:
        wire.cut_answer = lambda data: b"INSERT" in data and not wire.cuts
        for _ in range(2):
            connection = await psycopg.AsyncConnection.connect(wire.address(url), autocommit=True)
            try:
                await connection.execute("INSERT INTO twin VALUES (1)")
            except psycopg.OperationalError:
                continue
            finally:
                await connection.close()

    assert wire.cuts == 1
    assert len(run(url, "SELECT * FROM twin")) == 2


async def test_x6_twin_a_log_that_acknowledges_before_the_commit_is_caught(postgres: Postgres) -> None:
    url = postgres.fresh()
    async with written_by(url, url, kind=HastyLog) as writers, writers.writing():
        await writers.go_on()

    assert await wrongs(writers, url) != []
