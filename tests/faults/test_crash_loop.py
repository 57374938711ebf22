"""N3: a process that dies again and again ends no conversation but the one that kills it.

Real processes, real deaths: nothing is paced so that a limit does not bite.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnline.core.claims import MAX_CLAIMS

ROOT = Path(__file__).parents[2]
LIVES = 20
KILLS = 12
KILL_SECONDS = 0.45
PATIENCE_SECONDS = 120.0


def start(
    log: Path,
    count: int,
    poison: str = "",
    kind: str = "honest",
    *,
    program: str = "crash_loop",
    **environ: str,
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"tests.faults.{program}", str(log), str(count), poison, kind]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}
    )


def start_flows(log: Path, count: int, poison: str, kind: str, **environ: str) -> subprocess.Popen[str]:
    return start(log, count, poison, kind, program="crash_flows", **environ)


def ends_of(said: str) -> dict[str, str]:
    pairs = (line.split() for line in said.splitlines() if line != "begun")
    return {channel_id: reason for channel_id, reason in pairs}


def live_until_settled(
    log: Path, count: int, poison: str, kind: str = "honest", program: str = "crash_loop"
) -> tuple[int, dict[str, str]]:
    """Start the program until it ends by itself; return how often it died, and how each channel ended."""
    for deaths in range(LIVES):
        child = start(log, count, poison, kind, program=program)
        said, _ = child.communicate(timeout=PATIENCE_SECONDS)
        if child.returncode == 0:
            return deaths, ends_of(said)
    pytest.fail(f"the program died {LIVES} times")


def kill_after_a_moment(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    try:
        child.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
    child.communicate()


def test_one_poisonous_turn_among_twenty_is_stuck_and_the_others_end_well(tmp_path: Path) -> None:
    deaths, ends = live_until_settled(tmp_path / "log.db", 20, "c7")

    assert ends.pop("c7") == "stuck"
    assert set(ends.values()) == {"sequence_complete"}
    assert (len(ends), deaths) == (19, 5)


def test_the_twin_whose_suspects_run_together_ends_innocent_conversations(tmp_path: Path) -> None:
    _, ends = live_until_settled(tmp_path / "log.db", 20, "c7", "crowded")

    assert list(ends.values()).count("stuck") > 1


def test_forty_conversations_survive_a_kill_every_moment(tmp_path: Path) -> None:
    for _ in range(KILLS):
        kill_after_a_moment(start(tmp_path / "log.db", 40))

    deaths, ends = live_until_settled(tmp_path / "log.db", 40, "")

    assert set(ends.values()) == {"sequence_complete"}
    assert (len(ends), deaths) == (40, 0)


# --- flows ---


def test_one_poisonous_run_among_twenty_is_stuck_and_the_others_succeed(tmp_path: Path) -> None:
    deaths, ends = live_until_settled(tmp_path / "log.db", 20, "r7", "alone", "crash_flows")

    assert ends.pop("r7") == "stuck"
    assert set(ends.values()) == {"succeeded"}
    assert (len(ends), deaths) == (19, 5)


def test_forty_runs_survive_a_kill_every_moment(tmp_path: Path) -> None:
    for _ in range(KILLS):
        kill_after_a_moment(start_flows(tmp_path / "log.db", 40, "", "alone"))

    deaths, ends = live_until_settled(tmp_path / "log.db", 40, "", "alone", "crash_flows")

    assert set(ends.values()) == {"succeeded"}
    assert (len(ends), deaths) == (40, 0)


def test_deploys_during_a_long_step_end_no_run(tmp_path: Path) -> None:
    """More of them than a turn has claims."""
    for _ in range(2 * MAX_CLAIMS):
        child = start_flows(tmp_path / "log.db", 5, "", "alone", WORK_SECONDS="3600")
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=PATIENCE_SECONDS)
        assert child.returncode == 0

    deaths, ends = live_until_settled(tmp_path / "log.db", 5, "", "alone", "crash_flows")

    assert set(ends.values()) == {"succeeded"}
    assert (len(ends), deaths) == (5, 0)


def test_one_poisonous_run_kills_two_processes_of_one_log_and_no_other_run_ends(tmp_path: Path) -> None:
    """Each process that dies is started again, as a supervisor does."""
    log, settled = tmp_path / "log.db", list[dict[str, str]]()

    def supervise() -> None:
        settled.append(live_until_settled(log, 20, "r7", "beside", "crash_flows")[1])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: supervise(), range(2)))

    for ends in settled:
        assert ends.pop("r7") == "stuck"
        assert set(ends.values()) == {"succeeded"}
        assert len(ends) == 19
