"""Rows of the index that follow from lines: rebuilt when they are missing, compared by `verify` (Y7)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from io import BytesIO

import pytest
from msgspec.structs import replace

from turnline.core.adapters import built_in
from turnline.core.channel import ChannelFilter, ChannelRow, ChannelState
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_INVITE
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.rows import rebuild_rows
from turnline.log.transfer import export_log, import_log
from turnline.log.verify import BadRecord, verify
from turnline.testing.lines import NOON, closing_line, line

from ..hub.scenes import house
from .backends import KINDS, MakePlace, Place

EVERY = ChannelFilter()
TABLES = ("sqlite", "postgres")


async def live(place: Place) -> dict[str, ChannelRow]:
    """Let a hub open and close channels, and fork one; return the rows by id."""
    async with place.log() as log, house(log, "alice", "bob") as home:
        talk = await home.talk(labels={"team": "red"})
        await talk.send("hello")
        closed = await home.talk(labels={"team": "blue"})
        await closed.send("bye")
        await closed.close("done")
        await home.open()
        await home.hub.fork(talk.channel_id, at=3)
        return await rows(log)


async def rows(log: Log) -> dict[str, ChannelRow]:
    return {one.channel_id: one for one in await log.rows(EVERY, limit=100)}


async def reopened(place: Place) -> dict[str, ChannelRow]:
    """Return the rows after another hub has opened the log."""
    async with place.log() as log, house(log):
        return await rows(log)


async def bad(place: Place) -> list[BadRecord]:
    async with place.records() as records:
        return (await verify(records, built_in())).bad


@pytest.mark.parametrize("kind", KINDS)
async def test_the_rows_of_a_hub_are_those_that_follow_from_its_lines(place: Place) -> None:
    found = await live(place)

    assert len(found) == 4
    assert sum(one.is_closed for one in found.values()) == 1
    assert sum(bool(one.origin) for one in found.values()) == 1
    assert await bad(place) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_row_of_a_fork_has_the_seq_that_its_readers_see(place: Place) -> None:
    found = await live(place)
    (fork,) = [one for one in found.values() if one.origin]

    assert fork.seq > 3
    assert fork.labels == {"team": "red"}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_import_writes_the_rows(kind: str, make_place: MakePlace) -> None:
    before, after, file = make_place("memory"), make_place(kind), BytesIO()
    expected = await live(before)
    async with before.records() as records:
        await export_log(records, file.write, exported_at="2030-01-01T12:00:00+00:00")
    file.seek(0)

    async with after.log() as log:
        await log.channels(limit=1)
        async with after.records() as there:
            await import_log(file, log, there)
        assert await rows(log) == expected
    assert await bad(after) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_rows_that_are_missing_are_made_again_when_a_hub_opens(
    kind: str, make_place: MakePlace
) -> None:
    before, after = make_place("memory"), make_place(kind)
    expected = await live(before)
    async with before.log() as old, after.log() as log:
        for name, one in expected.items():
            lines = [envelope async for envelope in old.read(name)]
            await log.append(name, lines, after=0)
            assert await log.row(name) is None, one

    assert await reopened(after) == expected


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE turnline_heads SET created = NULL",
        "UPDATE turnline_heads SET row = NULL, created = NULL, flow = NULL",
    ],
)
async def test_an_index_without_rows_is_made_again(place: Place, damage: str) -> None:
    expected = await live(place)
    place.sql(damage)

    assert await reopened(place) == expected
    assert await bad(place) == []


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_an_index_that_was_dropped_is_made_again(place: Place) -> None:
    expected = await live(place)
    with closing(sqlite3.connect(place.path)) as connection, connection:
        for table in ("turnline_heads", "turnline_tags"):
            connection.execute(f"DROP TABLE {table}")

    assert await reopened(place) == expected
    assert await bad(place) == []


def opening(channel_type: str) -> Envelope:
    said = {
        "channel_id": "c",
        "type": channel_type,
        "creator_id": "ann",
        "participants": [{"agent_id": "ann", "name": "Ann"}, {"agent_id": "bob", "name": "Bob"}],
        "labels": {"team": "red"},
    }
    return replace(line("c", 1, data=said), event_type=EV_CHANNEL_INVITE)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_channel_of_an_unknown_type_gets_a_row_from_its_structure(place: Place) -> None:
    async with place.log() as log:
        await log.append("c", [opening("theirs"), line("c", 2), closing_line("c", 3)], after=0)
        assert await rebuild_rows(log, built_in(), only_known=True) == 0
        assert await rebuild_rows(log, built_in()) == 1
        assert await rebuild_rows(log, built_in()) == 0

        assert await log.row("c") == ChannelRow(
            channel_id="c",
            type="theirs",
            status=ChannelState.CLOSED,
            seq=3,
            created_at=NOON,
            updated_at=NOON,
            creator_id="ann",
            participants=["ann", "bob"],
            closed_at=NOON,
            close_code="done",
        )
    assert await bad(place) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_channel_that_cannot_be_folded_gets_no_row_and_costs_no_other(place: Place) -> None:
    async with place.log() as log:
        await log.append("bad", [line("bad", 1)], after=0)
    expected = await live(place)

    assert await reopened(place) == expected


@pytest.mark.parametrize("kind", KINDS)
async def test_a_row_that_does_not_follow_from_the_lines_is_damage_of_the_index(place: Place) -> None:
    found = await live(place)
    one = next(row for row in found.values() if not row.is_closed and not row.origin)
    async with place.log() as log:
        wrong = replace(one, speaker_id="somebody", deadline=NOON)
        await log.append(one.channel_id, [], after=one.seq, row=wrong)

    (told,) = await bad(place)
    assert (told.channel_id, told.seq) == (one.channel_id, one.seq)
    assert "speaker_id" in told.found
    assert "somebody" not in told.found


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("UPDATE turnline_heads SET speaker = 'x' WHERE speaker <> ''", "speaker"),
        ("DELETE FROM turnline_tags WHERE tag LIKE '%blue'", "tags"),
        ("DELETE FROM turnline_tags WHERE tag LIKE '@%'", "tags"),
    ],
)
async def test_an_index_that_contradicts_its_own_rows_is_damage(place: Place, damage: str, told: str) -> None:
    await live(place)
    place.sql(damage)

    found = await bad(place)
    assert found
    assert all(told in one.found for one in found)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_channel_whose_first_line_names_another_one_gets_no_row(place: Place) -> None:
    async with place.log() as log:
        forged = [replace(one, channel_id="forged") for one in await lines_of_a_talk()]
        await log.append("forged", forged, after=0)
        await rebuild_rows(log, built_in())

        assert await log.row("forged") is None


async def lines_of_a_talk() -> list[Envelope]:
    """Return the lines of a conversation that a hub opened on a log of its own."""
    async with house(MemoryLog(), "alice", "bob") as home:
        return await home.hub.read_wal((await home.talk()).channel_id)
