"""X3: a small disk that is filled and freed costs appends while it is full, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.counts import FILLED, SMALL_DISKS
from tests.faults.full_disk_server import LOOKS, SPARE

ROOT = Path(__file__).parents[2]
ALONE = ("unshare", "--user", "--map-root-user", "--mount")
"""What is mounted below is seen by nobody else, needs no root, and is gone with the process."""
SMALL = "mount -t tmpfs -o size=8m turnline"


def why_not() -> str:
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return "a small disk is mounted with Linux's `unshare`; install util-linux"
    command = [*ALONE, "sh", "-c", f"{SMALL} /mnt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"nothing can be mounted here, allow user namespaces (docker: --privileged): {done.stderr}"
    return ""


WHY_NOT = why_not()

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def run_on_small_disk(module: str, folder: Path, *arguments: str) -> Any:
    """Return what a program prints that has a small disk of its own at `folder`."""
    program = f'{SMALL} "$0" && exec "$@"'
    harness = [sys.executable, "-m", f"tests.faults.{module}", str(folder), *arguments]
    command = [*ALONE, "sh", "-c", program, str(folder), *harness]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(folder: Path, times: int, kind: str) -> dict[str, Any]:
    report: dict[str, Any] = run_on_small_disk("full_disk", folder, str(times), kind)
    return report


@pytest.mark.parametrize("number", range(SMALL_DISKS))
def test_x3_a_full_disk_refuses_and_the_log_goes_on_when_there_is_room(tmp_path: Path, number: int) -> None:
    report = run(tmp_path, FILLED, "honest")

    assert report["problems"] == []
    assert report["refused"] == FILLED


def test_x3_twin_a_log_that_acknowledges_what_was_refused_is_caught(tmp_path: Path) -> None:
    report = run(tmp_path, 1, "deaf")

    assert "lost" in str(report["problems"])


def test_a_server_is_not_ready_while_appends_fail_on_a_full_disk(tmp_path: Path) -> None:
    """Also while there is room for a small write; and it is ready again as soon as there is room."""
    found = run_on_small_disk("full_disk_server", tmp_path)

    looks = [[503, True]] * LOOKS
    assert found == [{"looks": looks, "freed": 200, "refused_after": False}] * len(SPARE)
