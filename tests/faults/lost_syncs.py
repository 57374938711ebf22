"""Records runs in which a sync fails. Run by `test_power.py`.

    python -m tests.faults.lost_syncs FOLDER SEED KIND EVERY    a folder in it for each run, with a record

The first run tells how many syncs there are; in each of the others one of every thread
fails; the first of every EVERY is tried. This process forks, and has no log of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.faults import strace
from tests.faults.record import OPTIONS
from tests.faults.scribe import Orders
from tests.faults.strace import Trace

SYNC: Final = "fdatasync"
APPENDS: Final = 4


def record(folder: Path, seed: int, kind: str, number: int) -> Path:
    """Return the record of a run in which the sync of this number fails; none, if it is 0."""
    place = folder / str(number)
    place.mkdir()
    inject = ["-e", f"inject={SYNC}:error=EIO:when={number}"] if number else []
    orders = Orders(path=str(place / "log.db"), seed=seed, kind=kind, appends=APPENDS)
    strace.run(orders, Trace(place / "record", [*OPTIONS, *inject], gates=range(2)))
    return place / "record"


def syncs(path: Path) -> int:
    """Return how many syncs there were in a thread that had the most."""
    threads = [text.split()[0] for text in path.read_text().splitlines() if f" {SYNC}(" in text]
    return max(map(threads.count, threads))


def main(folder: Path, seed: int, kind: str, every: int) -> None:
    for number in range(1, syncs(record(folder, seed, kind, 0)) + 1, every):
        record(folder, seed, kind, number)


if __name__ == "__main__":
    where, start, which, step = sys.argv[1:]
    main(Path(where), int(start), which, int(step))
