"""X2 and X3: a log is killed at every call by which it changes its files, and every one fails once.

Killed: what was acknowledged is there, and nothing is halved. Failed: an append is refused and the
outage told, or the append is there; and the same process goes on when the storage does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.faults import strace
from tests.faults.counts import ROUNDS_OF_CALLS
from tests.faults.scribe import Commits

ROOT = Path(__file__).parents[2]
SEED = 20300101
SEEDS = range(SEED, SEED + ROUNDS_OF_CALLS)
MANY: dict[Commits, int] = {"thread": 150, "loop": 50}
"""Calls; a run has some more."""
WHY_NOT = strace.why_not()

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

Report = dict[str, Any]


def reports(
    folder: Path,
    *faults: str,
    kind: str = "honest",
    seed: int = SEED,
    commits: Commits = "thread",
    every: int = 1,
) -> list[Report]:
    """Run a harness for each fault, in processes of their own, because they fork."""
    running = []
    for fault in faults:
        place = folder / fault
        place.mkdir()
        command = [
            sys.executable,
            "-m",
            "tests.faults.syscalls",
            str(place),
            fault,
            str(seed),
            kind,
            commits,
            str(every),
        ]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT))
    told = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(faults)
    return [json.loads(text) for text in told]


@pytest.mark.parametrize("commits", get_args(Commits))
@pytest.mark.parametrize("seed", SEEDS)
def test_x2_nothing_acknowledged_is_lost_whichever_call_it_is_killed_at(
    quick_folder: Path, seed: int, commits: Commits
) -> None:
    [report] = reports(quick_folder, "kill", seed=seed, commits=commits)

    assert (report["in_loop"] > 0) is (commits == "loop")
    assert report["problems"] == []
    assert report["missed"] == []
    assert report["calls"] >= MANY[commits]


@pytest.mark.parametrize("commits", get_args(Commits))
@pytest.mark.parametrize("seed", SEEDS)
def test_x3_a_call_that_fails_refuses_an_append_at_most_and_the_log_goes_on(
    quick_folder: Path, seed: int, commits: Commits
) -> None:
    for report in reports(quick_folder, "EIO", "ENOSPC", seed=seed, commits=commits):
        assert report["problems"] == []
        assert report["missed"] == []
        assert report["unfinished"] == []
        assert report["calls"] >= MANY[commits]
        assert 0 < report["refused"] < report["calls"]


def test_x2_twin_a_log_that_acknowledges_before_the_commit_is_caught(quick_folder: Path) -> None:
    [report] = reports(quick_folder, "kill", kind="hasty", every=8)

    assert "lost" in str(report["problems"])


def test_x3_twin_a_log_that_acknowledges_what_was_refused_is_caught(quick_folder: Path) -> None:
    [report] = reports(quick_folder, "EIO", kind="deaf", every=8)

    assert "lost" in str(report["problems"])
