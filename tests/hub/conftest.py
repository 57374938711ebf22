from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.log.memory import MemoryLog

from .scenes import OpenLog, sqlite


@pytest.fixture(params=["memory", "sqlite"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLog:
    """Where durability or reading matters: in memory, and on a file."""
    if request.param == "sqlite":
        return lambda: sqlite(tmp_path)
    memory = MemoryLog()
    return lambda: memory
