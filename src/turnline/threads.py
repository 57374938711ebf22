"""Threads for functions of the user that may block: sync tools, nodes, questions at a keyboard.

    answer = await call_user(function, argument)

Rule: a process whose main has ended does not wait for them. Python joins the threads of `asyncio.to_thread`
at exit, so one blocked call would keep the process alive. These threads are daemons and end with it.

Our own work on large data runs in a thread too (`off_the_loop`), so that other clients do not wait for it.
It is short, so it uses the threads of asyncio: blocked calls of the user cannot delay it.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Any, Final, ParamSpec, TypeVar, TypeVarTuple

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BIG_BYTES: Final = 64 * 1024
"""JSON beyond it is read, checked, compared and searched in a thread, so that other clients do not wait."""

MAX_THREADS: Final = 64
"""Blocking calls that run at once; more wait for a free thread."""
IDLE_SECONDS: Final = 10.0
"""How long a thread waits for its next call before it ends."""


def is_being_cancelled() -> bool:
    """Return whether the current task is cancelled from outside. A `CancelledError` may come from within."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Call:
    """A function to run, and where its answer goes."""

    def __init__(self, run: Callable[[], Any], loop: AbstractEventLoop) -> None:
        self.run = run
        self.loop = loop
        self.answer: Future[Any] = loop.create_future()


class _Threads:
    """Daemon threads, started as they are needed."""

    def __init__(self) -> None:
        self._waiting: deque[_Call] = deque()
        self._changed = Condition()
        self._threads = 0
        self._idle = 0

    def submit(self, call: _Call) -> None:
        with self._changed:
            self._waiting.append(call)
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif self._threads < MAX_THREADS:
                Thread(target=self._run, name="turnline-blocking-call", daemon=True).start()
                self._threads += 1

    def _run(self) -> None:
        while (call := self._take()) is not None:
            if not call.answer.cancelled():
                _run(call)

    def _take(self) -> _Call | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting, timeout=IDLE_SECONDS)
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


_threads: Final = _Threads()


async def call_user(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the user: an async one on the loop, any other one in a thread, for it may block."""
    if iscoroutinefunction(function):
        return await function(*args, **kwargs)
    answer = await in_thread(function, *args, **kwargs)
    return await answer if isawaitable(answer) else answer


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that may block in a thread, with the caller's context variables."""
    run = partial(copy_context().run, function, *args, **kwargs)
    call = _Call(run, asyncio.get_running_loop())
    _threads.submit(call)
    answer: T = await call.answer
    return answer


def is_on_loop() -> bool:
    """Return whether the caller runs in an event loop, and so can await."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def wait_in_thread(
    loop: AbstractEventLoop,
    use: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, T]],
    function: Callable[[], Any],
) -> T:
    """Run `use(function)` in `loop`, and wait for it in this thread. `function` itself runs in this thread.

    A caller that holds a thread and waited for another one could wait for ever: there are `MAX_THREADS`.
    """
    calls: SimpleQueue[_Call | None] = SimpleQueue()

    async def run_here() -> Any:
        call = _Call(partial(copy_context().run, function), loop)
        calls.put(call)
        answer = await call.answer
        return await answer if isawaitable(answer) else answer

    done = asyncio.run_coroutine_threadsafe(use(run_here), loop)
    done.add_done_callback(lambda _: calls.put(None))
    while (call := calls.get()) is not None:
        _run(call)
    return done.result()


async def off_the_loop(work: Callable[[A], T], given: A, *, size: int) -> T:
    """Return `work(given)`. If `given` has more than `BIG_BYTES`, do the work in a thread."""
    return await asyncio.to_thread(work, given) if size > BIG_BYTES else work(given)


def _run(call: _Call) -> None:
    result: object = None
    error: BaseException | None = None
    try:
        result = call.run()
    except StopIteration:  # A future cannot carry it: its caller would wait for ever.
        error = RuntimeError("the function raised StopIteration")
    except BaseException as raised:  # Whatever it is, its caller gets it.
        error = raised
    call_in(call.loop, resolve, call.answer, result, error)


def call_in(loop: AbstractEventLoop, function: Callable[[*Ts], object], *args: *Ts) -> None:
    """Call `function` in `loop`, from any thread: at once if it is the caller's. Skip a closed loop."""
    if asyncio._get_running_loop() is loop:
        function(*args)
        return
    with suppress(RuntimeError):  # What `call_soon_threadsafe` raises for a closed loop.
        loop.call_soon_threadsafe(function, *args)


def resolve(answer: Future[T], result: T, error: BaseException | None) -> None:
    """Give the answer, or the error, to whoever waits for it."""
    if answer.done():  # Its caller was cancelled and no longer waits.
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
