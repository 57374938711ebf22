"""`limits.timeout`: how long a run may take, its waits and the steps below it included."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from turnline.log.sqlite import SqliteLog
from turnline.testing.manual_clock import ManualClock

from .stage import Stage, stage

LIMIT: Final = 1000.0
ASK: Final = "{metadata: {name: other}, steps: [{id: ask, wait: {event: paid}}]}"
WAITS: Final = {
    "an event": "wait: {event: paid}",
    "a person": "human: {title: 'ok?'}",
    "a time": "wait: {for: 1d}",
    "a time of day": "wait: {until: '2030-01-09T00:00:00Z'}",
    "its children": "workflow: {name: other}",
    "a retry": "runner: fail, retry: {attempts: 2, backoff: 1d, max_backoff: 1d}",
}


def flow(step: str) -> str:
    limits = f"{{timeout: {LIMIT:g}}}"
    return f"{{metadata: {{name: main}}, spec: {{limits: {limits}, steps: [{{id: it, {step}}}]}}}}"


def fail(ctx: dict[str, Any]) -> None:
    raise RuntimeError("not today")


async def is_over(house: Stage, run_id: str) -> bool:
    return (await house.hub.state(run_id)).is_over


@pytest.mark.parametrize("step", WAITS.values(), ids=WAITS)
async def test_a_run_that_waits_ends_at_its_limit(step: str) -> None:
    async with stage(flow(step), ASK, fail=fail) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        await house.pass_time(LIMIT - 1)
        assert not await is_over(house, run_id)

        await house.pass_time(1)
        ended = await house.ended(run_id)

        assert ended.error is not None
        assert (ended.status, ended.error.type) == ("failed", "timeout")
        assert "limits.timeout" in ended.error.message


async def test_a_step_below_a_run_is_cancelled_at_the_limit_of_the_run() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work(ctx: dict[str, Any]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    other = "{metadata: {name: other}, steps: [{id: work, runner: work}]}"
    async with stage(flow("workflow: {name: other}"), other, work=work) as house:
        run_id = await house.runs.start("main", {})
        await begun.wait()
        await house.paused(run_id)
        await house.pass_time(LIMIT - 1)
        assert not cancelled.is_set()

        await house.pass_time(1)
        await cancelled.wait()
        ended = await house.ended(run_id)
        assert ended.error is not None
        assert ended.error.type == "timeout"


async def test_a_run_that_works_ends_at_its_limit() -> None:
    begun = asyncio.Event()

    async def work(ctx: dict[str, Any]) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with stage(flow("runner: work"), work=work) as house:
        run_id = await house.runs.start("main", {})
        await begun.wait()
        await house.pass_time(LIMIT)

        assert (await house.ended(run_id)).status == "failed"


async def test_the_time_before_a_restart_counts(tmp_path: Path) -> None:
    clock = ManualClock()
    async with stage(flow(WAITS["an event"]), log=SqliteLog(tmp_path / "log.db"), clock=clock) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        await house.pass_time(600)
    async with stage(flow(WAITS["an event"]), log=SqliteLog(tmp_path / "log.db"), clock=clock) as house:
        await house.pass_time(399)
        assert not await is_over(house, run_id)

        await house.pass_time(1)
        assert await is_over(house, run_id)


async def test_after_an_outage_a_run_has_a_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    async with stage(flow(WAITS["an event"]), log=SqliteLog(tmp_path / "log.db"), clock=clock) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
    clock.advance(86_400)
    async with stage(flow(WAITS["an event"]), log=SqliteLog(tmp_path / "log.db"), clock=clock) as house:
        await house.pass_time(59)
        assert not await is_over(house, run_id)

        await house.pass_time(1)
        assert await is_over(house, run_id)
