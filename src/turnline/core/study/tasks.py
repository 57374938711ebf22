"""Tasks: what participants say they work on, read from a channel's log.

    task.started     {task_id, title}
    task.progress    {task_id, note}
    task.completed   {task_id, result}
    task.failed      {task_id, reason}

Rule: a task is whose it was started by. What others say of it, and what comes
after its end, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.envelope import Envelope, JsonObject

TASK_FIELDS: Final = {
    ev.EV_TASK_STARTED: "title",
    ev.EV_TASK_PROGRESS: "note",
    ev.EV_TASK_COMPLETED: "result",
    ev.EV_TASK_FAILED: "reason",
}
"""Event type -> where its text is."""


class Task(Struct, frozen=True, kw_only=True):
    """A task, as its last line left it."""

    task_id: str
    agent_id: str
    """Whose it is."""
    title: str
    status: str = "started"
    """`started`, `completed` or `failed`."""
    note: str = ""
    """The last progress, the result, or why it failed."""

    @property
    def is_open(self) -> bool:
        return self.status == "started"


def tasks_of(envelopes: Iterable[Envelope]) -> dict[str, Task]:
    """Return the tasks on a channel by id, in the order they were started."""
    tasks: dict[str, Task] = {}
    for envelope in envelopes:
        fold_task(tasks, envelope)
    return tasks


def fold_task(tasks: dict[str, Task], envelope: Envelope) -> None:
    """Note in `tasks` what `envelope` says of one."""
    field = TASK_FIELDS.get(envelope.event_type)
    if field is None:
        return
    task_id, text = str(envelope.event_data.get("task_id", "")), str(envelope.event_data.get(field, ""))
    task = tasks.get(task_id)
    if task is None and envelope.event_type == ev.EV_TASK_STARTED:
        tasks[task_id] = Task(task_id=task_id, agent_id=envelope.sender_id, title=text)
    elif task is not None and task.is_open and task.agent_id == envelope.sender_id:
        tasks[task_id] = _moved(task, envelope.event_type, text)


def task_data(event_type: str, task_id: str, text: str) -> JsonObject:
    """Return the data of a `task.*` envelope."""
    return {"task_id": task_id, TASK_FIELDS[event_type]: text}


def _moved(task: Task, event_type: str, text: str) -> Task:
    match event_type:
        case ev.EV_TASK_PROGRESS:
            return replace(task, note=text)
        case ev.EV_TASK_COMPLETED:
            return replace(task, status="completed", note=text)
        case ev.EV_TASK_FAILED:
            return replace(task, status="failed", note=text)
        case _:
            return task
