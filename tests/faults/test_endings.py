"""A process whose main ends without `hub.close()` ends within two seconds, whatever is in flight.

Real processes, three ways to end: main returns, main raises, Ctrl-C. Each is tried at many moments.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..nats_servers import NatsServer
from ..postgres import Postgres

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_SECONDS = 2.0
PATIENCE_SECONDS = 60.0
ENDINGS = ("return", "raise", "interrupt")
TRIES = 20
AT_ONCE = 2
EXIT_CODES = {"return": 0, "raise": 1, "interrupt": -signal.SIGINT}


def seconds_to_end(address: str, ending: str, number: int) -> float:
    """Start the program and end it a moment after it has begun; return how long it took to end."""
    moment = 0.02 * (number % TRIES)
    command = [sys.executable, "-m", "tests.faults.endings", address, ending, str(moment)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "begun\n"
            if ending == "interrupt":
                time.sleep(moment)  # The moment of the signal is what is tried.
                child.send_signal(signal.SIGINT)
            else:
                assert child.stdout.readline() == "ending\n"
            began = time.monotonic()
            child.communicate(timeout=PATIENCE_SECONDS)
        finally:
            child.kill()
        assert child.returncode == EXIT_CODES[ending]
        return time.monotonic() - began


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
