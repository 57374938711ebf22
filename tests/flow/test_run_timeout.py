"""`limits.timeout`: how long a run may work. The time that it waits does not count."""

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
    "a nested run that waits": "workflow: {name: other}",
    "a retry": "runner: fail, retry: {attempts: 2, backoff: 1d, max_backoff: 1d}",
}
WORK: Final = "{metadata: {name: other}, steps: [{id: work, runner: work}]}"


class Endless:
    """A node that works until it is cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def work(self, ctx: dict[str, Any]) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


def flow(step: str) -> str:
    limits = f"{{timeout: {LIMIT:g}}}"
    return f"{{metadata: {{name: main}}, spec: {{limits: {limits}, steps: [{{id: it, {step}}}]}}}}"


def fail(ctx: dict[str, Any]) -> None:
    raise RuntimeError("not today")


async def is_over(house: Stage, run_id: str) -> bool:
    return (await house.hub.state(run_id)).is_over


@pytest.mark.parametrize("step", WAITS.values(), ids=WAITS)
async def test_a_run_that_waits_is_not_ended_by_its_limit(step: str) -> None:
    async with stage(flow(step), ASK, fail=fail) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)

        await house.pass_time(10 * LIMIT)

        assert not await is_over(house, run_id)


async def test_a_run_that_works_ends_at_its_limit() -> None:
    node = Endless()
    async with stage(flow("runner: work"), work=node.work) as house:
        run_id = await house.runs.start("main", {})
        await node.begun.wait()
        await house.pass_time(LIMIT - 1)
        assert not await is_over(house, run_id)

        await house.pass_time(1)
        ended = await house.ended(run_id)

        assert ended.error is not None
        assert (ended.status, ended.error.type) == ("failed", "timeout")
        assert "limits.timeout" in ended.error.message
        await node.cancelled.wait()


async def test_a_nested_run_that_works_ends_at_the_limit_of_its_parent() -> None:
    node = Endless()
    async with stage(flow("workflow: {name: other}"), WORK, work=node.work) as house:
        run_id = await house.runs.start("main", {})
        await node.begun.wait()
        await house.paused(run_id)
        await house.pass_time(LIMIT - 1)
        assert not node.cancelled.is_set()

        await house.pass_time(1)
        await node.cancelled.wait()
        ended = await house.ended(run_id)

        assert ended.error is not None
        assert "limits.timeout" in ended.error.message


async def test_a_nested_flow_keeps_a_shorter_limit_of_its_own() -> None:
    node = Endless()
    short = "{metadata: {name: other}, spec: {limits: {timeout: 10}, steps: [{id: work, runner: work}]}}"
    async with stage(flow("workflow: {name: other}"), short, work=node.work) as house:
        run_id = await house.runs.start("main", {})
        await node.begun.wait()
        await house.pass_time(9)
        assert not node.cancelled.is_set()

        await house.pass_time(1)
        await node.cancelled.wait()
        ended = await house.ended(run_id)

        assert ended.error is not None
        assert "limit of 10 s" in ended.error.message


async def test_the_work_before_and_after_a_wait_counts_together(tmp_path: Path) -> None:
    clock, first, second = ManualClock(), Endless(), Endless()
    steps = "[{id: one, runner: one}, {id: ask, wait: {event: paid}}, {id: two, runner: two}]"
    text = f"{{metadata: {{name: main}}, spec: {{limits: {{timeout: {LIMIT:g}}}, steps: {steps}}}}}"
    done = asyncio.Event()

    async def one(ctx: dict[str, Any]) -> None:
        first.begun.set()
        await done.wait()

    async with stage(
        text, log=SqliteLog(tmp_path / "log.db"), clock=clock, one=one, two=second.work
    ) as house:
        run_id = await house.runs.start("main", {})
        await first.begun.wait()
        await house.pass_time(600)
        done.set()
        await house.paused(run_id)
        await house.pass_time(86_400)
        await house.runs.post_event(run_id, "paid", {})
        await second.begun.wait()
        await house.pass_time(399)
        assert not await is_over(house, run_id)

        await house.pass_time(1)
        await second.cancelled.wait()
        await house.ended(run_id)
