"""One log, and the network through which every process reaches it.

A request takes a while to arrive, and its answer to come back; it may be refused, and what was written
may be answered with an error (so that whoever wrote it does not know). What has arrived is done, whatever
becomes of whoever asked for it.
"""

from __future__ import annotations

from asyncio import Future
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from tests.faults.simulation.loop import Place, SeededLoop
from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import SALT_BYTES
from turnline.core.envelope import Envelope
from turnline.errors import LogUnavailable
from turnline.log.base import Head
from turnline.log.memory import MemoryLog

T = TypeVar("T")

ADDRESS: Final = "simulated:"
OUTSIDE: Final = Context()
"""The network belongs to nobody: it goes on whoever is killed or paused."""


@dataclass(frozen=True, kw_only=True)
class Weather:
    """How bad it is just now."""

    slow_seconds: float = 0.01
    """A request, and its answer, take so long at most."""
    late_seconds: float = 0.02
    """So long, at most, until others are told of an append."""
    refused: float = 0.0
    """How many requests fail: nothing was done."""
    lost: float = 0.0
    """How many appends are done, and answered with an error."""


FAIR: Final = Weather()


class Store:
    """What everybody shares: the log, and what the network does to those who use it."""

    def __init__(self, loop: SeededLoop, random: Random, salts: Random) -> None:
        self.loop = loop
        self.weather = FAIR
        self.log = MemoryLog(new_salt=partial(salts.randbytes, SALT_BYTES))
        self.landed_at: defaultdict[str, list[float]] = defaultdict(list)
        """Channel -> when each of its lines landed, in the loop's time: the only clock that is right."""
        self.acknowledged: list[tuple[str, str]] = []
        """Channel and id of every line of which somebody was told that it is written."""
        self._random = random
        self._appends: list[str] = []
        self._waiting: list[tuple[Reach, Future[None]]] = []

    def append(
        self, channel_id: str, envelopes: Sequence[Envelope], after: int, row: ChannelRow | None
    ) -> None:
        done(self.log.append(channel_id, envelopes, after=after, row=row))
        self.landed_at[channel_id] += [self.loop.time()] * len(envelopes)
        self._appends.append(channel_id)
        waiting, self._waiting = self._waiting, []
        for reach, future in waiting:
            late = self.seconds(self.weather.late_seconds)
            self.loop.call_later(late, reach.settle, future, None, context=OUTSIDE)

    @property
    def append_count(self) -> int:
        return len(self._appends)

    def note_appends(self, log: MemoryLog) -> None:
        """Count what was appended before the first process started."""
        for channel_id, records in log.records.items():
            self._appends += [channel_id] * len(records)
            self.landed_at[channel_id] += [0.0] * len(records)

    def read(self, channel_id: str, after: int = 0) -> list[Envelope]:
        return done(_all(self.log.read(channel_id, after=after)))

    def heads(self, after: int) -> list[Head]:
        """Where the channels end that were appended to behind position `after`."""
        found = [done(self.log.head(name)) for name in dict.fromkeys(self._appends[after:])]
        return sorted((head for head in found if head is not None), key=lambda head: head.position)

    def wait_beyond(self, reach: Reach, position: int) -> Future[None]:
        future: Future[None] = self.loop.create_future()
        if len(self._appends) > position:
            future.set_result(None)
        else:
            self._waiting.append((reach, future))
        return future

    def seconds(self, most: float) -> float:
        """How long something takes: a moment as a rule, now and then as long as it can."""
        return most * self._random.random() ** 3

    def happens(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance


class Reach:
    """The log as one process reaches it: see `turnline.log.base.Log`."""

    address = ADDRESS
    durability = "none"

    def __init__(self, store: Store, place: Place) -> None:
        self.store = store
        self.is_cut = False
        """Whether nothing gets through."""
        self._place = place

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        envelopes = list(envelopes)
        await self._ask(lambda: self.write(channel_id, envelopes, after, row), may_be_lost=True)
        self.note(channel_id, envelopes)

    def write(
        self, channel_id: str, envelopes: Sequence[Envelope], after: int, row: ChannelRow | None
    ) -> None:
        """The append has arrived."""
        self.store.append(channel_id, envelopes, after, row)

    def note(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        self.store.acknowledged += [(channel_id, one.envelope_id) for one in envelopes]

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        for envelope in await self._ask(lambda: self.store.read(channel_id, after)):
            yield envelope

    async def find(self, channel_id: str, envelope_id: str) -> Envelope | None:
        return await self._ask(lambda: done(self.store.log.find(channel_id, envelope_id)))

    async def head(self, channel_id: str) -> Head | None:
        return await self._ask(lambda: done(self.store.log.head(channel_id)))

    async def channels(
        self, *, closed: bool | None = None, after: str = "", limit: int | None = None
    ) -> list[Head]:
        log = self.store.log
        return await self._ask(lambda: done(log.channels(closed=closed, after=after, limit=limit)))

    async def rows(
        self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
    ) -> list[ChannelRow]:
        return await self._ask(lambda: done(self.store.log.rows(where, after=after, limit=limit)))

    async def row(self, channel_id: str) -> ChannelRow | None:
        return await self._ask(lambda: done(self.store.log.row(channel_id)))

    async def without_row(self, *, after: str = "", limit: int) -> list[str]:
        return await self._ask(lambda: done(self.store.log.without_row(after=after, limit=limit)))

    async def end(self) -> int:
        return await self._ask(lambda: done(self.store.log.end()))

    async def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        while True:
            for head in await self._ask(lambda position=after: self.store.heads(position)):  # type: ignore[misc]
                yield head
                after = head.position
            await self.store.wait_beyond(self, after)

    async def close(self) -> None:
        """Others go on using it."""

    async def _ask(self, work: Callable[[], T], *, may_be_lost: bool = False) -> T:
        future: Future[T] = self.store.loop.create_future()
        seconds = self.store.seconds(self.store.weather.slow_seconds)
        self.store.loop.call_later(seconds, self._arrive, work, future, may_be_lost, context=OUTSIDE)
        return await future

    def _arrive(self, work: Callable[[], T], future: Future[T], may_be_lost: bool) -> None:
        weather, store = self.store.weather, self.store
        answer: T | Exception
        if self.is_cut or store.happens(weather.refused):
            answer = LogUnavailable(ADDRESS, because="the request was refused")
        else:
            try:
                answer = work()
            except Exception as error:
                answer = error
            if may_be_lost and store.happens(weather.lost):
                answer = LogUnavailable(ADDRESS, because="the answer was lost")
        seconds = store.seconds(weather.slow_seconds)
        store.loop.call_later(seconds, self.settle, future, answer, context=OUTSIDE)

    def settle(self, future: Future[T], answer: T | Exception) -> None:
        """The answer has come back."""
        if future.done() or self._place.has_ended:
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def done(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; it waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("a log in memory waits for nobody")


async def _all(envelopes: AsyncIterator[Envelope]) -> list[Envelope]:
    return [envelope async for envelope in envelopes]
