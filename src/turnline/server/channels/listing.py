"""The list of channels: those that something happened on last come first, in pages.

Rule: a page costs what it shows. The log tells the heads of all channels without reading
them; what a channel was opened with is remembered (`facts`); only what is on the page is
read as it stands. Where a filter leaves little, a page ends early and says where to go on.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from starlette.requests import Request

from turnline.core.channel import ChannelState
from turnline.core.envelope import JsonObject
from turnline.core.state import MESSAGE, WAITS
from turnline.errors import ChannelQuarantined, CorruptRecord, UnknownChannel
from turnline.flow.fields import Problem
from turnline.log.base import Head
from turnline.server.channels.facts import MOST_READ, Facts, latest_first
from turnline.server.channels.reading import (
    MOST_SEARCHED,
    LinesWanted,
    found_lines,
    searched_text,
    where_it_says,
)
from turnline.server.channels.shown import row, unread_row
from turnline.server.channels.sight import Sight
from turnline.server.house import House
from turnline.server.parameters import page_size
from turnline.server.problems import invalid

MOST_ON_ONE: Final = 5
"""So many lines of one channel are told where many are searched."""
LINES_A_CHANNEL_COSTS: Final = 20
"""Beginning to read a channel costs about as much as reading so many lines."""
QUARANTINED: Final = "quarantined"
STATUSES: Final = ("open", *(one.value for one in ChannelState), "waiting", *WAITS, QUARANTINED)
KINDS: Final = ("run", "channel")
_POSITION: Final = re.compile(r"[0-9]{1,18}")


class Wanted(Struct, frozen=True, kw_only=True):
    """Which channels."""

    limit: int
    before: int | None
    status: str = ""
    type: str = ""
    kind: str = ""
    participant: str = ""
    flow: str = ""
    text: str = ""

    def takes(self, facts: Facts) -> bool:
        """Whether a channel can be among them, as far as its first line tells."""
        names = [name for one in facts.participants for name in (one.agent_id, one.name)]
        return (
            self.type in ("", facts.type)
            and self.kind in ("", "run" if facts.is_run else "channel")
            and (not self.participant or self.participant in names)
            and self.flow in ("", facts.labels.get("flow"))
        )


class Page(Struct, frozen=True):
    """Some rows, and behind what to go on; None at the end."""

    rows: list[JsonObject]
    following: int | None


def wanted(request: Request) -> Wanted:
    """What a query asks for."""
    query = request.query_params
    problems = [
        Problem(("query", name), f"expected one of {', '.join(allowed)}")
        for name, allowed in (("status", STATUSES), ("kind", KINDS))
        if query.get(name, "") not in ("", *allowed)
    ]
    before = query.get("before")
    if before is not None and _POSITION.fullmatch(before) is None:
        problems.append(Problem(("query", "before"), "expected what `next` was"))
    if problems:
        raise invalid(problems)
    return Wanted(
        limit=page_size(request),
        before=None if before is None else int(before),
        text=searched_text(request),
        **{name: query.get(name, "") for name in ("status", "type", "kind", "participant", "flow")},
    )


class Listing:
    """The channels of one log, for whoever may know of them."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._facts = house.facts

    async def page(self, asked: Wanted, sight: Sight) -> Page:
        """The next channels that fit."""
        rows: list[JsonObject] = []
        left = MOST_READ
        heads = await self._heads(asked)
        for head in heads:
            left -= head.channel_id not in self._facts
            facts = await self._facts.of(head.channel_id)
            if facts is not None and _fits(facts, asked, sight):
                one = await self._row(facts)
                rows += [one] if _is_at(one, asked.status) else []
            if (len(rows) == asked.limit or left <= 0) and head is not heads[-1]:
                return Page(rows, head.position)
        return Page(rows, None)

    async def search(self, asked: Wanted, sight: Sight) -> Page:
        """The next lines that hold a text, a few of each channel."""
        rows: list[JsonObject] = []
        left = MOST_SEARCHED
        heads = await self._heads(asked) if asked.text else []
        for head in heads:
            facts = await self._facts.of(head.channel_id)
            left -= head.seq + LINES_A_CHANNEL_COSTS
            if facts is not None and asked.takes(facts) and sight.may_know(facts.participants):
                rows += await self._found(facts, asked, sight)
            if (len(rows) >= asked.limit or left <= 0) and head is not heads[-1]:
                return Page(rows, head.position)
        return Page(rows, None)

    async def _heads(self, asked: Wanted) -> list[Head]:
        closed = _CLOSED.get(asked.status)
        heads = latest_first(await self._house.runtime.hub.lines.channels(closed=closed))
        return [head for head in heads if asked.before is None or head.position < asked.before]

    async def _row(self, facts: Facts) -> JsonObject:
        try:
            return row(await self._house.runtime.hub.state(facts.channel_id))
        except (ChannelQuarantined, UnknownChannel):
            return unread_row(facts)

    async def _found(self, facts: Facts, asked: Wanted, sight: Sight) -> list[JsonObject]:
        hub = self._house.runtime.hub
        wanted_lines = LinesWanted(after=0, limit=MOST_ON_ONE, text=asked.text)
        try:
            lines, _ = await found_lines(hub, facts.channel_id, facts.participants, sight, wanted_lines)
        except CorruptRecord:
            return []
        where = {"channel_id": facts.channel_id, "type": facts.type, "labels": facts.labels}
        names = {one.agent_id: one.name for one in facts.participants}
        return [{**where, **_hit(line, names, asked.text)} for line in lines]


def _fits(facts: Facts, asked: Wanted, sight: Sight) -> bool:
    return (
        sight.may_know(facts.participants)
        and asked.takes(facts)
        and all(word in facts.words for word in asked.text.split())
    )


def _is_at(one: JsonObject, status: str) -> bool:
    if status in ("", "open"):
        return True
    reason = (one.get("waiting_for") or {}).get("reason")
    if status == "waiting":
        return reason not in (None, MESSAGE)
    if status in WAITS:
        return bool(reason == WAITS[status])
    return bool(one["status"] == status)


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


_CLOSED: Final = {
    "open": False,
    "waiting": False,
    **dict.fromkeys(WAITS, False),
    "pending": False,
    "active": False,
    "closing": False,
    "closed": True,
    "expired": True,
}
"""Status -> whether a channel of it has ended; a quarantined one may be either."""
