"""Pages of the index of channels: what a list asks for, and where the next page begins (Y7).

Rule 1: a page is read from rows alone. No line is read, and no channel is folded.

Rule 2: what no index orders is asked of each row: the rest of the filter (`listing.leading`), and `fits`.
Such a page looks at MAX_ROWS rows at most. It may be shorter than its limit, and empty; its `next` says where
to continue.

Rule 3: `next` names when the last row that was looked at was created, and its id. Neither changes. So a
channel that is created, written to or closed between two pages moves no other one: none is repeated or left
out.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow, ChannelState, matches
from turnline.core.expectations import TTL_EXPIRED
from turnline.core.state import MESSAGE, WAITS
from turnline.errors import BadQuery
from turnline.log.base import Index
from turnline.log.listing import leading

ROWS_AT_ONCE: Final = 1_000
"""Rows that are read together by what reads all of a list."""
FILTERED_AT_ONCE: Final = 200
"""Rows that are read together by a page that the first rows did not fill."""
MAX_ROWS: Final = 2_000
"""Rows that one page looks at."""
MAX_LABELS: Final = 16
"""Labels that one filter asks for."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOKEN: Final = re.compile(r"([0-9]{1,17}):([A-Za-z0-9_-]{1,64})")
_AGO: Final = re.compile(r"([0-9]{1,5})([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

Fits = Callable[[ChannelRow], Awaitable[bool]]

EVERY: Final = ChannelFilter()
_OPEN: Final = ChannelFilter(is_closed=False)
STATUSES: Final = {
    "open": _OPEN,
    **{one.value: _OPEN for one in (ChannelState.PENDING, ChannelState.ACTIVE, ChannelState.CLOSING)},
    ChannelState.CLOSED.value: ChannelFilter(is_closed=True, but_close_codes=[TTL_EXPIRED]),
    ChannelState.EXPIRED.value: ChannelFilter(is_closed=True, close_codes=[TTL_EXPIRED]),
    "waiting": ChannelFilter(is_closed=False, is_waiting=True),
    **{word: ChannelFilter(is_closed=False, waiting_for=[what]) for word, what in WAITS.items()},
}
"""The word for where a channel stands -> what the index is asked. `has_status` asks the rest of a row."""


class RowPage(Struct, frozen=True):
    """Some rows of the index, the newest first."""

    rows: list[ChannelRow]
    next: str | None
    """What the next page comes after; None at the end."""


def narrow(where: ChannelFilter, more: ChannelFilter) -> ChannelFilter:
    """Return the filter that asks for both; where they ask for the same, for what `more` does."""
    asked = {name: getattr(more, name) for name in more.__struct_fields__}
    return replace(where, **{name: one for name, one in asked.items() if one != getattr(EVERY, name)})


def has_status(row: ChannelRow, status: str) -> bool:
    """Return whether a row that the filter of this status let through has it."""
    if status in (ChannelState.PENDING, ChannelState.ACTIVE, ChannelState.CLOSING):
        return row.status == status
    return status != "waiting" or row.waiting_for != MESSAGE


async def read_page(
    index: Index, where: ChannelFilter, *, after: str = "", limit: int, fits: Fits | None = None
) -> RowPage:
    """Return the rows after a token for which `where` and `fits` hold. Raises `BadQuery` for a bad token."""
    last, lead = _read_token(after) if after else None, leading(where)
    is_ordered = lead == where
    found, looked, most = list[ChannelRow](), 0, limit + 1
    while page := await index.rows(lead, after=last, limit=most):
        most = max(most, FILTERED_AT_ONCE)
        for row in page:
            if len(found) == limit or looked == MAX_ROWS:
                return RowPage(found, None if last is None else token_of(last))
            is_wanted = (is_ordered or matches(row, where)) and (fits is None or await fits(row))
            found += [row] if is_wanted else []
            last, looked = row, looked + 1
    return RowPage(found, None)


def token_of(row: ChannelRow) -> str:
    """Return the token of the page that comes after a row."""
    micros = (row.created_at - _EPOCH) // timedelta(microseconds=1)
    return urlsafe_b64encode(f"{micros}:{row.channel_id}".encode()).decode().rstrip("=")


async def list_rows(index: Index, where: ChannelFilter) -> list[ChannelRow]:
    """Return every row for which `where` holds, the newest first: for what is few, such as open channels."""
    found = list[ChannelRow]()
    while page := await index.rows(where, after=found[-1] if found else None, limit=ROWS_AT_ONCE):
        found += page
    return found


def filter_of(
    *, since: str, until: str, labels: Iterable[str], participants: list[str], flow: str, now: datetime
) -> ChannelFilter:
    """Return what the texts of a list's options ask for; an empty one asks for nothing. Raises `BadQuery`."""
    return ChannelFilter(
        since=_read_moment(since, "since", now) if since else None,
        until=_read_moment(until, "until", now) if until else None,
        labels=_read_labels(labels, "label"),
        participants=participants,
        flow=flow,
    )


def _read_moment(text: str, field: str, now: datetime) -> datetime:
    """Return the time that a text names: one of ISO 8601, or how long ago, such as `90m`, `24h` or `7d`."""
    try:
        if (ago := _AGO.fullmatch(text)) is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        expected = "a time such as 2026-01-31, 2026-01-31T12:00:00Z or 24h (that long ago)"
        raise BadQuery(field, found=repr(text[:80]), expected=expected) from None


def _read_labels(texts: Iterable[str], field: str) -> dict[str, str]:
    """Return the labels that texts such as `team=red` name."""
    found = dict[str, str]()
    for text in texts:
        key, mark, value = text.partition("=")
        if not key or not mark or found.get(key, value) != value:
            expected = "KEY=VALUE, and each key with one value"
            raise BadQuery(field, found=repr(text[:80]), expected=expected)
        found[key] = value
    if len(found) > MAX_LABELS:
        raise BadQuery(field, found=f"{len(found)} labels", expected=f"at most {MAX_LABELS}")
    return found


def _read_token(text: str) -> ChannelRow:
    """Return a row that stands where the token's does. A page asks for no more of it."""
    said = None
    with suppress(ValueError):
        said = _TOKEN.fullmatch(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    if said is not None:
        at = _EPOCH + timedelta(microseconds=int(said[1]))
        row = ChannelRow(
            channel_id=said[2], type="", status=ChannelState.ACTIVE, seq=0, created_at=at, updated_at=at
        )
        if token_of(row) == text:
            return row
    expected = "what `next` of the page before was; without `after` the first page is read"
    raise BadQuery("after", found=repr(text[:80]), expected=expected)
