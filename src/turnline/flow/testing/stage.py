"""The stage: the real engine on a log in memory, where time jumps and stubs answer.

    async with staged(services, stubs, JumpingClock()) as stage:
        played = await stage.play(flow, {"email": "jane@example.com"})

Rule: time passes only when all runs of the case wait. Then whoever is asked answers; if
nobody is, it is the moment at which the first of them goes on by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from turnline.core.envelope import JsonObject
from turnline.core.state import WorkflowState
from turnline.errors import BadAnswer
from turnline.flow.context import public
from turnline.flow.definition.flow import Flow
from turnline.flow.driver import Driver
from turnline.flow.events import event_of
from turnline.flow.runs import Runs
from turnline.flow.steps import PERFORM
from turnline.flow.task import task_id
from turnline.flow.tasks import Tasks
from turnline.flow.testing.clock import JumpingClock
from turnline.flow.testing.definition import Answers, Expires, Happens
from turnline.flow.testing.problem import Problem
from turnline.flow.testing.stubs import Stubs
from turnline.flow.verdict import Verdict
from turnline.flow.work import Services
from turnline.hub.hub import Hub
from turnline.log.memory import MemoryLog

PATIENCE_SECONDS: Final = 60.0
"""Of real time, for one case: a node that takes longer is a problem."""
GRACE_SECONDS: Final = 1.0
"""For a node that is still at work when the case is given up."""
RUN_ID: Final = "case"
"""What the run of a case is called, so that its messages are the same every time."""
_WHO: Final = "test"
"""Who answers human tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of a case."""

    verdict: Verdict
    path: tuple[str, ...]
    """The run's own steps, in the order they ended."""
    context: JsonObject
    """The public one, at the end."""
    problems: tuple[Problem, ...]
    """Why it could not be played to its end."""


class Stage:
    """One engine, for one case."""

    def __init__(self, driver: Driver, clock: JumpingClock, stubs: Stubs) -> None:
        self.runs = Runs(driver)
        self._tasks = Tasks(driver)
        self._driver = driver
        self._clock = clock
        self._stubs = stubs

    async def play(self, flow: Flow, given: JsonObject, *, user: str | None = None) -> Played:
        """Start a run and see it through; one that cannot go on is cancelled."""
        # A recorded run has references to files and no bytes, so the run begins without them.
        await self.runs.start(flow, given, run_id=RUN_ID, user_id=user, files=())
        problems = list[Problem]()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                problems += await self._to_its_end()
        except TimeoutError:
            found = f"{PATIENCE_SECONDS:g} s of real time, and no end"
            problems.append(Problem(what="the case", found=found, fix="look for a node that waits or blocks"))
        state = await self.runs.state(RUN_ID)
        path = await self._path()
        verdict = await self.runs.verdict(RUN_ID)
        return Played(
            verdict=verdict, path=path, context=public(state.context_vars), problems=tuple(problems)
        )

    async def _to_its_end(self) -> Sequence[Problem]:
        """Play until the run is over; return what keeps it from going on."""
        bell = self._driver.bell(RUN_ID)
        while True:
            seen = bell.rung
            state = await self.runs.state(RUN_ID)
            if state.is_over:
                return ()
            resting = await self._resting(state)
            if not resting:
                await bell.wait(seen)
                continue
            problems = self._stubs.problems or await self._go_on(resting)
            if problems:
                return problems

    async def _resting(self, state: WorkflowState) -> list[WorkflowState]:
        """The runs that wait, if there are only such; none if somebody works."""
        pause = state.pause
        if pause is None:
            return []
        if pause.reason != "children":
            return [state]
        below = [await self.runs.state(one) for one in pause.children]
        waiting = [await self._resting(one) for one in below if not one.is_over]
        return [one for some in waiting for one in some] if all(waiting) else []

    async def _go_on(self, resting: Sequence[WorkflowState]) -> Sequence[Problem]:
        """Let somebody answer, or else let time pass."""
        for state in sorted(resting, key=lambda one: one.channel_id):
            match self._stubs.waiting_for(state.channel_id):
                case Answers(answer=answer):
                    return await self._answer(state, answer)
                case Happens(event=data):
                    assert state.pause is not None
                    await self.runs.post_event(state.channel_id, state.pause.key, data)
                    return ()
                case Expires() | None:
                    continue
        times = [one.pause.until for one in resting if one.pause is not None and one.pause.until is not None]
        if not times:
            return [Problem(what=f"step {self._path_of(one)}", found="it waits for ever") for one in resting]
        self._clock.jump_to(min(times))
        await self._driver.hub.tick()
        return ()

    async def _answer(self, state: WorkflowState, answer: JsonObject) -> Sequence[Problem]:
        try:
            await self._tasks.answer(task_id(state.channel_id, state.turn), answer, by=_WHO)
        except BadAnswer as bad:
            return [
                Problem(what=f"the answer to step {self._path_of(state)}", found=one) for one in bad.problems
            ]
        return ()

    def _path_of(self, state: WorkflowState) -> str:
        step = state.expected_next_speaker or ""
        return self._stubs.places.paths(state.channel_id, step)[0]

    async def _path(self) -> tuple[str, ...]:
        events = [event_of(line) for line in await self.runs.lines(RUN_ID)]
        return tuple(one.step for one in events if one is not None and one.type == "step_ended")


@asynccontextmanager
async def staged(services: Services, stubs: Stubs, clock: JumpingClock) -> AsyncIterator[Stage]:
    """An engine of its own, which ends with the block."""
    hub = await Hub.open(MemoryLog(), ttl_sweep_interval=0, clock=clock)
    perform: dict[type[Any], Any] = {kind: stubs.around(real) for kind, real in PERFORM.items()}
    driver = Driver(hub, services, perform=perform)
    try:
        await driver.start()
        try:
            yield Stage(driver, clock, stubs)
        finally:
            await driver.stop(grace_seconds=GRACE_SECONDS)
    finally:
        await hub.close()
