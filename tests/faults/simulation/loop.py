"""An event loop without a world: time is virtual, and a seed says who goes on next.

    loop = SeededLoop(Random(7))
    loop.run(main())

Rule 1: nothing waits. When nobody can go on, the time is at once that of the next timer.

Rule 2: whoever could go on next has the same chance, whoever came first. What asyncio promises about
the order of callbacks is not relied on by anything that survives this.

Rule 3: every callback belongs to a place, the one its context names. A place can be held up, and can
end: then what belongs to it waits, or is never called.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, TypeVar
from weakref import WeakSet

T = TypeVar("T")

MOST_CALLS: Final = 100_000
"""Whoever needs more of them goes round in circles."""

TICK_SECONDS: Final = 1e-6
"""Whoever sleeps, however shortly, wakes up later: as everywhere, time passes."""


THREAD_SECONDS: Final = 0.01
"""How long, at most, what is given to a thread takes."""


class Place:
    """Where callbacks belong: one process, say."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_held = False
        self.has_ended = False
        self.tasks: WeakSet[Task[Any]] = WeakSet()
        self.waiting: list[Handle] = []
        """What could go on if the place were not held up."""
        self._left: list[Task[Any]] = []

    def end(self) -> None:
        """Nothing of it is called any more. What it was about stays as it is, and does not become garbage."""
        self.has_ended = True
        self._left = list(self.tasks)


NOWHERE: Final = Place("nowhere")
_place: Final[ContextVar[Place]] = ContextVar("place")


def context_of(place: Place) -> Context:
    """A context in which everything belongs to `place`."""
    context = copy_context()
    context.run(_place.set, place)
    return context


class TooLong(Exception):
    """There is no end to it."""


class SeededLoop(AbstractEventLoop):
    """As much of an event loop as those need who have no files, sockets or threads."""

    def __init__(self, random: Random) -> None:
        self.calls = 0
        self._most_calls = MOST_CALLS
        self.complaints: list[dict[str, Any]] = []
        """What nobody was there to be told."""
        self._random = random
        self._time = 0.0
        self._ready: list[tuple[Place, Handle]] = []
        self._timers: list[tuple[float, int, Place, TimerHandle]] = []
        self._numbered = 0
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._is_running = False
        self._is_closed = False

    # Running.

    def run(self, main: Coroutine[Any, Any, T], *, place: Place = NOWHERE, until: float = float("inf")) -> T:
        """Return what `main` returns, at `place`. Raises `TooLong` where that takes longer than `until`."""
        hooks = sys.get_asyncgen_hooks()
        # When garbage is found is chance, and must not decide anything: they are kept until the end.
        sys.set_asyncgen_hooks(firstiter=self._generators.append, finalizer=None)
        asyncio._set_running_loop(self)
        self._is_running = True
        self._most_calls = self.calls + MOST_CALLS
        try:
            task = self.create_task(main, context=context_of(place))
            while not task.done():
                self._call_one(until)
            return task.result()
        finally:
            self._is_running = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _call_one(self, until: float) -> None:
        if not self._ready:
            self._pass_time(until)
            return
        if self.calls >= self._most_calls:
            raise TooLong(f"{self.calls} calls by {self._time:.1f} s")
        last, chosen = len(self._ready) - 1, int(self._random.random() * len(self._ready))
        self._ready[chosen], self._ready[last] = self._ready[last], self._ready[chosen]
        place, handle = self._ready.pop()
        if handle.cancelled():
            return
        if place.is_held or place.has_ended:
            place.waiting.append(handle)
            return
        self.calls += 1
        handle._run()

    def _pass_time(self, until: float) -> None:
        while self._timers and self._timers[0][3].cancelled():
            heappop(self._timers)
        if not self._timers:
            raise TooLong(f"everybody waits for somebody at {self._time:.1f} s")
        when = self._timers[0][0]
        if when > until:
            raise TooLong(f"it is {until:.1f} s")
        self._time = max(self._time, when)
        while self._timers and self._timers[0][0] <= self._time:
            self._ready.append(heappop(self._timers)[2:])

    def release(self, place: Place) -> None:
        """Hold the place up no longer."""
        place.is_held = False
        self._ready += [(place, handle) for handle in place.waiting]
        place.waiting.clear()

    async def end_tasks(self, place: Place) -> None:
        """Let what is left of a place come to its end."""
        place.has_ended = False
        self.release(place)
        await asyncio.sleep(TICK_SECONDS)
        while left := [task for task in place.tasks if not task.done()]:
            for task in sorted(left, key=lambda one: one.get_name()):
                task.cancel()
            self.release(place)
            await asyncio.wait(left, timeout=1.0)
            await asyncio.sleep(TICK_SECONDS)  # What is called when a task ends may begin another one.

    async def end_generators(self) -> None:
        for generator in self._generators:
            await generator.aclose()
        self._generators.clear()

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._time

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.append((_place_in(context), handle))
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self._time + max(delay, TICK_SECONDS), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        handle = TimerHandle(when, callback, args, self, context)
        self._numbered += 1
        heappush(self._timers, (when, self._numbered, _place_in(context), handle))
        return handle

    def run_in_executor(self, executor: object, function: Callable[..., T], *args: Any) -> Future[T]:  # type: ignore[override]
        """Call the function a moment later: there are no threads here."""
        future: Future[T] = self.create_future()
        self.call_later(self._random.random() * THREAD_SECONDS, _answer, future, function, *args)
        return future

    def create_future(self) -> Future[Any]:
        return Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> Task[T]:
        self._numbered += 1
        task = Task(coro, loop=self, name=name or f"task-{self._numbered:06}", context=context)
        _place_in(context).tasks.add(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.complaints.append(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """What a timer says when it is cancelled; it is passed over when its time comes."""


def _answer(future: Future[T], function: Callable[..., T], *args: Any) -> None:
    if future.done():
        return
    try:
        future.set_result(function(*args))
    except Exception as error:
        future.set_exception(error)


def _place_in(context: Context | None) -> Place:
    return _place.get(NOWHERE) if context is None else context.get(_place, NOWHERE)
