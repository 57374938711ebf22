"""A task: what a run asks of a person, as the person sees it.

A `human` step that waits is one task. Each question of an agent step is a task of its own: a tool that needs
approval, or `context.input` (N7). The id names the run, the turn and, for a question, the line that asks:

    06sdq-3      the human step of turn 3        06sdq-3q17      the question at line 17, in turn 3
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from turnline.core.envelope import Envelope, JsonObject
from turnline.core.state import Pause, Question, State
from turnline.flow.definition.fields import Fields, FieldSpec
from turnline.flow.pauses import object_of

ANSWER: Final = "answer"
"""The one field of the form of a question."""
_PLACE: Final = re.compile(r"([0-9]{1,15})(?:q([0-9]{1,15}))?")
_APPROVAL: Final = FieldSpec(type="boolean", required=True, description="Whether the call may run.")
_TEXT: Final = FieldSpec(type="string", required=True)


class Task(Struct, frozen=True, kw_only=True):
    """What a person is asked."""

    task_id: str
    run_id: str
    flow: str
    step: str
    title: str
    description: str
    show: JsonObject
    """The context keys the step shows, and their values. Of a question: the tool, and its arguments."""
    form: JsonObject
    """Field -> what it has to be."""
    group: str | None
    created_at: datetime
    expires_at: datetime | None


def task_id(run_id: str, turn: int, *, question: int = 0) -> str:
    """What a task is known by: the run it belongs to, the turn, and the line of a question."""
    return f"{run_id}-{turn}q{question}" if question else f"{run_id}-{turn}"


def run_of(task: str) -> tuple[str, int]:
    """The run and the turn that a task id names; turn 0 for what is no task id."""
    run_id, _, place = task.rpartition("-")
    found = _PLACE.fullmatch(place)
    return run_id, 0 if found is None else int(found[1])


def question_of(task: str) -> int:
    """Return the line of the question that a task id names; 0 for the task of a human step."""
    found = _PLACE.fullmatch(task.rpartition("-")[2])
    return 0 if found is None or found[2] is None else int(found[2])


def task_of(state: State, pause: Pause, line: Envelope) -> Task:
    """The task of a run that waits for a person with this pause; `line` is its `turn.paused`."""
    data = object_of(line.event_data, "data")
    group = data.get("group")
    return Task(
        task_id=task_id(state.channel_id, state.turn),
        run_id=state.channel_id,
        flow=state.spec.labels.get("flow", ""),
        step=state.expected_next_speaker or "",
        title=str(data.get("title", "")),
        description=str(data.get("description", "")),
        show=object_of(data, "show"),
        form=object_of(data, "form"),
        group=group if isinstance(group, str) else None,
        created_at=pause.at,
        expires_at=pause.until,
    )


def question_task(state: State, question: Question, line: Envelope) -> Task:
    """Return the task of a question of an agent step; `line` is its `human.requested`."""
    about = object_of(line.event_data, "about")
    agent, tool = str(about.get("agent", "")), str(about.get("tool", ""))
    is_approval = about.get("approval") is True
    asked = (
        f"Agent {agent!r} waits for approval." if is_approval else str(line.event_data.get("question", ""))
    )
    lasts = None if question.expires is None else timedelta(seconds=question.expires)
    return Task(
        task_id=task_id(state.channel_id, state.turn, question=line.seq),
        run_id=state.channel_id,
        flow=state.spec.labels.get("flow", ""),
        step=question.asked_by,
        title=f"Allow {tool}?" if is_approval else f"Agent {agent!r} asks",
        description=asked,
        show={key: about[key] for key in ("tool", "arguments") if key in about},
        form=form_as_data({ANSWER: _APPROVAL if is_approval else _TEXT}),
        group=question.group,
        created_at=line.created_at,
        expires_at=None if lasts is None else line.created_at + lasts,
    )


def form_as_data(form: Fields) -> JsonObject:
    """Return a form as the JSON of a task."""
    return {name: one.model_dump(mode="json", exclude_unset=True) for name, one in form.items()}


def form_of(task: Task) -> Fields:
    """Return the form of a task as its fields."""
    return {name: FieldSpec.model_validate(one) for name, one in task.form.items()}
