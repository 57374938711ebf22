"""What a log backend must do that survives its process.

Besides what `LogContract` asks for, a subclass says how its storage is opened
again, what it looks like when its last write was cut short, and under which
address another process finds it.
"""

# ruff: noqa: PLR2004  A test counts what it wrote.

from __future__ import annotations

import asyncio
import sys
from abc import abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from turnline.core.channel import ChannelFilter
from turnline.log.address import open_log
from turnline.log.base import Log
from turnline.testing.lines import add_channel, closing_line, line, lines, row, say
from turnline.testing.log_contract import PATIENCE_SECONDS, LogContract
from turnline.testing.second_writer import write

APPENDS_BEFORE_THE_CUT: Final = 4
LINES_AN_APPEND: Final = 3
EACH_PROCESS_WRITES: Final = 40


class DurableLogContract(LogContract):
    """The tests of `LogContract`, and what holds after the process that wrote is gone."""

    @abstractmethod
    async def reopen(self, log: Log) -> Log:
        """Close `log` and open its storage again."""

    @abstractmethod
    def torn(self, log: Log, folder: Path) -> AsyncIterator[Log]:
        """Yield logs on copies of the storage whose last writes were cut at many places; close each."""

    def address(self, log: Log) -> str:
        """Say where another process finds the storage, as `open_log` takes it."""
        return log.address

    async def test_reopening_gives_the_same(self, log: Log) -> None:
        await log.append("a", [line("a", 1), line("a", 2)], after=0)
        await log.append("b", [closing_line("b", 1)], after=0)
        before = await log.channels()

        log = await self.reopen(log)
        assert await log.channels() == before
        assert await lines(log, "a") == [line("a", 1), line("a", 2)]
        assert await say(log, "a", "new") == 3
        await log.close()

    async def test_reopening_gives_the_same_rows(self, log: Log) -> None:
        for one in (row("a", labels={"k": "v"}, participants=["ann"]), row("b", speaker_id="ann")):
            await add_channel(log, one)
        alone = row("c", flow="leads")
        await log.append("c", [line("c", 1)], after=0)
        await log.append("c", [], after=1, row=alone)
        before = await log.rows(ChannelFilter(), limit=10)

        log = await self.reopen(log)
        assert len(before) == 3
        assert await log.rows(ChannelFilter(), limit=10) == before
        assert [one.channel_id for one in await log.rows(ChannelFilter(labels={"k": "v"}), limit=10)] == ["a"]
        assert await log.rows(ChannelFilter(flow="leads"), limit=10) == [alone]
        await log.close()

    async def test_what_another_process_appends_is_listed(self, log: Log) -> None:
        other = open_log(self.address(log))
        first, second = row("a", speaker_id="ann"), row("b")
        await add_channel(log, first)
        assert await other.rows(ChannelFilter(), limit=10) == [first]

        moved = replace(first, seq=2, speaker_id="bob")
        await log.append("a", [line("a", 2)], after=1, row=moved)
        await add_channel(log, second)
        alone = replace(second, speaker_id="cid")
        await log.append("b", [], after=1, row=alone)
        assert await other.row("a") == moved
        assert {one.channel_id: one for one in await other.rows(ChannelFilter(), limit=10)} == {
            "a": moved,
            "b": alone,
        }
        await other.close()

    async def test_a_torn_tail_leaves_whole_appends_in_order_and_a_log_that_goes_on(
        self, log: Log, tmp_path: Path
    ) -> None:
        first = 1
        for _ in range(APPENDS_BEFORE_THE_CUT):
            group = [line("c", seq) for seq in range(first, first + LINES_AN_APPEND)]
            first += LINES_AN_APPEND
            await log.append("c", group, after=group[0].seq - 1, row=row("c", seq=first - 1))
        ends = set()

        async for torn in self.torn(log, tmp_path):
            found = await lines(torn, "c")
            assert found == [line("c", seq) for seq in range(1, len(found) + 1)]
            assert len(found) % LINES_AN_APPEND == 0
            index = await torn.row("c")
            assert (index.seq if index else 0) == len(found), "the row is not that of the last append"
            assert await say(torn, "c", "goes on") == len(found) + 1
            assert len(await lines(torn, "c")) == len(found) + 1
            ends.add(len(found))
        assert len(ends) > 1, "no cut made a difference, so nothing was torn"

    async def test_two_processes_on_one_storage_lose_nothing_and_leave_no_gap(self, log: Log) -> None:
        arguments = ("second", str(EACH_PROCESS_WRITES), "shared", "theirs")
        async with asyncio.timeout(PATIENCE_SECONDS):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "turnline.testing.second_writer", self.address(log), *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
            (told, _), _ = await asyncio.gather(
                process.communicate(b"go\n"), write(log, "first", EACH_PROCESS_WRITES, ["shared", "ours"])
            )

        assert told == b"done\n"
        shared = await lines(log, "shared")
        assert [e.seq for e in shared] == list(range(1, 2 * EACH_PROCESS_WRITES + 1))
        for name in ("first", "second"):
            mine = [e.envelope_id for e in shared if e.sender_id == name]
            assert mine == [f"{name}-{n}" for n in range(EACH_PROCESS_WRITES)]
        assert len(await lines(log, "ours")) == len(await lines(log, "theirs")) == EACH_PROCESS_WRITES

    async def test_the_tail_tells_what_another_process_appended(self, log: Log) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            told = asyncio.ensure_future(anext(aiter(log.tail())))
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    "turnline.testing.second_writer",
                    self.address(log),
                    "second",
                    "1",
                    "c",
                ),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            await process.communicate(b"go\n")
            head = await told

        assert (head.channel_id, head.seq) == ("c", 1)
