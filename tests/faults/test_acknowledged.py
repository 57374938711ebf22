"""The harness of X6 and X7 notices what it is there to notice."""

from __future__ import annotations

from tests.faults.acknowledged import Writers, wrongs
from turnline.log.memory import MemoryLog
from turnline.testing.lines import line


def test_what_is_lost_moved_doubled_or_left_out_is_noticed() -> None:
    found = [line("c", 1, envelope_id="a"), line("c", 2, envelope_id="b"), line("c", 3, envelope_id="a")]

    assert wrongs({"a": 1, "b": 2}, found[:2]) == []
    assert wrongs({"a": 1, "c": 3}, found[:2]) == ["c lost"]
    assert wrongs({"a": 2}, found[:2]) == ["a lost"]
    assert wrongs({"b": 2}, found) == ["something twice"]
    assert wrongs({"b": 2}, found[1:2]) == ["a gap"]


async def test_writers_of_a_whole_log_find_nothing_wrong_and_another_log_has_lost_all() -> None:
    log = MemoryLog()
    writers = Writers((log, log))
    async with writers.writing():
        await writers.go_on()

    assert writers.count >= 20
    assert await writers.wrongs(log) == []
    assert len(await writers.wrongs(MemoryLog())) == writers.count
