"""F7: `kill -9` leaves a step's rows and its packet, or neither; and the harness would notice a tear."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
KILLS: Final = 30 * (20 if os.environ.get("TURNLINE_SOAK") else 1)
STATEMENTS: Final = 10
"""At least: BEGIN, three rows, a savepoint, the packet and the channel's head, COMMIT."""


def run(folder: Path, kind: str, way: str, kills: int = 0) -> dict[str, Any]:
    """Run the harness in a process of its own, because it forks."""
    command = [sys.executable, "-m", "tests.flow.data.kill", str(folder), kind, str(kills), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_f7_killed_before_any_statement_a_step_leaves_nothing_and_killed_behind_the_last_all(
    tmp_path: Path,
) -> None:
    report = run(tmp_path, "statements", "together")

    assert report["torn"] == []
    assert report["kills"] >= STATEMENTS
    assert report["landed"] == 1, "only the one that was not killed"


def test_f7_killed_at_any_moment_steps_leave_both_or_neither(tmp_path: Path) -> None:
    report = run(tmp_path, "moments", "together", KILLS)

    assert report["torn"] == []
    assert report["kills"] == KILLS
    assert report["landed"] > KILLS


def test_twin_two_commits_are_torn_by_a_kill_between_them(tmp_path: Path) -> None:
    report = run(tmp_path, "moments", "apart", KILLS)

    assert report["torn"] != []
