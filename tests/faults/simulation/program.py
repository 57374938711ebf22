"""What a process runs: a hub with a door for links, agents, a driver of flows, and a person.

As every program on an unreliable log: what fails is tried again, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.faults.simulation.cast import Cast
from tests.faults.simulation.clock import SimulatedClock
from tests.faults.simulation.flows import Story, services_for
from tests.faults.simulation.person import ANSWER_SECONDS, MOMENT_SECONDS, Person
from tests.faults.simulation.plot import Plot
from tests.faults.simulation.process import SimulatedProcess
from tests.faults.simulation.store import Reach
from tests.faults.simulation.told import Told
from turnline.client.hub_client import HubClient
from turnline.client.link import Link, LocalLink
from turnline.core.governance import Passport
from turnline.errors import HubClosed, LogError, NotDue, NotStuck, RunNotWaiting
from turnline.flow.driver import Driver
from turnline.flow.runs import Runs
from turnline.flow.task import task_id
from turnline.flow.tasks import Tasks
from turnline.hub.channels import CACHE_BYTES
from turnline.hub.hub import Hub
from turnline.server.auth.authenticator import OnlyLoopback
from turnline.server.serve_ws import LOCAL
from turnline.server.ws_door import WsDoor

LEASE_SECONDS: Final = 3.0


@dataclass(kw_only=True)
class Program:
    """One run of it, in one process."""

    process: SimulatedProcess
    reach: Reach
    clock: SimulatedClock
    random: Random
    agents: Sequence[str]
    user: str
    other: str
    """A person of another process."""
    plots: Mapping[str, Plot]
    """Channel -> what it is like."""
    begins_at: Mapping[str, float]
    """Channel -> when it is opened, in the loop's time."""
    stories: Sequence[Story]
    """The flows of all processes."""
    runs: Mapping[str, Story]
    """The runs that this process starts."""
    told: Told
    kill: Callable[[], None]
    link: Callable[[Hub], Link] = LocalLink
    cache_bytes: int = CACHE_BYTES
    hub: Hub | None = None
    driver: Driver | None = None
    door: WsDoor | None = None
    """Open while clients can connect."""
    is_ready: bool = False
    """Whether everybody it has is attached."""
    is_stopping: bool = False
    is_done: bool = False
    _background: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self) -> None:
        self.hub = hub = await Hub.open(
            self.reach,
            ttl_sweep_interval=30.0,
            follow=True,
            clock=self.clock,
            new_id=self._new_id,
            lease_seconds=LEASE_SECONDS,
            process=self.process,
            cache_bytes=self.cache_bytes,
        )
        self._client = HubClient(self.link(hub), hub=hub)
        cast = Cast(
            self.process.name,
            self.random,
            self.reach.store,
            self.told.marks,
            kill=self.kill,
            repaired=self.told.repaired,
        )
        for name in self.agents:
            await cast.enter(name, self._client)
        person = Person(
            client=await self._client.register_human(Passport(name=self.user, kind="human")),
            other=self.other,
            clock=self.clock,
            random=self.random,
            told=self.told,
            plots=self.plots,
            begins_at=self.begins_at,
            operate=self._operate,
        )
        if self.stories:
            self.driver = Driver(hub, services_for(cast, self.told, self.stories))
            await self.driver.start()
        authenticator = OnlyLoopback(LOCAL)
        self.door = WsDoor(hub, authenticator, is_open=True, new_secret=self._new_id)
        self.is_ready = True
        self._background.append(asyncio.create_task(person.answer_others()))
        await asyncio.gather(person.converse(), *(self._run_flow(*one) for one in self.runs.items()))
        self.is_done = True
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """As on SIGTERM."""
        self.is_stopping = True
        door, self.door = self.door, None
        if door is not None:
            await door.close()
        if self.driver is not None:
            await self.driver.stop(grace_seconds=0.0)
        await self._client.close()
        assert self.hub is not None
        await self.hub.close()

    def _new_id(self) -> str:
        return f"{int(self.clock.monotonic() * 1000):08x}{self.random.getrandbits(64):016x}"

    async def _operate(self, channel_id: str) -> None:
        """Repair kim, and retry the turn."""
        self.told.repaired.add(channel_id)
        assert self.hub is not None
        with suppress(NotStuck, NotDue):  # It was retried in an earlier life.
            await self.hub.turns.retry(channel_id)

    # Flows.

    async def _run_flow(self, run_id: str, story: Story) -> None:
        """Start a run, or find it, answer what it asks, and wait for its end."""
        assert self.driver is not None
        await asyncio.sleep(max(self.begins_at[run_id] - self.clock.monotonic(), 0.0))
        while True:
            try:
                await Runs(self.driver).start(story.flow.name, {"run": run_id}, run_id=run_id)
                await self._see_through(self.driver, run_id)
            except HubClosed:
                return
            except LogError:
                await asyncio.sleep(MOMENT_SECONDS)
            else:
                return

    async def _see_through(self, driver: Driver, run_id: str) -> None:
        runs, tasks = Runs(driver), Tasks(driver)
        while not (state := await runs.state(run_id)).is_over:
            if state.pause is not None and state.pause.reason == "person":
                await asyncio.sleep(ANSWER_SECONDS * self.random.random())
                with suppress(RunNotWaiting):
                    await tasks.answer(task_id(run_id, state.turn), {"ok": True}, by="ann")
            await driver.hub.wait_beyond(run_id, state.seq)
        self.told.reasons[run_id] = state.pending_close_reason or ""
