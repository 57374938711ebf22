"""A human task: a run that waits for a person, as the person sees it."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from turnline.core.envelope import Envelope, JsonObject
from turnline.core.state import Pause, State
from turnline.core.step_targets import STEP_PREFIX
from turnline.flow.pauses import object_of


class Task(Struct, frozen=True, kw_only=True):
    """What a person is asked."""

    task_id: str
    run_id: str
    flow: str
    step: str
    title: str
    description: str
    show: JsonObject
    """The context keys the step shows, and their values."""
    form: JsonObject
    """Field -> what it has to be."""
    group: str | None
    created_at: datetime
    expires_at: datetime | None


def task_id(run_id: str, turn: int) -> str:
    """What a task is known by: the run it belongs to, and the turn."""
    return f"{run_id}-{turn}"


def run_of(task: str) -> tuple[str, int]:
    """The run and the turn that a task id names; turn 0 for what is no task id."""
    run_id, _, turn = task.rpartition("-")
    return run_id, int(turn) if turn.isascii() and turn.isdigit() else 0


def task_of(state: State, pause: Pause, line: Envelope) -> Task:
    """The task of a run that waits for a person with this pause; `line` is its `turn.paused`."""
    data = object_of(line.event_data, "data")
    group = data.get("group")
    return Task(
        task_id=task_id(state.channel_id, state.turn),
        run_id=state.channel_id,
        flow=state.spec.labels.get("flow", ""),
        step=(state.expected_next_speaker or "").removeprefix(STEP_PREFIX),
        title=str(data.get("title", "")),
        description=str(data.get("description", "")),
        show=object_of(data, "show"),
        form=object_of(data, "form"),
        group=group if isinstance(group, str) else None,
        created_at=pause.at,
        expires_at=pause.until,
    )
