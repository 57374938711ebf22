"""Which of several workers takes a turn first: an optimisation, nothing rests on it.

Every process that has an agent attached is told of its floors, and all but one lose the race for
the claim. So each channel prefers one of the workers that were lately seen to take the agent's turns, and the
others wait a moment before they try. Whom it prefers follows from its id and their names alone (rendezvous
hashing): nobody is asked, and a worker that comes or goes moves only the channels it takes or leaves.

Who there is, is read off claims as they pass; a worker that is not seen for a while is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final

from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_TURN_CLAIMED
from turnline.hub.clock import Clock
from turnline.hub.worker import is_gone

PAUSE_SECONDS: Final = 0.05
"""For so long a worker that is not preferred leaves a turn alone: longer than a tail takes to be read."""
SEEN_SECONDS: Final = 60.0
"""A worker that took no turn of the agent's for so long is not counted any more."""
MAX_WORKERS: Final = 1_000
"""So many are remembered, of all agents; the ones not seen for longest are forgotten."""


def preferred(channel_id: str, workers: Iterable[str]) -> str:
    """Return the worker that the channel prefers. The same everywhere, whatever their order."""
    return max(workers, key=lambda worker: (_weight(channel_id, worker), worker))


def _weight(channel_id: str, worker: str) -> bytes:
    return blake2b(f"{channel_id}\n{worker}".encode(), digest_size=8).digest()


class Workers:
    """The workers that were lately seen to take an agent's turns."""

    def __init__(self, clock: Clock, is_gone: Callable[[str], bool] = is_gone) -> None:
        self._clock = clock
        self._is_gone = is_gone
        self._seen: dict[tuple[str, str], float] = {}
        """Agent and worker -> when a claim of it was last seen, the latest last."""

    def note(self, line: Envelope) -> None:
        """A line has landed; of a claim, remember whose it is."""
        if line.event_type != EV_TURN_CLAIMED:
            return
        key = str(line.event_data.get("agent_id")), str(line.event_data.get("worker"))
        self._seen.pop(key, None)
        self._seen[key] = self._clock.monotonic()
        if len(self._seen) > MAX_WORKERS:
            del self._seen[next(iter(self._seen))]

    def first_for(self, channel_id: str, agent_id: str, worker: str) -> str:
        """The worker that is to have a moment for itself: `worker`, where no other one is preferred."""
        since = self._clock.monotonic() - SEEN_SECONDS
        others = {who for (agent, who), at in self._seen.items() if agent == agent_id and at >= since}
        first = preferred(channel_id, {worker, *others})
        return worker if self._is_gone(first) else first
