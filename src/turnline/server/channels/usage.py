"""What a channel cost and how long its turns took, counted from its lines and those of channels below it.

A fork counts its own lines: the past it shares was paid by its origin.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import to_builtins

from turnline.core import event_types as ev
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.state import State
from turnline.core.study.spent import Counter, Spent
from turnline.core.study.why import is_turn
from turnline.hub.hub import Hub
from turnline.hub.tree import Below, child_of
from turnline.server.channels.sight import Sight

LAST_TURNS: Final = 200
COUNTED_AT_ONCE: Final = 500
"""Lines that are counted together, in a thread: a long channel does not stop the loop."""
_COUNTED: Final = ("requests", "input_tokens", "output_tokens", "cost")


class Counting:
    """Counts as the lines go by."""

    def __init__(self) -> None:
        self._by_agent: dict[str, JsonObject] = {}
        self._turns: deque[JsonObject] = deque(maxlen=LAST_TURNS)
        self._claimed_at: datetime | None = None
        self._counter = Counter()

    def take(self, line: Envelope) -> None:
        used = self._counter.take(line)
        if line.event_type == ev.EV_TURN_CLAIMED:
            self._claimed_at = line.created_at
        elif is_turn(line):
            self._ended(line, used)

    def told(self, below: Below) -> JsonObject:
        """Return the counts. `total` includes the channels below; turns and seconds are the channel's own."""
        everybody = list(self._by_agent.values())
        timed = {key: sum(one[key] for one in everybody) for key in ("turns", "seconds")}
        own = self._counter.total
        return {
            "total": {**timed, **to_builtins(own + below.spent)},
            "own": to_builtins(own),
            "below": below.to_dict(),
            "participants": everybody,
            "turns": list(self._turns),
        }

    def _ended(self, line: Envelope, used: Spent) -> None:
        who = str(line.event_data.get("agent_id", "")) if line.sender_id == ev.HUB else line.sender_id
        seconds = 0.0 if self._claimed_at is None else (line.created_at - self._claimed_at).total_seconds()
        self._claimed_at = None
        usage = to_builtins(used)
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
    """Count what the caller may see of a channel, and all that the channels below it used."""
    counting, children, lines = Counting(), list[str](), list[Envelope]()

    def count(lines: Iterable[Envelope]) -> None:
        for line in lines:
            children.extend([child] if (child := child_of(line)) else [])
            shown = sight.view(line, state.spec.participants)
            if shown is not None:
                counting.take(shown)

    async for line in hub.tree.lines(state.channel_id):
        lines.append(line)
        if len(lines) == COUNTED_AT_ONCE:
            await asyncio.to_thread(count, lines)
            lines = []
    count(lines)
    return counting.told(await hub.tree.below(children))
