"""Context variables are what the log adds up to: a write is a line, a restart changes nothing (C1, L6)."""

from __future__ import annotations

from pathlib import Path

from tests.hub.scenes import A_B, house, sqlite
from turnline.network import EV_CONTEXT_SET
from turnline.network.workflow_helpers import delete_context, set_context


async def test_c1_each_write_is_a_line_of_its_writer_and_later_ones_go_over_earlier_ones(
    tmp_path: Path,
) -> None:
    async with house(sqlite(tmp_path), "alice", "bob") as home:
        channel = await home.open(A_B, knobs={"context_vars": {"old": True, "n": 0}})
        await set_context(channel, "n", 1)
        await set_context(home.handle("bob", channel), "n", 2)
        await delete_context(channel, "old")
        written = [line for line in await home.wal(channel) if line.event_type == EV_CONTEXT_SET]
        alice, bob = home["alice"].agent_id, home["bob"].agent_id

        assert [line.sender_id for line in written] == [alice, bob, alice]
        assert [line.event_data.get("set") for line in written[:2]] == [{"n": 1}, {"n": 2}]
        assert (await home.handle("bob", channel).state()).context_vars == {"n": 2}


async def test_l6_after_a_restart_they_are_the_same(tmp_path: Path) -> None:
    async with house(sqlite(tmp_path), "alice", "bob") as home:
        channel = await home.open(A_B, knobs={"context_vars": {"old": True}})
        await set_context(home.handle("bob", channel), "route", {"to": ["north"]})
        await delete_context(channel, "old")
    async with house(sqlite(tmp_path), "alice", "bob") as home:
        again = await home["bob"].channel(channel.channel_id).state()

        assert again.context_vars == {"route": {"to": ["north"]}}
        assert again.turn_count == 0
