"""Whose turn it is to write: one at a time, in order, the writer next."""

from __future__ import annotations

import asyncio
from threading import Event, Thread

from turnline.log.turnstile import Place, Turnstile

PATIENCE_SECONDS = 60.0


async def take(turnstile: Turnstile) -> Place:
    return await turnstile.take(timeout_seconds=PATIENCE_SECONDS)


async def settled(rounds: int = 10) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


async def test_turns_come_in_the_order_they_were_asked_for() -> None:
    turnstile = Turnstile()
    first = await take(turnstile)
    waiting = [asyncio.create_task(take(turnstile)) for _ in range(3)]
    await settled()
    order = []
    turnstile.leave(first)
    for task in waiting:
        place = await task
        order.append(task)
        assert not any(other.done() for other in waiting if other not in order)
        turnstile.leave(place)

    assert order == waiting


async def test_whoever_is_cancelled_leaves_the_queue() -> None:
    turnstile = Turnstile()
    first = await take(turnstile)
    second, third = (asyncio.create_task(take(turnstile)) for _ in range(2))
    await settled()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)

    assert turnstile.waiting == 1
    turnstile.leave(first)
    turnstile.leave(await third)


async def test_leaving_twice_wakes_nobody_twice() -> None:
    turnstile = Turnstile()
    first = await take(turnstile)
    second, third = (asyncio.create_task(take(turnstile)) for _ in range(2))
    await settled()
    turnstile.leave(first)
    turnstile.leave(first)
    await second
    await settled()

    assert not third.done()
    turnstile.leave(second.result())
    await third


async def test_whoever_has_waited_long_enough_goes_on_all_the_same() -> None:
    turnstile = Turnstile()
    await take(turnstile)
    late = await turnstile.take(timeout_seconds=0)
    with turnstile.turn(timeout_seconds=0):
        pass

    turnstile.leave(late)


async def test_the_writer_is_next_whenever_it_comes() -> None:
    turnstile = Turnstile()
    written, let_go = Event(), Event()

    def write() -> None:
        with turnstile.turn(timeout_seconds=PATIENCE_SECONDS):
            written.set()
            let_go.wait(PATIENCE_SECONDS)

    first = await take(turnstile)
    second = asyncio.create_task(take(turnstile))
    await settled()
    writer = Thread(target=write)
    writer.start()
    while turnstile.waiting < 2:  # noqa: ASYNC110  the queue has no event of its own
        await asyncio.sleep(0)
    assert not written.is_set()
    turnstile.leave(first)
    assert await asyncio.to_thread(written.wait, PATIENCE_SECONDS)
    await settled()
    assert not second.done()
    let_go.set()

    turnstile.leave(await second)
    writer.join()
