"""Trying again: what the log could not take or give, it may a moment later.

For what nobody is told of twice, so that whoever does not do it now never does.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from turnline.errors import LogUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_SECONDS: Final = 1.0


class Sleeper(Protocol):
    """What is needed of a seat."""

    async def sleep(self, seconds: float) -> None: ...


async def retried(seat: Sleeper, work: Callable[[], Awaitable[T]], what: str) -> T:
    """Return what `work` returns, once the log can be used; whatever else it raises is raised."""
    while True:
        try:
            return await work()
        except LogUnavailable as error:
            logger.warning("%s, and will be tried again: %s", what, error)
            await seat.sleep(RETRY_SECONDS)
