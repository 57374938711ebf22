from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnwise.log.memory import MemoryLog

from .scenes import FullLog, OpenLog, sqlite


@pytest.fixture(params=["memory", "sqlite"])
async def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenLog]:
    """Where durability or reading matters: in memory, and on a file. Whatever was opened is closed."""
    memory, opened = MemoryLog(), list[FullLog]()

    def open_one() -> FullLog:
        opened.append(sqlite(tmp_path) if request.param == "sqlite" else memory)
        return opened[-1]

    yield open_one
    for log in opened:
        await log.close()
