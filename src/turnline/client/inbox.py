"""An inbox: what a participant's callbacks are given, channel by channel, in order.

It keeps a place in each channel's log, not the envelopes: a slow participant
costs no memory, and a place that is lost is only read again. Each channel with
news has a task of its own, so one that is busy does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from turnline.client.link import Seat
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED
from turnline.core.views import concerns
from turnline.errors import TurnlineError
from turnline.hub.retry import retry

logger = logging.getLogger(__name__)

Deliver = Callable[[Envelope], Awaitable[None]]


class Inbox:
    """A participant's place in each channel."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._seat: Seat | None = None
        self._read_to: dict[str, int] = {}
        self._news: dict[str, int] = {}
        self._feeding: dict[str, asyncio.Task[None]] = {}

    def start(self, seat: Seat) -> None:
        """Begin to read."""
        self._seat = seat

    def wake(self, channel_id: str, first: int, seq: int) -> None:
        """Read the channel from line `first` on, unless that is read, up to line `seq`."""
        self._read_to.setdefault(channel_id, first - 1)
        self._news[channel_id] = max(seq, self._news.get(channel_id, 0))
        if self._seat is not None and channel_id not in self._feeding:
            self._feeding[channel_id] = asyncio.create_task(self._read_on(channel_id))

    async def stop(self) -> None:
        """Read no further."""
        self._seat = None
        feeding = list(self._feeding.values())
        for task in feeding:
            task.cancel()
        await asyncio.gather(*feeding, return_exceptions=True)

    async def _read_on(self, channel_id: str) -> None:
        try:
            while self._news.get(channel_id, 0) > self._read_to.get(channel_id, 0):
                await self._read_once(channel_id)
        except TurnlineError as error:
            logger.warning("reading channel %s stopped: %s", channel_id, error)
            self._news.pop(channel_id, None)
        finally:
            self._feeding.pop(channel_id, None)

    async def _read_once(self, channel_id: str) -> None:
        seat = self._seat
        assert seat is not None
        read = partial(seat.read, channel_id, self._read_to[channel_id])
        reading = await retry(seat, read, f"{channel_id} is not read")
        for envelope in reading.envelopes:
            self._read_to[channel_id] = envelope.seq
            if concerns(envelope, seat.agent_id):
                await self._tell(envelope)
            if envelope.event_type == EV_CHANNEL_CLOSED:
                self._forget(channel_id)
                return
        self._read_to[channel_id] = max(reading.seq, self._read_to[channel_id])

    async def _tell(self, envelope: Envelope) -> None:
        try:
            await self._deliver(envelope)
        except Exception:  # A user's callback may raise anything; the next envelope is another matter.
            logger.exception(
                "a callback raised on %s of channel %s", envelope.event_type, envelope.channel_id
            )

    def _forget(self, channel_id: str) -> None:
        self._read_to.pop(channel_id, None)
        self._news.pop(channel_id, None)
