"""SIGKILL in each step of a run with `durability: end`: exactly which steps are done again."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.faults.durability import RUN, STEPS, take
from turnline.log.sqlite import SqliteLog

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.faults.durability"])

STEP_MODE: Final = {name: {name} for name in STEPS}
"""Killed in a step -> the steps that are done twice, with `durability: step`: that one."""
END_MODE: Final = {
    "one": {"one"},
    "two": {"one", "two"},
    "outside": {"outside"},
    "four": {"four"},
    "five": {"four", "five"},
}
"""The same with `durability: end`: the pure steps before it, back to the last record."""


def run_process(
    folder: Path, durability: str, kill_in: str = "", *, kill_call: int = 1, is_held: bool = False
) -> bool:
    """Take the run in a process of its own; return whether it lived to the end."""
    arguments = (str(folder), durability, kill_in, kill_call, is_held)
    child = _processes.Process(target=take, args=arguments)
    child.start()
    child.join()
    return child.exitcode == 0


def ledger(folder: Path) -> Counter[str]:
    return Counter((folder / "ledger").read_text().splitlines())


async def lines(folder: Path) -> dict[str, list[str]]:
    log = SqliteLog(folder / "log.db")
    try:
        runs = [head.channel_id for head in await log.channels() if not head.channel_id.startswith("_")]
        return {run: [one.event_type async for one in log.read(run)] for run in runs}
    finally:
        await log.close()


@pytest.mark.parametrize("kill_in", STEPS)
@pytest.mark.parametrize(("durability", "repeated"), [("step", STEP_MODE), ("end", END_MODE)])
def test_a_kill_repeats_the_steps_since_the_last_record_and_no_other(
    tmp_path: Path, durability: str, repeated: dict[str, set[str]], kill_in: str
) -> None:
    lived = [run_process(tmp_path, durability, kill_in), run_process(tmp_path, durability, kill_in)]

    found = asyncio.run(lines(tmp_path))
    assert lived == [False, True]
    assert {name for name, calls in ledger(tmp_path).items() if calls == 2} == repeated[kill_in]
    assert max(ledger(tmp_path).values()) == 2
    assert (found[RUN].count("packet"), found[RUN][-1]) == (len(STEPS), "channel.closed")


def test_a_run_that_was_never_recorded_never_existed(tmp_path: Path) -> None:
    lived = run_process(tmp_path, "end", "two", is_held=True)

    assert not lived
    assert not (tmp_path / "answer").exists()
    assert asyncio.run(lines(tmp_path)) == {}


def test_a_held_run_is_on_the_log_before_it_does_something_outside(tmp_path: Path) -> None:
    lived = run_process(tmp_path, "end", "outside", is_held=True)

    [found] = asyncio.run(lines(tmp_path)).values()
    assert not lived
    assert found.count("packet") == STEPS.index("outside")


def test_the_log_says_which_of_the_held_steps_kills_its_process(tmp_path: Path) -> None:
    """A turn that is taken up again is recorded by itself, so an innocent one is not blamed (N3)."""
    for _ in range(3):
        run_process(tmp_path, "end", "five", kill_call=99)

    found = asyncio.run(lines(tmp_path))[RUN]
    assert found.count("packet") == STEPS.index("five")
    assert ledger(tmp_path) == {"one": 1, "two": 1, "outside": 1, "four": 2, "five": 3}
