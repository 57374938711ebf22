"""Pages of records become envelopes in order, and nothing that is missing goes unnoticed (E5)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from turnline.core.codec import NO_HASH, SALT_BYTES, Record, seal_all
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord
from turnline.log.pages import NOTHING, READ_FIRST, Page, in_order
from turnline.testing.lines import line
from turnline.threads import BIG_BYTES


def records(many: int, **data: Any) -> list[Record]:
    lines = [line("c", seq, data=data or None) for seq in range(1, many + 1)]
    return seal_all(lines, NO_HASH, salt=bytes(SALT_BYTES))


class Threads(ThreadPoolExecutor):
    """Counts what is done in a thread."""

    done = 0

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        self.done += 1
        return super().submit(*args, **kwargs)


async def read(kept: list[Record], *, end: int, size: int = 2, after: int = 0) -> list[Envelope]:
    """What is read of records that are kept, so many on a page."""

    async def ask(channel_id: str, after: int) -> Page:
        assert channel_id == "c"
        behind = [one for one in kept if one.seq > after]
        previous = next((one.hash for one in kept if one.seq == after), NO_HASH)
        return Page(records=behind[:size], more=len(behind) > size, end=end, previous=previous)

    return [one async for one in in_order("c", ask, after=after)]


@pytest.mark.parametrize("size", [1, 2, 5, 6])
async def test_pages_of_any_size_are_the_same_envelopes(size: int) -> None:
    assert await read(records(5), end=5, size=size) == [line("c", seq) for seq in range(1, 6)]
    assert await read(records(5), end=5, size=size, after=3) == [line("c", 4), line("c", 5)]


@pytest.mark.parametrize("gone", [1, 2, 3, 4, 5])
async def test_e5_a_record_that_is_missing_anywhere_is_missed(gone: int) -> None:
    kept = [one for one in records(5) if one.seq != gone]
    with pytest.raises(CorruptRecord, match="missing") as missed:
        await read(kept, end=5)

    assert missed.value.seq == gone


async def test_a_head_that_was_read_too_early_costs_nothing() -> None:
    """Somebody appended between the head and the page."""
    assert len(await read(records(3), end=1)) == 3


async def test_nothing_has_no_envelopes() -> None:
    async def ask(channel_id: str, after: int) -> Page:
        return NOTHING

    assert [one async for one in in_order("c", ask, after=0)] == []


async def test_long_pages_are_decoded_in_a_thread_and_short_ones_and_first_lines_are_not() -> None:
    with Threads(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        await read(records(100), end=100, size=50)
        after_short = threads.done
        large = records(READ_FIRST + 4, text="x" * (BIG_BYTES // 8))
        await read(large[:READ_FIRST], end=READ_FIRST, size=50)
        after_first = threads.done
        found = await read(records(20, text="x" * (BIG_BYTES // 8)), end=20, size=50)

        assert [one.seq for one in found] == [*range(1, 21)]
        assert (after_short, after_first, threads.done) == (0, 0, 1)


@pytest.mark.parametrize("bad", [2, 15])
async def test_e5_what_stands_before_a_damaged_record_is_read_wherever_it_is_decoded(bad: int) -> None:
    kept = records(20, text="x" * (BIG_BYTES // 8))
    kept[bad - 1] = Record(bad, "other", b"", b"")
    found: list[int] = []

    async def ask(channel_id: str, after: int) -> Page:
        return Page(records=kept, more=False, end=20, previous=NO_HASH)

    async def read_on() -> None:
        async for one in in_order("c", ask, after=0):
            found.append(one.seq)

    with pytest.raises(CorruptRecord) as damage:
        await read_on()

    assert (damage.value.seq, found) == (bad, [*range(1, bad)])
