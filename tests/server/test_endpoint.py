"""One path of the server: its answers, and what their timing tells."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from turnline.server.answers import success
from turnline.server.endpoint import HIDE_SECONDS, Endpoint
from turnline.server.problems import not_found
from turnline.testing.manual_clock import ManualClock

SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "GET",
    "path": "/x",
    "query_string": b"",
    "headers": [],
    "server": ("server", 80),
    "scheme": "http",
}


async def seconds_of_an_answer(work_seconds: float, *, is_there: bool) -> float:
    """Return when the answer leaves, of a handler that works for so long."""
    clock, sent = ManualClock(), asyncio.Event()

    async def handler(request: Request) -> Response:
        clock.advance(work_seconds)
        if is_there:
            return success({})
        raise not_found("there is nothing here.")

    async def send(message: Any) -> None:
        sent.set()

    async def receive() -> Any:
        return {"type": "http.request"}

    answering = asyncio.ensure_future(
        Endpoint("/x", {"GET": handler}, lambda: "id", clock)(SCOPE, receive, send)
    )
    while not sent.is_set():
        for _ in range(10):
            await asyncio.sleep(0)
        if not sent.is_set():
            clock.advance(HIDE_SECONDS / 20)
    await answering
    return clock.monotonic()


@pytest.mark.parametrize("work", [0.0, 0.001, 0.004, 0.0185])
async def test_the_time_of_a_404_does_not_tell_what_was_looked_at(work: float) -> None:
    assert await seconds_of_an_answer(work, is_there=False) == pytest.approx(HIDE_SECONDS, abs=0.0011)


async def test_an_answer_that_is_no_404_leaves_at_once() -> None:
    assert await seconds_of_an_answer(0.004, is_there=True) == 0.004
