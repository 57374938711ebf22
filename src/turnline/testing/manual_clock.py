"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush


class ManualClock:
    """See `turnline.hub.timers.Clock`. `advance` moves it and wakes whoever has slept long enough."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, 12, tzinfo=UTC)) -> None:
        self._start = start
        self._now = start
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []
        self._slept = 0
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._slept += 1
        future = asyncio.get_running_loop().create_future()
        heappush(self._sleeping, (self._monotonic + seconds, self._slept, future))
        await future

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
        while self._sleeping and self._sleeping[0][0] <= self._monotonic:
            future = heappop(self._sleeping)[2]
            if not future.done():
                future.set_result(None)

    def set_back(self, seconds: float) -> None:
        """Set the time people read back, as an operator may; the monotonic one goes on."""
        self._now -= timedelta(seconds=seconds)
