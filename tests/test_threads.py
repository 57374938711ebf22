"""Threads for functions that may block."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from turnline.threads import MAX_THREADS, in_thread

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
