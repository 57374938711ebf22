"""Whose turn it is to write to a file, within one process.

SQLite lets one connection write at a time; the others ask again and again, with growing
pauses, and whoever asks at the right moment wins. So the log's writer and the transactions
that join it queue up here first, and each is woken when it is its turn.

The log's writer is next whenever it comes: all others wait for what it writes, and it writes
for many at once. It is one, so those who wait have every second turn at least.

A courtesy, not a lock: whoever has waited long enough goes on all the same, and SQLite decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock

from turnline.threads import call_in


class Place:
    """A place in the queue."""

    __slots__ = ("wake",)

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake


class Turnstile:
    """First come, first served, from any event loop; after a writer in a thread of its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queue: deque[Place] = deque()

    @property
    def waiting(self) -> int:
        """How many wait behind whoever has the turn."""
        return max(len(self._queue) - 1, 0)

    @property
    def is_taken(self) -> bool:
        """Whether a writer or a transaction has the turn."""
        return bool(self._queue)

    @contextmanager
    def turn(self, *, timeout_seconds: float) -> Iterator[None]:
        """Wait for the next turn, in the writer's thread; it is over when the block is."""
        mine = Event()
        place = self._enter(mine.set, at=1)
        try:
            mine.wait(timeout_seconds)
            yield
        finally:
            self.leave(place)

    async def take(self, *, timeout_seconds: float) -> Place:
        """Wait for a turn, in an event loop; it is over with `leave`."""
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        place = self._enter(lambda: call_in(loop, _wake, mine))
        try:
            await asyncio.wait((mine,), timeout=timeout_seconds)
        except BaseException:
            self.leave(place)
            raise
        return place

    def leave(self, place: Place) -> None:
        """Give the turn, or the place in the queue, up. Leaving twice is allowed."""
        with self._lock:
            if place not in self._queue:
                return
            was_first = self._queue[0] is place
            self._queue.remove(place)
            following = self._queue[0] if was_first and self._queue else None
        if following is not None:
            following.wake()

    def _enter(self, wake: Callable[[], None], *, at: int | None = None) -> Place:
        place = Place(wake)
        with self._lock:
            self._queue.insert(len(self._queue) if at is None else at, place)
            is_first = self._queue[0] is place
        if is_first:
            wake()
        return place


def _wake(mine: asyncio.Future[None]) -> None:
    if not mine.done():
        mine.set_result(None)
