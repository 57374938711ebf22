"""X4: a power cut takes nothing along that was acknowledged, and leaves a log that goes on.

One run is recorded; from its record are made the disks that a cut at any moment may leave.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tests.faults import scribe, strace
from tests.faults.counts import (
    POWER_CUTS,
    POWER_CUTS_AFTER_A_LOST_SYNC,
    POWER_CUTS_OF_A_TWIN,
    POWER_CUTS_OF_THE_LOOP,
)
from tests.faults.power import image, lay_out
from tests.faults.record import OPTIONS, Event, NotSynced, Synced, events
from tests.faults.scribe import Commits, Orders
from turnline.log.sqlite_file import Durability

ROOT = Path(__file__).parents[2]
SEED = 20300101
WHY_NOT = strace.why_not()

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def recorded(
    folder: Path, durability: Durability, *, kind: str = "honest", commits: Commits = "thread"
) -> list[Event]:
    """Let a scribe write for two sessions, to a folder that is not there yet; return what happened."""
    orders = Orders(
        path=str(folder / "new" / "log.db"),
        seed=SEED,
        kind=kind,
        durability=durability,
        commits=commits,
        sessions=2,
        appends=8,
        at_once=True,
    )
    program = [sys.executable, "-m", "tests.faults.scribe", msgspec.json.encode(orders).decode()]
    command = ["strace", "-f", "--seccomp-bpf", *OPTIONS, "-o", str(folder / "record"), *program]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"done", done.stdout
    return events(folder / "record")


async def problems(happened: Sequence[Event], folder: Path, keep: Path, cuts: int) -> list[str]:
    """Return what is wrong with the disks that so many cuts leave; those are kept, as they were."""
    found = []
    for seed in range(SEED, SEED + cuts):
        left = image(happened, seed)
        place = folder / str(seed)
        lay_out(left, place)
        wrong = await scribe.problems(place / "log.db", scribe.acknowledged(left.said))
        if wrong:
            kept = keep / f"{folder.name}-{seed}"
            lay_out(left, kept)
            found += [f"{text} (seed {seed}, see {kept}; acknowledged: {left.said})" for text in wrong]
    return found


@pytest.mark.parametrize("commits", get_args(Commits))
async def test_x4_nothing_acknowledged_is_lost_and_the_log_goes_on(
    quick_folder: Path, tmp_path: Path, commits: Commits
) -> None:
    happened = recorded(quick_folder, "power", commits=commits)
    cuts = POWER_CUTS if commits == "thread" else POWER_CUTS_OF_THE_LOOP

    assert await problems(happened, quick_folder, tmp_path, cuts) == []


async def test_x4_twin_a_log_that_does_not_sync_its_commits_loses_some_but_stays_whole(
    quick_folder: Path,
) -> None:
    happened = recorded(quick_folder, "process")
    found = await problems(happened, quick_folder, quick_folder, POWER_CUTS_OF_A_TWIN)

    assert {text.partition(":")[0] for text in found} == {"lost"}


async def test_x4_twin_a_disk_that_syncs_nothing_is_caught(quick_folder: Path) -> None:
    happened = [event for event in recorded(quick_folder, "power") if not isinstance(event, Synced)]
    found = await problems(happened, quick_folder, quick_folder, POWER_CUTS_OF_A_TWIN)

    assert {text.partition(":")[0] for text in found} >= {"lost", "damaged"}


def lost_syncs(folder: Path, kind: str, *, every: int = 1) -> list[Path]:
    """Return the records of runs in which a sync of a file failed.

    One of a folder is left out: SQLite does not look at its answer.
    """
    command = [sys.executable, "-m", "tests.faults.lost_syncs", str(folder), str(SEED), kind, str(every)]
    subprocess.run(command, cwd=ROOT, check=True)
    records = sorted(folder.glob("*/record"))
    lost = {record: [e.path for e in events(record) if isinstance(e, NotSynced)] for record in records}
    return [record for record, paths in lost.items() if paths and not {str(record.parent)} & {*paths}]


async def test_x4_a_sync_that_failed_is_not_relied_on(quick_folder: Path, tmp_path: Path) -> None:
    """A kernel that could not write a page may forget it, and say of the next sync that all is well."""
    records = lost_syncs(quick_folder, "honest")

    assert len(records) >= 10
    for record in records:
        assert await problems(events(record), record.parent, tmp_path, POWER_CUTS_AFTER_A_LOST_SYNC) == []


async def test_x4_twin_a_log_that_repeats_a_sync_is_caught(quick_folder: Path) -> None:
    found = []
    for record in lost_syncs(quick_folder, "stubborn", every=8):
        found += await problems(events(record), record.parent, quick_folder, POWER_CUTS_AFTER_A_LOST_SYNC)

    assert {text.partition(":")[0] for text in found} == {"lost"}
