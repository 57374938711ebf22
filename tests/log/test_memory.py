from __future__ import annotations

import pytest

from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing import Damage, LogContract, damage_memory
from turnline.testing.lines import line, lines


class TestMemoryLog(LogContract):
    @pytest.fixture
    def log(self) -> MemoryLog:
        return MemoryLog()

    def damage(self, log: Log, channel_id: str, seq: int, damage: Damage) -> None:
        assert isinstance(log, MemoryLog)
        damage_memory(log, channel_id, seq, damage)

    async def test_closing_lets_go_of_nothing_so_the_next_hub_goes_on(self, log: MemoryLog) -> None:
        await log.append("c", [line("c", 1)], after=0)
        await log.close()
        await log.append("c", [line("c", 2)], after=1)

        assert len(await lines(log, "c")) == 2
