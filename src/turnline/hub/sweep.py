"""The sweep: writes down what has fallen due, when it does: time enters as envelopes.

Every hub of a log sweeps; whose line comes first has fired the timer, and `decide` refuses the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice
from typing import Final

from turnline.core.expectations import Deadline
from turnline.errors import ChannelQuarantined, LogError, Refused
from turnline.hub.channels import Channels, Entry
from turnline.hub.files import Files
from turnline.hub.opening import first_of
from turnline.hub.retry import RETRY_SECONDS
from turnline.hub.timers import Clock, Timers

logger = logging.getLogger(__name__)

Fire = Callable[[str, Deadline], Awaitable[object]]
"""Writes a deadline that has passed onto its channel."""


LOOKS_AT_ONCE: Final = 16
"""Channels that are looked at together. After a long downtime all of them may be due, and each look reads."""


class Sweep:
    """Looks after the timers of one hub."""

    def __init__(self, timers: Timers, channels: Channels, clock: Clock, fire: Fire, files: Files) -> None:
        self._timers = timers
        self._channels = channels
        self._clock = clock
        self._fire = fire
        self._files = files

    async def once(self) -> None:
        """Do whatever has fallen due by now."""
        channels = self._timers.take_due()
        try:
            while channels:
                some = list(islice(channels, LOOKS_AT_ONCE))
                outcomes = await asyncio.gather(*map(self._look, some), return_exceptions=True)
                failed = {one: error for one, error in zip(some, outcomes, strict=True) if error is not None}
                for _ in some:
                    channels.popleft()
                channels.extend(failed)
                for error in failed.values():
                    raise error
                await asyncio.sleep(0)  # What was in memory took no wait: let others work.
        finally:  # The log may fail; what could not be written is still due.
            self._timers.look_at(channels)
        await self._files.sweep()

    async def _look(self, channel_id: str) -> None:
        try:
            await self.channel(await self._channels.get(channel_id))
        except LogError:
            raise
        except ChannelQuarantined:
            return
        except Exception:  # An adapter's own fault costs its channel, not the timers of the others.
            logger.exception("the timers of channel %s failed", channel_id)

    async def channel(self, entry: Entry) -> None:
        """Do what has fallen due on one channel."""
        for deadline in self._timers.due(entry):
            # Refused: the channel has moved on, and the timer was for a moment that has passed.
            with suppress(Refused, ChannelQuarantined):
                await self._fire(entry.channel_id, deadline)
        self._timers.watch(entry)

    async def run(self, every_seconds: float) -> None:
        """Do it for as long as the hub is open, `every_seconds` at the latest."""
        while True:
            seen = self._timers.sooner.rung
            seconds = self._timers.pause_until_next(every_seconds)
            await first_of(self._clock.sleep(seconds), self._timers.sooner.wait(seen))
            try:
                await self.once()
            except LogError:
                logger.exception("timers could not be written; trying again")
                await self._clock.sleep(RETRY_SECONDS)
