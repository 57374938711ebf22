"""What a channel's model calls used, as its lines say.

A packet says it of its turn. Of a turn or an attempt that failed, or is not over, its recorded replies do.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_PACKET, EV_TURN_FAILED, EV_TURN_MODEL, EV_TURN_PAUSED
from turnline.core.json import is_number
from turnline.core.state import RETRY


class Spent(Struct, frozen=True, kw_only=True):
    """Requests and tokens; dollars, as far as the price is known."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
        )

    def __str__(self) -> str:
        cost = f", ${self.cost:.4f}" if self.cost else ""
        requests = "1 request" if self.requests == 1 else f"{self.requests} requests"
        return f"{requests}, {self.input_tokens} + {self.output_tokens} tokens{cost}"


class Counter:
    """Counts what a channel used, line by line."""

    def __init__(self) -> None:
        self._ended = Spent()
        self._unfinished = Spent()
        """Recorded replies since the last turn or attempt ended."""

    @property
    def total(self) -> Spent:
        return self._ended + self._unfinished

    def take(self, line: Envelope) -> Spent:
        """Count a line; return what the turn used that it ends, or nothing."""
        data, used = line.event_data, Spent()
        if line.event_type == EV_TURN_MODEL:
            entry = data.get("entry")
            recorded = data.get("usage") or (entry.get("usage") if isinstance(entry, dict) else None)
            self._unfinished += _usage(recorded)
        elif line.event_type == EV_PACKET:
            used, self._unfinished = _usage(data.get("usage")), Spent()
        elif line.event_type == EV_TURN_FAILED or _is_retry(line):
            used, self._unfinished = self._unfinished, Spent()
        self._ended += used
        return used


def spent(lines: Iterable[Envelope]) -> Spent:
    """Return what all of it used."""
    counter = Counter()
    for line in lines:
        counter.take(line)
    return counter.total


def _is_retry(line: Envelope) -> bool:
    """Return whether an attempt of a step failed: the packet of the next one does not count what it used."""
    return line.event_type == EV_TURN_PAUSED and line.event_data.get("reason") == RETRY


def _usage(data: object) -> Spent:
    known = data if isinstance(data, dict) else {}
    counts = {name: known[name] for name in ("requests", "input_tokens", "output_tokens") if name in known}
    cost = known.get("cost", 0.0)
    return Spent(
        **{name: int(value) for name, value in counts.items() if is_number(value)},
        cost=float(cost) if is_number(cost) else 0.0,
    )
