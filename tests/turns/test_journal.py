"""N4: `once` runs a function, records its result, and after a crash returns the record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum
from functools import partial
from typing import Any

import pytest

from tests.hub.scenes import FailingLog, quiet
from turnline.agent.performer import current_call
from turnline.core import event_types as ev
from turnline.core.claims import MAX_ONCE_UNITS
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.json import MAX_BYTES
from turnline.errors import LogUnavailable, OnceKeyReused, OnceRefused
from turnline.hub.retry import RETRY_SECONDS
from turnline.log.joined import Transaction
from turnline.log.memory import MemoryLog
from turnline.turns.journal import TurnJournal
from turnline.turns.work import Done, Paused, Work

from ..core.scenes import line
from .scenes import Scene, engaged


class Lines:
    """What a journal has recorded, and what a later journal reads."""

    def __init__(self) -> None:
        self.lines: list[Envelope] = []
        self.ran: list[str] = []
        self.may_write = asyncio.Event()
        self.may_write.set()

    def journal(self) -> TurnJournal:
        """The journal of the next performance."""
        return TurnJournal(self.lines, self.record)

    async def record(self, event_type: str, data: JsonObject, *, within: Transaction | None = None) -> None:
        await self.may_write.wait()
        self.lines.append(line(ev.HUB, event_type, data, seq=len(self.lines) + 1))

    def running(self, name: str, result: Any = None) -> Callable[[], Any]:
        """A function that notes that it ran."""

        def run() -> Any:
            self.ran.append(name)
            return result

        return run


async def test_a_later_performance_gets_the_recorded_result_and_runs_nothing() -> None:
    log = Lines()

    first = await log.journal().once("charge", log.running("first", {"id": 7}))
    second = await log.journal().once("charge", log.running("second", {"id": 8}))

    assert (first, second, log.ran) == ({"id": 7}, {"id": 7}, ["first"])
    assert [one.event_data for one in log.lines] == [{"key": "charge", "result": {"id": 7}}]


@pytest.mark.parametrize("result", [None, False, 0, "", [], {}])
async def test_an_empty_result_is_a_result(result: Any) -> None:
    log = Lines()
    await log.journal().once("k", lambda: result)

    assert await log.journal().once("k", log.running("again", 1)) == result
    assert log.ran == []


async def test_an_async_function_runs_on_the_loop_and_a_sync_one_does_not_block_it() -> None:
    async def on_loop() -> int:
        return threading.get_ident()

    def awaited(function: Callable[[], Any]) -> Any:
        return function()

    journal = Lines().journal()

    assert await journal.once("async", on_loop) == threading.get_ident()
    assert await journal.once("sync", threading.get_ident) != threading.get_ident()
    assert await journal.once("given", lambda: awaited(on_loop)) == threading.get_ident()


async def test_the_caller_gets_its_own_copy_of_what_reads_back() -> None:
    class Level(IntEnum):
        HIGH = 3

    given = {"level": Level.HIGH}
    journal = Lines().journal()

    got = await journal.once("k", lambda: given)
    got["more"] = 1

    assert type(got["level"]) is int
    assert given == {"level": Level.HIGH}


# --- keys ---


async def test_a_key_is_used_once_in_a_performance() -> None:
    log = Lines()
    journal = log.journal()
    await journal.once("charge", log.running("first"))

    with pytest.raises(OnceKeyReused, match="'charge'") as raised:
        await journal.once("charge", log.running("second"))

    assert (raised.value.key, log.ran) == ("charge", ["first"])


async def test_a_recorded_key_is_used_once_in_a_performance_too() -> None:
    log = Lines()
    await log.journal().once("charge", lambda: 1)
    resumed = log.journal()
    await resumed.once("charge", lambda: 2)

    with pytest.raises(OnceKeyReused):
        await resumed.once("charge", lambda: 3)


async def test_a_key_in_use_is_refused_while_its_function_runs() -> None:
    journal, entered, go = Lines().journal(), asyncio.Event(), asyncio.Event()

    async def wait() -> int:
        entered.set()
        await go.wait()
        return 1

    first = asyncio.create_task(journal.once("k", wait))
    await entered.wait()
    with pytest.raises(OnceKeyReused):
        await journal.once("k", lambda: 2)
    go.set()

    assert await first == 1


async def test_a_function_that_raised_has_used_no_key() -> None:
    journal = Lines().journal()
    with pytest.raises(ZeroDivisionError):
        await journal.once("k", lambda: 1 / 0)

    assert await journal.once("k", lambda: 2) == 2


@pytest.mark.parametrize("key", ["", "x" * (ev.MAX_NAME_CHARACTERS + 1), "two\nlines", 7])
async def test_what_is_not_a_key_is_refused_before_the_function_runs(key: Any) -> None:
    log = Lines()
    for once in (log.journal().once, log.journal().once_for("1.1")):
        with pytest.raises(OnceRefused, match="printable text of 1 to"):
            await once(key, log.running("ran"))

    assert (log.ran, log.lines) == ([], [])


async def test_the_keys_of_a_call_are_its_own_and_each_attempt_finds_the_results() -> None:
    log = Lines()
    journal = log.journal()
    first, other = journal.once_for("1.1"), journal.once_for("1.2")
    got = [await first("k", lambda: 1), await other("k", lambda: 2), await journal.once("k", lambda: 3)]
    again = journal.once_for("1.1")

    assert got == [1, 2, 3]
    assert await again("k", log.running("again")) == 1
    assert log.ran == []
    with pytest.raises(OnceKeyReused):
        await again("k", lambda: 4)
    assert [one.event_data["key"] for one in log.lines] == ["1.1/k", "1.2/k", "k"]


# --- what can be recorded ---


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (datetime(2030, 1, 1, tzinfo=UTC), "result is a datetime"),
        ({"rows": [{"at": (1, 2)}]}, r"result\.rows\[0\]\.at is a tuple"),
        ({1: 2}, "string keys"),
        (float("nan"), "NaN"),
        ("x" * MAX_BYTES, f"at most {MAX_BYTES}"),
    ],
)
async def test_a_result_that_is_not_json_is_refused_with_its_place(result: Any, found: str) -> None:
    log = Lines()

    with pytest.raises(OnceRefused, match=found) as raised:
        await log.journal().once("k", lambda: result)

    assert "expected" in str(raised.value)
    assert "Return plain JSON" in str(raised.value)
    assert log.lines == []


async def test_a_turn_with_the_most_results_runs_no_further_function() -> None:
    log = Lines()
    journal = log.journal()
    for number in range(MAX_ONCE_UNITS):
        await journal.once(f"k{number}", _nothing)

    with pytest.raises(OnceRefused, match=str(MAX_ONCE_UNITS)):
        await journal.once("more", log.running("ran"))
    assert log.ran == []
    assert await log.journal().once("k0", log.running("ran")) is None


async def _nothing() -> None:
    pass


async def test_a_coroutine_in_place_of_a_function_is_refused() -> None:
    given = _nothing()
    with pytest.raises(OnceRefused, match="a coroutine was given"):
        await Lines().journal().once("k", given)  # type: ignore[arg-type]
    given.close()


# --- several at once, and cancelled ones ---


async def test_functions_with_different_keys_run_at_the_same_time() -> None:
    log = Lines()
    journal, meet = log.journal(), asyncio.Barrier(3)

    async def wait() -> int:
        await meet.wait()
        return 1

    results = await asyncio.gather(*(journal.once(key, wait) for key in "abc"))

    assert results == [1, 1, 1]
    assert sorted(one.event_data["key"] for one in log.lines) == ["a", "b", "c"]


async def test_a_cancelled_function_records_nothing() -> None:
    log, entered = Lines(), asyncio.Event()

    async def hang() -> None:
        entered.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(log.journal().once("k", hang))
    await entered.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert (task.cancelled(), log.lines) == (True, [])


async def test_a_result_is_recorded_although_the_performance_is_cancelled_meanwhile() -> None:
    log, ran = Lines(), asyncio.Event()
    log.may_write.clear()
    journal = log.journal()

    async def charge() -> int:
        ran.set()
        return 1

    task = asyncio.create_task(journal.once("k", charge))
    await ran.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    log.may_write.set()
    await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()
    assert [one.event_data["result"] for one in log.lines] == [1]
    assert await journal.once("k", log.running("again")) == 1
    assert log.ran == []


async def test_a_cancelled_performance_ends_after_its_result_is_recorded() -> None:
    """Otherwise the engine would release the claim first, and the record would be refused."""
    log, ran = Lines(), asyncio.Event()
    log.may_write.clear()

    async def charge() -> int:
        ran.set()
        return 1

    task = asyncio.create_task(log.journal().once("k", charge))
    await ran.wait()
    await asyncio.sleep(0)
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    log.may_write.set()
    await asyncio.gather(task, return_exceptions=True)

    assert len(log.lines) == 1


async def test_what_the_function_writes_into_the_context_is_marked_as_its_own() -> None:
    """The marks are those that the fold looks for (`core.fold`)."""
    log, marks = Lines(), list[str]()

    async def mark() -> None:
        marks.append(current_call.get())

    await log.journal().once("k", mark)
    current_call.set("c1")
    await log.journal().once_for("1.1")("k", mark)
    await mark()

    assert marks == ["#k", "c1#1.1/k", "c1"]
    assert [one.event_data.get("call") for one in log.lines] == [None, "c1"]


async def test_a_result_that_could_not_be_recorded_is_not_returned() -> None:
    async def away(event_type: str, data: JsonObject, *, within: Transaction | None = None) -> None:
        raise LogUnavailable("memory:", because="it is away")

    journal = TurnJournal((), away)
    with pytest.raises(LogUnavailable):
        await journal.once("k", lambda: 1)
    with pytest.raises(OnceKeyReused):  # It may be on the log. The next performance reads whether it is.
        await journal.once("k", lambda: 1)


# --- in the engine ---


async def test_after_a_pause_and_a_restart_the_engine_gives_the_recorded_results() -> None:
    ran = list[str]()

    def note(key: str) -> int:
        ran.append(key)
        return 1

    async def perform(work: Work) -> Done | Paused:
        journal = TurnJournal(work.lines, work.record)
        total = sum([await journal.once(key, partial(note, key)) for key in "ab"])
        if work.speaker == "one" and not any(one.event_type == ev.EV_TIMER_FIRED for one in work.lines):
            return Paused(reason="retry" if total else "time", seconds=60)
        return Done(data={"body": str(total)})

    log = MemoryLog()
    async with engaged(log, perform) as scene:
        channel_id = await scene.open()
        await scene.paused(channel_id)
    async with engaged(log, perform) as scene:
        await scene.home.pass_time(60)
        await scene.ended(channel_id)
        lines = await scene.lines(channel_id)

    assert ran == ["a", "b", "a", "b"]  # Two turns, each of them once.
    assert [one.event_data["body"] for one in lines if one.event_type == ev.EV_PACKET] == ["2", "2"]
    assert {tuple(one.audience or ()) for one in lines if one.event_type == ev.EV_TURN_ONCE} == {()}


async def test_a_function_runs_once_although_the_log_is_away_when_its_result_is_recorded() -> None:
    log, ran = FailingLog(), list[str]()

    async def run(speaker: str) -> None:
        if speaker not in ran:
            log.fail_append = LogUnavailable("memory:", because="it is away")
        ran.append(speaker)

    async def perform(work: Work) -> Done:
        await TurnJournal(work.lines, work.record).once("k", partial(run, work.speaker))
        return Done(data={"body": "done"})

    async with engaged(log, perform) as scene:
        log.fails_on = channel_id = await scene.open()
        ending = asyncio.create_task(scene.ended(channel_id))
        while not ending.done():
            await quiet()
            scene.home.clock.advance(RETRY_SECONDS)
        await ending

    assert ran == ["one", "two"]


async def test_nobody_but_the_worker_is_shown_a_result() -> None:
    async def perform(work: Work) -> Done:
        await TurnJournal(work.lines, work.record).once("k", lambda: "canary")
        return Done(data={"body": "done"})

    async with engaged(MemoryLog(), perform) as scene:
        channel_id = await scene.open()
        await scene.ended(channel_id)
        shown = await _read(scene, channel_id)

    assert "canary" not in str(shown)
    assert "done" in str(shown)


async def _read(scene: Scene, channel_id: str) -> list[Envelope]:
    return (await scene.home.people["ann"].seat.read(channel_id, 0)).envelopes


async def test_a_performance_that_is_stopped_while_it_records_is_not_repeated() -> None:
    """The engine releases the claim only after the result is on the log."""
    ran, entered = list[str](), asyncio.Event()

    async def perform(work: Work) -> Done:
        await TurnJournal(work.lines, work.record).once("k", lambda: ran.append(work.speaker))
        entered.set()
        if work.speaker == "one" and len(ran) == 1:
            await asyncio.Event().wait()
        return Done(data={"body": "done"})

    log = MemoryLog()
    async with engaged(log, perform) as scene:
        channel_id = await scene.open()
        await entered.wait()
    ran.append("restart")
    async with engaged(log, perform) as scene:
        await scene.ended(channel_id)

    assert ran == ["one", "restart", "two"]
