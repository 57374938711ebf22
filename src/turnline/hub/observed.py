"""What a log says of somebody's work: turns and tasks, done and failed.

It is counted when it is asked for and stored nowhere. Kept on the directory's
channel it would be a second write behind the one that ends a task, and a crash
between the two would make it wrong for ever; so the log is the record (idea 1).
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from msgspec import Struct

from turnline.core import event_types as ev
from turnline.core.channel import ChannelFilter
from turnline.core.envelope import Envelope
from turnline.core.study.tasks import Task, fold_task
from turnline.errors import CorruptRecord
from turnline.log.base import Log
from turnline.log.walks import list_rows


class Observed(Struct, frozen=True, kw_only=True):
    """What was seen of a participant's work."""

    turns: int = 0
    turns_failed: int = 0
    tasks_completed: int = 0
    tasks_failed: int = 0


async def observed(log: Log, agent_id: str) -> Observed:
    """Count what is on the log. Reads every channel that `agent_id` takes part in, from its first line."""
    seen: Counter[str] = Counter()
    for row in await list_rows(log, ChannelFilter(participants=[agent_id])):
        with suppress(CorruptRecord):  # What stands before the damage counts.
            await _count(seen, log, row.channel_id, agent_id)
    return Observed(**seen)


async def _count(seen: Counter[str], log: Log, channel_id: str, agent_id: str) -> None:
    tasks: dict[str, Task] = {}
    try:
        async for envelope in log.read(channel_id):
            fold_task(tasks, envelope)
            seen.update(_turn(envelope, agent_id))
    finally:
        ended = [task for task in tasks.values() if task.agent_id == agent_id and not task.is_open]
        seen.update(f"tasks_{task.status}" for task in ended)


def _turn(envelope: Envelope, agent_id: str) -> list[str]:
    """What the envelope is in the count, if it ends a turn of this participant."""
    if envelope.event_type == ev.EV_TURN_FAILED and envelope.event_data.get("agent_id") == agent_id:
        return ["turns_failed"]
    is_own = envelope.event_type in ev.SUBSTANTIVE and envelope.sender_id == agent_id
    is_turn = envelope.decision is not None and envelope.decision.by.kind != "initial"
    return ["turns"] if is_own and is_turn else []
