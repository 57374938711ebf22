"""Run the sides of a comparison in turn, each in a process of its own. What slows one slows all.

    SIDES = {"Turnline": ours, "LangGraph": theirs}
    if __name__ == "__main__":
        peers.compare(__file__, SIDES, unit="step", aim=1.5)

A side is a function that takes a folder and returns a `Taken`. It imports what it measures by itself: the
interpreter of the peers has no Turnline. That interpreter is the first argument of the script, and
`./run bench --compare` makes it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Final, TypedDict

ROUNDS: Final = 5
OURS: Final = "Turnline"


class Taken(TypedDict):
    """Seconds and CPU, of all threads, for one unit of work."""

    seconds: float
    cpu: float


Side = Callable[[Path], Taken]


def measure(run: Callable[[int], object], *, units: int, warm_up: int) -> Taken:
    """Return what one unit takes, after `warm_up` units that are not counted."""
    run(warm_up)
    wall, cpu = time.perf_counter(), time.process_time()
    run(units)
    return {"seconds": (time.perf_counter() - wall) / units, "cpu": (time.process_time() - cpu) / units}


def compare(script: str, sides: Mapping[str, Side], *, unit: str, aim: str) -> None:
    """Run all sides in turn and print medians, the ratios last; or be one side, if the arguments name it."""
    if sys.argv[1:2] and sys.argv[1] in sides:
        print(json.dumps(sides[sys.argv[1]](Path(sys.argv[2]))))
        return
    python = sys.argv[1] if len(sys.argv) > 1 else ""
    taken: dict[str, list[Taken]] = {}
    for _ in range(ROUNDS):
        for name in sides:
            if is_ours(name) or python:
                with tempfile.TemporaryDirectory() as folder:
                    command = [sys.executable if is_ours(name) else python, script, name, folder]
                    taken.setdefault(name, []).append(json.loads(subprocess.check_output(command)))
    show({name: _median(runs) for name, runs in taken.items()}, unit, aim)
    if not python:
        print("the peers are not measured; `./run bench --compare` installs them")


def is_ours(name: str) -> bool:
    return name.startswith(OURS)


def show(medians: Mapping[str, Taken], unit: str, aim: str) -> None:
    for name, one in medians.items():
        rate = f"{1 / one['seconds']:9,.0f} {unit}s/s"
        print(f"{name:24}{rate}   {one['cpu'] * 1e3:8.3f} ms of CPU a {unit}")
    for name, one in medians.items():
        for other, theirs in medians.items():
            if is_ours(name) and not is_ours(other):
                print(
                    f"{name} to {other}: {theirs['seconds'] / one['seconds']:.2f} times its {unit}s/s, "
                    f"{theirs['cpu'] / one['cpu']:.2f} times by CPU ({aim})"
                )


def _median(runs: list[Taken]) -> Taken:
    return {
        "seconds": median(one["seconds"] for one in runs),
        "cpu": median(one["cpu"] for one in runs),
    }
