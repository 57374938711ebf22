"""X7: three NATS servers, the leader killed, paused, cut off: what is acknowledged is there, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.acknowledged import Writers
from tests.faults.counts import NATS_BLOWS
from tests.faults.switchboard import Switchboard
from tests.log.nats_stage import leader_of
from tests.nats_servers import NatsCluster, NatsServer
from turnline.log.nats import NatsLog
from turnline.log.nats_address import NatsAddress

PATIENCE_SECONDS = 2.0
"""Of a log whose server may be the one that is cut off."""


class Cluster(NatsCluster):
    """Three servers whose lines can be cut."""

    def __init__(self, folder: Path) -> None:
        self.lines = Switchboard()
        super().__init__(folder, self.lines.line)

    async def leader(self, writers: Writers) -> NatsServer:
        return self.named(await leader_of(writers.logs[0].address))

    def address_without(self, server: NatsServer, writers: Writers) -> str:
        """Return where the writers' log is known to the others."""
        others = ",".join(one.host for one in self.servers if one is not server)
        return f"nats://{others}/{NatsAddress(writers.logs[0].address).stream}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with TemporaryDirectory(prefix="turnline-nats-", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
            cluster.lines.close()


@asynccontextmanager
async def written_on(address: str) -> AsyncIterator[Writers]:
    logs = [NatsLog(address, patience_seconds=PATIENCE_SECONDS) for _ in range(2)]
    await NatsLog.connect(logs[0])
    try:
        yield Writers(logs)
    finally:
        for log in logs:
            await log.close()


async def wrongs(writers: Writers) -> list[str]:
    log = NatsLog(writers.logs[0].address)
    try:
        return await writers.wrongs(log)
    finally:
        await log.close()


async def kill(cluster: Cluster, leader: NatsServer, meanwhile: Writers) -> None:
    leader.kill()
    await meanwhile.go_on()
    leader.start()
    await asyncio.to_thread(leader.wait)


async def pause(cluster: Cluster, leader: NatsServer, meanwhile: Writers) -> None:
    """It comes back believing that it leads, with what it had not told the others."""
    leader.pause()
    try:
        await meanwhile.go_on()
    finally:
        leader.go_on()


async def cut_off(cluster: Cluster, leader: NatsServer, meanwhile: Writers) -> None:
    """Clients still reach it, and it takes what they send; but nobody else hears of it."""
    await asyncio.to_thread(cluster.lines.cut_off, leader.name)
    try:
        await meanwhile.go_on()
        assert await leader_of(cluster.address_without(leader, meanwhile)) not in ("", leader.name)
    finally:
        await asyncio.to_thread(cluster.lines.mend, leader.name)


BLOWS = (kill, pause, cut_off)


async def test_x7_a_leader_that_is_killed_paused_or_cut_off_takes_nothing_acknowledged_along(
    cluster: Cluster,
) -> None:
    async with written_on(cluster.fresh()) as writers:
        async with writers.writing():
            for number in range(NATS_BLOWS):
                await writers.go_on()
                await BLOWS[number % len(BLOWS)](cluster, await cluster.leader(writers), writers)
                await writers.go_on()

        assert await wrongs(writers) == []


async def lose_a_disk(cluster: Cluster, writers: Writers) -> None:
    """The leader's: a machine that burns down, and another one in its place."""
    async with writers.writing():
        await writers.go_on()
    leader = await cluster.leader(writers)
    leader.kill()
    leader.lose_disk()
    leader.start()
    await asyncio.to_thread(leader.wait)


async def test_x7_three_copies_survive_the_loss_of_one(cluster: Cluster) -> None:
    async with written_on(cluster.fresh()) as writers:
        await lose_a_disk(cluster, writers)

        assert await wrongs(writers) == []


async def test_x7_twin_one_copy_does_not_survive_it_and_is_caught(cluster: Cluster) -> None:
    async with written_on(f"{cluster.fresh()}?replicas=1") as writers:
        await lose_a_disk(cluster, writers)

        assert "lost" in str(await wrongs(writers))
