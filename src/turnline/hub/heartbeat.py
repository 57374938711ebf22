"""The heartbeat: a worker whose turn is silent for long says that it is alive.

    async with beating(renew, claim, sleep): ...  # a model call of ten minutes

Rule 1: whatever is written under a claim is a sign of life. Only a worker that has written
nothing for a third of its lease writes `turn.renewed`; a turn that is over sooner costs no line.

Rule 2: the heart beats in the event loop that does the work, on whichever side of a link. A
process that is stopped, or that hangs, is silent, and is replaced after its lease; what it
writes then is refused (T6).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from turnline.core.state import Claim
from turnline.errors import LogError, TurnlineError

logger = logging.getLogger(__name__)

BEATS_PER_LEASE: Final = 3
"""Two of them may be late before the worker is replaced."""

Renew = Callable[[int], Awaitable[int]]
"""See `Turns.renew`: given the last sign of life that is known, returns the one there is now."""
Sleep = Callable[[float], Awaitable[None]]


@asynccontextmanager
async def beating(renew: Renew, claim: Claim, sleep: Sleep) -> AsyncIterator[None]:
    """Within this, the worker of `claim` is heard of for as long as the claim lives."""
    task = asyncio.create_task(_beat(renew, claim, sleep))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _beat(renew: Renew, claim: Claim, sleep: Sleep) -> None:
    heard = claim.seq
    while True:
        await sleep(claim.lease_seconds / BEATS_PER_LEASE)
        try:
            heard = await renew(heard)
        except LogError as error:
            logger.warning("the claim of a turn could not be renewed: %s", error)
        except TurnlineError:
            return  # The turn is over for us; whoever works on it is told with the next line.
