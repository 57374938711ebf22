"""N4: processes whose turns consist of units are killed with SIGKILL at random moments, and started again.

No unit that is on the log runs again; only the one in flight does. Every run ends, with every result. Nothing
is paced: three deaths without a record in between make a turn a suspect, which then waits and runs alone.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import select
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.faults.counts import ONCE_KILLS, ONCE_KILLS_OF_THE_TWIN, seed
from tests.faults.once import EFFECTS, KINDS, LOG, UNITS, live
from turnline.core import event_types as ev
from turnline.log.sqlite import SqliteLog

MANY_RUNS: Final = 10_000
MOST_LINES: Final = 16
"""Of the runs of one process, until it is killed: two runs at most."""
MOMENT_SECONDS: Final = 0.004
PATIENCE_SECONDS: Final = 120.0

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.faults.once"])


@dataclass
class Found:
    """A folder as a process left it."""

    ran: Counter[str] = field(default_factory=Counter)
    """Unit -> how often it ran."""
    recorded: Counter[str] = field(default_factory=Counter)
    """Unit -> how often it is on the log."""
    open_runs: list[str] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    """Run -> what its packets say."""


def start(folder: Path, kind: str, runs: int, *, forgetful: bool) -> tuple[BaseProcess, int]:
    """Start a process; return it and the end of the pipe that it writes to."""
    ours, theirs = _processes.Pipe(duplex=False)
    child = _processes.Process(target=live, args=(str(folder), kind, runs, forgetful, theirs), daemon=True)
    child.start()
    theirs.close()
    reading = os.dup(ours.fileno())
    ours.close()
    return child, reading


def kill(folder: Path, kind: str, random: Random, *, forgetful: bool) -> None:
    """Start a process, and kill it a moment after it has written so many lines."""
    child, pipe = start(folder, kind, MANY_RUNS, forgetful=forgetful)
    said, wanted = 0, random.randint(0, MOST_LINES)
    while said < wanted:
        ready, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
        more = os.read(pipe, 65536) if ready else b""
        assert more, f"the process wrote {said} lines in {PATIENCE_SECONDS} s, or ended by itself"
        said += len(more)
    select.select([], [], [], random.random() * MOMENT_SECONDS)
    child.kill()
    child.join()
    os.close(pipe)


def finish(folder: Path, kind: str, runs: int) -> None:
    """Let a process take the runs to their end."""
    child, pipe = start(folder, kind, runs, forgetful=False)
    child.join(PATIENCE_SECONDS)
    os.close(pipe)
    assert child.exitcode == 0


async def look(folder: Path) -> Found:
    path = folder / EFFECTS
    found = Found(ran=Counter(path.read_text().splitlines() if path.exists() else []))
    log = SqliteLog(folder / LOG)
    try:
        for head in await log.channels():
            if head.channel_id.startswith("r"):
                await _look_at(log, head.channel_id, found)
    finally:
        await log.close()
    return found


async def _look_at(log: SqliteLog, run: str, found: Found) -> None:
    said, is_over, speaker = list[str](), False, ""
    async for line in log.read(run):
        if line.event_type == ev.EV_TURN_CLAIMED:
            speaker = "" if line.event_data["agent_id"] == "only" else f"-{line.event_data['agent_id']}"
        if line.event_type == ev.EV_TURN_ONCE:
            found.recorded[f"{run}{speaker} {line.event_data['key']}"] += 1
        if line.event_type == ev.EV_PACKET:
            said.append(str(line.event_data.get("body") or line.event_data["context_updates"]["total"]))
        is_over = is_over or line.event_type == ev.EV_CHANNEL_CLOSED
    if is_over:
        found.ended[run] = " ".join(said)
    else:
        found.open_runs.append(run)


def problems(before: Found, now: Found) -> list[str]:
    """What a process did that it should not have done."""
    ran = now.ran - before.ran
    wrong = [f"{unit} was recorded and ran again" for unit in before.recorded.keys() & ran.keys()]
    wrong += [f"{unit} ran {n} times in one process" for unit, n in ran.items() if n > 1]
    wrong += [f"{unit} is recorded {n} times" for unit, n in now.recorded.items() if n > 1]
    wrong += [f"{unit} is recorded and never ran" for unit in now.recorded.keys() - now.ran.keys()]
    return wrong


def torment(folder: Path, kind: str, kills: int, random: Random, *, forgetful: bool = False) -> list[str]:
    """Kill and start again; return everything that was wrong."""
    wrong, before = list[str](), Found()
    for _ in range(kills):
        kill(folder, kind, random, forgetful=forgetful)
        now = asyncio.run(look(folder))
        wrong += problems(before, now)
        before = now
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_n4_of_killed_processes_no_recorded_unit_runs_again_and_every_run_ends(
    tmp_path: Path, kind: str
) -> None:
    wrong = torment(tmp_path, kind, ONCE_KILLS, Random(seed(KINDS.index(kind))))
    before = asyncio.run(look(tmp_path))
    runs = len(before.ended) + len(before.open_runs)
    finish(tmp_path, kind, runs)
    after = asyncio.run(look(tmp_path))

    assert wrong + problems(before, after) == []
    assert after.open_runs == []
    assert len(after.ended) == runs
    assert set(after.ended.values()) == {"5 5" if kind == "performer" else "5"}
    assert len(after.recorded) == sum(after.recorded.values()) == runs * _units_of(kind)


def _units_of(kind: str) -> int:
    return len(UNITS) * (2 if kind == "performer" else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_harness_notices_a_journal_that_does_not_read_what_was_recorded(
    tmp_path: Path, kind: str
) -> None:
    wrong = torment(tmp_path, kind, ONCE_KILLS_OF_THE_TWIN, Random(9), forgetful=True)

    assert any("was recorded and ran again" in one for one in wrong)
