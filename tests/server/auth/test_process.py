"""Tokens are read in a process of their own, which is killed if it does not answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from turnline.errors import AccessBusy, Unauthenticated
from turnline.hub.timers import SystemClock
from turnline.server.auth.process import (
    ANSWER_WITHIN_SECONDS,
    MAX_WAITING,
    START_WITHIN_SECONDS,
    ReadingProcess,
)
from turnline.server.auth.reading import Reading
from turnline.testing import ManualClock

from .scenes import HOUR, KEY, NOW, OTHER_KEY, appended, minted, reading
from .test_reading import FACTS, JOIN

READY = "import sys, json, os; print('ready', flush=True); "
SILENT = READY + "sys.stdin.read()"


@asynccontextmanager
async def running(code: str = "", clock: ManualClock | None = None) -> AsyncIterator[ReadingProcess]:
    """The real process, or one that runs `code`."""
    command: Sequence[str] = (sys.executable, "-c", code) if code else ()
    process = ReadingProcess(KEY.public, clock or SystemClock(), command=command)
    try:
        yield process
    finally:
        await process.close()


async def until(done: Callable[[], bool], clock: ManualClock, seconds: float) -> None:
    while not done():
        clock.advance(seconds)
        await asyncio.sleep(0)


async def test_a_token_reads_as_it_does_here() -> None:
    text = minted()
    async with running() as process:
        assert await process.read(text, now=NOW) == reading(text)


async def test_one_process_reads_many_tokens_in_turn() -> None:
    texts = [minted(user_id=f"user-{index}") for index in range(20)]
    async with running() as process:
        found = await asyncio.gather(*(process.read(text, now=NOW) for text in texts))

    assert [one.grant.user_id for one in found] == [f"user-{index}" for index in range(20)]


async def test_a_bad_token_is_refused_with_the_reason_and_the_next_one_is_read() -> None:
    async with running() as process:
        for text, because in (
            (minted(OTHER_KEY), "another key"),
            ("garbage", "damaged"),
            ("\ud800", "letters"),
        ):
            with pytest.raises(Unauthenticated, match=because):
                await process.read(text, now=NOW)
        with pytest.raises(Unauthenticated, match="expired"):
            await process.read(minted(), now=NOW + HOUR)

        assert (await process.read(minted(), now=NOW)).grant.user_id == "alice"


async def test_a_hostile_token_is_refused_and_the_next_one_is_read() -> None:
    async with running() as process:
        with pytest.raises(Unauthenticated, match="checks"):
            await process.read(appended(minted(), f"{FACTS} check if {JOIN}, $x0 > 100;"), now=NOW)

        assert (await process.read(minted(), now=NOW)).grant.user_id == "alice"


async def test_a_process_that_does_not_answer_is_killed_and_the_token_refused() -> None:
    clock = ManualClock()
    async with running(SILENT, clock) as process:
        await process.start()
        asking = asyncio.ensure_future(process.read(minted(), now=NOW))
        await until(asking.done, clock, ANSWER_WITHIN_SECONDS)

        with pytest.raises(Unauthenticated, match="could not be read"):
            await asking


async def test_a_process_that_does_not_start_is_killed() -> None:
    clock = ManualClock()
    async with running("import sys; sys.stdin.read()", clock) as process:
        asking = asyncio.ensure_future(process.read(minted(), now=NOW))
        await until(asking.done, clock, START_WITHIN_SECONDS)

        with pytest.raises(AccessBusy, match="did not start"):
            await asking


@pytest.mark.parametrize(
    "code",
    [
        READY + "sys.stdin.readline()",
        READY + "sys.stdin.readline(); os.abort()",
        READY + "sys.stdin.readline(); print('no answer', flush=True); sys.stdin.read()",
        READY,
    ],
)
async def test_a_process_that_ends_or_babbles_is_a_refusal(code: str) -> None:
    async with running(code) as process:
        for _ in range(2):
            with pytest.raises(Unauthenticated):
                await process.read(minted(), now=NOW)


@pytest.mark.parametrize("code", ["raise SystemExit", "print('not ready')", "import os; os.abort()"])
async def test_a_process_that_cannot_start_says_nothing_about_a_token(code: str) -> None:
    async with running(code) as process:
        for _ in range(2):
            with pytest.raises(AccessBusy, match="did not start"):
                await process.read(minted(), now=NOW)


async def test_after_a_crash_the_next_token_gets_a_new_process(tmp_path: Path) -> None:
    marker = tmp_path / "crashed"
    code = (
        f"import pathlib, runpy, sys; marker = pathlib.Path({str(marker)!r}); first = not marker.exists()\n"
        "marker.touch()\n"
        "if first: print('ready', flush=True); sys.stdin.readline(); raise SystemExit(1)\n"
        "runpy.run_module('turnline.server.auth.child', run_name='__main__', alter_sys=True)"
    )
    async with running(code) as process:
        with pytest.raises(Unauthenticated):
            await process.read(minted(), now=NOW)

        assert (await process.read(minted(), now=NOW)).grant.user_id == "alice"


async def test_an_answer_nobody_waits_for_is_not_taken_for_another() -> None:
    """The process answers the first request only when it has the second."""
    code = READY + (
        "first, second = (json.loads(sys.stdin.readline())['number'] for _ in range(2))\n"
        "for number in (first, second):\n"
        "    print(json.dumps({'number': number, 'refused': f'to {number}'}), flush=True)\n"
        "sys.stdin.read()"
    )
    async with running(code) as process:
        await process.start()
        given_up = asyncio.ensure_future(process.read(minted(), now=NOW))
        for _ in range(10):
            await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)

        with pytest.raises(Unauthenticated, match="to 2"):
            await process.read(minted(), now=NOW)


async def test_whoever_gives_up_while_it_starts_leaves_no_half_started_process() -> None:
    async with running() as process:
        given_up = asyncio.ensure_future(process.read(minted(), now=NOW))
        for _ in range(10):
            await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)

        assert (await process.read(minted(), now=NOW)).grant.user_id == "alice"


async def test_so_many_may_wait_and_no_more() -> None:
    async with running(SILENT, ManualClock()) as process:
        await process.start()
        waiting = [asyncio.ensure_future(process.read(minted(), now=NOW)) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(AccessBusy, match=f"{MAX_WAITING} wait"):
            await process.read(minted(), now=NOW)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_process_is_given_nothing_of_the_environment_that_may_be_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TURNLINE_AUTH_KEY", "canary")
    code = READY + (
        "number = json.loads(sys.stdin.readline())['number']\n"
        "print(json.dumps({'number': number, 'refused': 'it has ' + repr(dict(os.environ))}), flush=True)"
    )
    async with running(code) as process:
        with pytest.raises(Unauthenticated, match="it has") as refused:
            await process.read(minted(), now=NOW)

    assert "canary" not in str(refused.value)
    assert "TURNLINE" not in str(refused.value)


async def test_closing_twice_and_reading_afterwards_is_allowed() -> None:
    async with running() as process:
        await process.close()
        found: Reading = await process.read(minted(), now=NOW)
        await process.close()
        await process.close()

    assert found.grant.user_id == "alice"
