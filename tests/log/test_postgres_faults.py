"""Connections cut and answers lost: `PostgresLog` goes on. Many times over: `tests/faults` (X6)."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable

import pytest

from turnline.errors import DuplicateEnvelope, LogConflict, LogUnavailable, TurnlineError
from turnline.log.base import TellsOutage
from turnline.log.postgres import PostgresLog
from turnline.testing.lines import line, lines

from ..postgres import Postgres, run
from .postgres_stage import Wire, own_folder, place_of, wire_before

PATIENCE_SECONDS = 120
CANARY = "canary-hunter2"


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.fresh()


@pytest.fixture
async def wire(postgres: Postgres) -> AsyncIterator[Wire]:
    with own_folder() as folder:
        async with wire_before(postgres.folder, folder) as wire:
            yield wire


@pytest.fixture
async def log(wire: Wire, url: str) -> AsyncIterator[PostgresLog]:
    # The log connects at once, and blocks: the wire has to run meanwhile.
    log = await asyncio.to_thread(PostgresLog, wire.address(url), poll_seconds=0.01)
    yield log
    await log.close()


def once(word: bytes) -> Callable[[bytes], bool]:
    """Say yes to the first that has `word` in it."""
    left = [word]

    def has_it(data: bytes) -> bool:
        if left and left[0] in data:
            left.clear()
            return True
        return False

    return has_it


async def test_a_commit_whose_answer_is_lost_is_resolved_by_its_id(log: PostgresLog, wire: Wire) -> None:
    await log.append("c", [line("c", 1)], after=0)
    wire.cut_answer = once(b"written")
    await log.append("c", [line("c", 2), line("c", 3)], after=1)

    assert wire.cuts == log.stats().lost == 1
    assert await lines(log, "c") == [line("c", seq) for seq in (1, 2, 3)]
    await log.append("c", [line("c", 4)], after=3)


async def test_a_request_that_never_arrived_is_sent_again(log: PostgresLog, wire: Wire) -> None:
    await log.append("c", [line("c", 1)], after=0)
    wire.cut_request = once(b"c-2")
    await log.append("c", [line("c", 2)], after=1)

    assert wire.cuts == log.stats().lost == 1
    assert await lines(log, "c") == [line("c", 1), line("c", 2)]


async def test_all_of_a_batch_is_resolved(log: PostgresLog, wire: Wire) -> None:
    await log.append("c", [line("c", 1)], after=0)
    wire.cut_answer = once(b"written")
    outcomes = await asyncio.gather(
        *(log.append(name, [line(name, 1)], after=0) for name in ("a", "b", "d")),
        log.append("c", [line("c", 1, envelope_id="stale")], after=0),
        log.append("c", [line("c", 2, envelope_id="c-1")], after=1),
        return_exceptions=True,
    )

    assert outcomes[:3] == [None, None, None]
    assert [type(outcome) for outcome in outcomes[3:]] == [LogConflict, DuplicateEnvelope]
    assert [(head.channel_id, head.seq) for head in await log.channels()] == [(name, 1) for name in "abcd"]


async def test_what_others_wrote_behind_a_lost_answer_does_not_hide_it(
    log: PostgresLog, wire: Wire, url: str
) -> None:
    other = PostgresLog(url)

    def lose(data: bytes) -> bool:
        if b"written" not in data or wire.cuts:
            return False
        wire.is_down = True
        return True

    wire.cut_answer = lose
    with pytest.raises(LogUnavailable):
        await log.append("c", [line("c", 1)], after=0)
    await other.append("c", [line("c", 2)], after=1)
    wire.is_down = False

    with pytest.raises(LogConflict) as conflict:
        await log.append("c", [line("c", 1)], after=0)
    assert conflict.value.found == 2
    assert await log.find("c", "c-1") == line("c", 1)
    await other.close()


async def test_an_outage_is_unavailable_to_all_and_ends_without_reopening(
    log: PostgresLog, wire: Wire
) -> None:
    await log.append("c", [line("c", 1)], after=0)
    tail = log.tail()
    first = await anext(tail)
    waiting = asyncio.ensure_future(anext(tail))
    wire.is_down = True
    wire.cut_all()

    for ask in (
        log.append("c", [line("c", 2)], after=1),
        log.head("c"),
        log.channels(),
        log.find("c", "c-1"),
        lines(log, "c"),
        log.load_snapshot("c"),
        log.save_snapshot("c", seq=1, body=b"x"),
    ):
        with pytest.raises(LogUnavailable):
            await ask
    assert isinstance(log, TellsOutage)
    assert log.outage
    assert not waiting.done()
    wire.is_down = False
    await log.save_snapshot("c", seq=1, body=b"x")
    assert not log.outage, "whoever asks whether it works again may do it by any write"
    await log.append("c", [line("c", 2)], after=1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        second = await waiting

    assert (first.seq, second.seq) == (1, 2)
    assert not log.outage
    assert await lines(log, "c") == [line("c", 1), line("c", 2)]


async def test_a_connection_that_no_longer_answers_is_given_up(
    log: PostgresLog, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a machine is gone, nothing says so: no end of the connection is ever seen."""
    monkeypatch.setattr("turnline.log.postgres_server.ANSWER_SECONDS", 0.5)
    wire.lose_answer = once(b"written")
    await log.append("c", [line("c", 1)], after=0)

    assert log.stats().lost == 1
    assert await lines(log, "c") == [line("c", 1)]


async def test_no_credential_of_the_address_is_told(
    postgres: Postgres, wire: Wire, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    run(url, f"""CREATE ROLE "{CANARY}-user" LOGIN SUPERUSER""")
    secret = wire.address(url).replace("postgres:@", f"{CANARY}-user:{CANARY}-password@")
    log = await asyncio.to_thread(PostgresLog, secret)
    await log.append("c", [line("c", 1)], after=0)
    wire.is_down = True
    wire.cut_all()
    told = [log.address, repr(log), repr(log.stats()), repr(vars(log))]
    told += [
        text
        for ask in (log.head("c"), log.append("c", [line("c", 2)], after=1))
        for text in [await _error(ask)]
    ]
    await log.close()
    nobody = url.replace("postgres:@", f"{CANARY}-nobody:{CANARY}-password@")
    for address in (
        nobody,
        f"postgresql://{CANARY}:{CANARY}@127.0.0.1:1/{place_of(url)}?connect_timeout=2",
        f"postgresql://user:{CANARY}@x@host/name",
        f"postgresql://user:{CANARY}:{CANARY}@host:{CANARY}/name",
        f"postgresql://user:12/{CANARY}@host/name",
        f"postgresql://user@host/name?{CANARY}={CANARY}",
        f"postgresql://user@host/name?password={CANARY}&port={CANARY}",
    ):
        told.append(await _error(asyncio.to_thread(PostgresLog, address)))

    assert [text for text in told if CANARY in text] == []
    assert CANARY not in caplog.text
    assert "role" in told[6]


async def _error(asked: object) -> str:
    """Return all that an error says, and the errors it came from."""
    assert hasattr(asked, "__await__")
    try:
        await asked
    except TurnlineError as error:
        chain: list[BaseException] = [error]
        while before := chain[-1].__cause__ or chain[-1].__context__:
            chain.append(before)
        return "\n".join([*traceback.format_exception(error), *(f"{found!r} {found}" for found in chain)])
    raise AssertionError("nothing was refused")
