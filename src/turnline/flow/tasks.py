"""Tasks: what runs ask of people, and the answers, each given once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from turnline.core import event_types as ev
from turnline.core.channel import ChannelFilter
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.json import normalised
from turnline.core.state import PERSON, State
from turnline.errors import BadAnswer, Refused, RunNotWaiting, TaskExpired, UnknownName, UnknownRun
from turnline.flow.definition.steps import HumanStep
from turnline.flow.driver import Driver
from turnline.flow.pauses import object_of
from turnline.flow.run import run_knob, step_of, steps_at
from turnline.flow.runs import Runs
from turnline.flow.steps.human import read_answer
from turnline.flow.task import ANSWER, Task, form_of, question_of, question_task, run_of, task_of
from turnline.log.walks import list_rows


class Tasks:
    """The tasks of the runs on one log."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._hub = driver.hub
        self._runs = Runs(driver)

    async def list(self, *, groups: Sequence[str] | None = None) -> list[Task]:
        """Return what waits for a person: all of it, or what these groups may answer."""
        found: list[Task] = []
        for row in reversed(await list_rows(self._hub.lines, ChannelFilter(waiting_for=[PERSON]))):
            if row.creator_id == self._driver.agent_id:  # A channel that others opened is not asked.
                with suppress(UnknownRun):
                    found += await self._tasks(await self._runs.state(row.channel_id))
        return [task for task in found if _is_for(task.group, groups)]

    async def of_run(self, run_id: str) -> Sequence[Task]:
        """Return what a run itself asks of people. Raises `UnknownRun`."""
        return await self._tasks(await self._runs.state(run_id))

    async def get(self, task_id: str, *, groups: Collection[str] | None = None) -> Task:
        """Return a task that waits, if it is for one of `groups` or for everybody. None: for any group.

        Raises `TaskExpired`, `RunNotWaiting` if it was answered, `UnknownName` if there never was one.
        A task of another group is unknown, whatever became of it.
        """
        run_id, _ = run_of(task_id)
        try:
            state = await self._runs.state(run_id)
        except UnknownRun:
            raise UnknownName("task", task_id, ()) from None
        task = next((one for one in await self._tasks(state) if one.task_id == task_id), None)
        if task is None:
            await self._refuse_task(state, task_id, groups)
        if task is None or not _is_for(task.group, groups):
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
        form = form_of(task) if question_of(task_id) else (await self._step(state, task)).human.form
        clean, dropped, problems = read_answer(form, given)
        if problems:
            raise BadAnswer(task_id, problems=problems)
        self._driver.note_dropped(task.run_id, "human", dropped)
        data = _to_question(state, task, clean) or _to_step(state, task, clean)
        try:
            await self._hub.write(task.run_id, ev.EV_HUMAN_ANSWERED, {**data, "by": by})
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

    async def _tasks(self, state: State) -> Sequence[Task]:
        """Return what a run asks of people: a human step that waits, and the questions of an agent step."""
        pause = state.pause
        if pause is not None and pause.reason == PERSON and pause.key:
            lines = await self._hub.read_recent(state.channel_id, pause.seq - 1)
            return [task_of(state, pause, lines[0])]
        asked = await self._runs.open_questions(state)
        return [question_task(state, question, line) for question, line in asked if question.group]

    async def _refuse_task(self, state: State, task_id: str, groups: Collection[str] | None) -> None:
        """Say what became of a task that waits no more, to those it was for."""
        request_id, was_asked = "", False
        for line in await self._hub.read_wal(state.channel_id):
            if _asks(line, task_id):
                request_id = str(line.event_data.get("request_id") or task_id)
                told = line.event_data if question_of(task_id) else object_of(line.event_data, "data")
                was_asked = _is_for(told.get("group"), groups)
            is_answer = line.event_type == ev.EV_HUMAN_ANSWERED
            if was_asked and is_answer and line.event_data.get("request_id") == request_id:
                raise RunNotWaiting(state.channel_id, what=f"an answer to {task_id!r}")
        if was_asked:
            raise TaskExpired(task_id)


def _asks(line: Envelope, task_id: str) -> bool:
    """Return whether a line is the one that began a task."""
    data, question = line.event_data, question_of(task_id)
    if data.get("turn") != run_of(task_id)[1]:
        return False
    if question:
        return line.event_type == ev.EV_HUMAN_REQUESTED and line.seq == question and "group" in data
    is_pause = line.event_type == ev.EV_TURN_PAUSED and data.get("reason") == PERSON
    return is_pause and "questions" not in data


def _to_step(state: State, task: Task, answer: JsonObject) -> JsonObject:
    """Return the answer to a human step: it ends the step's pause."""
    pause = 0 if state.pause is None else state.pause.seq
    return {"pause": pause, "request_id": task.task_id, "answer": answer}


def _to_question(state: State, task: Task, answer: JsonObject) -> JsonObject:
    """Return the answer to a question of an agent step; nothing for the task of a human step."""
    asked = question_of(task.task_id)
    if not asked:
        return {}
    request_id = next((key for key, one in state.questions.items() if one.seq == asked), "")
    said = answer[ANSWER]
    text = ("yes" if said else "no") if isinstance(said, bool) else said
    return {"request_id": request_id, "answer": text, "group": task.group}


def _is_for(group: object, groups: Collection[str] | None) -> bool:
    """Return whether a task of `group` is for a member of `groups`. None: an operator asks."""
    return groups is None or group is None or group in groups
