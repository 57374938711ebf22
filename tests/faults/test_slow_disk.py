"""A disk whose syncs are slow: the event loop waits for one of them, and the thread for all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import strace
from tests.faults.scribe import Orders
from tests.faults.strace import Trace

DELAY_MICROSECONDS = 60_000
SYNCS_OF_A_FIRST_COMMIT = 3
"""Of the folder, of the header of the -wal file, and of what was appended."""
WHY_NOT = strace.why_not()

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def test_the_loop_waits_for_one_slow_sync_and_leaves_the_next_ones_to_the_thread(quick_folder: Path) -> None:
    path, out = quick_folder / "log.db", quick_folder / "calls"
    slow = ["-e", "trace=fdatasync", "-e", f"inject=fdatasync:delay_enter={DELAY_MICROSECONDS}"]
    orders = Orders(path=str(path), seed=1, commits="measured", closes=False)
    told = strace.run(orders, Trace(out, [*strace.files(path), *slow], gates=range(1, 2)))
    threads = [call.thread for call in strace.calls(out, told)]

    assert told.said[-1] == "done"
    assert threads == sorted(threads)
    assert 1 <= threads.count("loop") <= SYNCS_OF_A_FIRST_COMMIT
    assert threads.count("writer") >= 3
