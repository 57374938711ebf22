"""Y2: what is erased is gone from the files, and the rest of the channel still holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnline.core.adapters import built_in
from turnline.core.channel import ChannelFilter
from turnline.core.event_types import EV_CONTEXT_SET, EV_PAYLOAD_ERASED, EV_TEXT
from turnline.errors import Erased, EraseRefused, PastErased
from turnline.log.memory import MemoryLog
from turnline.log.postgres import PostgresLog
from turnline.log.records import open_records
from turnline.log.sqlite import SqliteLog
from turnline.log.verify import verify

from ..postgres import Postgres, run
from .scenes import A_B, house, refused

CANARY = "CANARY-7f3a"


def found_in(folder: Path) -> list[str]:
    return [one.name for one in sorted(folder.iterdir()) if CANARY.encode() in one.read_bytes()]


async def is_good(address: str) -> bool:
    records = await open_records(address)
    try:
        return (await verify(records, built_in())).is_good
    finally:
        await records.close()


async def test_y2_no_byte_of_what_was_erased_is_left_in_the_files(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    async with house(log, "alice", "bob") as home:
        for number in range(40):  # Other channels around it, so that pages are shared.
            other = await home.open(A_B, labels={"n": str(number)})
            await other.send(f"another {number}")
        channel = await home.open(
            A_B, labels={"who": CANARY}, knobs={"context_vars": {"name": CANARY}}, message=f"I am {CANARY}"
        )
        await channel.send(event_type=EV_CONTEXT_SET, event_data={"set": {"more": CANARY * 100}}, audience=[])
        await home.handle("bob", channel).send(f"{CANARY}, good to see you. " + CANARY * 1000)
        assert (await home.hub.state(channel.channel_id)).is_over
        assert found_in(tmp_path)

        await home.hub.erase(channel.channel_id, by="admin")
        await log.compact()

        assert found_in(tmp_path) == []
        state = await home.hub.state(channel.channel_id)
        assert (state.is_over, state.is_incomplete, state.context_vars) == (True, True, {})
        (row,) = await log.rows(ChannelFilter(participants=[home["bob"].agent_id]), limit=1)
        assert (row.channel_id, row.labels) == (channel.channel_id, {})
        assert not await log.rows(ChannelFilter(labels={"who": CANARY}), limit=1)
        lines = await home.wal(channel)
        assert [line.is_erased for line in lines if line.event_type == EV_TEXT] == [True, True]
        assert lines[-1].event_type == EV_PAYLOAD_ERASED
    assert await is_good(f"sqlite:///{tmp_path}/log.db")
    assert found_in(tmp_path) == []


async def test_y2_no_byte_of_what_was_erased_is_left_in_the_tables_of_postgresql(postgres: Postgres) -> None:
    address = postgres.fresh()
    log = PostgresLog(address)
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, labels={"who": CANARY}, message=f"I am {CANARY}")
        await home.handle("bob", channel).send(f"{CANARY}, good to see you. " + CANARY * 1000)
        folder = Path(run(address, "SHOW data_directory")[0][0]) / "base"
        run(address, "CHECKPOINT")
        assert [one for one in folder.rglob("*") if one.is_file() and CANARY.encode() in one.read_bytes()]

        await home.hub.erase(channel.channel_id, by="admin")
        await log.compact()

        assert not [one for one in folder.rglob("*") if one.is_file() and CANARY.encode() in one.read_bytes()]
        assert not await log.rows(ChannelFilter(labels={"who": CANARY}), limit=1)
        state = await home.hub.state(channel.channel_id)
        assert (state.is_over, state.is_incomplete) == (True, True)
    assert await is_good(address)


async def test_y2_only_what_is_closed_is_erased() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.send("hello")

        error = await refused(EraseRefused, home.hub.erase(channel.channel_id, by="admin"))

        assert "is open" in error.because


async def test_y2_some_lines_are_erased_and_the_others_stay() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        first = await channel.send("hello")
        await home.handle("bob", channel).send("bye")

        done = await home.hub.erase(channel.channel_id, by="admin", lines=[(first.seq, first.seq)])

        assert done.channels == {channel.channel_id: 1}
        said = [line.event_data.get("text") for line in await home.wal(channel) if line.event_type == EV_TEXT]
        assert said == [None, "bye"]
        assert (
            await home.hub.erase(channel.channel_id, by="admin", lines=[(first.seq, first.seq)])
        ).channels == {}


async def test_y2_a_message_that_was_erased_and_is_sent_again_is_answered_so() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.send("hello", envelope_id="once")
        await home.handle("bob", channel).send("bye")
        await home.hub.erase(channel.channel_id, by="admin")

        await refused(Erased, channel.send("hello", envelope_id="once"))


@pytest.mark.parametrize("reason", ["Bob asked for it", "", "x" * 65])
async def test_y2_the_reason_is_a_code_and_no_sentence(reason: str) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await refused(EraseRefused, home.hub.erase(channel.channel_id, by="admin", reason=reason))


async def test_y2_an_erased_channel_cannot_be_forked_and_says_so() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        first = await channel.send("hello")
        await home.handle("bob", channel).send("bye")
        await home.hub.erase(channel.channel_id, by="admin")

        await refused(PastErased, home.hub.fork(channel.channel_id, at=first.seq))
