"""X18: what earlier versions wrote opens, means what it meant, and goes on.

A change that breaks one of these changes the past of everybody's log. Write an upcaster, or leave the
meaning as it is; a history is never recorded anew.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli.projects import call
from tests.flow.stage import stage
from tests.histories.record import FOLDER, REFUND_FLOW, SCENES, VERSION, look_up, played, read_states
from turnline.core.envelope import JsonObject
from turnline.log.sqlite import SqliteLog

HISTORIES = sorted(one for one in FOLDER.glob("*/*.jsonl") if not one.name.endswith(".states.jsonl"))


def name_of(history: Path) -> str:
    return f"{history.parent.name}/{history.stem}"


def recorded(history: Path) -> list[JsonObject]:
    lines = history.with_suffix(".states.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


@pytest.fixture
def imported(history: Path, tmp_path: Path) -> Path:
    """The history on a log of this version, brought there as an operator does."""
    path = tmp_path / "log.db"
    done = call("log", "import", str(history), f"sqlite:///{path}")
    assert done.code == 0, done.err
    return path


def lost(then: object, now: object, at: str = "") -> list[str]:
    """What was there then and is not, or is different, now. What this version adds is no loss."""
    if isinstance(then, dict) and isinstance(now, dict):
        return [
            place for key, value in then.items() for place in lost(value, now.get(key, "gone"), f"{at}.{key}")
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [place for number, (one, other) in pairs for place in lost(one, other, f"{at}.{number}")]
    return [] if type(then) is type(now) and then == now else [f"{at}: {then!r} is {now!r}"]


def test_x18_this_version_has_recorded_what_it_writes() -> None:
    assert {one.stem for one in HISTORIES if one.parent.name == VERSION} == set(SCENES)


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
def test_x18_a_history_is_imported_and_verified(imported: Path) -> None:
    verified = call("log", "verify", f"sqlite:///{imported}")

    assert (verified.code, verified.out.strip().endswith(": good.")) == (0, True), verified.out


@pytest.mark.parametrize("history", HISTORIES, ids=name_of)
async def test_x18_a_history_is_read_and_folds_as_it_did(history: Path, imported: Path) -> None:
    log = SqliteLog(imported)
    try:
        now = [msgspec.json.decode(msgspec.json.encode(one)) async for one in read_states(log)]
    finally:
        await log.close()

    assert [(one["channel"], one["line"]["seq"]) for one in recorded(history)] == [
        (one["channel"], one["line"]["seq"]) for one in now
    ]
    known = set(recorded(history)[0]["changed"])  # The first line of a channel makes all of its state.
    for then, found in zip(recorded(history), now, strict=True):
        place = f"{then['channel']} line {then['line']['seq']}"
        assert lost(then, found) == [], place
        assert known & set(found["changed"]) <= set(then["changed"]), f"{place} changes what it did not"


@pytest.mark.parametrize("history", sorted(FOLDER.glob("*/person.jsonl")), ids=name_of)
async def test_x18_a_run_that_waited_goes_on(imported: Path) -> None:
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


async def test_x18_the_scenes_still_play_as_they_were_recorded() -> None:
    """Else the next version could not be recorded by the same script."""
    _, states = await played("routed")

    then = [one["line"]["event_type"] for one in recorded(FOLDER / VERSION / "routed.jsonl")]
    assert [msgspec.json.decode(one)["line"]["event_type"] for one in states.splitlines()] == then
