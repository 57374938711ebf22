"""F8: the copies of definitions on the log."""

from __future__ import annotations

import pytest

from turnline.errors import UnknownName
from turnline.flow.definition.flow import digest, read
from turnline.flow.definitions import Definitions
from turnline.hub.timers import sortable_ids
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

FLOW = read({"steps": [{"id": "a", "runner": "work", "timeout": "1m"}]}, name="main")


def definitions(log: MemoryLog) -> Definitions:
    clock = ManualClock()
    return Definitions(log, clock, sortable_ids(clock))


async def test_f8_a_definition_is_kept_once_and_found_by_its_content() -> None:
    log = MemoryLog()
    names = {await definitions(log).keep(FLOW) for _ in range(3)}

    assert names == {digest(FLOW.pinned())}
    assert [head.seq for head in await log.channels()] == [1]
    assert await definitions(log).get(names.pop()) == FLOW


async def test_f8_another_content_is_another_definition() -> None:
    log = MemoryLog()
    other = read({"steps": [{"id": "a", "runner": "work", "timeout": "2m"}]}, name="main")

    assert await definitions(log).keep(FLOW) != await definitions(log).keep(other)


async def test_f8_a_definition_that_was_never_kept_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        await definitions(MemoryLog()).get("nothing")


def test_f8_a_definition_reads_back_as_it_was_pinned() -> None:
    assert read(FLOW.pinned(), name="other") == FLOW
    assert digest(read(FLOW.pinned(), name="other").pinned()) == digest(FLOW.pinned())
