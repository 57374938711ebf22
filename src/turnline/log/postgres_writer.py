"""What appends to a `PostgresLog`: a few lanes, each with one batch under way.

    take what is waiting -> seal -> one call, which is one transaction -> answer

Rule 1: an answer goes out only after the call has returned, and with it its commit.

Rule 2: a batch closes when nobody waits or at its limits, never on a timer: a lone append waits
for nobody, and many share one sync.

Rule 3: a connection that is lost during a call means *unknown*. The same appends are sent again:
whatever has landed is refused, and then found by its id. A call that is still running on the
server holds the heads of its channels, so the second one waits for it.

Rule 4: within a batch channels come in the order of their names, so two batches never wait for
each other in a ring.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg.errors import DeadlockDetected, SerializationFailure

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogUnavailable
from turnline.log.postgres_schema import APPEND
from turnline.log.postgres_server import ConnectionLost, PostgresServer
from turnline.log.postgres_work import Again, Answer, Append, Ends, parameters

LANES: Final = 2
MAX_BATCH: Final = 256
"""Appends committed together."""
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""A batch ends with the append that passes it."""
MAX_WAITING: Final = 100_000
"""Appends queued behind the batches being written; more are refused."""
MAX_ATTEMPTS: Final = 4
"""Of a call whose connection is lost, or that stood in another's way."""

_LANDED: Final = "SELECT hash FROM turnline_records WHERE channel = %s AND seq = %s AND envelope_id = %s"


class WriterStats(Struct, frozen=True, kw_only=True):
    """What the writer has done since the log was opened."""

    works: int = 0
    """Appends that were committed."""
    transactions: int = 0
    """Calls that were answered; fewer than `works` when callers share them."""
    largest_batch: int = 0
    waiting: int = 0
    lost: int = 0
    """Connections that were lost during a call."""
    unavailable: str = ""
    """Why the last append could not be written; empty once one was."""


class Writer:
    """Takes appends in its event loop; sends them in batches."""

    def __init__(self, server: PostgresServer, ends: Ends, *, committed: Callable[[], None]) -> None:
        self._server = server
        self._committed = committed
        self._ends = ends
        self._waiting: deque[Append] = deque()
        self._lanes: set[Task[None]] = set()
        self._running = 0
        """Lanes that will look again for what is waiting. A task is done a little later than its lane."""
        self._closing = False
        self._stats = WriterStats()

    async def submit(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None
    ) -> None:
        """Write `envelopes` and `row`, or raise why not, also if their caller no longer waits."""
        if self._closing:
            raise LogUnavailable(self._server.address, because="it has been closed")
        if len(self._waiting) >= MAX_WAITING:
            because = f"{MAX_WAITING} writes are waiting already"
            raise LogUnavailable(self._server.address, because=because)
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(Append(channel_id, envelopes, after=after, row=row, answer=answer))
        if self._running < LANES:
            self._running += 1
            lane = asyncio.create_task(self._run())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)
        await answer

    def stats(self) -> WriterStats:
        return replace(self._stats, waiting=len(self._waiting))

    def note_written(self) -> None:
        """Take note that the server takes writes: somebody else's was committed."""
        self._stats = replace(self._stats, unavailable="")

    async def close(self) -> None:
        """Write what is waiting, then stop."""
        self._closing = True
        await asyncio.gather(*self._lanes)

    async def _run(self) -> None:
        while batch := self._take():
            try:
                await self._settle(batch)
            except Exception as error:  # Whatever it is, nobody may be left waiting.
                self._give_up(batch, error)
        self._running -= 1

    def _take(self) -> list[Append]:
        batch: list[Append] = []
        size = 0
        while self._waiting and len(batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
            work = self._waiting.popleft()
            if self._seal(work):
                size += work.size
                batch.append(work)
        return sorted(batch, key=lambda work: work.channel_id)

    def _seal(self, work: Append) -> bool:
        try:
            work.seal(self._ends.hash_at(work.channel_id, work.after))
        except Exception as error:  # Data that has no JSON: its caller's affair.
            work.settle(error)
        return not work.is_settled

    async def _settle(self, batch: Sequence[Append]) -> None:
        """Settle all of `batch`. Raises what is to be said of those that are left."""
        failure: Exception = LogUnavailable(self._server.address, because="its answers contradict each other")
        for _ in range(MAX_ATTEMPTS):
            works = [work for work in batch if not work.is_settled]
            try:
                if works:
                    await self._try(works)
            except (ConnectionLost, DeadlockDetected, SerializationFailure) as error:
                failure = error
            except psycopg.Error:
                if len(batch) == 1:
                    raise
                return await self._settle_each(works)
        if not all(work.is_settled for work in batch):
            raise failure

    async def _settle_each(self, works: Sequence[Append]) -> None:
        """One of them cannot be written; the others shall not suffer for it."""
        for work in works:
            try:
                await self._settle([work])
            except Exception as error:
                self._give_up([work], error)

    async def _try(self, works: Sequence[Append]) -> None:
        for work, answer in zip(works, await self._call(works), strict=True):
            if answer.outcome == "written":
                self._ends.keep(work.channel_id, work.sent[-1].seq, work.sent[-1].hash)
                work.settle(None)
            elif answer.outcome == "row":
                work.settle(None)
            else:
                self._ends.keep(work.channel_id, answer.seq, answer.hash)
                await self._refuse(work, answer)
        self._count(works)

    async def _call(self, works: Sequence[Append]) -> list[Answer]:
        try:
            async with self._server.connection() as connection:
                cursor = await connection.execute(APPEND, parameters(works), prepare=True)
                return [Answer(*row) for row in await cursor.fetchall()]
        except ConnectionLost:
            self._stats = replace(self._stats, lost=self._stats.lost + 1)
            for work in works:
                work.is_doubtful = work.is_doubtful or bool(work.sent)
            raise

    async def _refuse(self, work: Append, answer: Answer) -> None:
        refusal = work.refusal(answer)
        if refusal is Again:
            self._seal(work)
        elif work.is_doubtful and await self._landed(work):
            work.settle(None)
        else:
            work.settle(refusal)

    async def _landed(self, work: Append) -> bool:
        # All of an append lands or none of it does, so its last record speaks for the others.
        if not work.sent:
            return False
        last = work.sent[-1]
        async with self._server.connection() as connection:
            cursor = await connection.execute(_LANDED, (work.channel_id, last.seq, last.envelope_id))
            return await cursor.fetchone() == (last.hash,)

    def _count(self, works: Sequence[Append]) -> None:
        written = sum(work.is_written for work in works)
        self._stats = replace(
            self._stats,
            works=self._stats.works + written,
            transactions=self._stats.transactions + 1,
            largest_batch=max(self._stats.largest_batch, len(works)),
            unavailable="",
        )
        if written:
            self._committed()

    def _give_up(self, works: Sequence[Append], error: Exception) -> None:
        self._stats = replace(self._stats, unavailable=self._server.reason(error))
        for work in works:
            work.settle(self._server.unavailable(error))
