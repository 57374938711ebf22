"""X18: a recorded log opens, means what it meant, and its runs continue.

A failure says that the format of the log, or its meaning, has changed. If that is intended, record the
histories again in the same commit (`tests/histories/record.py`). After the first release that is no choice.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.cli.projects import call
from tests.flow.stage import stage
from tests.histories.record import FOLDER, REFUND_FLOW, SCENES, look_up, played, read_states
from turnline.core.envelope import JsonObject
from turnline.log.sqlite import SqliteLog

HISTORIES = sorted(one for one in FOLDER.glob("*.jsonl") if not one.name.endswith(".states.jsonl"))


def name_of(history: Path) -> str:
    return history.stem


def recorded(history: Path) -> list[JsonObject]:
    lines = history.with_suffix(".states.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


@pytest.fixture
def imported(history: Path, tmp_path: Path) -> Path:
    """Import the history as an operator does."""
    path = tmp_path / "log.db"
    done = call("log", "import", str(history), f"sqlite:///{path}")
    assert done.code == 0, done.err
    return path


def lost(then: object, now: object, at: str = "") -> list[str]:
    """List what is missing or different now. A new field of the state is no loss."""
    if isinstance(then, dict) and isinstance(now, dict):
        return [
            place for key, value in then.items() for place in lost(value, now.get(key, "gone"), f"{at}.{key}")
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [place for number, (one, other) in pairs for place in lost(one, other, f"{at}.{number}")]
    return [] if type(then) is type(now) and then == now else [f"{at}: {then!r} is {now!r}"]


def format_of(lines: list[JsonObject]) -> Counter[tuple[str, ...]]:
    """Count the lines of each format: the event type, the fields, the keys of the data."""
    return Counter(
        (one["event_type"], *sorted(one), *(f"event_data.{key}" for key in sorted(one.get("event_data", {}))))
        for one in (each["line"] for each in lines)
    )


def test_each_scene_has_a_recording() -> None:
    assert {one.stem for one in HISTORIES} == set(SCENES)


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_a_history_is_imported_and_verified(imported: Path) -> None:
    verified = call("log", "verify", f"sqlite:///{imported}")

    assert (verified.code, verified.out.strip().endswith(": good.")) == (0, True), verified.out


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
async def test_a_history_is_read_and_folds_as_it_did(history: Path, imported: Path) -> None:
    log = SqliteLog(imported)
    try:
        now = [msgspec.json.decode(msgspec.json.encode(one)) async for one in read_states(log)]
    finally:
        await log.close()

    assert [one["line"] for one in recorded(history)] == [one["line"] for one in now]
    known = set(recorded(history)[0]["changed"])  # The first line of a channel makes all of its state.
    for then, found in zip(recorded(history), now, strict=True):
        place = f"{then['channel']} line {then['line']['seq']}"
        assert lost(then, found) == [], place
        assert known & set(found["changed"]) <= set(then["changed"]), f"{place} changes what it did not"


@pytest.mark.parametrize("history", [FOLDER / "person.jsonl"], ids=name_of)
async def test_a_recorded_run_that_waited_continues(imported: Path) -> None:
    log = SqliteLog(imported)
    try:
        async with stage(
            REFUND_FLOW, log=log, look_up=look_up, pay_back=lambda ctx: {"paid": ctx["amount"]}
        ) as house:
            task = await house.task()
            await house.tasks.answer(task.task_id, {"approved": True}, by="sam")
            verdict = await house.ended(task.run_id)
    finally:
        await log.close()

    assert (task.run_id, task.title) == ("refund-2", "Pay 19.9 back?")
    assert (verdict.status, verdict.data["paid"]) == ("succeeded", 19.9)


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
async def test_lines_are_written_today_in_the_recorded_format(history: Path) -> None:
    _, states = await played(history.stem)

    now = [msgspec.json.decode(one) for one in states.splitlines()]
    assert format_of(now) == format_of(recorded(history))
