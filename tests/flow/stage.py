"""A driver on a log, flows written as YAML, and nodes written as functions.

async with stage("steps: [{id: greet, runner: greet}]", greet=lambda ctx: {"hello": ctx["name"]}) as house:
    assert (await house.run(name="Ann")).data == {"name": "Ann", "hello": "Ann"}
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.logs import new_log
from turnline.client.embedded import Hub
from turnline.core.envelope import Envelope, JsonObject
from turnline.flow.definition.flow import Flow, read
from turnline.flow.driver import Driver
from turnline.flow.runs import Runs
from turnline.flow.task import Task
from turnline.flow.tasks import Tasks
from turnline.flow.verdict import Verdict, verdict
from turnline.flow.work import Services
from turnline.flow.yaml_document import read_yaml
from turnline.hub.channels import CACHE_BYTES
from turnline.hub.options import HubOptions
from turnline.log.base import Log
from turnline.testing.manual_clock import ManualClock

SAFETY_SECONDS: Final = 60.0
"""No test waits so long; one that does is stuck."""


class Stage:
    """One process's driver, and what is asked of it."""

    def __init__(self, hub: Hub, driver: Driver, clock: ManualClock) -> None:
        self.hub = hub
        self.driver = driver
        self.clock = clock
        self.runs = Runs(driver)
        self.tasks = Tasks(driver)

    async def run(self, flow: str = "main", **body: Any) -> Verdict:
        """Run a flow to its end, or to where it waits for somebody."""
        return await self.runs.wait(await self.runs.start(flow, body))

    async def path(self, run_id: str) -> list[str]:
        """The steps that were taken, in their order."""
        lines = await self.hub.read_wal(run_id)
        return [line.sender_id for line in lines if line.event_type == "packet"]

    async def wal(self, run_id: str) -> list[Envelope]:
        return await self.hub.read_wal(run_id)

    async def types(self, run_id: str) -> list[str]:
        return [line.event_type for line in await self.wal(run_id)]

    async def task(self) -> Task:
        """The one task that waits; wait for it."""
        while True:
            found = await self.tasks.list()
            if found:
                [task] = found
                return task
            await asyncio.sleep(0)  # Nobody is told when a task comes into being; whoever shows them asks.

    async def paused(self, run_id: str, reason: str = "") -> None:
        """Wait until the run has paused."""
        while True:
            state = await self.hub.state(run_id)
            if state.pause is not None and reason in ("", state.pause.reason):
                return
            await self.hub.wait_beyond(run_id, state.seq)

    async def is_paused(self, run_id: str) -> bool:
        return (await self.hub.state(run_id)).pause is not None

    async def ended(self, run_id: str) -> Verdict:
        """The verdict of a run once it is over, whatever it waits for."""
        while not (state := await self.runs.state(run_id)).is_over:
            await self.hub.wait_beyond(run_id, state.seq)
        return verdict(state)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.hub.tick()

    async def audited(self, what: str) -> list[JsonObject]:
        lines = await self.hub.audit_log.read_all()
        return [line.event_data for line in lines if line.event_type == f"audit.{what}"]


def flows_of(*texts: str) -> dict[str, Flow]:
    """The flows of some documents; the first without a name is `main`."""
    documents = [one for text in texts for one in read_yaml(text, file="main.yaml").documents]
    found = [read(document.data, name="main") for document in documents]
    return {flow.name: flow for flow in found}


@asynccontextmanager
async def stage(
    *flows: str,
    log: Log | None = None,
    services: Services | None = None,
    clock: ManualClock | None = None,
    sweep_seconds: float = 0,
    cache_bytes: int = CACHE_BYTES,
    **nodes: Callable[[Any], Any],
) -> AsyncIterator[Stage]:
    """A hub with a driver that knows `flows` and `nodes`; stopped in the end, as a program stops it."""
    clock = clock or ManualClock()
    options: HubOptions = {"clock": clock, "cache_bytes": cache_bytes}
    hub = await Hub.open(log or new_log(), ttl_sweep_interval=sweep_seconds, **options)
    driver = Driver(hub, services or Services(flows=flows_of(*flows), nodes=nodes))
    await driver.start()
    try:
        async with asyncio.timeout(SAFETY_SECONDS):
            yield Stage(hub, driver, clock)
    finally:
        await driver.stop(grace_seconds=0)
        await hub.close()
