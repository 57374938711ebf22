"""Reading lines in pages: forwards from one, backwards from another, or those that say something.

A page is a stretch of the log. What is not for whoever asks is left out of it, so a page
says from where to where it goes (`first`, `last`), and how far there is to go (`head`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec import Struct
from starlette.requests import Request

from turnline.core.channel import Participant
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import body_of
from turnline.core.state import State
from turnline.flow.fields import Problem
from turnline.hub.hub import Hub
from turnline.server.channels.sight import Sight, told
from turnline.server.parameters import page_size
from turnline.server.problems import invalid

MOST_SEARCHED: Final = 20_000
"""So many lines are looked through for one answer; the next page goes on from there."""
MOST_PAGE_BYTES: Final = 1024 * 1024
MAX_TEXT_CHARACTERS: Final = 200
_SEQ: Final = re.compile(r"[0-9]{1,15}")


class LinesWanted(Struct, frozen=True, kw_only=True):
    """Which lines of a channel."""

    after: int
    limit: int
    text: str


def lines_wanted(request: Request, head: int) -> LinesWanted:
    """What a query asks for: the lines behind `after`, or the last ones before `before`."""
    query, limit = request.query_params, page_size(request)
    text = searched_text(request)
    if "after" in query and "before" in query:
        raise invalid([Problem(("query", "before"), "expected either after or before")])
    if "before" in query:
        before = min(seq_of(query["before"], "query", name="before"), head + 1)
        after = max(0, before - 1 - limit)
        return LinesWanted(after=after, limit=max(0, before - 1 - after), text=text)
    return LinesWanted(after=seq_of(query.get("after", "0"), "query", name="after"), limit=limit, text=text)


def searched_text(request: Request) -> str:
    """`?text=`, in lower case."""
    text = request.query_params.get("text", "").strip().lower()
    if len(text) > MAX_TEXT_CHARACTERS:
        raise invalid([Problem(("query", "text"), f"expected at most {MAX_TEXT_CHARACTERS} characters")])
    return text


def seq_of(text: str, where: str, head: int | None = None, *, name: str = "seq") -> int:
    """The number of a line, which is there if `head` is given. Raises what says that it is none."""
    if _SEQ.fullmatch(text) is None or (head is not None and not 1 <= int(text) <= head):
        expected = "the number of a line" if head is None else f"the number of a line, from 1 to {head}"
        raise invalid([Problem((where, name), f"expected {expected}")])
    return int(text)


def page_of(lines: Iterable[Envelope], state: State, sight: Sight, after: int) -> JsonObject:
    """A stretch of lines, cut short where it grows too large for one answer."""
    shown: list[JsonObject] = []
    last, size = after, 0
    for line in lines:
        one = sight.shown(line, state.spec.participants)
        size += 0 if one is None else len(msgspec.json.encode(one))
        if shown and size > MOST_PAGE_BYTES:
            break
        last = line.seq
        if one is not None:
            shown.append(one)
    return {"envelopes": shown, "first": after + 1, "last": last, "head": state.seq}


async def found_lines(
    hub: Hub, channel_id: str, participants: list[Participant], sight: Sight, asked: LinesWanted
) -> tuple[list[JsonObject], int]:
    """The lines that hold a text, as whoever asks is shown them; and the last line that was looked at."""
    shown: list[JsonObject] = []
    last = asked.after
    async with aclosing(hub.lines.read(channel_id, after=asked.after)) as lines:  # type: ignore[type-var]
        async for line in lines:
            last = line.seq
            seen = sight.view(line, participants)
            if seen is not None and holds(one := told(seen), asked.text):
                shown.append(one)
            if len(shown) == asked.limit or last - asked.after >= MOST_SEARCHED:
                break
    return shown, last


def holds(shown: JsonObject, text: str) -> bool:
    """Whether a line says something, anywhere in its data."""
    return text in " ".join(_texts(shown.get("event_data"))).lower()


def where_it_says(shown: JsonObject, text: str) -> str:
    """The part of a line's data that says it: what was said, where it is that."""
    data = shown.get("event_data")
    parts = [body_of(str(shown["event_type"]), data) if isinstance(data, dict) else "", *_texts(data)]
    return next((part for part in parts if text in part.lower()), " ".join(parts))


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif value is not None:
        yield str(value)
