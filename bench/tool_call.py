"""What a tool call costs: ours beside a bare `await`, and beside pydantic's `validate_call`, in the same run.

Ours drops, validates, injects a variable and the context, runs the tool and
makes its output; `validate_call` validates and runs it. The ratios are the
figures to watch; microseconds belong to the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Annotated

from pydantic import ConfigDict, SkipValidation, validate_call

from turnline.agent.context import Context
from turnline.agent.inject import Variable
from turnline.agent.tool import tool

CALLS = 5_000
REPEATS = 7
SENT = {"user_id": "u-17", "limit": 3}
CONTEXT = Context(variables={"api_key": "k-123"}, idempotency_key="c1:7:1")


async def fetch(user_id: str, limit: int, api_key: Annotated[str, Variable()], context: Context) -> str:
    """Fetch the orders of a user."""
    return f"{limit} orders of {user_id}"


@validate_call(config=ConfigDict(arbitrary_types_allowed=True))
async def checked(
    user_id: str, limit: int, api_key: SkipValidation[str], context: SkipValidation[Context]
) -> str:
    return f"{limit} orders of {user_id}"


async def microseconds(act: Callable[[], Awaitable[object]]) -> float:
    """The best of a few runs: the others measure the neighbours."""
    best = float("inf")
    for _ in range(REPEATS):
        start = perf_counter()
        for _ in range(CALLS):
            await act()
        best = min(best, perf_counter() - start)
    return best / CALLS * 1e6


async def main() -> None:
    fetch_tool = tool(fetch)
    output = await fetch_tool.call(SENT, CONTEXT)
    if output.text != await fetch("u-17", 3, "k-123", CONTEXT):
        raise SystemExit("the two do not agree; the figures would mean nothing")

    bare = await microseconds(lambda: fetch("u-17", 3, "k-123", CONTEXT))
    validated = await microseconds(lambda: checked("u-17", 3, "k-123", CONTEXT))
    called = await microseconds(lambda: fetch_tool.call(SENT, CONTEXT))

    print("an async tool with two arguments of the model's, a variable and the context")
    print(f"bare await     {bare:8.2f} µs")
    print(f"validate_call  {validated:8.2f} µs")
    print(f"Tool.call      {called:8.2f} µs")
    print(
        f"Tool.call is {called / bare:.1f} times a bare await, {called / validated:.1f} times validate_call"
    )


if __name__ == "__main__":
    asyncio.run(main())
