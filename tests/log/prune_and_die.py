"""A process that prunes a log and is killed at one of its steps.

    python -m tests.log.prune_and_die PATH ARCHIVE STEP [BYTES]

BYTES is the size of the largest file that can be written, in the place of a full disk. A step is a question
for the time, or a moment before or after a call of the log that changes something.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from turnline.log.base import Tombstone
from turnline.log.pruning import Pruner, finish_pruning, plan_trees
from turnline.log.records import looking_at_log
from turnline.log.sqlite import SqliteLog

LATER = datetime(2031, 1, 1, tzinfo=UTC)


class Steps:
    """Counts steps; the process ends at one of them."""

    def __init__(self, last: int) -> None:
        self._left = last

    def take(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def now(self) -> datetime:
        self.take()
        return LATER


class DyingLog(SqliteLog):
    """A log whose process may end around each change."""

    def __init__(self, path: str, steps: Steps) -> None:
        super().__init__(path, durability="process")
        self._steps = steps

    async def prune(self, tombstones: Sequence[Tombstone]) -> None:
        self._steps.take()
        await super().prune(tombstones)
        self._steps.take()

    async def delete_pruned(self, *, limit: int) -> int:
        self._steps.take()
        deleted = await super().delete_pruned(limit=2)
        self._steps.take()
        return deleted


async def main(path: str, archive: str, last: int) -> None:
    steps = Steps(last)
    log = DyingLog(path, steps)
    await finish_pruning(log)
    trees, _, _ = await plan_trees(log, before=LATER, labels={}, most=100)
    pruner = Pruner(log, partial(looking_at_log, log.address, log), now=steps.now)
    for tree in trees:
        await pruner.prune([tree], Path(archive))
    await log.close()


if __name__ == "__main__":
    for size in sys.argv[4:]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
