"""Tasks: what runs ask of people, and the answers, each given once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from turnline.core import event_types as ev
from turnline.core.channel import ChannelState
from turnline.core.json import normalised
from turnline.core.state import PERSON, State
from turnline.errors import BadAnswer, Refused, RunNotWaiting, TaskExpired, UnknownName, UnknownRun
from turnline.flow.definition.steps import HumanStep
from turnline.flow.driver import Driver
from turnline.flow.pauses import object_of
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
            if task is not None and _is_for(task.group, groups):
                found.append(task)
        return found

    async def get(self, task_id: str, *, groups: Collection[str] | None = None) -> Task:
        """Return a task that waits, if it is for one of `groups` or for everybody. None: for any group.

        Raises `TaskExpired`, `RunNotWaiting` if it was answered, `UnknownName` if there never was one.
        A task of another group is unknown, whatever became of it.
        """
        run_id, turn = run_of(task_id)
        try:
            state = await self._runs.state(run_id)
        except UnknownRun:
            raise UnknownName("task", task_id, ()) from None
        task = await self._task(state)
        if task is None or task.task_id != task_id:
            await self._refuse_task(state, task_id, turn, groups)
        if task is None or task.task_id != task_id or not _is_for(task.group, groups):
            raise UnknownName("task", task_id, ())
        return task

    async def answer(
        self, task_id: str, answer: Mapping[str, Any], *, by: str, groups: Collection[str] | None = None
    ) -> None:
        """Give a person's answer, once. Raises `BadAnswer` for what the form does not allow.

        `groups` are those of the person, as for `get`.
        """
        task = await self.get(task_id, groups=groups)
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

    async def _refuse_task(
        self, state: State, task_id: str, turn: int, groups: Collection[str] | None
    ) -> None:
        """Say what became of a task that waits no more, to those it was for."""
        was_asked = False
        for line in await self._hub.read_wal(state.channel_id):
            is_pause = line.event_type == ev.EV_TURN_PAUSED and line.event_data.get("reason") == PERSON
            if is_pause and line.event_data.get("turn") == turn:
                was_asked = _is_for(object_of(line.event_data, "data").get("group"), groups)
            is_answer = line.event_type == ev.EV_HUMAN_ANSWERED
            if was_asked and is_answer and line.event_data.get("request_id") == task_id:
                raise RunNotWaiting(state.channel_id, what=f"an answer to {task_id!r}")
        if was_asked:
            raise TaskExpired(task_id)


def _is_for(group: object, groups: Collection[str] | None) -> bool:
    """Whether a task of `group` is for a member of `groups`. None: who asks is an operator."""
    return groups is None or group is None or group in groups
