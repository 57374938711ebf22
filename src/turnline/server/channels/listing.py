"""Lists of channels, the newest first, in pages; and the lines on them that hold a text.

Rule 1: the index chooses what is listed (Y7). Of a channel that is listed the first line is read, for names
and opening words, and remembered (`facts`); a failed run is folded as well, to say why. No other channel is
read.

Rule 2: a caller who does not see every channel asks the index for the channels that they are on, and as the
first participant they lead the walk. So what they may not know costs nothing, and no page, count or token
shows it.

Rule 3: the index does not know `text`. A page with it reads the first lines of at most `MAX_ROWS` channels,
and one of `search` at most MOST_SEARCHED lines. Then it ends early, and `next` says where to continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from turnline.core.channel import ChannelFilter, ChannelRow, age, matches
from turnline.core.envelope import JsonObject
from turnline.errors import CorruptRecord
from turnline.flow.fields import Problem
from turnline.hub.hub import Hub
from turnline.log.base import Index
from turnline.log.walks import STATUSES, RowPage, has_status, narrow, read_page, token_of
from turnline.server.channels.facts import Facts
from turnline.server.channels.reading import (
    MOST_SEARCHED,
    LinesWanted,
    found_lines,
    searched_text,
    where_it_says,
)
from turnline.server.channels.shown import QUARANTINED, listed, unread_row
from turnline.server.channels.sight import Sight
from turnline.server.house import House
from turnline.server.parameters import list_query, page_size
from turnline.server.problems import invalid

MOST_ON_ONE: Final = 5
"""So many lines of one channel are told where many are searched."""
LINES_A_CHANNEL_COSTS: Final = 20
"""Beginning to read a channel costs about as much as reading so many lines."""
SEARCHED_AT_ONCE: Final = 20
"""Channels that a search asks the index for at once."""
WORDS: Final = (*STATUSES, QUARANTINED)
OPEN_WORDS: Final = tuple(word for word, where in STATUSES.items() if where.is_closed is False)
KINDS: Final = {"run": ChannelFilter(is_run=True), "channel": ChannelFilter(is_run=False)}
"""A run is one that nothing else opened; those below it are among the channels."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Which channels."""

    where: ChannelFilter
    limit: int
    after: str = ""
    status: str = ""
    text: str = ""


class Page(Struct, frozen=True):
    """Some rows, and what the next page comes after; None at the end."""

    rows: list[JsonObject]
    next: str | None


async def wanted(request: Request, hub: Hub) -> Wanted:
    """Return what a query asks for."""
    query = request.query_params
    status, kind = query.get("status", ""), query.get("kind", "")
    problems = [
        Problem(("query", name), f"expected one of {', '.join(allowed)}")
        for name, given, allowed in (("status", status, WORDS), ("kind", kind, KINDS))
        if given not in ("", *allowed)
    ]
    if problems:
        raise invalid(problems)
    where = await list_query(request, hub)
    for found in (STATUSES.get(status), KINDS.get(kind), ChannelFilter(type=query.get("type", ""))):
        where = where if found is None else narrow(where, found)
    return Wanted(
        where=where,
        limit=page_size(request),
        after=query.get("after", ""),
        status=status,
        text=searched_text(request),
    )


class Listing:
    """The channels of one log, for a caller who may know of them."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def page(self, asked: Wanted, sight: Sight) -> Page:
        """Return the next channels that fit."""
        found = await self.rows(asked, sight)
        return Page(await self._shown(found.rows), found.next)

    async def rows(self, asked: Wanted, sight: Sight) -> RowPage:
        """Return the rows of the next channels that fit."""
        where = await self._visible(asked.where, sight)
        if where is None:
            return RowPage([], None)
        if asked.status == QUARANTINED:
            return await self._quarantined(where, asked, sight)
        fits = partial(self._fits, asked, sight)
        # Rows are asked one by one only where the index leaves something open.
        is_open = asked.text or not sight.sees_all or asked.status
        return await read_page(
            self._lines, where, after=asked.after, limit=asked.limit, fits=fits if is_open else None
        )

    async def children(self, parent_id: str, sight: Sight, limit: int) -> list[JsonObject]:
        """Return the newest channels below one that the caller may know of."""
        below = Wanted(where=ChannelFilter(parent_id=parent_id), limit=limit)
        return (await self.page(below, sight)).rows

    async def search(self, asked: Wanted, sight: Sight) -> Page:
        """Return the next lines that hold a text, a few of each channel."""
        rows, left = list[JsonObject](), MOST_SEARCHED
        where = await self._visible(asked.where, sight) if asked.text else None
        fits = partial(self._fits, replace(asked, text=""), sight)
        after: str | None = asked.after
        while where is not None and after is not None:
            page = await read_page(self._lines, where, after=after, limit=SEARCHED_AT_ONCE, fits=fits)
            for row in page.rows:
                rows += await self._found(row, asked, sight)
                left -= row.seq + LINES_A_CHANNEL_COSTS
                if len(rows) >= asked.limit or left <= 0:
                    return Page(rows, token_of(row))
            after = page.next
        return Page(rows, None)

    @property
    def _lines(self) -> Index:
        return self._house.runtime.hub.lines

    async def _visible(self, where: ChannelFilter, sight: Sight) -> ChannelFilter | None:
        """Return the filter for what the caller may know of (Rule 2); None: nothing."""
        if sight.sees_all:
            return where
        hub, name = self._house.runtime.hub, sight.principal.user_id
        await hub.learn([name])
        person = hub.find_participant(name)
        if person is None or person.name != name or person.passport.kind != "human":
            return None
        return replace(where, participants=[person.agent_id, *where.participants])

    async def _fits(self, asked: Wanted, sight: Sight, row: ChannelRow) -> bool:
        if not has_status(row, asked.status):
            return False
        if not asked.text and sight.sees_all:
            return True
        facts = await self._facts(row)
        words = asked.text.split()
        return (
            facts is not None
            and sight.may_know(facts.participants)
            and all(one in facts.words for one in words)
        )

    async def _quarantined(self, where: ChannelFilter, asked: Wanted, sight: Sight) -> RowPage:
        """Return the channels that this process could not read. They are few, and one page."""
        known = self._house.runtime.hub.health().quarantined
        rows = [row for one in known if (row := await self._lines.row(one)) and matches(row, where)]
        fits = [row for row in rows if await self._fits(replace(asked, status=""), sight, row)]
        return RowPage(sorted(fits, key=age, reverse=True)[: asked.limit], None)

    async def _shown(self, rows: list[ChannelRow]) -> list[JsonObject]:
        """Return a page of rows. They are read together: one by one, a busy server would take long."""
        bad = self._house.runtime.hub.health().quarantined
        waits = any(row.waits_for_children for row in rows)
        above: Collection[str] | None = ()
        if waits:
            above = await self._house.runtime.runs.list_above_stuck()
        return await asyncio.gather(*(self._row(row, above, row.channel_id not in bad) for row in rows))

    async def _row(
        self, row: ChannelRow, above_stuck: Collection[str] | None, is_readable: bool
    ) -> JsonObject:
        facts = await self._facts(row)
        if facts is None or not is_readable:
            return unread_row(row, facts)
        run = await self._house.runtime.runs.listed(row, above_stuck) if facts.is_run else None
        return listed(row, facts, run)

    async def _facts(self, row: ChannelRow) -> Facts | None:
        return await self._house.facts.of(row.channel_id, closed_at=row.seq if row.is_closed else 0)

    async def _found(self, row: ChannelRow, asked: Wanted, sight: Sight) -> list[JsonObject]:
        hub, facts = self._house.runtime.hub, await self._facts(row)
        if facts is None or not sight.may_know(facts.participants):
            return []
        wanted_lines = LinesWanted(after=0, limit=MOST_ON_ONE, text=asked.text)
        try:
            lines, _ = await found_lines(hub, row.channel_id, facts.participants, sight, wanted_lines)
        except CorruptRecord:
            return []
        where = {"channel_id": row.channel_id, "type": row.type, "labels": row.labels}
        names = {one.agent_id: one.name for one in facts.participants}
        return [{**where, **_hit(line, names, asked.text)} for line in lines]


def _hit(line: JsonObject, names: dict[str, str], text: str) -> JsonObject:
    sender = line["sender_id"]
    return {
        "seq": line["seq"],
        "event_type": line["event_type"],
        "sender": names.get(sender, sender),
        "at": line["created_at"],
        "text": _around(where_it_says(line, text), text),
    }


def _around(said: str, text: str, characters: int = 120) -> str:
    """What stands around a text."""
    start = max(0, said.lower().find(text) - characters)
    return said[start : start + 2 * characters + len(text)]
