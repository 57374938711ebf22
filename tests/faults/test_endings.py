"""A process whose main ends without `hub.close()` ends within two seconds, whatever is in flight.

Real processes, three ways to end: main returns, main raises, Ctrl-C. Each is tried at many moments.

Two seconds on a clock would fail on a busy machine. Each process counts its own seconds instead: the timers
that it let run out after its main had ended, and its CPU time. What never ends, such as a thread that is
joined at exit, meets `HANG_SECONDS`. The one wait that a silent log could use up is pinned by its constant.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnline.hub.turns import LET_GO_SECONDS

from ..nats_servers import NatsServer
from ..postgres import Postgres

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_SECONDS = 2.0
HANG_SECONDS = 60.0
ENDINGS = ("return", "raise", "interrupt")
TRIES = 20
AT_ONCE = 2
EXIT_CODES = {"return": 0, "raise": 1, "interrupt": -signal.SIGINT}


def seconds_to_end(address: str, ending: str, number: int) -> float:
    """Start the program and end it a moment after it has begun; return the seconds that its end took."""
    moment = 0.02 * (number % TRIES)
    command = [sys.executable, "-m", "tests.faults.endings", address, ending, str(moment)]
    child = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert child.returncode == EXIT_CODES[ending], child.stderr
    return float(child.stdout)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_that_closes_nothing_ends_within_two_seconds(ending: str, tmp_path: Path) -> None:
    def attempt(number: int) -> float:
        return seconds_to_end(str(tmp_path / f"{number}.db"), ending, number)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        took = list(pool.map(attempt, range(TRIES)))

    assert max(took) < ENDS_WITHIN_SECONDS


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_on_postgres_that_closes_nothing_ends_within_two_seconds(
    ending: str, postgres: Postgres
) -> None:
    assert seconds_to_end(postgres.fresh(), ending, TRIES // 2) < ENDS_WITHIN_SECONDS


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_on_nats_that_closes_nothing_ends_within_two_seconds(
    ending: str, nats_server: NatsServer
) -> None:
    assert seconds_to_end(nats_server.fresh(), ending, TRIES // 2) < ENDS_WITHIN_SECONDS


def test_a_log_that_never_answers_leaves_a_process_enough_of_its_two_seconds() -> None:
    """Workers release their claims at the same time, so this is waited for once."""
    assert LET_GO_SECONDS <= ENDS_WITHIN_SECONDS / 4
