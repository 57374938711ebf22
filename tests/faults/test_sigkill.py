"""X1, R1: whatever was acknowledged survives SIGKILL, whole; and the harness would notice if it did not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.faults.counts import KILLS, KILLS_OF_THE_TWIN, seed

ROOT = Path(__file__).parents[2]
SEED = seed(20300101)


def run(folder: Path, kills: int, kind: str) -> dict[str, Any]:
    """Run the harness in a process of its own, because it forks."""
    command = [sys.executable, "-m", "tests.faults.sigkill", str(folder), str(kills), str(SEED), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_nothing_acknowledged_is_lost_and_nothing_is_halved(tmp_path: Path) -> None:
    report = run(tmp_path, KILLS, "honest")

    assert report["problems"] == []
    assert report["kills"] == KILLS
    assert report["acknowledged"] > KILLS


def test_twin_a_log_that_acknowledges_before_the_commit_is_caught(tmp_path: Path) -> None:
    report = run(tmp_path, KILLS_OF_THE_TWIN, "hasty")

    assert "acknowledged" in str(report["problems"])
