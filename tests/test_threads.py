"""Threads for functions that may block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from turnline.threads import MAX_THREADS, call_user, in_thread, is_on_loop, wait_in_thread

NAME: ContextVar[str] = ContextVar("name")


async def test_a_function_gets_its_arguments_and_the_callers_context() -> None:
    NAME.set("Ann")

    def greet(greeting: str, *, end: str) -> str:
        return f"{greeting}, {NAME.get()}{end}"

    assert await in_thread(greet, "Hello", end="!") == "Hello, Ann!"


async def test_what_a_function_raises_reaches_its_caller() -> None:
    def fail() -> None:
        raise LookupError("nothing here")

    with pytest.raises(LookupError, match="nothing here"):
        await in_thread(fail)


async def test_no_more_than_the_limit_run_at_once_and_every_call_is_answered() -> None:
    running, most, lock, let = 0, 0, threading.Lock(), threading.Event()

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if most == MAX_THREADS:
                let.set()
        let.wait(60)
        with lock:
            running -= 1
        return number

    answers = await asyncio.gather(*(in_thread(work, number) for number in range(3 * MAX_THREADS)))

    assert answers == list(range(3 * MAX_THREADS))
    assert most == MAX_THREADS


async def test_a_call_that_was_cancelled_while_it_waited_does_not_run() -> None:
    let, ran = threading.Event(), list[int]()
    blocked = [asyncio.create_task(in_thread(let.wait, 60)) for _ in range(MAX_THREADS)]
    await asyncio.sleep(0)
    late = asyncio.create_task(in_thread(ran.append, 1))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)

    let.set()
    await asyncio.gather(*blocked)
    await in_thread(ran.append, 2)

    assert ran == [2]


async def test_a_function_of_the_user_is_awaited_however_it_is_written() -> None:
    loop_thread = threading.get_ident()

    async def on_the_loop() -> int:
        return threading.get_ident()

    def gives_a_coroutine() -> object:
        return on_the_loop()

    assert await call_user(on_the_loop) == loop_thread
    assert await call_user(gives_a_coroutine) == loop_thread
    assert await call_user(threading.get_ident) != loop_thread


async def test_code_in_a_thread_waits_for_work_on_the_loop_that_calls_it_back() -> None:
    loop = asyncio.get_running_loop()

    async def use(function: Callable[[], Awaitable[Any]]) -> list[Any]:
        assert is_on_loop()
        NAME.set("Ann")
        return [await function(), threading.get_ident()]

    def back() -> tuple[int, str, bool]:
        return threading.get_ident(), NAME.get(), is_on_loop()

    def here() -> tuple[int, list[Any]]:
        return threading.get_ident(), wait_in_thread(loop, use, back)

    thread, (called, on_loop) = await in_thread(here)

    assert called == (thread, "Ann", False)
    assert on_loop == threading.get_ident() != thread


async def test_what_the_loop_or_the_called_back_function_raises_reaches_the_thread() -> None:
    loop = asyncio.get_running_loop()

    async def use(function: Callable[[], Awaitable[Any]]) -> None:
        await function()

    async def refuse(function: Callable[[], Awaitable[Any]]) -> None:
        raise PermissionError("not allowed")

    def stop() -> None:
        raise StopIteration

    with pytest.raises(PermissionError, match="not allowed"):
        await in_thread(wait_in_thread, loop, refuse, stop)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(wait_in_thread, loop, use, stop)
