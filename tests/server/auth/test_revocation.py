"""Revoked tokens: on a channel of their own, known to every server of one log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from turnline.client.embedded import Hub
from turnline.core.channel import ChannelRow
from turnline.core.envelope import SCHEMA_VERSION, Envelope
from turnline.errors import BadToken, ChannelQuarantined, LogUnavailable
from turnline.hub.timers import sortable_ids
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.server.auth.revocation import (
    EV_TOKEN_REVOKED,
    MAX_IDS,
    REFRESH_SECONDS,
    REVOCATIONS_CHANNEL,
    Revocations,
)
from turnline.testing import ManualClock, damage_memory

from .scenes import NOW

A, B, C = (letter * 128 for letter in "abc")


def revocations(log: Log, clock: ManualClock | None = None) -> Revocations:
    clock = clock or ManualClock()
    return Revocations(log, clock, sortable_ids(clock))


async def lines(log: Log) -> list[Envelope]:
    return [line async for line in log.read(REVOCATIONS_CHANNEL)]


async def test_f13_what_was_revoked_is_and_nothing_else() -> None:
    known = revocations(MemoryLog())
    await known.revoke([A], reason="lost", by="root")

    assert await known.is_revoked([A])
    assert not await known.is_revoked([B])
    assert not await known.is_revoked([])


async def test_f13_a_revoked_parent_revokes_its_children_and_a_child_not_its_parent() -> None:
    known = revocations(MemoryLog())
    await known.revoke([B], reason="", by="root")

    assert not await known.is_revoked([A])
    assert await known.is_revoked([A, B])
    assert await known.is_revoked([A, B, C])


async def test_a_revocation_is_a_line_on_a_channel_of_its_own() -> None:
    log = MemoryLog()
    await revocations(log).revoke([B, A], reason="lost", by="root")
    (line,) = await lines(log)

    assert (line.event_type, line.sender_id, line.audience) == (EV_TOKEN_REVOKED, "hub", [])
    assert line.event_data == {"revocation_ids": [A, B], "reason": "lost", "by": "root"}
    assert line.created_at == NOW


async def test_f13_a_revocation_survives_the_process(tmp_path: Path) -> None:
    first = SqliteLog(tmp_path / "log.db")
    await revocations(first).revoke([A], reason="", by="root")
    await first.close()
    again = SqliteLog(tmp_path / "log.db")

    assert await revocations(again).is_revoked([A])
    await again.close()


async def test_revoking_again_writes_nothing() -> None:
    log = MemoryLog()
    for _ in range(2):
        await revocations(log).revoke([A], reason="", by="root")
    await revocations(log).revoke([A, B], reason="", by="root")

    assert [line.event_data["revocation_ids"] for line in await lines(log)] == [[A], [B]]


async def test_what_another_process_revokes_is_known_after_a_while() -> None:
    log, clock = MemoryLog(), ManualClock()
    here, elsewhere = revocations(log, clock), revocations(log, clock)
    assert not await here.is_revoked([A])
    await elsewhere.revoke([A], reason="", by="root")

    clock.advance(REFRESH_SECONDS - 0.1)
    assert not await here.is_revoked([A])
    clock.advance(0.1)
    assert await here.is_revoked([A])


async def test_the_log_is_not_read_for_every_token() -> None:
    log, clock = CountingLog(), ManualClock()
    known = revocations(log, clock)
    for _ in range(10):
        await known.is_revoked([A])
    assert log.reads == 1

    clock.advance(REFRESH_SECONDS)
    await known.is_revoked([A])
    assert log.reads == 2


async def test_two_that_revoke_at_once_both_succeed() -> None:
    log = RacingLog()
    here, elsewhere = revocations(log), revocations(log)
    log.before_the_next_append = lambda: elsewhere.revoke([B], reason="", by="other")
    await here.revoke([A], reason="", by="root")

    assert [line.event_data["revocation_ids"] for line in await lines(log)] == [[B], [A]]
    assert await here.is_revoked([B])


async def test_many_at_once_are_all_revoked() -> None:
    log = MemoryLog()
    ids = [f"{index:0128x}" for index in range(20)]
    known = revocations(log)
    await asyncio.gather(*(known.revoke([one], reason="", by="root") for one in ids))

    assert len(await lines(log)) == len(ids)
    assert [await revocations(log).is_revoked([one]) for one in ids] == [True] * len(ids)


async def test_a_damaged_list_lets_nobody_in() -> None:
    log, clock = MemoryLog(), ManualClock()
    known = revocations(log, clock)
    await known.revoke([A], reason="", by="root")
    await known.revoke([B], reason="", by="root")
    damage_memory(log, REVOCATIONS_CHANNEL, 2)

    for _ in range(2):
        with pytest.raises(ChannelQuarantined, match=REVOCATIONS_CHANNEL):
            await revocations(log, clock).is_revoked([C])
    with pytest.raises(ChannelQuarantined):
        await revocations(log, clock).revoke([C], reason="", by="root")


async def test_a_log_that_cannot_be_read_lets_nobody_in() -> None:
    log, clock = CountingLog(), ManualClock()
    known = revocations(log, clock)
    await known.is_revoked([A])
    log.fails = True
    clock.advance(REFRESH_SECONDS)

    for _ in range(2):
        with pytest.raises(LogUnavailable):
            await known.is_revoked([A])


async def test_a_line_that_says_something_else_is_passed_over() -> None:
    log = MemoryLog()
    odd: list[object] = [None, "x", [1, A.upper(), None], {"a": 1}]
    for seq, ids in enumerate(odd, start=1):
        line = Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=str(seq),
            channel_id=REVOCATIONS_CHANNEL,
            seq=seq,
            sender_id="hub",
            event_type=EV_TOKEN_REVOKED,
            event_data={"revocation_ids": ids},
            created_at=NOW,
        )
        await log.append(REVOCATIONS_CHANNEL, [line], after=seq - 1)
    known = revocations(log)
    await known.revoke([B], reason="", by="root")

    assert not await known.is_revoked([A])
    assert await known.is_revoked([B])


@pytest.mark.parametrize("revocation_id", ["", "abc", A.upper(), A + "a", "g" * 128])
async def test_what_is_no_id_is_not_written(revocation_id: str) -> None:
    log = MemoryLog()
    with pytest.raises(BadToken):
        await revocations(log).revoke([revocation_id], reason="", by="root")

    assert await lines(log) == []


async def test_a_line_has_an_end() -> None:
    known = revocations(MemoryLog())
    with pytest.raises(BadToken):
        await known.revoke([f"{index:0128x}" for index in range(MAX_IDS + 1)], reason="", by="root")
    with pytest.raises(BadToken):
        await known.revoke([A], reason="x" * 501, by="root")

    assert not await known.is_revoked([A])


async def test_the_hub_leaves_the_channel_alone() -> None:
    log = MemoryLog()
    await revocations(log).revoke([A], reason="", by="root")
    hub = await Hub.open(log, ttl_sweep_interval=0)
    channels = await hub.list_channels()
    await hub.close()

    assert channels == []
    assert await revocations(log).is_revoked([A])


class CountingLog(MemoryLog):
    """Counts how often it is read, and can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.fails = False

    def read(self, channel_id: str, *, after: int = 0):  # type: ignore[no-untyped-def]
        self.reads += 1
        if self.fails:
            raise LogUnavailable(self.address, because="a test says so")
        return super().read(channel_id, after=after)


class RacingLog(MemoryLog):
    """Lets somebody else append first, once."""

    def __init__(self) -> None:
        super().__init__()
        self.before_the_next_append: Callable[[], object] | None = None

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        first, self.before_the_next_append = self.before_the_next_append, None
        if first is not None:
            await first()  # type: ignore[misc]
        await super().append(channel_id, envelopes, after=after, row=row)
