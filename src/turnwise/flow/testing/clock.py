"""A clock that nobody waits for: it stands still while there is work, and jumps when there is none."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""When every case begins: what a flow does depends on no real day."""


class JumpingClock:
    """See `turnwise.hub.clock.Clock`. A sleep is over at once, and its time has passed."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._now = start

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.jump_to(self._now + timedelta(seconds=max(seconds, 0.0)))
        await asyncio.sleep(0)

    def jump_to(self, moment: datetime) -> None:
        """Let it be `moment`, unless it is later already."""
        self._now = max(self._now, moment)
