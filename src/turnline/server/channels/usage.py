"""What a channel cost and how long its turns took, counted from its lines."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from datetime import datetime
from typing import Final

from turnline.core import event_types as ev
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.state import State
from turnline.core.study.why import is_turn
from turnline.core.variables import is_number
from turnline.hub.hub import Hub
from turnline.server.channels.sight import Sight

LAST_TURNS: Final = 200
_COUNTED: Final = ("requests", "input_tokens", "output_tokens", "cost")


class Counting:
    """Counts as the lines go by."""

    def __init__(self) -> None:
        self._by_agent: dict[str, JsonObject] = {}
        self._turns: deque[JsonObject] = deque(maxlen=LAST_TURNS)
        self._claimed_at: datetime | None = None

    def take(self, line: Envelope) -> None:
        if line.event_type == ev.EV_TURN_CLAIMED:
            self._claimed_at = line.created_at
        elif is_turn(line):
            self._ended(line)

    def told(self) -> JsonObject:
        everybody = list(self._by_agent.values())
        total = {key: sum(one[key] for one in everybody) for key in ("turns", "seconds", *_COUNTED)}
        return {"total": total, "participants": everybody, "turns": list(self._turns)}

    def _ended(self, line: Envelope) -> None:
        who = str(line.event_data.get("agent_id", "")) if line.sender_id == ev.HUB else line.sender_id
        seconds = 0.0 if self._claimed_at is None else (line.created_at - self._claimed_at).total_seconds()
        self._claimed_at = None
        given = line.event_data.get("usage")
        usage = {key: _number(given, key) for key in _COUNTED}
        known = self._by_agent.setdefault(
            who, {"agent_id": who, "turns": 0, "seconds": 0.0, "slowest": 0.0, **dict.fromkeys(_COUNTED, 0)}
        )
        known["turns"] += 1
        known["seconds"] += seconds
        known["slowest"] = max(known["slowest"], seconds)
        for key, amount in usage.items():
            known[key] += amount
        self._turns.append({"seq": line.seq, "agent_id": who, "seconds": seconds, **usage})


async def usage_of(hub: Hub, state: State, sight: Sight) -> JsonObject:
    """Count what whoever asks may see of a channel."""
    counting = Counting()
    async with aclosing(hub.lines.read(state.channel_id)) as lines:  # type: ignore[type-var]
        async for line in lines:
            shown = sight.view(line, state.spec.participants)
            if shown is not None:
                counting.take(shown)
    return counting.told()


def _number(given: object, key: str) -> int | float:
    value = given.get(key) if isinstance(given, dict) else None
    return value if is_number(value) else 0
