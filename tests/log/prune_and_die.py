"""A process that prunes a log and is killed at one of its steps.

    python -m tests.log.prune_and_die ADDRESS ARCHIVE STEP [BYTES]

BYTES is the size of the largest file that can be written, in the place of a full disk. A step is a question
for the time, or a moment before or after a call of the log that changes something. On NATS, where such a call
is several messages, it is also a moment before or after each of these.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

from turnline.log.address import open_log
from turnline.log.base import Prunes
from turnline.log.nats_connection import Connection
from turnline.log.pruning import Pruner, finish_pruning, plan_trees
from turnline.log.records import looking_at_log

LATER = datetime(2031, 1, 1, tzinfo=UTC)
FEW_LINES = 2
"""Deleted by one step."""

Call = Callable[..., Awaitable[object]]


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

    def around(self, owner: object, name: str, **fixed: object) -> None:
        """Let the process end before or after each call of a method."""
        setattr(owner, name, self._stepped(getattr(owner, name), fixed))

    def _stepped(self, call: Call, fixed: dict[str, object]) -> Call:
        async def stepped(*args: object, **named: object) -> object:
            self.take()
            done = await call(*args, **{**named, **fixed})
            self.take()
            return done

        return stepped


async def main(address: str, archive: str, last: int) -> None:
    steps, numbers = Steps(last), count(1)
    log = open_log(address)
    assert isinstance(log, Prunes)
    await log.channels(limit=1)
    for name in ("append", "prune"):
        steps.around(log, name)
    steps.around(log, "delete_pruned", limit=FEW_LINES)
    steps.around(Connection, "publish")
    await finish_pruning(log)
    trees, _, _ = await plan_trees(log, before=LATER, labels={}, most=100)
    opened = partial(looking_at_log, address, log)
    pruner = Pruner(log, opened, now=steps.now, new_id=lambda: f"{last}-{next(numbers)}")
    for tree in trees:
        await pruner.prune([tree], Path(archive))
    await log.close()


if __name__ == "__main__":
    for size in sys.argv[4:]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
