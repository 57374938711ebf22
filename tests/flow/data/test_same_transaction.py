"""F7: a step's rows and its packet land in one transaction, whatever comes between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.flow.stage import Stage, flows_of, stage
from tests.hub.scenes import A_B_A, DEAD, SAFETY_SECONDS, House, add_one, draft, house, refused
from turnline.core.envelope import Envelope
from turnline.errors import ChannelClosed, ClaimLost, EnvelopeIdReused, LogError, OutOfTurn, WriteRefused
from turnline.flow.data.database import Database, open_data
from turnline.flow.work import Services
from turnline.hub.worker import join
from turnline.log.memory import MemoryLog
from turnline.log.postgres import PostgresLog
from turnline.log.sqlite import SqliteLog

from ...postgres import Postgres
from .stage import MODELS, emails, sqlite, stored, unit

"""A worker of a process that has ended."""


Joining = SqliteLog | PostgresLog


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
async def home_with_data(log: Joining) -> AsyncIterator[tuple[House, Database]]:
    data = await open_data(MODELS, log=log)
    try:
        async with house(log, "alice", "bob") as home:
            yield home, data
    finally:
        await data.close()


async def test_f7_rows_land_with_the_packet(log: Joining) -> None:
    async with home_with_data(log) as (home, data), unit(data) as work:
        channel = await home.open(A_B_A)
        await work.db["Lead"].add(email="jane@example.com")
        said = await home.hub.post(channel.channel_id, draft(home["alice"]), within=work)

        assert await emails(data) == ["jane@example.com"]
        assert (await home.wal(channel))[-1] == said[-1]
        assert (await home.hub.state(channel.channel_id)).seq == said[-1].seq
        assert not work.has_writes


async def test_f7_nobody_is_told_before_the_rows_are_there(log: Joining) -> None:
    async with home_with_data(log) as (home, data), unit(data) as work:
        channel = await home.open(A_B_A)
        told: list[bool] = []
        home.hub.add_listener(lambda _: told.append(work.has_writes))
        await work.db["Lead"].add(email="jane@example.com")
        await home.hub.post(channel.channel_id, draft(home["alice"]), within=work)

        assert told == [False]


async def test_f7_after_a_conflict_the_same_transaction_is_tried_again(log: Joining) -> None:
    async with home_with_data(log) as (home, data):
        channel = await home.open(A_B_A)
        async with house(log, clock=home.clock) as elsewhere, unit(data) as work:
            await elsewhere.hub.state(channel.channel_id)
            await add_one(channel)
            await work.db["Lead"].add(email="jane@example.com")
            said = await elsewhere.hub.post(channel.channel_id, draft(home["alice"]), within=work)

            assert await emails(data) == ["jane@example.com"]
            assert said[0].seq == len(await home.wal(channel))
            await home.hub.audit_log.flush()  # The other hub closes the log that both have.


async def test_f7_what_has_become_wrong_by_a_conflict_undoes_the_rows(log: Joining) -> None:
    async with home_with_data(log) as (home, data):
        channel = await home.open(A_B_A)
        async with house(log, clock=home.clock) as elsewhere, unit(data) as work:
            await elsewhere.hub.state(channel.channel_id)
            await home["alice"].channel(channel.channel_id).close()
            await work.db["Lead"].add(email="jane@example.com")
            await work.flush()
            await refused(
                ChannelClosed, elsewhere.hub.post(channel.channel_id, draft(home["alice"]), within=work)
            )

            assert not work.holds_database
            assert await stored(data) == []
            await home.hub.audit_log.flush()  # The other hub closes the log that both have.


async def test_f7_a_refused_draft_undoes_its_rows_before_its_sender_is_told(log: Joining) -> None:
    async with home_with_data(log) as (home, data), unit(data) as work:
        channel = await home.open(A_B_A)
        await work.db["Lead"].add(email="jane@example.com")
        await work.flush()
        await refused(OutOfTurn, home.hub.post(channel.channel_id, draft(home["bob"]), within=work))

        assert not work.holds_database
        assert await stored(data) == []


async def test_f7_rows_of_a_worker_that_was_replaced_do_not_land(log: Joining) -> None:
    async with home_with_data(log) as (home, data), unit(data) as work:
        channel = await home.open(A_B_A)
        alice = home["alice"].agent_id
        old = await home.hub.turns.claim(channel.channel_id, alice, worker=DEAD, turn=1)
        await home.hub.turns.claim(channel.channel_id, alice, worker=join("here-1"), turn=1)
        await work.db["Lead"].add(email="late@example.com")
        late = draft(home["alice"], claim=old.seq)
        await refused(ClaimLost, home.hub.post(channel.channel_id, late, within=work))

        assert await stored(data) == []


async def test_f7_a_draft_that_was_sent_again_does_not_double_its_rows(log: Joining) -> None:
    """E1: it is answered with its first result, and its rows landed with that."""
    async with home_with_data(log) as (home, data):
        channel = await home.open(A_B_A)
        packet = draft(home["alice"], envelope_id="once")
        answers = []
        for name in ("first", "second"):
            async with unit(data) as work:
                await work.db["Lead"].add(email=name)
                answers.append(await home.hub.post(channel.channel_id, packet, within=work))
                assert not work.has_writes

        assert answers[0] == answers[1]
        assert await emails(data) == ["first"]


async def test_f7_an_id_that_is_taken_undoes_the_rows(log: Joining) -> None:
    """Also where the rules would accept the draft, and only the log knows the id."""
    async with home_with_data(log) as (home, data):
        channel = await home.talk()
        await home.hub.post(channel.channel_id, draft(home["alice"], envelope_id="once"))
        async with unit(data) as work:
            await work.db["Lead"].add(email="jane@example.com")
            other = draft(home["alice"], envelope_id="once", data={"text": "something else"})
            await refused(EnvelopeIdReused, home.hub.post(channel.channel_id, other, within=work))

            assert not work.has_writes
        assert await stored(data) == []


async def test_f7_rows_that_are_refused_keep_the_packet_from_landing_and_harm_nobody_else(
    log: Joining,
) -> None:
    async with home_with_data(log) as (home, data), unit(data) as work:
        channel = await home.open(A_B_A)
        before = len(await home.wal(channel))
        for _ in range(2):
            await work.db["Lead"].add(email="jane@example.com")
        packet, other = await asyncio.gather(
            home.hub.post(channel.channel_id, draft(home["alice"]), within=work),
            add_one(channel),
            return_exceptions=True,
        )

        assert isinstance(packet, WriteRefused)
        assert isinstance(other, Envelope)
        assert len(await home.wal(channel)) == before + 1
        assert await stored(data) == []


async def test_f7_a_draft_that_only_read_shares_a_commit(log: Joining) -> None:
    async with home_with_data(log) as (home, data), unit(data) as work:
        channel = await home.open(A_B_A)
        await work.db["Lead"].list()
        await home.hub.audit_log.flush()  # What the audit notes of the opening is written by now.
        works = log.stats().works
        await home.hub.post(channel.channel_id, draft(home["alice"]), within=work)

        assert log.stats().works == works + 1


async def test_f7_drafts_behind_and_before_one_with_a_transaction_keep_their_order(log: Joining) -> None:
    async with home_with_data(log) as (home, data), unit(data) as work:
        channel = await home.talk()
        await work.db["Lead"].add(email="jane@example.com")
        said = await asyncio.gather(
            *(home.hub.post(channel.channel_id, draft(home["alice"])) for _ in range(3)),
            home.hub.post(channel.channel_id, draft(home["alice"]), within=work),
            *(home.hub.post(channel.channel_id, draft(home["alice"])) for _ in range(3)),
        )
        seqs = [envelopes[0].seq for envelopes in said]

        assert seqs == sorted(seqs)
        assert await emails(data) == ["jane@example.com"]


async def test_f7_a_transaction_never_waits_behind_a_draft_that_waits_for_it(tmp_path: Path) -> None:
    """The draft before it cannot be written while it holds the file: the transaction gives way."""
    async with home_with_data(sqlite(tmp_path)) as (home, data), unit(data) as work:
        channel = await home.talk()
        await work.db["Lead"].add(email="jane@example.com")
        await work.flush()
        before = asyncio.create_task(home.hub.post(channel.channel_id, draft(home["alice"])))
        await asyncio.sleep(0)
        with pytest.raises(LogError, match="Begin it again"):
            await home.hub.post(channel.channel_id, draft(home["alice"]), within=work)
        async with asyncio.timeout(SAFETY_SECONDS):
            await before

        assert await stored(data) == []


async def test_f7_a_sender_that_is_cancelled_leaves_both_or_neither(log: Joining) -> None:
    async with home_with_data(log) as (home, data):
        channel = await home.talk()
        before = len(await home.wal(channel))
        for rounds in range(20):
            async with unit(data) as work:
                await work.db["Lead"].add(email=f"{rounds}@example.com")
                posting = asyncio.create_task(
                    home.hub.post(channel.channel_id, draft(home["alice"]), within=work)
                )
                for _ in range(rounds):
                    await asyncio.sleep(0)
                posting.cancel()
                await asyncio.gather(posting, return_exceptions=True)
        rows, packets = len(await stored(data)), len(await home.wal(channel)) - before

        assert rows == packets
        async with unit(data) as work:
            await work.db["Lead"].add(email="last@example.com")
            await home.hub.post(channel.channel_id, draft(home["alice"]), within=work)


async def test_a_log_that_cannot_join_says_so(tmp_path: Path) -> None:
    data = await open_data(MODELS, log=MemoryLog())
    async with house(MemoryLog(), "alice", "bob") as home, unit(data) as work:
        channel = await home.open(A_B_A)
        await work.db["Lead"].add(email="jane@example.com")
        await refused(LogError, home.hub.post(channel.channel_id, draft(home["alice"]), within=work))

        assert await stored(data) == []
    await data.close()


# --- a whole flow ---

FLOW = """
spec:
  context: {models: [Lead]}
  steps:
    - {id: save, runner: save_lead, routes: {error: taken}}
    - {id: score, runner: score_lead, routes: {default: END}}
    - {id: taken, runner: note_it}
"""


async def save_lead(ctx: dict[str, Any]) -> dict[str, Any]:
    row = await ctx["_db"]["Lead"].add(ctx["_session"], email=ctx["email"])
    return {"id": row.id, "created_at": row.created_at}


async def score_lead(ctx: dict[str, Any]) -> dict[str, Any]:
    row = await ctx["_db"]["Lead"].update(ctx["id"], score=90)
    return {"lead_score": row.score}


def note_it(ctx: dict[str, Any]) -> dict[str, Any]:
    return {"taken": True}


@asynccontextmanager
async def flow_with_data(log: Joining, flow: str = FLOW) -> AsyncIterator[tuple[Stage, Database]]:
    data = await open_data(MODELS, log=log)
    nodes = {"save_lead": save_lead, "score_lead": score_lead, "note_it": note_it}
    services = Services(flows=flows_of(flow), nodes=nodes, data=data)
    try:
        async with stage(log=log, services=services) as house:
            yield house, data
    finally:
        await data.close()


async def test_f7_a_flow_s_rows_and_its_context_agree(log: Joining) -> None:
    async with flow_with_data(log, FLOW.replace("[Lead]", "[{name: Lead, version: v1}]")) as (
        house,
        data,
    ):
        verdict = await house.run(email="jane@example.com")
        (row,) = await stored(data)

        assert verdict.status == "succeeded"
        assert verdict.data["lead_score"] == row.score == 90
        assert verdict.data["id"] == row.id


async def test_f5_what_the_database_refuses_is_an_error_of_the_step(log: Joining) -> None:
    flow = FLOW.replace("[Lead]", "[{name: Lead}]")
    async with flow_with_data(log, flow) as (house, data):
        await house.run(email="jane@example.com")
        verdict = await house.run(email="jane@example.com")

        assert verdict.status == "succeeded"
        assert verdict.data == {"email": "jane@example.com", "taken": True}
        assert await emails(data) == ["jane@example.com"]


async def test_f12_a_flow_for_another_version_fails_before_data_is_touched(log: Joining) -> None:
    flow = FLOW.replace("[Lead]", "[{name: Lead, version: v2}]").replace(", routes: {error: taken}", "")
    async with flow_with_data(log, flow) as (house, data):
        verdict = await house.run(email="jane@example.com")

        assert verdict.status == "failed"
        assert verdict.error is not None
        assert "Lead v2, but the project has v1" in verdict.error.message
        assert await stored(data) == []
