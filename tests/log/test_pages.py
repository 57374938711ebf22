"""Pages of records become envelopes in order, and nothing that is missing goes unnoticed (E5)."""

from __future__ import annotations

import pytest

from turnline.core.codec import NO_HASH, SALT_BYTES, Record, seal_all
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord
from turnline.log.pages import NOTHING, Page, in_order
from turnline.testing.lines import line


def records(many: int) -> list[Record]:
    return seal_all([line("c", seq) for seq in range(1, many + 1)], NO_HASH, salt=bytes(SALT_BYTES))


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
