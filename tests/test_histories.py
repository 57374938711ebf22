"""X18: a recorded log opens, means what it meant, and its runs continue.

A failure says that the format of the log, or its meaning, has changed. If that is intended, record the
histories again in the same commit (`tests/histories/record.py`). After the first release that is no choice.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.cli.projects import call
from tests.flow.stage import stage
from tests.histories.record import (
    FILES,
    FOLDER,
    REFUND_FLOW,
    SCENES,
    WITH_WAL,
    clerk,
    look_up,
    open_file,
    played,
    read_states,
)
from tests.hub.scenes import House, house
from tests.waits import WAITS, help_out, join
from turnline.agent.messages import ToolMessage
from turnline.client.channel import Channel
from turnline.core.envelope import JsonObject
from turnline.log.sqlite import SqliteLog
from turnline.testing import ScriptedModel

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


# --- the files of SQLite logs, as a killed process leaves them (Y12) ---


@pytest.fixture
def copied(name: str, tmp_path: Path) -> Path:
    """Copy the files of a recorded log."""
    path = tmp_path / "log.db"
    for suffix in ("", "-wal"):
        if (kept := FOLDER / f"{name}.db{suffix}").exists():
            shutil.copyfile(kept, f"{path}{suffix}")
    return path


async def is_good(path: Path) -> bool:
    done = await asyncio.to_thread(call, "log", "verify", f"sqlite:///{path}")
    return (done.code, done.out.strip().endswith(": good.")) == (0, True)


async def end_lease(home: House, channel: Channel) -> None:
    """Pass time until the claim of the recorded worker is replaced.

    Here that worker is a process of another host: only its lease ends it, counted from when this hub saw it.
    """
    claim = (await channel.state()).claim
    while claim is not None and (await channel.state()).claim == claim:
        await home.pass_time(1)
        await asyncio.sleep(0)


def test_each_file_has_a_recording() -> None:
    assert {one.stem for one in FOLDER.glob("*.db")} == set(FILES)
    assert {one.stem for one in FOLDER.glob("*.db-wal")} == WITH_WAL


@pytest.mark.parametrize("name", sorted(FILES.keys() & WAITS.keys()))
async def test_a_recorded_file_with_a_wait_is_verified_and_its_conversation_ends(
    name: str, copied: Path
) -> None:
    assert await is_good(copied)
    wait, noted = WAITS[name], Counter[str]()
    async with open_file(copied) as log, house(log) as home:
        people = await join(home.door, name, lambda channel_id, what: noted.update([what]))
        channel = people["user"].channel(name)
        assert not (await channel.state()).is_over
        await end_lease(home, channel)
        while not (await channel.state()).is_over:
            await help_out(home.hub, people.values())
            await asyncio.sleep(0)
        result = await channel.result()

    assert (result.text, result.reason) == (wait.text, wait.reason)
    assert noted == {
        what: number for what, number in wait.done.items() if what != "ada 0"
    }  # That was before.
    assert await is_good(copied)


@pytest.mark.parametrize("name", ["turn"])
async def test_a_recorded_turn_in_flight_resumes_after_its_last_line(copied: Path) -> None:
    assert await is_good(copied)
    agent = clerk(model := ScriptedModel("Filed."))
    async with open_file(copied) as log, house(log, people=["user"]) as home:
        assert await log.load_snapshot("turn") is not None
        channel = home.people["user"].channel("turn")
        before = await channel.state()
        assert before.claim is not None
        await home.door.register(agent, attach_plugin=False)
        await end_lease(home, channel)
        while (state := await channel.state()).expected_next_speaker != home.people["user"].agent_id:
            await home.hub.wait_beyond("turn", state.seq)
        await channel.send("Thank you.")
        result = await channel.result()

    assert (result.reason, result.context_vars["desk"]) == ("sequence_complete", "billing")
    [request] = model.requests
    assert [one.text for one in request.messages if isinstance(one, ToolMessage)] == ["filed"]
    assert await is_good(copied)
