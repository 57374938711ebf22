"""Writers that know what was acknowledged to them, and what a log has made of it.

    async with writers.writing():           they insist on every envelope, with one id
        await writers.go_on()               ... while somebody breaks something
    assert await writers.wrongs(log) == []  every acknowledged envelope once, in order, gapless

Two processes' worth: each has a log of its own, a channel of its own, and one that both write to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from turnline.core.envelope import Envelope
from turnline.errors import DuplicateEnvelope, LogConflict, LogError, LogUnavailable
from turnline.log.base import Log
from turnline.testing.lines import line, lines

BETWEEN: Final = 20
"""Acknowledged before the next blow, and before its victim comes back."""
PATIENCE_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.01
"""Between two attempts at a log that is away."""

Acknowledged = dict[str, int]
"""Envelope id -> the seq that its writer was told of."""


class Writers:
    """They write until they are told to stop."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self.logs = logs
        self.acknowledged: dict[str, Acknowledged] = {"shared": {}}
        self._more = asyncio.Condition()
        self._stopped = False

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
            for number, log in enumerate(self.logs, 1):
                tasks.create_task(self._write(log, f"own-{number}", f"w{number}"))
                tasks.create_task(self._write(log, "shared", f"w{number}"))
            yield
            self._stopped = True

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    async def go_on(self, more: int = BETWEEN) -> None:
        """Return when more have been acknowledged."""
        target = self.count + more
        async with self._more:
            await self._more.wait_for(lambda: self.count >= target)

    async def wrongs(self, log: Log) -> list[str]:
        """Say what was lost, moved, doubled or left out. `log` is one that knows nothing yet."""
        found: list[str] = []
        for channel_id, acknowledged in self.acknowledged.items():
            try:
                found += wrongs(acknowledged, await lines(log, channel_id))
            except LogError as error:
                found.append(str(error))
        return found

    async def _write(self, log: Log, channel_id: str, name: str) -> None:
        acknowledged = self.acknowledged.setdefault(channel_id, {})
        number = 0
        while not self._stopped:
            number += 1
            acknowledged[f"{name}-{number}"] = await insist(log, channel_id, f"{name}-{number}")
            async with self._more:
                self._more.notify_all()
            await asyncio.sleep(0)  # A log in memory waits for nothing.


async def insist(log: Log, channel_id: str, envelope_id: str) -> int:
    """Append one envelope whatever happens, always with the same id; return where it is."""
    after = 0
    while True:
        try:
            await log.append(channel_id, [line(channel_id, after + 1, envelope_id=envelope_id)], after=after)
        except LogConflict as conflict:
            after = conflict.found
        except DuplicateEnvelope:  # An attempt whose answer was lost.
            if (seq := await _seq(log, channel_id, envelope_id)) is not None:
                return seq
        except LogUnavailable:
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return after + 1


async def _seq(log: Log, channel_id: str, envelope_id: str) -> int | None:
    try:
        found = await log.find(channel_id, envelope_id)
    except LogUnavailable:
        return None
    assert found is not None, "a duplicate of something that is not there"
    return found.seq


def wrongs(acknowledged: Acknowledged, found: Sequence[Envelope]) -> list[str]:
    """Say what a channel lost or moved, has twice, or has gaps in."""
    seqs = {envelope.envelope_id: envelope.seq for envelope in found}
    wrong = [f"{name} lost" for name, seq in acknowledged.items() if seqs.get(name) != seq]
    wrong += ["something twice"] * (len(found) - len(seqs))
    gapless = [envelope.seq for envelope in found] == list(range(1, len(found) + 1))
    return wrong if gapless else [*wrong, "a gap"]
