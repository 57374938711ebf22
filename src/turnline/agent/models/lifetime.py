"""How long a provider's client stays open.

A client holds connections that belong to one event loop, and making one costs
tens of milliseconds. So each loop has its own: made when it is first needed,
shared by all requests, closed once it has been idle for a while.

Rule: nobody has to close anything. The client is entered inside an asynchronous
generator, and an event loop closes its generators before it ends; until then
the timer that waits for the idle time holds on to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Generic, TypeVar

IDLE_SECONDS: Final = 30.0

T = TypeVar("T", bound=AbstractAsyncContextManager[Any])


class PerLoop(Generic[T]):
    """Opens what `make` returns, once per event loop. `make` runs in a thread."""

    def __init__(self, make: Callable[[], T], *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._make = make
        self._idle_seconds = idle_seconds
        self._clients: dict[asyncio.AbstractEventLoop, _Client[T]] = {}

    @asynccontextmanager
    async def use(self) -> AsyncIterator[T]:
        """Give this loop's client. Raises whatever `make` raises, and the next use tries again."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients = {
                known: client for known, client in self._clients.items() if not known.is_closed()
            }
            self._clients[loop] = _Client(self._make, idle_seconds=self._idle_seconds)
        client = self._clients[loop]
        made = await client.enter()
        try:
            yield made
        finally:
            client.leave()


class _Client(Generic[T]):
    def __init__(self, make: Callable[[], T], *, idle_seconds: float) -> None:
        self._make = make
        self._idle_seconds = idle_seconds
        self._lock = asyncio.Lock()
        self._users = 0
        self._opened: tuple[T, AsyncGenerator[T, None]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    async def enter(self) -> T:
        if self._timer is not None:
            self._timer.cancel()
        async with self._lock:
            if self._opened is None:
                generator = _held_open(await asyncio.to_thread(self._make))
                self._opened = (await anext(generator), generator)
            self._users += 1
            return self._opened[0]

    def leave(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._idle)

    def _idle(self) -> None:
        if self._users or self._opened is None:
            return
        _, generator = self._opened
        self._opened = None
        self._closing = asyncio.get_running_loop().create_task(generator.aclose())


async def _held_open(client: T) -> AsyncGenerator[T, None]:
    async with client:
        yield client
