"""Waits, expiries and retries of flows run on the monotonic clock; `wait.until` follows the time of day."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from turnline.core.event_types import EV_TIMER_FIRED
from turnline.log.sqlite import SqliteLog
from turnline.testing.manual_clock import ManualClock

from .stage import Stage, stage

HOUR: Final = 3600.0
DAY: Final = 86_400.0
JUMPS: Final = pytest.mark.parametrize("forward", [-HOUR, DAY], ids=["an hour back", "a day forward"])

TWO_HOURS: Final = 2 * HOUR
WAITS: Final = {
    "wait for": "steps: [{id: it, wait: {for: 2h}}]",
    "event": "steps: [{id: it, wait: {event: paid, expires: 2h}, routes: {timeout: END}}]",
    "task": "steps: [{id: it, human: {title: Look, expires: 2h}, routes: {expired: END}}]",
    "timeout of a step": "steps: [{id: it, wait: {event: paid}, timeout: 2h, routes: {timeout: END}}]",
}


@JUMPS
@pytest.mark.parametrize("flow", WAITS.values(), ids=WAITS)
async def test_a_wait_takes_its_two_hours_although_the_clock_was_set(flow: str, forward: float) -> None:
    async with stage(flow) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        house.clock.set_back(-forward)
        await house.pass_time(TWO_HOURS - 1)
        assert await house.is_paused(run_id)

        await house.pass_time(1)
        await house.ended(run_id)
        assert (await house.types(run_id)).count(EV_TIMER_FIRED) == 1


@JUMPS
async def test_a_wait_that_begins_after_the_jump_takes_its_time(forward: float) -> None:
    async with stage("steps: [{id: one, wait: {for: 10s}}, {id: two, wait: {for: 2h}}]") as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        house.clock.set_back(-forward)
        await house.pass_time(10)
        await house.paused(run_id)
        await house.pass_time(TWO_HOURS - 1)
        assert await house.is_paused(run_id)

        await house.pass_time(1)
        assert (await house.ended(run_id)).status == "succeeded"


@JUMPS
async def test_a_retry_comes_after_its_backoff_although_the_clock_was_set(forward: float) -> None:
    tries = []

    def fail_once(ctx: dict[str, Any]) -> None:
        tries.append(house.clock.monotonic())
        if len(tries) == 1:
            raise RuntimeError("not yet")

    retry = "{attempts: 2, backoff: 60s}"
    async with stage(f"steps: [{{id: it, runner: fail_once, retry: {retry}}}]", fail_once=fail_once) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id, "retry")
        house.clock.set_back(-forward)
        await house.pass_time(59)
        assert len(tries) == 1

        await house.pass_time(1)
        assert (await house.ended(run_id)).status == "succeeded"


async def test_wait_until_follows_the_time_of_day() -> None:
    async with stage("steps: [{id: it, wait: {until: '2030-01-01T18:00:00Z'}}]") as house:  # It is noon.
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        house.clock.set_back(HOUR)
        await house.pass_time(6 * HOUR)  # Five by the clock.
        assert await house.is_paused(run_id)

        house.clock.set_back(-HOUR)
        await house.pass_time(0)
        assert (await house.ended(run_id)).status == "succeeded"
        house.clock.set_back(DAY)
        await house.pass_time(DAY)
        assert (await house.types(run_id)).count(EV_TIMER_FIRED) == 1


async def test_wait_until_ends_by_itself_soon_after_the_clock_was_set_forward() -> None:
    async with stage("steps: [{id: it, wait: {until: '2030-01-01T18:00:00Z'}}]", sweep_seconds=30) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        house.clock.set_back(-7 * HOUR)
        house.clock.advance(30)

        assert (await house.ended(run_id)).status == "succeeded"


async def after_an_hour(house: Stage) -> str:
    """Return the id of a run that waited for an hour and has ended."""
    run_id = await house.runs.start("main", {})
    await house.paused(run_id)
    await house.pass_time(HOUR)
    await house.ended(run_id)
    return run_id


@pytest.mark.parametrize("wait", ["{for: 2h}", "{until: '2030-01-02T12:00:00Z'}"])
async def test_the_timeout_of_a_step_ends_a_wait_that_is_longer(wait: str) -> None:
    async with stage(f"steps: [{{id: it, wait: {wait}, timeout: 1h, routes: {{timeout: END}}}}]") as house:
        run_id = await after_an_hour(house)

        packet = (await house.wal(run_id))[-2]
        assert packet.event_data["routing"]["signal"] == "timeout"


@pytest.mark.parametrize("wait", ["{for: 2h}", "{event: paid}"])
async def test_a_wait_that_the_timeout_of_its_step_ends_says_the_limit(wait: str) -> None:
    async with stage(f"steps: [{{id: it, wait: {wait}, timeout: 1h}}]") as house:
        failed = await house.ended(await after_an_hour(house))

    assert failed.error is not None
    assert failed.error.message == "the step took longer than its timeout of 3600 s"


@JUMPS
async def test_the_time_of_a_run_does_not_count_a_pause_in_which_the_clock_was_set(forward: float) -> None:
    flow = (
        "{spec: {limits: {timeout: 1000s}, steps: [{id: ask, wait: {event: paid}},"
        " {id: work, wait: {event: more}, timeout: 9000s}]}}"
    )
    async with stage(flow) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        house.clock.set_back(-forward)
        await house.pass_time(5000)
        state = await house.hub.state(run_id)
        await house.runs.post_event(run_id, "paid", {})
        await house.hub.wait_beyond(run_id, state.seq)
        await house.paused(run_id)

        assert not (await house.hub.state(run_id)).is_over


async def test_after_a_restart_with_a_clock_that_is_behind_a_wait_counts_from_the_newest_line(
    tmp_path: Path,
) -> None:
    clock, flow = ManualClock(), "steps: [{id: it, wait: {for: 1h}}]"
    async with stage(flow, log=SqliteLog(tmp_path / "log.db"), clock=clock) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        clock.advance(HOUR / 2)
        other = await house.runs.start("main", {})
        await house.paused(other)
    clock.set_back(DAY)
    async with stage(flow, log=SqliteLog(tmp_path / "log.db"), clock=clock) as house:
        await house.pass_time(HOUR / 2 - 1)
        assert await house.is_paused(run_id)

        await house.pass_time(1)
        assert (await house.ended(run_id)).status == "succeeded"
        assert await house.is_paused(other)
        await house.pass_time(HOUR / 2)
        assert (await house.ended(other)).status == "succeeded"
        for done in (run_id, other):
            assert (await house.types(done)).count(EV_TIMER_FIRED) == 1
