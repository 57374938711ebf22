"""What one unit of work costs, counted: no machine and no clock changes these figures.

    post           from `channel.send` until it returns; another participant is attached here
    turn           an agent's turn without tools, with the message that gives it the floor
    turn, tool     the same with one tool
    flow           POST of a two-step flow, until its answer

Each on a log in memory and on SQLite. Counted are appends to channels and to system channels (the audit),
commits, tasks, turns of the event loop, encodes and decodes of lines, folds, checks of JSON and walks through
its values in Python, queries of the log's tail, and wake-ups between threads (a thread of the log that gets
work, or that wakes the loop). The counting is that of `bench/walk.py`; `tests/bench/test_counts.py` pins it.

    python bench/count.py
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from walk import OpenLog, Walk, open_hub, walk_agent, walk_flow

from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.network import Passport

COLUMNS: Final = (
    "appends",
    "system appends",
    "commits",
    "tasks",
    "loop turns",
    "encodes",
    "decodes",
    "folds",
    "JSON checks",
    "JSON walks",
    "graph checks",
    "graphs read",
    "tail queries",
    "wake-ups",
)


async def count_post(open_log: OpenLog = MemoryLog) -> Walk:
    """Count a message to one who is attached here."""
    walk = Walk()
    async with open_hub(open_log) as (hub, client):
        ann = await client.register(passport=Passport(name="ann"))
        await client.register(passport=Passport(name="ben"))
        channel = await ann.open("conversation", "ben")
        await channel.send("the first one")
        await hub.audit_log.flush()
        walk.start()
        await channel.send("over to you")
        walk.stop()
    return walk


async def count_turn(open_log: OpenLog = MemoryLog, *, has_tool: bool = False) -> Walk:
    """Count an agent's turn, and the message before it."""
    return await walk_agent(has_tool=has_tool, open_log=open_log)


UNITS: Final[dict[str, Callable[[OpenLog], Awaitable[Walk]]]] = {
    "post": count_post,
    "turn": count_turn,
    "turn, tool": partial(count_turn, has_tool=True),
    "flow": walk_flow,
}


async def main(folder: Path) -> None:
    print(f"{'unit':<20}" + "".join(f"{column:>15}" for column in COLUMNS))
    for name, count in UNITS.items():
        logs: dict[str, Callable[[], Log]] = {
            "memory": MemoryLog,
            "SQLite": partial(SqliteLog, folder / f"{name}.db"),
        }
        for kind, open_log in logs.items():
            counts = (await count(open_log)).counts
            print(f"{f'{name}, {kind}':<20}" + "".join(f"{counts[column]:>15}" for column in COLUMNS))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
