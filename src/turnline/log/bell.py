"""Waking whoever waits for an append, in whatever event loop, from whatever thread.

    seen = bell.rung; look; await bell.wait(seen)

A ring between the look and the wait is not missed, because the wait compares
the count it is given. A bell says that something happened, never what.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TypeVar

T = TypeVar("T")


class Bell:
    """A count that grows, and those who wait for it to grow."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[tuple[AbstractEventLoop, Future[None]]] = []
        self.rung = 0

    def ring(self) -> None:
        """Wake everyone who waits. Safe from any thread."""
        with self._lock:
            self.rung += 1
            waiting, self._waiting = self._waiting, []
        for loop in {loop for loop, _ in waiting}:
            call_in(loop, _wake, [future for owner, future in waiting if owner is loop])

    async def wait(self, seen: int, *, timeout_seconds: float | None = None) -> None:
        """Return when the bell has been rung more than `seen` times, or the time is up."""
        future = self._enter(seen)
        if future is None:
            return
        try:
            await asyncio.wait((future,), timeout=timeout_seconds)
        finally:
            self._leave(future)

    def _enter(self, seen: int) -> Future[None] | None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.rung != seen:
                return None
            future = loop.create_future()
            self._waiting.append((loop, future))
            return future

    def _leave(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting = [entry for entry in self._waiting if entry[1] is not future]


def call_in(loop: AbstractEventLoop, function: Callable[[T], None], argument: T) -> None:
    """Call `function` in `loop`, from any thread. Nobody waits in a loop that has been closed."""
    with suppress(RuntimeError):  # What `call_soon_threadsafe` raises for a closed loop.
        loop.call_soon_threadsafe(function, argument)


def _wake(futures: list[Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
