"""What a context costs: agents' turns and two-step runs with objects in the context, by their bytes.

Beside it stands what msgspec takes to encode and decode the same bytes once. A turn that costs k times as
much for each byte more reads or writes the context about k times. All of it is CPU time, on a log in memory;
the rounds of the sizes alternate, and each figure is the median of the rounds.

    python bench/context.py
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median
from typing import Any, Final

import msgspec
from growth import Unit, turn_after_messages

from turnline.flow.definition.flow import read
from turnline.flow.work import Services
from turnline.log.memory import MemoryLog
from turnline.server.runtime import Runtime

SIZES: Final = (0, 25_000, 50_000, 100_000)
"""Bytes of JSON in the context."""
ROUNDS: Final = 5
TIMES: Final = 20
"""Units of each round."""
LIMITS_MS: Final = {"agent turn": 2.0, "two-step run": 6.0}
"""With 100 KB."""


def objects(size: int) -> dict[str, Any]:
    """Return a context of about so many bytes: a list of small objects."""
    one = {
        "id": 12345,
        "name": "Ada Lovelace",
        "tags": ["a", "b"],
        "score": 0.5,
        "is_new": True,
        "note": None,
    }
    count = size // (len(msgspec.json.encode(one)) + 1)
    return {"items": [one | {"id": n} for n in range(count)]} if count else {}


def agent_turn(size: int) -> AbstractAsyncContextManager[Unit]:
    """Give a unit: a message, and the turn of an agent that answers it."""
    return turn_after_messages(0, context_vars=objects(size))


@asynccontextmanager
async def two_step_run(size: int) -> AsyncIterator[Unit]:
    """Give a unit: a run that is started with the context, and waited for."""

    async def save(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"id": 7}

    document = {
        "metadata": {"name": "lead"},
        "spec": {"steps": [{"id": "save", "runner": "save"}, {"id": "score", "runner": "save"}]},
    }
    services = Services(flows={"lead": read(document, name="lead")}, nodes={"save": save})
    given = objects(size)
    async with Runtime(services, open_log=MemoryLog) as runtime:

        async def unit() -> None:
            verdict = await runtime.runs.wait(await runtime.runs.start("lead", given))
            assert verdict.status == "succeeded"

        yield unit


async def cpu_seconds(unit: Unit) -> float:
    """Return the CPU time of one unit, of all threads."""
    start = time.process_time()
    for _ in range(TIMES):
        await unit()
    return (time.process_time() - start) / TIMES


async def codec(size: int) -> float:
    """Return what msgspec takes to encode and decode the context once."""
    data = objects(size)

    async def unit() -> None:
        msgspec.json.decode(msgspec.json.encode(data))

    return await cpu_seconds(unit)


UNITS: Final[dict[str, Callable[[int], AbstractAsyncContextManager[Unit]]]] = {
    "agent turn": agent_turn,
    "two-step run": two_step_run,
}


async def measure(name: str) -> str:
    """Measure a unit with each size; print the figures and return the line with the ratio."""
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    raw: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(ROUNDS):
        for size in SIZES:
            async with UNITS[name](size) as unit:
                await unit()
                found[size].append(await cpu_seconds(unit))
                raw[size].append(await codec(size))
    ours = {size: median(times) for size, times in found.items()}
    theirs = {size: median(times) for size, times in raw.items()}
    for size in SIZES:
        print(f"{name}, {size:>7,} bytes{ours[size] * 1e3:10.2f} ms    msgspec {theirs[size] * 1e3:6.3f} ms")
    most = SIZES[-1]
    slope, limit = ours[most] - ours[0], theirs[most] - theirs[0]
    half = (ours[SIZES[-2]] - ours[0]) / (SIZES[-2] / most)
    return (
        f"{name}: {ours[most] * 1e3:.2f} ms with {most:,} bytes (wanted: {LIMITS_MS[name]:g} ms); "
        f"linear: {slope / half:.2f}; slope {slope / limit:.1f} x msgspec's encode and decode"
    )


async def main() -> None:
    lines = [await measure(name) for name in UNITS]
    print("\n".join(lines))


if __name__ == "__main__":
    asyncio.run(main())
