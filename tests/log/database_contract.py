"""What every log holds to that is kept in tables, beyond the contract of a durable log.

class TestSqliteTables(DatabaseContract):
    most = MAX_BATCH
    words = {"heads": "heads", "records": "records", "snapshots": "snapshots", "zero": "x'00'"}

The module has the fixture `log`. Waiting appends share a commit, and an index that
contradicts the records takes no append.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import pytest

from turnline.errors import CorruptRecord, DuplicateEnvelope, LogConflict, LogUnavailable
from turnline.log.postgres import PostgresLog
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line, lines, row, say

DatabaseLog = SqliteLog | PostgresLog

CONTRADICTIONS = [
    ("UPDATE {heads} SET hash = {zero} WHERE channel = 'a'", 2),
    ("DELETE FROM {records} WHERE channel = 'a' AND seq = 2", 2),
    ("UPDATE {heads} SET seq = 1 WHERE channel = 'a'", 1),
    (
        "UPDATE {heads} SET seq = 1, hash = "
        "(SELECT hash FROM {records} WHERE channel = 'a' AND seq = 1) WHERE channel = 'a'",
        1,
    ),
]
"""A head that is wrong, and where the channel ends by it."""


class DatabaseContract(ABC):
    """Subclass it, with the four things below."""

    most: ClassVar[int]
    """How many appends share a commit."""
    words: ClassVar[Mapping[str, str]]
    """What this database calls the tables, and a byte of zero."""

    @abstractmethod
    def execute(self, log: DatabaseLog, statement: str) -> None:
        """Change the tables as no log would."""

    @abstractmethod
    def again(self, log: DatabaseLog) -> DatabaseLog:
        """Open the same log once more."""

    def change(self, log: DatabaseLog, statement: str) -> None:
        self.execute(log, statement.format(**self.words))

    async def test_a_batch_has_a_limit(self, log: DatabaseLog) -> None:
        names = [f"c{n}" for n in range(2 * self.most + 1)]
        await asyncio.gather(*(log.append(name, [line(name, 1)], after=0) for name in names))

        stats = log.stats()
        assert stats.transactions >= 3
        assert stats.largest_batch <= self.most

    async def test_a_lone_append_waits_for_nobody_and_asks_once(self, log: DatabaseLog) -> None:
        for seq in range(1, 6):
            await log.append("c", [line("c", seq)], after=seq - 1)

        assert log.stats().transactions == 5

    async def test_a_row_costs_no_transaction_of_its_own(self, log: DatabaseLog) -> None:
        for seq in range(1, 6):
            await log.append("c", [line("c", seq)], after=seq - 1, row=row("c", seq=seq, labels={"k": "v"}))

        assert log.stats().transactions == 5

    async def test_what_is_refused_costs_nobody_else_of_its_batch(self, log: DatabaseLog) -> None:
        await log.append("c", [line("c", 1)], after=0)
        outcomes = await asyncio.gather(
            log.append("c", [line("c", 1, envelope_id="late")], after=0),
            log.append("c", [line("c", 2), line("c", 3, envelope_id="c-1")], after=1),
            log.append("c", [line("c", 2, data={"text": "\ud800"})], after=1),
            log.append("c", [line("c", 2)], after=1),
            log.append("d", [line("d", 1)], after=0),
            return_exceptions=True,
        )

        assert [type(outcome) for outcome in outcomes[:2]] == [LogConflict, DuplicateEnvelope]
        assert isinstance(outcomes[2], ValueError)
        assert (outcomes[3], outcomes[4]) == (None, None)
        assert await lines(log, "c") == [line("c", 1), line("c", 2)]

    async def test_a_caller_that_no_longer_waits_is_written_all_the_same(self, log: DatabaseLog) -> None:
        leaving = asyncio.create_task(log.append("c", [line("c", 1)], after=0))
        await asyncio.sleep(0)  # It is submitted.
        leaving.cancel()
        await log.append("d", [line("d", 1)], after=0)

        assert await lines(log, "c") == [line("c", 1)]

    @pytest.mark.parametrize(("damage", "after"), CONTRADICTIONS)
    async def test_a_head_that_contradicts_the_records_takes_no_append(
        self, log: DatabaseLog, damage: str, after: int
    ) -> None:
        """An envelope chained on the wrong hash would be acknowledged, and never be readable."""
        await log.append("a", [line("a", 1), line("a", 2)], after=0)
        await log.append("b", [line("b", 1)], after=0)
        self.change(log, damage)

        with pytest.raises(CorruptRecord):
            await log.append("a", [line("a", after + 1, envelope_id="new")], after=after)
        assert await say(log, "b", "new") == 2

    async def test_a_last_record_that_is_gone_is_missed(self, log: DatabaseLog) -> None:
        await log.append("a", [line("a", 1), line("a", 2)], after=0)
        self.change(log, "DELETE FROM {records} WHERE channel = 'a' AND seq = 2")

        with pytest.raises(CorruptRecord, match="missing") as missing:
            await lines(log, "a")
        assert missing.value.seq == 2

    async def test_a_damaged_snapshot_is_none(self, log: DatabaseLog) -> None:
        await log.save_snapshot("c", seq=3, body=b"three")
        self.change(log, "UPDATE {snapshots} SET body = {zero}")
        assert await log.load_snapshot("c") is None
        await log.save_snapshot("c", seq=4, body=b"four")
        self.change(log, "UPDATE {snapshots} SET seq = 5")
        assert await log.load_snapshot("c") is None

    async def test_closing_finishes_what_waits_and_refuses_what_comes(self, log: DatabaseLog) -> None:
        waiting = [asyncio.create_task(log.append(f"c{n}", [line(f"c{n}", 1)], after=0)) for n in range(50)]
        await asyncio.sleep(0)  # Each of them is submitted.
        await log.close()
        await asyncio.gather(*waiting)
        await log.close()

        with pytest.raises(LogUnavailable, match="closed"):
            await log.append("d", [line("d", 1)], after=0)
        with pytest.raises(LogUnavailable, match="closed"):
            await log.head("c1")
        again = self.again(log)
        assert len(await again.channels()) == 50
        await again.close()
