"""Data models in memory: a database for one case, where ids are counted and time is the case's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from uuid import UUID

from turnline.flow.data.database import open_data
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.data.late import LateData
from turnline.flow.testing.case import OpenData
from turnline.flow.work import Data
from turnline.hub.timers import Clock
from turnline.log.memory import MemoryLog


def in_memory(models: Sequence[ModelDefinition]) -> OpenData:
    """Return what opens an empty database with these models."""

    @asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Data | None]:
        log = MemoryLog()
        database = (
            await open_data(models, log=log, clock=clock, new_id=counted_ids())
            if models
            else LateData(log, clock=clock)
        )
        try:
            yield database
        finally:
            await database.close()

    return opened


def counted_ids() -> Callable[[], str]:
    """Ids that are the same every time: `00000000-0000-0000-0000-000000000001`, and so on."""
    numbers = count(1)
    return lambda: str(UUID(int=next(numbers)))
