"""How long to wait before the next attempt: longer each time, and never all clients at once."""

from __future__ import annotations

from msgspec import Struct


class Backoff(Struct, frozen=True, kw_only=True):
    """Twice as long after each attempt, up to a limit."""

    first_seconds: float = 0.1
    most_seconds: float = 10.0

    def pause(self, attempt: int, chance: float) -> float:
        """The wait after an attempt, counted from 1; `chance`, from 0 to 1, spreads the upper half of it."""
        doubled = self.first_seconds * 2.0 ** min(attempt - 1, 30)
        return min(self.most_seconds, doubled) * (0.5 + 0.5 * chance)
