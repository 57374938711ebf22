"""The heartbeat: a worker whose turn is silent for long says that it is alive.

    async with beating(hub, channel_id, claim): ...  # a model call of ten minutes

Rule 1: whatever is written under a claim is a sign of life. Only a worker that has written
nothing for a third of its lease writes `turn.renewed`; a turn that is over sooner costs no line.

Rule 2: the heart beats in the event loop that does the work. A process that is stopped, or that
hangs, is silent, and is replaced after its lease; what it writes then is refused (T6).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from turnwise.core import event_types as ev
from turnwise.core.envelope import Envelope, JsonObject
from turnwise.core.state import Claim, State
from turnwise.errors import LogError, TurnwiseError
from turnwise.hub.clock import Clock

logger = logging.getLogger(__name__)

BEATS_PER_LEASE: Final = 3
"""Two of them may be late before the worker is replaced."""


class Writer(Protocol):
    """What is needed of a hub."""

    clock: Clock

    async def state(self, channel_id: str) -> State: ...

    async def write(
        self, channel_id: str, event_type: str, data: JsonObject, **fields: Any
    ) -> tuple[Envelope, ...]: ...


@asynccontextmanager
async def beating(hub: Writer, channel_id: str, claim: Claim) -> AsyncIterator[None]:
    """Within this, the worker of `claim` is heard of for as long as the claim lives."""
    task = asyncio.create_task(_beat(hub, channel_id, claim))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _beat(hub: Writer, channel_id: str, claim: Claim) -> None:
    heard = claim.seq
    while True:
        await hub.clock.sleep(claim.lease_seconds / BEATS_PER_LEASE)
        try:
            state = await hub.state(channel_id)
            if state.claim is None or state.claim.seq != claim.seq:
                return  # Replaced, or over.
            if state.alive_seq == heard:
                (line,) = await hub.write(channel_id, ev.EV_TURN_RENEWED, {}, claim=claim.seq, audience=[])
                heard = line.seq
            else:
                heard = state.alive_seq
        except LogError as error:
            logger.warning("the claim of turn %s could not be renewed: %s", channel_id, error)
        except TurnwiseError:
            return  # The turn is over for us; whoever works on it is told with the next line.
