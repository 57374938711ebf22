"""Timeouts whose error says what took too long, and what the limit was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def within(seconds: float | None, what: str, do: str = "") -> AsyncIterator[None]:
    """Limit the block like `asyncio.timeout`; raise `TimeoutError("{what} within {seconds} s{do}")`."""
    try:
        async with asyncio.timeout(seconds) as patience:
            yield
    except TimeoutError:
        if not patience.expired():
            raise
        raise TimeoutError(f"{what} within {seconds:g} s{do}") from None
