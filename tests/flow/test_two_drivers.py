"""T1, T6: drivers of two processes on one log: every step is taken once, whoever takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.logs import OpenLog
from turnline.client.embedded import Hub
from turnline.core.event_types import EV_TURN_RENEWED
from turnline.core.state import LEASE_SECONDS
from turnline.flow.driver import Driver
from turnline.flow.runs import Runs
from turnline.flow.tasks import Tasks
from turnline.flow.work import Services
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

from .stage import SAFETY_SECONDS, flows_of

FLOW = """
steps:
  - {id: first, runner: work}
  - {id: ask, human: {title: ok?, form: {ok: boolean}}}
  - {id: last, runner: work}
"""


EACH = flows_of("steps: [{id: all, for_each: {items: '[1, 2]', steps: [{id: ask, human: {title: ok?}}]}}]")[
    "main"
]


@asynccontextmanager
async def driver(log: Log, name: str, calls: list[tuple[str, str]]) -> AsyncIterator[Driver]:
    """A driver as another process has it: its own hub, its own connection to the log."""

    async def work(ctx: dict[str, Any]) -> dict[str, Any]:
        calls.append((name, str(ctx["n"])))
        await asyncio.sleep(0)
        return {"by": [*ctx.get("by", []), name]}

    hub = await Hub.open(log, ttl_sweep_interval=0, follow=True)
    found = Driver(hub, Services(flows=flows_of(FLOW), nodes={"work": work}))
    await found.start()
    try:
        async with asyncio.timeout(SAFETY_SECONDS):
            yield found
    finally:
        await found.stop(grace_seconds=1)
        await hub.close()


async def ended(runs: Runs, run_id: str) -> dict[str, Any]:
    while not (state := await runs.state(run_id)).is_over:
        await runs.wait_beyond(run_id, state.seq)
    return (await runs.verdict(run_id)).data


async def test_t1_two_drivers_take_every_step_once(open_log: OpenLog) -> None:
    calls: list[tuple[str, str]] = []
    async with driver(open_log(), "one", calls) as one, driver(open_log(), "two", calls) as two:
        here, there = Runs(one), Runs(two)
        started = [await runs.start("main", {"n": n}) for n in range(20) for runs in (here, there)]
        for run_id in started:  # Until both know that it waits.
            await here.wait(run_id)
            await there.wait(run_id)
        tasks = Tasks(two)
        for task in await tasks.list():
            await tasks.answer(task.task_id, {"ok": True}, by="ann")
        done = [await ended(here, run_id) for run_id in started]

    assert all(one["ok"] and len(one["by"]) == 2 for one in done)
    assert len(calls) == 2 * len(started)


async def test_f6_a_caller_elsewhere_is_told_that_a_run_waits_for_people_below_it(open_log: OpenLog) -> None:
    async with driver(open_log(), "one", []) as one, driver(open_log(), "two", []) as two:
        run_id = await Runs(one).start(EACH, {})
        told = await Runs(two).wait(run_id)

    assert told.status == "waiting"


async def test_t6_a_run_whose_driver_has_gone_is_taken_up_by_the_other(open_log: OpenLog) -> None:
    calls: list[tuple[str, str]] = []
    async with driver(open_log(), "two", calls) as two:
        async with driver(open_log(), "one", calls) as one:
            run_id = await Runs(one).start("main", {"n": 1})
            await Runs(one).wait(run_id)
        await Runs(two).wait(run_id)
        tasks = Tasks(two)
        [task] = await tasks.list()
        await tasks.answer(task.task_id, {"ok": True}, by="ann")
        done = await ended(Runs(two), run_id)

    assert done["by"][-1] == "two"


async def test_t1_a_step_of_ten_minutes_is_heard_of_all_the_while() -> None:
    clock, go, begun = ManualClock(), asyncio.Event(), asyncio.Event()

    async def slow(ctx: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        await go.wait()
        return {"done": True}

    hub = await Hub.open(MemoryLog(), ttl_sweep_interval=0, follow=True, clock=clock)
    one = Driver(hub, Services(flows=flows_of("steps: [{id: slow, runner: slow}]"), nodes={"slow": slow}))
    await one.start()
    run_id = await Runs(one).start("main", {})
    await begun.wait()
    for _ in range(30):
        await asyncio.sleep(0)  # The heart goes to sleep again.
        seen = (await hub.state(run_id)).seq
        clock.advance(LEASE_SECONDS / 3)
        await hub.wait_beyond(run_id, seen)
    go.set()
    done = await ended(Runs(one), run_id)
    lines = await hub.read_wal(run_id)
    await one.stop()
    await hub.close()

    assert done["done"]
    assert [line.event_type for line in lines].count(EV_TURN_RENEWED) == 30


async def test_f5_a_retry_that_falls_due_at_two_hubs_is_taken_once() -> None:
    clock, log, calls = ManualClock(), MemoryLog(), list[int]()

    async def flaky(ctx: dict[str, Any]) -> dict[str, Any]:
        calls.append(len(calls))
        if len(calls) == 1:
            raise ValueError("not yet")
        return {"done": True}

    flow = "steps: [{id: try, runner: flaky, retry: {attempts: 2, backoff: 30}}]"
    hubs = [await Hub.open(log, ttl_sweep_interval=0, follow=True, clock=clock) for _ in range(2)]
    drivers = [Driver(hub, Services(flows=flows_of(flow), nodes={"flaky": flaky})) for hub in hubs]
    for one in drivers:
        await one.start()
    run_id = await Runs(drivers[0]).start("main", {})
    for hub in hubs:
        while (state := await hub.state(run_id)).pause is None:
            await hub.wait_beyond(run_id, state.seq)
    clock.advance(30)
    await asyncio.gather(*(hub.tick() for hub in hubs))
    done = await ended(Runs(drivers[1]), run_id)
    types = [line.event_type for line in await hubs[0].read_wal(run_id)]
    for one, hub in zip(drivers, hubs, strict=True):
        await one.stop()
        await hub.close()

    assert done["done"]
    assert (types.count("timer.fired"), types.count("packet"), len(calls)) == (1, 1, 2)
