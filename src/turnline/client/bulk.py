"""One verb done to many channels: what the command line and the server share.

Rule: each is done by itself. What fails is reported and the others are done, so the same call can be given
again. AT_ONCE are done at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from turnline.core.envelope import JsonObject
from turnline.errors import TurnlineError

AT_ONCE: Final = 8
"""Channels that something is done to at the same time."""

Act = Callable[[str], Awaitable[JsonObject]]
"""Do something to a channel; return its `result`, and an `error` if it did not end well."""
Explain = Callable[[TurnlineError], JsonObject]
"""Return what is told of an error."""


def explain_plainly(error: TurnlineError) -> JsonObject:
    """Return the error as an operator with the log in hand is told of it."""
    return {"type": type(error).__name__, "message": str(error)}


async def do_each(
    ids: Iterable[str], act: Act, explain: Explain = explain_plainly
) -> AsyncIterator[JsonObject]:
    """Do something to each, and yield what became of it: its `id`, and its `result` or `error`."""
    left = list(dict.fromkeys(ids))
    while left:
        batch, left = left[:AT_ONCE], left[AT_ONCE:]
        for done in await asyncio.gather(*(_do(one, act, explain) for one in batch)):
            yield done


async def _do(one: str, act: Act, explain: Explain) -> JsonObject:
    try:
        return {"id": one, **await act(one)}
    except TurnlineError as error:
        return {"id": one, "error": explain(error)}
