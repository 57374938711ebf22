"""`NatsLog` on three servers: the contract with three copies. Servers that die are in `test_nats_faults`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.log.nats_stage import damage_nats
from tests.nats_servers import NatsCluster
from turnline.log.base import Log
from turnline.log.nats import NatsLog
from turnline.log.nats_address import NatsAddress
from turnline.testing import Damage, DurableLogContract
from turnline.testing.lines import line, lines, say


@pytest.fixture
async def log(nats_cluster: NatsCluster) -> AsyncIterator[NatsLog]:
    log = NatsLog(nats_cluster.fresh())
    yield log
    await log.close()


class TestNatsLogOnThreeServers(DurableLogContract):
    def damage(self, log: Log, channel_id: str, seq: int, damage: Damage) -> None:
        damage_nats(log.address, channel_id, seq, damage)

    async def reopen(self, log: Log) -> Log:
        await log.close()
        return NatsLog(log.address)

    async def torn(self, log: Log, folder: Path) -> AsyncIterator[Log]:
        """Not asked for: see the one test that would."""
        raise NotImplementedError
        yield log

    async def test_a_torn_tail_leaves_whole_appends_in_order_and_a_log_that_goes_on(
        self, log: Log, tmp_path: Path
    ) -> None:
        """What is torn on one of three servers is on the others: nothing at all is lost."""
        for seq in range(1, 13, 3):
            await log.append("c", [line("c", seq), line("c", seq + 1), line("c", seq + 2)], after=seq - 1)
        stream = NatsAddress(log.address).stream

        self.cluster.stop()
        block = self.cluster.servers[0].folder / f"jetstream/$G/streams/{stream}/msgs/1.blk"
        block.write_bytes(block.read_bytes()[:-100])
        self.cluster.start()

        assert await lines(log, "c") == [line("c", seq) for seq in range(1, 13)]
        assert await say(log, "c", "goes on") == 13

    @pytest.fixture(autouse=True)
    def _where_it_is_kept(self, nats_cluster: NatsCluster) -> None:
        self.cluster = nats_cluster


async def test_three_copies_are_kept_where_there_are_three_servers(log: NatsLog) -> None:
    await log.connect()

    assert log.durability.startswith("loss of 1 of 3 servers")
    assert "sync_interval: always" in log.durability


async def test_one_copy_on_a_cluster_is_a_choice_and_told(nats_cluster: NatsCluster) -> None:
    log = NatsLog(f"{nats_cluster.fresh()}?replicas=1")
    await log.append("c", [line("c", 1)], after=0)

    assert log.durability.startswith("process")
    assert "one copy, though its cluster could keep three" in log.durability
    await log.close()
