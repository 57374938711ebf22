"""A server killed with SIGKILL after each line of a run that has everything in it (F7).

An agent with a tool, a person inside a for_each, a retry, rows in two tables: after a
restart the run ends as it ends when nobody is killed, every row is written once, and no
model reply and no tool result that was recorded is asked for again. With `durability: end` it is killed after
each append.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.faults.counts import SOAK
from tests.faults.flows import serve
from turnline.log.sqlite import SqliteLog

BODY: Final = {"customer": "Ann", "things": ["ball", "rope", "tent"]}
PATIENCE_SECONDS: Final = 60.0
TOO_LATE: Final = "the run ended before it was killed"
WOKEN_LINES: Final = 3 * len(BODY["things"])
"""A for_each is resumed, claimed and paused again: at most once for each child, at least once for all."""
KEY: Final = {"Idempotency-Key": "order-1", "Prefer": "respond-async"}

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.faults.flows", "turnline.flow.data.database"])


@dataclass
class Found:
    """A folder as a process left it."""

    lines: list[str]
    """Type and channel of every line of every run."""
    ledger: Counter[str]
    orders: list[tuple[str, str]]
    notes: list[str]
    ends: list[int]
    """After how many lines an append ended."""


@contextmanager
def server(
    folder: Path, durability: str, *, kill_at: int = 0, before: bool = False, torn: bool = False
) -> Iterator[int]:
    """A server that is dead at the latest when this is left; gives its port."""
    ours, theirs = _processes.Pipe()
    place, kill = (str(folder), theirs, durability), {"kill_at": kill_at, "before": before, "torn": torn}
    child = _processes.Process(target=serve, args=place, kwargs=kill, daemon=True)
    child.start()
    theirs.close()
    try:
        yield _port(ours, child)
    finally:
        child.kill()
        child.join()
        ours.close()


def _port(pipe: Any, child: BaseProcess) -> int:
    while not pipe.poll(0.05):
        if not child.is_alive():
            return 0
    try:
        return int(pipe.recv())
    except EOFError:  # Killed while it was starting: before anybody could call it.
        return 0


def drive(port: int) -> dict[str, Any] | None:
    """Do all that a caller and a person do, from the beginning; the run at its end, or None if it died."""
    if not port:
        return None
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as http:
            started = http.post("/orders", json=BODY, headers=KEY)
            assert started.status_code in (200, 202), started.text
            run_id = started.headers["x-run-id"]
            while True:
                # The list shows what is recorded. Reading the run itself records held steps.
                listed = http.get("/runs").json()["data"]["runs"]
                if any(
                    one["run_id"] == run_id and one["status"] in ("succeeded", "failed") for one in listed
                ):
                    run: dict[str, Any] = http.get(f"/runs/{run_id}").json()["data"]
                    return run
                for task in http.get("/tasks").json()["data"]["tasks"]:
                    answer = {"answer": {"ok": task["title"] != "rope?"}}
                    assert http.post(f"/tasks/{task['task_id']}/answer", json=answer).status_code in (
                        200,
                        409,
                    )
    except httpx2.TransportError:
        return None


def look(folder: Path) -> Found:
    ledger, ends = folder / "ledger", folder / "ends"
    lines = asyncio.run(_lines(folder))
    with sqlite3.connect(folder / "log.db") as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        orders = [name for name in tables if "order" in name.lower()]
        notes = [name for name in tables if "note" in name.lower()]
        found = Found(
            lines=lines,
            ledger=Counter(ledger.read_text().splitlines() if ledger.exists() else []),
            orders=[
                tuple(row)
                for name in orders
                for row in database.execute(f'SELECT customer, state FROM "{name}"')
            ],
            notes=[row[0] for name in notes for row in database.execute(f'SELECT text FROM "{name}"')],
            ends=list(accumulate(map(int, ends.read_text().split()))) if ends.exists() else [],
        )
    database.close()
    return found


async def _lines(folder: Path) -> list[str]:
    log = SqliteLog(folder / "log.db")
    try:
        runs = [head.channel_id for head in await log.channels() if not head.channel_id.startswith("_")]
        return [f"{one.event_type} {one.sender_id}" for run in runs async for one in log.read(run)]
    finally:
        await log.close()


def recorded(found: Found) -> set[str]:
    """What the agent has done that is on the log: it must not be done again."""
    done = set()
    if any(line.startswith("turn.model") for line in found.lines):
        done.add("model 1")
    if any(line.startswith("turn.tool") for line in found.lines):
        done.add("tool look_up")
    if "packet price" in found.lines:
        done.add("model 3")
    return done


def problems(folder: Path, durability: str, expected: dict[str, Any], **kill: Any) -> list[str]:
    """Kill the server once, start it again, and say everything that is not as it should be."""
    folder.mkdir()
    with server(folder, durability, **kill) as port:
        run = drive(port)
    if run is not None:
        return [TOO_LATE]
    before = look(folder)
    with server(folder, durability, torn=bool(kill.get("torn"))) as port:
        run = drive(port)
    after = look(folder)
    assert run is not None
    wrong = [
        f"{name} was recorded and done again"
        for name in recorded(before)
        if after.ledger[name] > before.ledger[name]
    ]
    wrong += [f"{name} was done {n} times" for name, n in after.ledger.items() if n > 2]
    if comparable(run) != comparable(expected):
        wrong.append(f"it came to {comparable(run)}")
    if (after.orders, after.notes) != ([("Ann", "done")], ["Ann pays 30"]):
        wrong.append(f"the rows are {after.orders} and {after.notes}")
    return wrong


def comparable(run: dict[str, Any]) -> Any:
    return run["status"], {key: value for key, value in run["data"].items() if key != "id"}


Undisturbed = tuple[str, dict[str, Any], Found]
"""The durability of the flow, the run at its end, and what it left."""


@pytest.fixture(scope="module", params=["step", "end"])
def undisturbed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    with server(folder, request.param) as port:
        run = drive(port)
    assert run is not None
    return request.param, run, look(folder)


def test_undisturbed_everything_is_done_once(undisturbed: Undisturbed) -> None:
    durability, run, found = undisturbed

    assert comparable(run) == (
        "succeeded",
        {
            **BODY,
            "price": 30,
            "answers": [{"ok": True}, {"ok": False}, {"ok": True}],
            "carrier": "late",
            "noted": True,
            "counted": 3,
        },
    )
    assert found.ledger == {"model 1": 1, "tool look_up": 1, "model 3": 1}
    assert (found.orders, found.notes) == ([("Ann", "done")], ["Ann pays 30"])
    assert found.ends[-1] - found.ends[-2] == (2 if durability == "step" else 4)


def test_f7_a_server_killed_after_any_line_of_a_run_goes_on_and_does_nothing_twice(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    durability, run, found = undisturbed
    wrong = {}
    places = range(1, len(found.lines)) if durability == "step" else found.ends[:-1]
    for trial in range(SOAK):
        for line in places:
            folder = tmp_path / f"{trial}-{line}"
            if problem := problems(folder, durability, run, kill_at=line):
                wrong[line] = problem

    # How often the for_each is woken by its children, one or several at a time, is a matter of timing.
    too_late = [line for line, problem in wrong.items() if problem == [TOO_LATE]]
    assert all(line > len(found.lines) - WOKEN_LINES for line in too_late)
    assert {line: problem for line, problem in wrong.items() if line not in too_late} == {}


@pytest.mark.parametrize("torn", [False, True])
def test_f7_a_kill_before_the_packet_of_a_step_that_wrote_a_row(
    tmp_path: Path, undisturbed: Undisturbed, torn: bool
) -> None:
    """With the twin's fault (rows and packet land one after the other) a row is there twice."""
    durability, run, _ = undisturbed

    wrong = problems(tmp_path / "killed", durability, run, kill_at=4, before=True, torn=torn)

    assert bool(wrong) is torn
