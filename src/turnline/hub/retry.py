"""Retry: repeat work until the log can be used again.

For work that is announced only once: if it is given up now, it is never done.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from turnline.errors import LogError, LogUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_SECONDS: Final = 1.0
"""Pause before work is repeated that the log could not take or give."""


class Sleeper(Protocol):
    """The part of a clock or of a seat that a retry needs."""

    async def sleep(self, seconds: float) -> None: ...


async def retry(
    sleeper: Sleeper, work: Callable[[], Awaitable[T]], what: str, *, on: type[LogError] = LogUnavailable
) -> T:
    """Call `work` until it does not raise `on`, and return its result. Other errors are raised.

    `what` starts the warning that is logged each time: it says what is not done yet.
    """
    while True:
        try:
            return await work()
        except on as error:
            logger.warning("%s, and will be tried again: %s", what, error)
            await sleeper.sleep(RETRY_SECONDS)
