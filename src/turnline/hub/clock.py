"""Where time comes from. `turnline.testing.ManualClock` is the one that tests drive by hand."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two times and a sleep."""

    def now(self) -> datetime:
        """The time people read, in UTC. It may be set back."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; what durations are measured with."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
