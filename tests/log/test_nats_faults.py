"""X7: three servers, the stream's leader killed or paused while others append."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.log.nats_stage import leader_of
from tests.nats_servers import NatsCluster
from turnwise.core.envelope import Envelope
from turnwise.errors import DuplicateEnvelope, LogConflict, LogUnavailable
from turnwise.log.nats import NatsLog
from turnwise.testing.lines import line, lines

KILLS = 3
BETWEEN = 20
"""Appends acknowledged before the next blow, and before its victim comes back."""
CHANNELS = ("own-1", "own-2", "shared")
PATIENCE_SECONDS = 100.0


class Writers:
    """Two processes' worth of writers; they know what was acknowledged to them."""

    def __init__(self, address: str) -> None:
        self.logs = (NatsLog(address, patience_seconds=5.0), NatsLog(address, patience_seconds=5.0))
        self.acknowledged: dict[str, dict[str, int]] = {name: {} for name in CHANNELS}
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

    async def go_on(self) -> None:
        """Return when more appends have been acknowledged."""
        target = self._count() + BETWEEN
        async with self._more:
            await self._more.wait_for(lambda: self._count() >= target)

    async def close(self) -> None:
        for log in self.logs:
            await log.close()

    async def _write(self, log: NatsLog, channel_id: str, name: str) -> None:
        number = 0
        while not self._stopped:
            number += 1
            seq = await insist(log, channel_id, f"{name}-{number}")
            self.acknowledged[channel_id][f"{name}-{number}"] = seq
            async with self._more:
                self._more.notify_all()

    def _count(self) -> int:
        return sum(map(len, self.acknowledged.values()))


async def insist(log: NatsLog, channel_id: str, envelope_id: str) -> int:
    """Append one envelope whatever happens, always with the same id; return where it is."""
    after = 0
    while True:
        try:
            await log.append(channel_id, [line(channel_id, after + 1, envelope_id=envelope_id)], after=after)
        except LogConflict as conflict:
            after = conflict.found
        except DuplicateEnvelope:  # An attempt whose answer was lost.
            found = await log.find(channel_id, envelope_id)
            assert found is not None
            return found.seq
        except LogUnavailable:
            continue
        else:
            return after + 1


def wrongs(acknowledged: dict[str, int], found: list[Envelope]) -> list[str]:
    """Say what a channel lost or has twice."""
    seqs = {envelope.envelope_id: envelope.seq for envelope in found}
    lost = [f"{name} lost" for name, seq in acknowledged.items() if seqs.get(name) != seq]
    return lost + ["something twice"] * (len(found) - len(seqs))


async def check(writers: Writers, address: str) -> None:
    """Look with the eyes of a process that knows nothing yet."""
    log = NatsLog(address)
    for name in CHANNELS:
        found = await lines(log, name)  # Gapless, and chained, or this raises.
        assert wrongs(writers.acknowledged[name], found) == []
    await log.close()


@pytest.fixture
async def writers(nats_cluster: NatsCluster) -> AsyncIterator[Writers]:
    writers = Writers(nats_cluster.fresh())
    await writers.logs[0].connect()
    yield writers
    await writers.close()


async def test_x7_a_killed_leader_takes_nothing_acknowledged_along(
    nats_cluster: NatsCluster, writers: Writers
) -> None:
    address = writers.logs[0].address
    async with writers.writing():
        for _ in range(KILLS):
            await writers.go_on()
            leader = nats_cluster.named(await leader_of(address))
            leader.kill()
            await writers.go_on()
            leader.start()
            await asyncio.to_thread(leader.wait)

    await check(writers, address)


async def test_x7_a_paused_leader_takes_nothing_acknowledged_along(
    nats_cluster: NatsCluster, writers: Writers
) -> None:
    """It comes back believing that it leads, with what it had not told the others."""
    address = writers.logs[0].address
    async with writers.writing():
        await writers.go_on()
        leader = nats_cluster.named(await leader_of(address))
        leader.pause()
        await writers.go_on()
        leader.go_on()
        await writers.go_on()

    await check(writers, address)


def test_what_is_lost_or_doubled_is_noticed() -> None:
    found = [line("c", 1, envelope_id="a"), line("c", 2, envelope_id="a")]

    assert wrongs({"a": 2}, found[1:]) == []
    assert wrongs({"a": 2, "b": 3}, found[1:]) == ["b lost"]
    assert wrongs({"a": 1}, found[1:]) == ["a lost"]
    assert wrongs({"a": 2}, found) == ["something twice"]
