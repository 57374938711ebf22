"""Threads for functions of the user that may block: sync tools, nodes, questions at a keyboard.

    answer = await in_thread(function, argument)

Rule: a process whose main has ended does not wait for them. Python joins the threads of `asyncio.to_thread`
at exit, so one blocked call would keep the process alive. These threads are daemons and end with it.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Condition, Thread
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS: Final = 64
"""Blocking calls that run at once; more wait for a free thread."""
IDLE_SECONDS: Final = 10.0
"""How long a thread waits for its next call before it ends."""


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
                self._threads += 1
                Thread(target=self._run, name="turnline-blocking-call", daemon=True).start()

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


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that may block in a thread, with the caller's context variables."""
    run = partial(copy_context().run, function, *args, **kwargs)
    call = _Call(run, asyncio.get_running_loop())
    _threads.submit(call)
    answer: T = await call.answer
    return answer


def _run(call: _Call) -> None:
    result: object = None
    error: BaseException | None = None
    try:
        result = call.run()
    except StopIteration:  # A future cannot carry it: its caller would wait for ever.
        error = RuntimeError("the function raised StopIteration")
    except BaseException as raised:  # Whatever it is, its caller gets it.
        error = raised
    with suppress(RuntimeError):  # The loop has been closed, with every task that waited.
        call.loop.call_soon_threadsafe(_resolve, call.answer, result, error)


def _resolve(answer: Future[Any], result: object, error: BaseException | None) -> None:
    if answer.done():  # Its caller was cancelled and no longer waits.
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
