"""`stats`: what is counted, on every backend."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from turnline.log.memory import MemoryLog
from turnline.log.records import MemoryRecords
from turnline.log.stats import LARGEST, LogStats, stats
from turnline.testing.lines import NOON, closing_line, line

from .backends import KINDS, Place


async def counted(place: Place) -> LogStats:
    async with place.records() as records:
        return await stats(records)


@pytest.mark.parametrize("kind", KINDS)
async def test_channels_envelopes_bytes_types_and_times_are_counted(place: Place) -> None:
    later = replace(line("a", 2), created_at=NOON + timedelta(hours=1))
    async with place.log() as log:
        await log.append("a", [line("a", 1), later], after=0)
        await log.append("b", [closing_line("b", 1)], after=0)

    found = await counted(place)

    assert (found.open, found.closed, found.records) == (1, 1, 3)
    assert found.event_types == {"text": 2, "channel.closed": 1}
    assert (found.oldest, found.newest) == (NOON, NOON + timedelta(hours=1))
    assert found.bytes == sum(size.bytes for size in found.largest) > 0
    assert [size.channel_id for size in found.largest] == ["a", "b"]
    assert found.facts["durability"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_damaged_channel_is_counted_as_far_as_it_can_be_read(place: Place) -> None:
    async with place.log() as log:
        await log.append("a", [line("a", seq) for seq in (1, 2, 3)], after=0)
    place.damage("a", 2)

    found = await counted(place)

    assert (found.damaged, found.records) == (["a"], 1)


async def test_only_the_largest_channels_are_listed() -> None:
    log = MemoryLog()
    for number in range(LARGEST + 3):
        channel_id = f"c{number:02}"
        await log.append(channel_id, [line(channel_id, 1, data={"text": "x" * number})], after=0)

    found = await stats(MemoryRecords(log))

    assert [size.channel_id for size in found.largest] == [f"c{n:02}" for n in range(LARGEST + 2, 2, -1)]
