"""Pages of the index: a token continues, a page looks at so many rows, and a bad question is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from turnline.core.channel import ChannelFilter, ChannelRow, ChannelState
from turnline.errors import BadQuery
from turnline.log.memory import MemoryLog
from turnline.log.walks import (
    EVERY,
    MAX_LABELS,
    MAX_ROWS,
    STATUSES,
    filter_of,
    has_status,
    list_rows,
    read_page,
    token_of,
)
from turnline.testing.lines import NOON, add_channel, row

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


class Rows(MemoryLog):
    """An index of rows that no line stands for; it counts how many are read."""

    def __init__(self, rows: list[ChannelRow]) -> None:
        super().__init__()
        self.there = sorted(rows, key=lambda one: (one.created_at, one.channel_id), reverse=True)
        self.read_rows = 0
        self.asked: set[str] = set()

    async def rows(
        self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
    ) -> list[ChannelRow]:
        first = 0
        if after is not None:
            place = (after.created_at, after.channel_id)
            first = sum((one.created_at, one.channel_id) >= place for one in self.there)
        self.read_rows += limit
        self.asked.add(repr(where))
        return self.there[first : first + limit]


def many(count: int, **fields: Any) -> Rows:
    return Rows([row(f"c{n:05}", created_at=NOON + timedelta(seconds=n), **fields) for n in range(count)])


async def none(row: ChannelRow) -> bool:
    return False


async def test_the_last_page_has_no_next_even_if_it_is_full() -> None:
    log = many(4)
    first = await read_page(log, EVERY, limit=2)
    second = await read_page(log, EVERY, after=first.next or "", limit=2)

    assert [one.channel_id for one in first.rows + second.rows] == ["c00003", "c00002", "c00001", "c00000"]
    assert second.next is None


async def test_a_page_that_shows_nothing_stops_and_says_where_to_continue() -> None:
    log = many(MAX_ROWS + 10)
    page = await read_page(log, EVERY, limit=5, fits=none)
    rest = await read_page(log, EVERY, after=page.next or "", limit=5, fits=none)

    assert (page.rows, page.next) == ([], token_of(log.there[MAX_ROWS - 1]))
    assert (rest.rows, rest.next) == ([], None)


async def test_a_page_without_a_question_to_each_row_reads_one_row_more_than_it_shows() -> None:
    log = many(1_000)
    await read_page(log, EVERY, limit=5)

    assert log.read_rows == 6


@pytest.mark.parametrize(
    "where",
    [
        ChannelFilter(labels={"team": "red", "case": "none"}),
        ChannelFilter(participants=["ann", "none"]),
        ChannelFilter(participants=["ann"], labels={"case": "none"}),
        ChannelFilter(participants=["ann"], is_closed=True, close_codes=["none"]),
        ChannelFilter(labels={"team": "red"}, flow="none"),
        ChannelFilter(labels={"team": "red"}, is_run=True),
        ChannelFilter(flow="leads", is_run=True),
        ChannelFilter(is_run=False, type="none"),
    ],
)
async def test_a_page_of_what_no_index_orders_looks_at_a_bounded_number_of_rows(where: ChannelFilter) -> None:
    log = many(MAX_ROWS + 10, labels={"team": "red"}, participants=["ann"], flow="leads", parent_id="above")
    page = await read_page(log, where, limit=5)
    rest = await read_page(log, where, after=page.next or "", limit=5)

    assert (page.rows, page.next) == ([], token_of(log.there[MAX_ROWS - 1]))
    assert (rest.rows, rest.next) == ([], None)
    assert log.asked.isdisjoint({repr(where)})


async def test_the_first_participant_of_a_filter_leads_the_walk() -> None:
    log = many(3)
    await read_page(log, ChannelFilter(participants=["ann", "bob"], labels={"team": "red"}), limit=5)

    assert log.asked == {repr(ChannelFilter(participants=["ann"]))}


async def test_a_token_names_a_place_that_stays_when_its_channel_is_gone() -> None:
    log = many(4)
    first = await read_page(log, EVERY, limit=2)
    log.there = [one for one in log.there if one.channel_id != "c00002"]

    assert [
        one.channel_id for one in (await read_page(log, EVERY, after=first.next or "", limit=9)).rows
    ] == [
        "c00001",
        "c00000",
    ]


@pytest.mark.parametrize(
    "token", ["x", "MTpyMQ==", "MTpyMQ\n", "LTE6cjE", "MTow/zA", "MTo", "é", "A" * 4_000]
)
async def test_a_token_that_no_page_gave_is_refused(token: str) -> None:
    with pytest.raises(BadQuery, match=r"after is .*; expected what `next` of the page before was"):
        await read_page(many(2), EVERY, after=token, limit=1)


async def test_all_rows_are_listed_whatever_a_page_holds() -> None:
    log = MemoryLog()
    for n in range(5):
        await add_channel(log, row(f"c{n}"))

    assert len(await list_rows(log, EVERY)) == 5


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2030-01-30", NOW.replace(day=30, hour=0)),
        ("2030-01-30T12:00:00Z", NOW.replace(day=30)),
        ("2030-01-30T13:00:00+01:00", NOW.replace(day=30)),
        ("2030-01-30T12:00:00", NOW.replace(day=30)),
        ("90m", NOW - timedelta(minutes=90)),
        ("24h", NOW - timedelta(days=1)),
        ("7d", NOW - timedelta(days=7)),
        ("2w", NOW - timedelta(days=14)),
    ],
)
def test_a_moment_is_a_time_or_how_long_ago(text: str, moment: datetime) -> None:
    where = filter_of(since=text, until=text, labels=[], participants=[], flow="", now=NOW)

    assert (where.since, where.until) == (moment, moment)


@pytest.mark.parametrize("text", ["now", "24", "-1h", "1.5h", "2030-13-01", "0000-01-01"])
def test_what_is_no_moment_is_named(text: str) -> None:
    with pytest.raises(BadQuery, match="since is "):
        filter_of(since=text, until="", labels=[], participants=[], flow="", now=NOW)


@pytest.mark.parametrize(
    "labels", [["team"], ["=red"], ["a=1", "a=2"], [f"k{n}=v" for n in range(MAX_LABELS + 1)]]
)
def test_what_are_no_labels_is_named(labels: list[str]) -> None:
    with pytest.raises(BadQuery, match="label is "):
        filter_of(since="", until="", labels=labels, participants=[], flow="", now=NOW)


def test_the_value_of_a_label_may_hold_anything() -> None:
    where = filter_of(since="", until="", labels=["k=a=b", "e="], participants=["ann"], flow="f", now=NOW)

    assert where == ChannelFilter(labels={"k": "a=b", "e": ""}, participants=["ann"], flow="f")


async def test_every_status_lists_the_channels_that_have_it() -> None:
    log = MemoryLog()
    closed: dict[str, Any] = {"closed_at": NOON, "seq": 2}
    for one in (
        row("pending", status=ChannelState.PENDING),
        row("active"),
        row("closing", status=ChannelState.CLOSING, close_code="done"),
        row("closed", status=ChannelState.CLOSED, close_code="done", **closed),
        row("closed-so", status=ChannelState.CLOSED, **closed),
        row("expired", status=ChannelState.EXPIRED, close_code="ttl_expired", **closed),
        row("waiting", waiting_for="person"),
        row("stuck", waiting_for="stuck"),
        row("resting", waiting_for="message"),
    ):
        await add_channel(log, one)

    found = {
        status: {one.channel_id for one in await list_rows(log, where) if has_status(one, status)}
        for status, where in STATUSES.items()
    }

    still = {"pending", "active", "closing", "waiting", "stuck", "resting"}
    assert found == {
        "open": still,
        "pending": {"pending"},
        "active": {"active", "waiting", "stuck", "resting"},
        "closing": {"closing"},
        "closed": {"closed", "closed-so"},
        "expired": {"expired"},
        "waiting": {"waiting", "stuck"},
        "stuck": {"stuck"},
        "resting": {"resting"},
    }
