"""The `tasks` tool: an agent says on its channel what it works on, and what came of it.

Rule: each action is one `task.*` envelope whose id follows from the call's
idempotency key, so a call that runs again after a crash says nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from turnline.agent.context import Context
from turnline.client.delegation import derived_id
from turnline.client.injection import SeatInject, TurnChannelInject
from turnline.client.link import Seat
from turnline.core import event_types as ev
from turnline.core.channel import Participant
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.study.tasks import Task, task_data, tasks_of
from turnline.errors import BadDraft
from turnline.errors.base import short

Action = Literal["start", "progress", "complete", "fail", "list"]

_SHORT_ID: Final = len("task-") + 12
"""Characters of a task's id: few enough for a model to copy."""
_EVENT_TYPES: Final = {
    "start": ev.EV_TASK_STARTED,
    "progress": ev.EV_TASK_PROGRESS,
    "complete": ev.EV_TASK_COMPLETED,
    "fail": ev.EV_TASK_FAILED,
}


async def tasks(
    action: Annotated[Action, Field(description="What to do.")],
    task_id: Annotated[str, Field(description="Which task: for progress, complete and fail.")] = "",
    text: Annotated[str, Field(description="The title, the progress, the result or the reason.")] = "",
    *,
    seat: SeatInject,
    channel: TurnChannelInject,
    context: Context,
) -> object:
    """Keep track of work in this conversation, where everybody in it can see it.

    Start a task with its title; report progress on it; complete it with its
    result, or fail it with the reason. List shows every task here and how it stands.
    """
    envelope_id, me = derived_id("task", context.idempotency_key), seat.agent_id
    said = await _everything(seat, channel.channel_id)
    # What this very call said before a crash is no reason to refuse it now.
    known = tasks_of(one for one in said if one.envelope_id != envelope_id)
    if action == "list":
        return _listed(known.values(), (await channel.info()).participants)
    task_id = envelope_id[:_SHORT_ID] if action == "start" else _own(known, task_id, me)
    data = task_data(_EVENT_TYPES[action], task_id, text)
    await channel.send(event_type=_EVENT_TYPES[action], event_data=data, envelope_id=envelope_id)
    return data


def _own(known: Mapping[str, Task], task_id: str, agent_id: str) -> str:
    """Refuse what is not an open task of this agent."""
    own = [task.task_id for task in known.values() if task.agent_id == agent_id and task.is_open]
    if task_id not in own:
        ended = known.get(task_id)
        found = f"{short(task_id)}, which is {ended.status}" if ended is not None else short(task_id)
        expected = f"one of your open tasks ({', '.join(own) or 'there is none; start one'})"
        raise BadDraft("task_id", found=found, expected=expected)
    return task_id


def _listed(known: Iterable[Task], participants: Iterable[Participant]) -> list[JsonObject]:
    names = {one.agent_id: one.name for one in participants}
    return [
        {"task_id": one.task_id, "by": names.get(one.agent_id, one.agent_id), "title": one.title}
        | {"status": one.status, "note": one.note}
        for one in known
    ]


async def _everything(seat: Seat, channel_id: str) -> list[Envelope]:
    """What the participant may see of the channel, up to now."""
    envelopes, since = list[Envelope](), 0
    while (reading := await seat.read(channel_id, since)).seq > since:
        envelopes += reading.envelopes
        since = reading.seq
    return envelopes
