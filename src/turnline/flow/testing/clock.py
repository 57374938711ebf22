"""A clock that nobody waits for: it stands still while there is work, and jumps when there is none."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Final

START: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""When every case begins: what a flow does depends on no real day."""


class JumpingClock:
    """See `turnline.hub.timers.Clock`. Whoever sleeps is woken by the jump that takes it so far."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._now = start
        self._sleeping: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._number = count()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start).total_seconds()

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heappush(self._sleeping, (self._now + timedelta(seconds=seconds), next(self._number), future))
        await future

    def jump_to(self, moment: datetime) -> None:
        """Let it be `moment`, unless it is later already."""
        self._now = max(self._now, moment)
        while self._sleeping and self._sleeping[0][0] <= self._now:
            future = heappop(self._sleeping)[2]
            if not future.done():
                future.set_result(None)
