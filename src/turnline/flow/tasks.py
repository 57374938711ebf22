"""Tasks: what runs ask of people, and the answers, each given once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnline.core import event_types as ev
from turnline.core.channel import ChannelState
from turnline.core.json import normalised
from turnline.core.state import PERSON, State
from turnline.errors import BadAnswer, Refused, RunNotWaiting, TaskExpired, UnknownName, UnknownRun
from turnline.flow.definition.steps import HumanStep
from turnline.flow.driver import Driver
from turnline.flow.run import run_knob, step_of, steps_at
from turnline.flow.runs import Runs
from turnline.flow.steps.human import read_answer
from turnline.flow.task import Task, run_of, task_of


class Tasks:
    """The tasks of the runs on one log."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._hub = driver.hub
        self._runs = Runs(driver)

    async def list(self, *, groups: Sequence[str] | None = None) -> list[Task]:
        """Return what waits for a person: all of it, or what these groups may answer."""
        found = []
        for one in await self._hub.list_channels(agent_id=self._driver.agent_id, state=ChannelState.ACTIVE):
            task = await self._task(await self._hub.state(one.channel_id))
            if task is not None and (groups is None or task.group is None or task.group in groups):
                found.append(task)
        return found

    async def get(self, task_id: str) -> Task:
        """Return a task that waits.

        Raises `TaskExpired`, `RunNotWaiting` if it was answered, `UnknownName` if there never was one.
        """
        run_id, turn = run_of(task_id)
        try:
            state = await self._runs.state(run_id)
        except UnknownRun:
            raise UnknownName("task", task_id, ()) from None
        task = await self._task(state)
        if task is None or task.task_id != task_id:
            await self._refuse_task(state, task_id, turn)
            raise UnknownName("task", task_id, ())
        return task

    async def answer(self, task_id: str, answer: Mapping[str, Any], *, by: str) -> None:
        """Give a person's answer, once. Raises `BadAnswer` for what the form does not allow."""
        task = await self.get(task_id)
        state = await self._runs.state(task.run_id)
        given = normalised(dict(answer), field="answer")
        clean, dropped, problems = read_answer((await self._step(state, task)).human.form, given)
        if problems:
            raise BadAnswer(task_id, problems=problems)
        self._driver.note_dropped(task.run_id, "human", dropped)
        pause = state.pause
        data = {"pause": pause.seq if pause else 0, "request_id": task_id, "answer": clean, "by": by}
        try:
            await self._hub.write(task.run_id, ev.EV_HUMAN_ANSWERED, data)
        except Refused:
            raise RunNotWaiting(task.run_id, what=f"an answer to {task_id!r}") from None

    async def _step(self, state: State, task: Task) -> HumanStep:
        knob = run_knob(state)
        if knob is None:
            raise UnknownName("task", task.task_id, ())
        flow = await self._driver.definitions.get(knob.digest)
        step = step_of(steps_at(flow, knob.at), task.step)
        assert isinstance(step, HumanStep)
        return step

    async def _task(self, state: State) -> Task | None:
        if state.pause is None or state.pause.reason != PERSON:
            return None
        lines = await self._hub.read_recent(state.channel_id, state.pause.seq - 1)
        return task_of(state, state.pause, lines[0])

    async def _refuse_task(self, state: State, task_id: str, turn: int) -> None:
        """Say what became of a task that waits no more."""
        was_asked = False
        for line in await self._hub.read_wal(state.channel_id):
            if line.event_type == ev.EV_HUMAN_ANSWERED and line.event_data.get("request_id") == task_id:
                raise RunNotWaiting(state.channel_id, what=f"an answer to {task_id!r}")
            is_pause = line.event_type == ev.EV_TURN_PAUSED and line.event_data.get("reason") == PERSON
            was_asked |= is_pause and line.event_data.get("turn") == turn
        if was_asked:
            raise TaskExpired(task_id)
