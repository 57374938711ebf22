"""A process that sends a file and is killed at one point of it. Run by `test_files.py`.

A point is (call, number, when): the process dies before, after or during the call of that number that its log
gets. `during` means that the call has begun: what the server makes of it is not known.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from tests.hub.scenes import A_B_A, house
from tests.logs import opened
from turnline.agent.files import File
from turnline.core.envelope import Envelope
from turnline.core.parts import files_of
from turnline.log.blobs import CHUNK_BYTES

Point = tuple[str, int, str]

POINTS: Final[tuple[Point, ...]] = (
    ("add_blob", 1, "during"),
    ("add_chunk", 2, "during"),
    ("add_chunk", 3, "after"),
    ("set_blob", 1, "during"),
    ("set_blob", 1, "after"),
    ("append", 1, "before"),
    ("append", 1, "during"),
    ("append", 1, "after"),
)
MOST_TURNS: Final = 6
"""Turns of the event loop that a call has before the process dies during it."""


def content(number: int) -> bytes:
    """The file of a channel: three chunks."""
    return Random(number).randbytes(2 * CHUNK_BYTES + 1_000)


def live(where: str, number: int, point: Point) -> None:
    """Send two files on a channel; die on the way of the second."""
    asyncio.run(_live(where, number, point))


async def _live(where: str, number: int, point: Point) -> None:
    log: Any = opened(where)
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B_A, channel_id=f"story-{number}")
        await channel.send("first", parts=[File(b"first of " + content(number))])
        await home.handle("bob", channel).send("go on")
        dying = _Dying(point, Random(number))
        for call in ("add_blob", "add_chunk", "set_blob", "append"):
            setattr(log, call, partial(dying.run, call, getattr(log, call)))
        await channel.send("second", parts=[File(content(number))])


class _Dying:
    def __init__(self, point: Point, luck: Random) -> None:
        self._point = point
        self._luck = luck
        self._done = dict[str, int]()

    async def run(
        self, call: str, inner: Callable[..., Awaitable[object]], *given: Any, **named: Any
    ) -> object:
        if call == "append" and not _has_files(given[1]):
            return await inner(*given, **named)
        self._done[call] = self._done.get(call, 0) + 1
        dies, number, when = self._point
        if (call, self._done[call]) != (dies, number):
            return await inner(*given, **named)
        if when == "during":
            begun = asyncio.ensure_future(inner(*given, **named))
            for _ in range(self._luck.randrange(MOST_TURNS)):
                await asyncio.sleep(0)
            assert begun
        elif when == "after":
            await inner(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def _has_files(envelopes: Sequence[Envelope]) -> bool:
    return any(files_of(one.event_type, one.event_data) for one in envelopes)
