"""What pruning must do on every log (Y3): a tombstone hides a channel, and only its own lines undo it.

`LogContract` has these tests.
"""

# ruff: noqa: PLR2004  A test counts what it wrote.

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from turnline.core.channel import ChannelFilter, ChannelState
from turnline.core.codec import SALT_BYTES, Kept, seal
from turnline.core.envelope import Envelope
from turnline.errors import ArchiveDiffers, ChannelPruned, LogConflict, OriginInUse
from turnline.log.base import Erases, Head, Log, Prunes, Snapshots, Tombstone
from turnline.log.chain import Chain
from turnline.testing.lines import NOON, closing_line, erased_line, first_line, line, lines, refusal, row

MANY: Final = 600
"""Lines, more than one step deletes."""
STEP: Final = 250


def keep_all(envelopes: Sequence[Envelope]) -> tuple[list[Kept], Tombstone]:
    """Return lines with their bytes, and the tombstone of the channel that ends with them."""
    chain = Chain(envelopes[0].channel_id)
    kept = [chain.keep(seal(one, chain.hash, salt=bytes(SALT_BYTES))) for one in envelopes]
    return kept, Tombstone(channel_id=chain.channel_id, seq=chain.seq, hash=chain.hash, pruned_at=NOON)


def closed_channel(channel_id: str, length: int = 3) -> tuple[list[Kept], Tombstone]:
    said = [line(channel_id, seq) for seq in range(1, length)]
    return keep_all([*said, closing_line(channel_id, length)])


async def delete_all(log: Prunes) -> int:
    """Delete what is left of pruned channels; return how many lines that were."""
    deleted = 0
    while step := await log.delete_pruned(limit=STEP):
        deleted += step
    return deleted


class PruneContract:
    """The tests; every method's name is a rule of `turnline.log.base.Prunes`."""

    async def test_a_pruned_channel_is_gone_and_its_id_is_kept(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        assert isinstance(log, Snapshots)
        entry = row("c", seq=2, closed_at=NOON, status=ChannelState.CLOSED, labels={"team": "red"})
        said, tombstone = keep_all([first_line(entry), closing_line("c", 2)])
        await log.append("c", said, after=0, row=entry)
        await log.append("d", [line("d", 1)], after=0)
        await log.save_snapshot("c", seq=2, body=b"state")

        await log.prune([tombstone])

        for _ in range(2):  # Before its lines are deleted, and after that.
            assert await lines(log, "c") == []
            assert await log.head("c") is None
            assert await log.row("c") is None
            assert await log.find("c", "c-2") is None
            assert await log.load_snapshot("c") is None
            assert [head.channel_id for head in await log.channels()] == ["d"]
            assert await log.channels(closed=True) == []
            assert await log.rows(ChannelFilter(labels={"team": "red"}), limit=9) == []
            assert await log.without_row(limit=9) == ["d"]
            assert await log.tombstone("c") == tombstone
            assert await log.tombstone("d") is None
            await delete_all(log)

    async def test_nothing_is_written_to_a_pruned_channel(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("c")
        await log.append("c", said, after=0)
        await log.prune([tombstone])

        for _ in range(2):  # Before its lines are deleted, and after that.
            pruned = await refusal(ChannelPruned, log.append("c", [line("c", 1, envelope_id="new")], after=0))
            assert pruned.name == "c"
            late = erased_line("c", 4, (1, 2))
            await refusal(ChannelPruned, log.append("c", [late], after=3))
            if isinstance(log, Erases):
                await refusal(ChannelPruned, log.erase("c", late, after=3, row=None))
            assert await log.head("c") is None
            await delete_all(log)

    async def test_lines_of_pruned_channels_are_deleted_in_steps(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("long", MANY)
        await log.append("long", said, after=0)
        short, other = closed_channel("short")
        await log.append("short", short, after=0)
        assert await log.delete_pruned(limit=STEP) == 0

        await log.prune([tombstone, other])

        assert await delete_all(log) == MANY + 3
        assert await log.delete_pruned(limit=STEP) == 0
        assert len(await log.tombstones(limit=9)) == 2

    async def test_a_channel_that_does_not_end_as_its_tombstone_says_stays(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("c")
        await log.append("c", said, after=0)
        await log.append("c", [erased_line("c", 4, (1, 1))], after=3)
        open_lines, of_open = keep_all([line("open", 1)])
        await log.append("open", open_lines, after=0)
        forged = Tombstone(channel_id="c", seq=4, hash=bytes(32), pruned_at=NOON)

        assert (await refusal(LogConflict, log.prune([tombstone]))).found == 4
        await refusal(LogConflict, log.prune([forged]))
        await refusal(LogConflict, log.prune([of_open]))

        assert (await log.tombstones(limit=9), await log.delete_pruned(limit=STEP)) == ([], 0)
        assert [head.seq for head in await log.channels()] == [4, 1]

    async def test_a_channel_that_a_fork_reads_stays(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("c")
        await log.append("c", said, after=0)
        forked, of_fork = closed_channel("x-fork")
        entry = row("x-fork", seq=3, origin="c", closed_at=NOON, status=ChannelState.CLOSED)
        await log.append("x-fork", forked, after=0, row=entry)

        error = await refusal(OriginInUse, log.prune([tombstone]))
        assert (error.channel_id, error.fork) == ("c", "x-fork")
        assert await log.head("c") is not None

        await log.prune([of_fork, tombstone])
        assert await log.channels() == []

    async def test_no_fork_begins_on_a_pruned_channel(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("c")
        await log.append("c", said, after=0)
        await log.prune([tombstone])

        late = log.append("x-fork", [line("x-fork", 1)], after=0, row=row("x-fork", origin="c"))
        assert (await refusal(ChannelPruned, late)).name == "c"
        assert await log.head("x-fork") is None

    async def test_tombstones_are_kept_once_and_listed_by_id(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("b")
        await log.append("b", said, after=0)
        erased = [(1, 2), (4, 9)]
        foreign = Tombstone(channel_id="a", seq=9, hash=b"\1" * 32, pruned_at=NOON, erased=erased)

        await log.prune([tombstone, foreign])
        await log.prune([Tombstone(channel_id="b", seq=1, hash=bytes(32), pruned_at=NOON)])

        assert await log.tombstones(limit=9) == [foreign, tombstone]
        assert await log.tombstones(limit=1) == [foreign]
        assert await log.tombstones(after="a", limit=9) == [tombstone]
        await refusal(ChannelPruned, log.append("a", [line("a", 1)], after=0))

    async def test_a_restored_channel_has_the_same_bytes_and_no_tombstone(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("c", MANY)
        await log.append("c", said, after=0)
        await log.prune([tombstone])
        await log.delete_pruned(limit=STEP)  # Some lines are there when it begins.

        await log.restore("c", said[:400], after=0)

        assert (await log.head("c"), await lines(log, "c")) == (None, [])
        assert await log.tombstone("c") == tombstone
        await refusal(ChannelPruned, log.append("c", [line("c", 1)], after=0))
        assert (await refusal(LogConflict, log.restore("c", said[500:], after=500))).found == 400

        await log.restore("c", said[400:], after=400)

        assert await log.tombstone("c") is None
        found = await lines(log, "c")
        assert [one.envelope_id for one in found] == [one.envelope_id for one in said]
        head = await log.head("c")
        assert head is not None
        assert (head.seq, head.closed) == (MANY, True)
        assert await log.delete_pruned(limit=STEP) == 0
        assert await log.find("c", f"c-{MANY}") is not None
        await log.prune([tombstone])  # It ends with the same hash, and can be pruned again.
        assert await log.head("c") is None

    async def test_a_restore_that_was_left_begins_again(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("c", 9)
        await log.append("c", said, after=0)
        await log.prune([tombstone])
        await log.restore("c", said[:4], after=0)
        assert await delete_all(log) >= 4

        await log.restore("c", said[:5], after=0)
        await log.restore("c", said[:6], after=0)
        await log.restore("c", said[6:], after=6)

        assert len(await lines(log, "c")) == 9

    async def test_only_the_lines_that_were_pruned_are_restored(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("c")
        await log.append("c", said, after=0)
        other, _ = keep_all([line("c", 1, data={"text": "forged"}), line("c", 2), closing_line("c", 3)])
        longer, _ = closed_channel("c", 4)
        await refusal(ArchiveDiffers, log.restore("never", closed_channel("never")[0], after=0))
        await log.prune([tombstone])

        await refusal(ArchiveDiffers, log.restore("c", other, after=0))
        await refusal(ArchiveDiffers, log.restore("c", longer, after=0))

        assert (await log.head("c"), await log.tombstone("c")) == (None, tombstone)
        await log.restore("c", said, after=0)
        assert len(await lines(log, "c")) == 3

    async def test_the_tail_tells_of_a_pruned_channel(self, log: Log) -> None:
        assert isinstance(log, Prunes)
        said, tombstone = closed_channel("c")
        await log.append("c", said, after=0)
        told: asyncio.Queue[Head] = asyncio.Queue()

        async def follow() -> None:
            async for head in log.tail():
                await told.put(head)

        following = asyncio.create_task(follow())
        try:
            async with asyncio.timeout(60):
                assert (await told.get()).seq == 3
                await log.prune([tombstone])
                head = await told.get()
                assert (head.channel_id, head.is_pruned) == ("c", True)
                await log.append("d", [line("d", 1)], after=0)
                while (head := await told.get()).channel_id != "d":
                    assert head.is_pruned
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
