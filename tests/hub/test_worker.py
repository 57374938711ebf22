"""Who works on a turn, and whether that worker can still be alive."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from turnline.hub.worker import is_gone, is_near, join, leave, this_host, this_process


def test_a_worker_is_there_from_join_to_leave() -> None:
    worker = join("a place")
    assert worker == f"{this_process()}/a place"
    assert not is_gone(worker)

    leave(worker)
    assert is_gone(worker)


def test_a_worker_of_this_process_that_never_joined_is_gone() -> None:
    """It belongs to a hub that this process has closed, or to a fork."""
    assert is_gone(f"{this_process()}/nobody")


def test_of_another_host_nothing_is_known() -> None:
    assert not is_gone("another-host:1:1/a")


@pytest.mark.parametrize("mark", ["", "~00000000"])
def test_another_machine_or_container_of_the_same_name_is_another_host(mark: str) -> None:
    """Its process 1 lives, and is not the process 1 that is seen here."""
    worker = f"{socket.gethostname()}{mark}:1:1/a"

    assert not is_gone(worker)
    assert not is_near(worker)


def test_what_does_not_read_like_a_worker_is_not_said_to_be_gone() -> None:
    for name in ("", "worker", f"{this_host()}:x:y/z", this_host()):
        assert not is_gone(name)


def test_a_process_that_has_ended_is_gone_and_one_that_runs_is_not() -> None:
    code = "from turnline.hub.worker import this_process; print(this_process(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        worker = f"{other.stdout.readline().strip()}/a"
        assert not is_gone(worker)
        other.communicate("\n")

    assert is_gone(worker)


def test_a_process_number_that_was_given_to_another_process_is_gone() -> None:
    host, pid, _ = this_process().split(":")
    assert is_gone(f"{host}:{pid}:1/a")
