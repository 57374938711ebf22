"""The clock of one host: the loop's virtual time, read from a dial of its own."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)


class SimulatedClock:
    """See `turnline.hub.timers.Clock`."""

    def __init__(self, loop: AbstractEventLoop, *, ahead: timedelta) -> None:
        self._loop = loop
        self.ahead = ahead
        """By how much people read another time here than elsewhere."""

    def now(self) -> datetime:
        return START + timedelta(seconds=self._loop.time()) + self.ahead

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
