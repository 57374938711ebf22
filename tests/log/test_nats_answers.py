"""Appends whose answer is lost or late, on one server and on three: they answer a retry differently."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.log.nats_proxy import Proxy, proxy_to
from tests.nats_servers import NatsCluster, NatsServer
from turnline.errors import LogConflict
from turnline.log.nats import NatsLog
from turnline.testing.lines import line, lines

WRONG_SEQUENCE = b'"err_code":10071'
DUPLICATE = b'"duplicate": true'


@pytest.fixture(params=["nats_server", "nats_cluster"])
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[Proxy]:
    servers: NatsServer | NatsCluster = request.getfixturevalue(request.param)
    async with proxy_to(servers.fresh()) as proxy:
        yield proxy


@pytest.fixture
async def log(proxy: Proxy) -> AsyncIterator[NatsLog]:
    log = NatsLog(proxy.address)
    await log.connect()
    yield log
    await log.close()


@pytest.fixture
async def other(proxy: Proxy) -> AsyncIterator[NatsLog]:
    """Somebody on the same stream whose network is whole."""
    log = NatsLog(proxy.direct)
    yield log
    await log.close()


async def test_an_append_whose_answer_was_lost_is_read_back(proxy: Proxy, log: NatsLog) -> None:
    proxy.lose_answers = 1

    await log.append("c", [line("c", 1), line("c", 2)], after=0)
    assert await lines(log, "c") == [line("c", 1), line("c", 2)]
    assert len(proxy.answers) == 1


async def test_one_server_and_three_answer_a_retry_differently_and_it_lands_once(
    proxy: Proxy, log: NatsLog
) -> None:
    """One replica answers the second append with "wrong sequence", three answer with "duplicate"."""
    proxy.delay_appends = 1

    await log.append("c", [line("c", 1)], after=0)
    assert await lines(log, "c") == [line("c", 1)]
    expected = DUPLICATE if "of 3 servers" in log.durability else WRONG_SEQUENCE
    assert expected not in proxy.answers[0]
    assert expected in proxy.answers[-1]


async def test_a_late_append_that_others_were_before_is_a_conflict(
    proxy: Proxy, log: NatsLog, other: NatsLog
) -> None:
    proxy.delay_appends = 1
    await other.append("c", [line("c", 1, envelope_id="theirs")], after=0)

    with pytest.raises(LogConflict) as conflict:
        await log.append("c", [line("c", 1, envelope_id="ours")], after=0)
    assert conflict.value.found == 1
    assert [e.envelope_id for e in await lines(log, "c")] == ["theirs"]


async def test_the_same_envelopes_by_another_writer_are_not_ones_own(
    proxy: Proxy, log: NatsLog, other: NatsLog
) -> None:
    """Two hubs may try the very same append; only one of them may believe that it was first."""
    proxy.delay_appends = 1
    await other.append("c", [line("c", 1)], after=0)

    with pytest.raises(LogConflict):
        await log.append("c", [line("c", 1)], after=0)
