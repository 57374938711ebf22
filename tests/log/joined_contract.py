"""What every log holds to that joins transactions (F7): rows and envelopes land together, or neither does.

class TestJoinedSqlite(JoinedContract):
    def rows(self, log): ...             # what the table `mine` holds, for everybody else
    def damage_heads(self, log): ...     # make every head contradict its records

The module has the fixtures `log` and `transaction`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import pytest

from turnline.core.channel import ChannelFilter
from turnline.errors import CorruptRecord, DuplicateEnvelope, LogConflict, LogUnavailable
from turnline.log.joined import Transaction
from turnline.log.postgres import PostgresLog
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line, lines, row

JoiningLog = SqliteLog | PostgresLog


class Inserting(Transaction, Protocol):
    """A transaction of the test's own, on a table `mine`."""

    def insert(self, value: str) -> None: ...

    async def rollback(self) -> None: ...


class JoinedContract(ABC):
    """Subclass it, with the two things below."""

    @abstractmethod
    def rows(self, log: JoiningLog) -> list[str]:
        """What another connection finds in `mine`, in order."""

    @abstractmethod
    def damage_heads(self, log: JoiningLog) -> None:
        """Change the hash in every head."""

    async def test_f7_rows_and_envelopes_land_together(self, log: JoiningLog, transaction: Inserting) -> None:
        transaction.insert("row")
        assert self.rows(log) == []
        await log.append_within(transaction, "c", [line("c", 1), line("c", 2)], after=0)

        assert self.rows(log) == ["row"]
        assert await lines(log, "c") == [line("c", 1), line("c", 2)]

    async def test_the_row_of_the_index_lands_with_them_or_not_at_all(
        self, log: JoiningLog, transaction: Inserting
    ) -> None:
        first = row("c", labels={"k": "v"})
        await log.append("c", [line("c", 1)], after=0, row=first)
        transaction.insert("row")
        moved = row("c", seq=2, labels={"k": "v"}, speaker_id="ann")
        with pytest.raises(LogConflict):
            await log.append_within(transaction, "c", [line("c", 3)], after=2, row=moved)
        assert await log.row("c") == first
        await log.append_within(transaction, "c", [line("c", 2)], after=1, row=moved)

        assert await log.row("c") == moved
        assert await log.rows(ChannelFilter(speaker_id="ann", labels={"k": "v"}), limit=10) == [moved]

    async def test_f7_what_was_appended_within_is_an_append_like_any_other(
        self, log: JoiningLog, transaction: Inserting
    ) -> None:
        await log.append("c", [line("c", 1)], after=0)
        transaction.insert("row")
        await log.append_within(transaction, "c", [line("c", 2)], after=1)
        await log.append("c", [line("c", 3)], after=2)

        head = await log.head("c")
        assert head is not None
        assert (head.seq, head.position) == (3, 3)
        assert await log.find("c", "c-2") == line("c", 2)

    async def test_f7_a_conflict_undoes_the_append_alone_and_it_can_be_tried_again(
        self, log: JoiningLog, transaction: Inserting
    ) -> None:
        await log.append("c", [line("c", 1)], after=0)
        transaction.insert("row")
        with pytest.raises(LogConflict) as conflict:
            await log.append_within(transaction, "c", [line("c", 1, envelope_id="mine")], after=0)
        assert transaction.has_writes
        again = [line("c", 2, envelope_id="mine")]
        await log.append_within(transaction, "c", again, after=conflict.value.found)

        assert self.rows(log) == ["row"]
        assert [one.envelope_id for one in await lines(log, "c")] == ["c-1", "mine"]

    async def test_f7_a_duplicate_undoes_the_append_alone(
        self, log: JoiningLog, transaction: Inserting
    ) -> None:
        await log.append("c", [line("c", 1)], after=0)
        transaction.insert("row")
        known = [line("c", 2, envelope_id="new"), line("c", 3, envelope_id="c-1")]
        with pytest.raises(DuplicateEnvelope):
            await log.append_within(transaction, "c", known, after=1)
        await log.append_within(transaction, "c", [line("c", 2, envelope_id="other")], after=1)

        assert self.rows(log) == ["row"]
        assert [one.envelope_id for one in await lines(log, "c")] == ["c-1", "other"]

    async def test_f7_an_id_twice_in_one_append_is_refused(
        self, log: JoiningLog, transaction: Inserting
    ) -> None:
        transaction.insert("row")
        twice = [line("c", 1, envelope_id="a"), line("c", 2, envelope_id="a")]
        with pytest.raises(DuplicateEnvelope):
            await log.append_within(transaction, "c", twice, after=0)
        await transaction.rollback()

        assert await log.head("c") is None

    async def test_damage_is_told_and_nothing_lands(self, log: JoiningLog, transaction: Inserting) -> None:
        await log.append("c", [line("c", 1)], after=0)
        self.damage_heads(log)
        transaction.insert("row")
        with pytest.raises(CorruptRecord):
            await log.append_within(transaction, "c", [line("c", 2)], after=1)
        await transaction.rollback()

        assert self.rows(log) == []

    async def test_with_nothing_to_commit_beside_it_an_append_shares_a_commit(
        self, log: JoiningLog, transaction: Inserting
    ) -> None:
        await log.append_within(transaction, "c", [line("c", 1)], after=0)

        assert log.stats().works == 1
        assert len(await lines(log, "c")) == 1

    async def test_no_envelopes_is_nothing_to_do(self, log: JoiningLog, transaction: Inserting) -> None:
        transaction.insert("row")
        await log.append_within(transaction, "c", [], after=0)

        assert transaction.has_writes
        await transaction.rollback()
        assert self.rows(log) == []

    async def test_what_does_not_follow_is_a_mistake_of_the_caller(
        self, log: JoiningLog, transaction: Inserting
    ) -> None:
        transaction.insert("row")
        with pytest.raises(ValueError, match="where seq 1 belongs"):
            await log.append_within(transaction, "c", [line("c", 2)], after=0)

    async def test_a_log_that_is_closed_joins_nothing(self, log: JoiningLog, transaction: Inserting) -> None:
        await log.close()
        transaction.insert("row")
        with pytest.raises(LogUnavailable, match="closed"):
            await log.append_within(transaction, "c", [line("c", 1)], after=0)
        await transaction.rollback()

        assert self.rows(log) == []
