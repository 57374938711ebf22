"""What the index of every log must do (Y7): the row of a channel is there with its append, or not at all.

`LogContract` has these tests. A list is compared with `turnline.core.channel.matches`, which says for a
single row what a filter means.
"""

# ruff: noqa: PLR2004  A test counts what it wrote.

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any, Final

from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow, ChannelState, matches
from turnline.errors import DuplicateEnvelope, LogConflict
from turnline.log.base import Log
from turnline.log.walks import EVERY, narrow, read_page
from turnline.testing.lines import NOON, add_channel, closing_line, first_line, line, pages, refusal, row

LONG: Final = "long " * 1_000


def at(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


def closed(code: str = "done", **fields: Any) -> dict[str, Any]:
    """Return what a row of a closed channel has."""
    return {"closed_at": at(90), "status": ChannelState.CLOSED, "seq": 2, "close_code": code, **fields}


ROWS: Final = [
    row("plain", created_at=at(0)),
    row("labelled", created_at=at(1), labels={"team": "red", "who": "ann"}),
    row("labelled-too", created_at=at(2), labels={"team": "red"}, participants=["agent", "ann"]),
    row("other-label", created_at=at(3), labels={"team": "blue", "te": "am=red"}, speaker_id="agent"),
    row("run", created_at=at(4), flow="leads", speaker_id="agent", participants=["agent"], deadline=at(30)),
    row("run-below", created_at=at(5), flow="leads", parent_id="run", waiting_for="person"),
    row("run-done", created_at=at(6), flow="leads", **closed("done", labels={"team": "red"})),
    row("run-failed", created_at=at(7), flow="leads", **closed("turn_failed", participants=["agent"])),
    row("run-ended", created_at=at(7), flow="leads", **closed("")),
    row("run-closing", created_at=at(7), flow="leads", close_code="done", status=ChannelState.CLOSING),
    row("other-run", created_at=at(8), flow="invoices", waiting_for="timer", deadline=at(40)),
    row("x-fork", created_at=at(9), origin="run", type="conversation", speaker_id="ann"),
    row("closed", created_at=at(10), **closed("")),
    row("closed-sooner", created_at=at(11), type="discussion", **closed("turn_failed")),
    row("closing", created_at=at(12), status=ChannelState.CLOSING, close_code="ttl_expired"),
    row("long", created_at=at(13), flow=LONG, labels={"note": LONG, "\0": "\0"}, participants=[LONG]),
    row("same-time", created_at=at(13), participants=["ann", "agent", "ann"]),
    row("same-time-too", created_at=at(13), labels={"team": "red"}, **closed("done")),
]

FILTERS: Final = [
    ChannelFilter(is_closed=False),
    ChannelFilter(is_closed=True),
    ChannelFilter(type="conversation"),
    ChannelFilter(flow="leads"),
    ChannelFilter(flow=LONG),
    ChannelFilter(is_run=True),
    ChannelFilter(is_run=False),
    ChannelFilter(labels={"team": "red"}),
    ChannelFilter(labels={"team": "red", "who": "ann"}),
    ChannelFilter(labels={"note": LONG}),
    ChannelFilter(labels={"\0": "\0"}),
    ChannelFilter(participants=["agent"]),
    ChannelFilter(participants=[LONG]),
    ChannelFilter(participants=["ann", "agent"]),
    ChannelFilter(parent_id="run"),
    ChannelFilter(origin="run"),
    ChannelFilter(speaker_id="agent"),
    ChannelFilter(waiting_for=["person"]),
    ChannelFilter(waiting_for=["person", "timer", "message"]),
    ChannelFilter(is_waiting=True),
    ChannelFilter(is_waiting=False),
    ChannelFilter(close_codes=["done"]),
    ChannelFilter(close_codes=["done", "turn_failed"]),
    ChannelFilter(but_close_codes=["done"]),
    ChannelFilter(but_close_codes=["done", "never"]),
    ChannelFilter(since=at(6)),
    ChannelFilter(until=at(6)),
    ChannelFilter(due=at(35)),
    ChannelFilter(type="nothing of the kind"),
]


class IndexContract:
    """The tests; every method's name is a rule of `turnline.log.base.Index`."""

    async def test_a_row_is_read_back_equal_in_every_field(self, log: Log) -> None:
        full = row(
            "c",
            created_at=NOON.replace(microsecond=123_456),
            creator_id="ann",
            participants=["ann", "bob"],
            labels={"team": "rot & blau", "empty": ""},
            flow="leads",
            parent_id="above",
            origin="before",
            last_speaker_id="ann",
            turn_count=3,
            user_key="a1b2",
            **closed("done", deadline=at(5), speaker_id="bob", waiting_for="person"),
        )
        await add_channel(log, full)

        assert await log.row("c") == full
        assert await log.rows(EVERY, limit=10) == [full]

    async def test_a_channel_without_a_row_is_in_no_list(self, log: Log) -> None:
        await log.append("_own", [line("_own", 1)], after=0)
        await log.append("c", [line("c", 1)], after=0)

        assert await log.rows(EVERY, limit=10) == []
        assert await log.row("_own") is None
        assert await log.row("nobody") is None
        assert await log.without_row(limit=10) == ["c"]

    async def test_each_append_replaces_the_row(self, log: Log) -> None:
        await add_channel(log, row("c", speaker_id="ann", labels={"k": "v"}, participants=["ann"]))
        moved = row("c", seq=2, speaker_id="bob", labels={"k": "v"}, participants=["ann"])
        await log.append("c", [line("c", 2)], after=1, row=moved)

        assert await log.row("c") == moved
        assert await log.rows(ChannelFilter(speaker_id="ann"), limit=10) == []
        assert await log.rows(ChannelFilter(speaker_id="bob"), limit=10) == [moved]
        assert await log.rows(ChannelFilter(labels={"k": "v"}, participants=["ann"]), limit=10) == [moved]

    async def test_an_append_that_is_refused_leaves_the_row_as_it_was(self, log: Log) -> None:
        first = row("c", speaker_id="ann")
        await add_channel(log, first)
        other = row("c", seq=2, speaker_id="bob")

        stale = line("c", 1, envelope_id="other")
        await refusal(LogConflict, log.append("c", [stale], after=0, row=other))
        again = line("c", 2, envelope_id="c-1")
        await refusal(DuplicateEnvelope, log.append("c", [again], after=1, row=other))
        await refusal(LogConflict, log.append("d", [line("d", 3)], after=2, row=row("d")))
        assert await log.row("c") == first
        assert await log.rows(EVERY, limit=10) == [first]

    async def test_an_append_without_a_row_takes_the_channel_off_the_lists(self, log: Log) -> None:
        """The old row would be wrong. It is made again from the lines."""
        await add_channel(log, row("c", flow="leads", labels={"k": "v"}))
        await log.append("c", [line("c", 2)], after=1)

        assert await log.row("c") is None
        assert await log.rows(EVERY, limit=10) == []
        assert await log.rows(ChannelFilter(flow="leads"), limit=10) == []
        assert await log.rows(ChannelFilter(labels={"k": "v"}), limit=10) == []
        assert await log.without_row(limit=10) == ["c"]

    async def test_a_row_alone_is_written_where_the_channel_ends(self, log: Log) -> None:
        made = row("c", seq=2, speaker_id="ann")
        await log.append("c", [first_line(made), line("c", 2)], after=0)
        await log.append("c", [], after=2, row=made)

        assert await log.row("c") == made
        assert await log.without_row(limit=10) == []
        head = await log.head("c")
        assert head is not None
        assert head.seq == 2
        await log.append("c", [], after=2, row=replace(made, speaker_id="bob"))
        assert [one.speaker_id for one in await log.rows(EVERY, limit=10)] == ["bob"]
        await log.append("c", [line("c", 3)], after=2, row=replace(made, seq=3))
        assert await log.rows(EVERY, limit=10) == [replace(made, seq=3)]

    async def test_a_row_alone_is_refused_where_the_channel_goes_on(self, log: Log) -> None:
        first = row("c", speaker_id="ann")
        await add_channel(log, first)

        conflict = await refusal(LogConflict, log.append("c", [], after=2, row=row("c", seq=2)))
        assert conflict.found == 1
        await refusal(LogConflict, log.append("c", [], after=0, row=row("c", seq=2)))
        assert await log.row("c") == first

    async def test_a_channel_without_lines_gets_no_row(self, log: Log) -> None:
        await log.append("c", [], after=0, row=row("c"))

        assert await log.row("c") is None
        assert await log.rows(EVERY, limit=10) == []
        assert await log.channels() == []

    async def test_channels_without_a_row_are_named_in_pages(self, log: Log) -> None:
        for name in ("b", "a", "_own", "d", "c"):
            await log.append(name, [line(name, 1)], after=0)
        await add_channel(log, row("e"))

        assert await log.without_row(limit=3) == ["a", "b", "c"]
        assert await log.without_row(after="c", limit=3) == ["d"]

    async def test_rows_come_newest_first(self, log: Log) -> None:
        times = [3, 1, 4, 0, 2]
        for minutes in times:
            await add_channel(log, row(f"c{minutes}", created_at=at(minutes)))
        await log.append("c0", [line("c0", 2)], after=1, row=row("c0", seq=2, created_at=at(0)))

        assert [one.channel_id for one in await log.rows(EVERY, limit=10)] == ["c4", "c3", "c2", "c1", "c0"]
        assert [one.channel_id for one in await log.rows(EVERY, limit=2)] == ["c4", "c3"]
        assert await log.rows(EVERY, limit=0) == []

    async def test_every_filter_and_every_two_filters_mean_what_matches_says(self, log: Log) -> None:
        for one in ROWS:
            await add_channel(log, one)
        asked = [EVERY, *FILTERS, *(narrow(*two) for two in combinations(FILTERS, 2))]

        wrong = {}
        for where in asked:
            found = await pages(log, where, limit=3)
            expected = [one for one in ROWS if matches(one, where)]
            by_age = [one.created_at for one in found]
            listed = (await read_page(log, where, limit=len(ROWS))).rows
            is_same = _by_id(found) == _by_id(listed) == _by_id(expected)
            if not is_same or by_age != sorted(by_age, reverse=True):
                wrong[repr(where)] = [one.channel_id for one in found]
        assert wrong == {}

    async def test_pages_have_no_gap_and_no_repeat_while_channels_move(self, log: Log) -> None:
        there = {f"c{n:02}": row(f"c{n:02}", created_at=at(n // 4)) for n in range(40)}
        for one in there.values():
            await add_channel(log, one)
        found: list[ChannelRow] = []
        after: str | None = ""

        while after is not None:
            page = await read_page(log, EVERY, after=after, limit=7)
            found, after = [*found, *page.rows], page.next
            name, last = page.rows[0].channel_id, page.rows[-1].channel_id
            moved = replace(there[name], seq=2, speaker_id="bob")
            over = row(last, created_at=there[last].created_at, **closed())
            newer = row(f"new-{len(found)}", created_at=at(60 + len(found)))
            await asyncio.gather(
                log.append(name, [line(name, 2)], after=1, row=moved),
                log.append(last, [closing_line(last, 2)], after=1, row=over),
                add_channel(log, newer),
            )

        names = [one.channel_id for one in found]
        assert len(names) == len(set(names))
        assert set(names) == set(there)

    async def test_a_channel_that_closes_leaves_the_lists_of_open_ones(self, log: Log) -> None:
        await add_channel(log, row("c", speaker_id="ann", waiting_for="person", deadline=at(1)))
        over = row("c", **closed("done"))
        await log.append("c", [closing_line("c", 2)], after=1, row=over)

        for where in (
            ChannelFilter(is_closed=False),
            ChannelFilter(speaker_id="ann"),
            ChannelFilter(waiting_for=["person"]),
            ChannelFilter(due=at(60)),
        ):
            assert await log.rows(where, limit=10) == []
        assert await log.rows(ChannelFilter(is_closed=True, close_codes=["done"]), limit=10) == [over]


def _by_id(rows: list[ChannelRow]) -> list[ChannelRow]:
    return sorted(rows, key=lambda one: one.channel_id)
