"""The index of channels in tables (Y7): what is written of a row, and how a page is asked for.

    heads     one row for each channel, with the columns of `COLUMNS`
    tags      (tag, created, channel): a tag is a label or a participant of a channel

SQLite and PostgreSQL have the same tables and ask the same questions; a `Dialect` has the differences.

Rule 1: a page is walked in the order of one B-tree that ends in (created, channel), and stops when it is
full. So it costs what it shows, however many channels there are, if the B-tree orders the whole filter.
`leading` is the part of a filter that one B-tree orders; `log.walks` asks a bounded number of rows the rest.

Rule 2: a condition on several values is one walk for each value, merged. A condition that excludes
values is the walks of the values that are left.

Rule 3: the close code of a run stands in its column with a mark before it, so that the walk of a code passes
runs only, or none.

Rule 4: a text that is long or holds a NUL stands in a column as its digest, so that any row can be kept.
The row itself is kept as JSON, whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from hashlib import blake2b
from itertools import product
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.log.joined import SqlValue

COLUMNS: Final = (
    *("created", "type", "flow", "parent", "origin"),
    *("speaker", "waiting", "deadline", "code", "row"),
)
FIXED_COLUMNS: Final = 5
"""The first columns, and the tags, never change; the others do with each append."""
MAX_KEY_BYTES: Final = 200
_RUN_MARK: Final = "+"
"""Stands before the close code of a run, in no close code. A run that was closed without one has it alone."""

INDEXES: Final = """
CREATE INDEX IF NOT EXISTS {0}heads_created ON {0}heads (created, channel);
CREATE INDEX IF NOT EXISTS {0}heads_open ON {0}heads (created, channel) WHERE NOT closed;
CREATE INDEX IF NOT EXISTS {0}heads_runs ON {0}heads (created, channel) WHERE flow <> '' AND parent = '';
CREATE INDEX IF NOT EXISTS {0}heads_flow ON {0}heads (flow, created, channel) WHERE flow <> '';
CREATE INDEX IF NOT EXISTS {0}heads_parent ON {0}heads (parent, created, channel) WHERE parent <> '';
CREATE INDEX IF NOT EXISTS {0}heads_origin ON {0}heads (origin, created, channel) WHERE origin <> '';
CREATE INDEX IF NOT EXISTS {0}heads_code ON {0}heads (code, created, channel) WHERE code <> '';
CREATE INDEX IF NOT EXISTS {0}heads_flow_code ON {0}heads (flow, code, created, channel)
    WHERE flow <> '' AND code <> '';
CREATE INDEX IF NOT EXISTS {0}heads_closed_uncoded ON {0}heads (created, channel) WHERE closed AND code = '';
CREATE INDEX IF NOT EXISTS {0}heads_speaker ON {0}heads (speaker, created, channel) WHERE speaker <> '';
CREATE INDEX IF NOT EXISTS {0}heads_waiting ON {0}heads (waiting, created, channel) WHERE waiting <> '';
CREATE INDEX IF NOT EXISTS {0}heads_deadline ON {0}heads (deadline) WHERE deadline IS NOT NULL;
"""
"""Closed channels have no speaker, pause or deadline: the last indexes hold open channels only.
`heads_created` also finds the channels without a row, whose `created` is NULL."""

_CODES: Final = """
WITH RECURSIVE found (code) AS (
    SELECT min(code) FROM {0}heads WHERE code <> ''
    UNION ALL
    SELECT (SELECT min(next.code) FROM {0}heads AS next WHERE next.code <> '' AND next.code > found.code)
    FROM found WHERE found.code IS NOT NULL
)
SELECT code FROM found WHERE code IS NOT NULL
"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ChannelRow)

Condition = tuple[str, list[SqlValue]]
"""SQL, and the values of its parameters."""
_NEVER: Final[Sequence[Condition]] = (("FALSE", []),)


class Dialect(Struct, frozen=True, kw_only=True):
    """Where the databases differ."""

    prefix: str
    """Of the tables' names."""
    place: str
    """Stands for a parameter."""
    channel: str
    """What stands in the column `channel` for the id that is the parameter."""
    aside: str = ""
    """Written before a column, it keeps the planner from walking that column's index."""

    @property
    def indexes(self) -> str:
        return INDEXES.format(self.prefix)

    @property
    def codes(self) -> str:
        """The query for the close codes that there are: a step in the index for each."""
        return _CODES.format(self.prefix)


def columns_of(row: ChannelRow) -> tuple[SqlValue, ...]:
    """Return what the columns of `COLUMNS` are for a row."""
    deadline = None if row.deadline is None else micros(row.deadline)
    texts = (row.type, row.flow, row.parent_id, row.origin, row.speaker_id, row.waiting_for)
    return (
        micros(row.created_at),
        *map(_key, texts),
        deadline,
        _code_of(row),
        _encoder.encode(row),
    )


def tags_of(row: ChannelRow) -> list[str]:
    """Return the row's labels and participants as the table of tags has them."""
    return [*(_label(*one) for one in row.labels.items()), *map(_member, dict.fromkeys(row.participants))]


def read_row(body: bytes | None) -> ChannelRow | None:
    """Return a row that was kept; None for bytes that are none, which costs only this row."""
    try:
        return _decoder.decode(body or b"")
    except ValueError:
        return None


def read_rows(bodies: Iterable[bytes | None]) -> list[ChannelRow]:
    """Return the rows that can be read."""
    return [row for row in map(read_row, bodies) if row is not None]


def contradiction_in(columns: Sequence[SqlValue], tags: Sequence[str]) -> str:
    """Say where the columns and tables differ from the row that is kept; empty if nowhere."""
    if columns[0] is None:
        return ""
    body = columns[-1]
    row = read_row(body if isinstance(body, bytes) else None)
    if row is None:
        return "the row of the index cannot be read"
    wrong = [
        name
        for name, found, expected in zip(COLUMNS, columns, columns_of(row), strict=True)
        if name != "row" and found != expected
    ]
    wrong += ["tags"] if sorted(tags) != sorted(tags_of(row)) else []
    return f"the index has another {', '.join(wrong)} than its own row" if wrong else ""


def needs_codes(where: ChannelFilter) -> bool:
    """Return whether `page_query` has to know which close codes there are."""
    return bool(where.but_close_codes) and not where.close_codes and _lead(where) is _Lead.ANY


def page_query(
    dialect: Dialect,
    where: ChannelFilter,
    *,
    after: ChannelRow | None,
    limit: int,
    codes: Sequence[str] = (),
) -> Condition:
    """Return the query for a page of rows, and its parameters. It gives (created, channel, row)."""
    walks = [_walk(dialect, where, [*one], after, limit) for one in product(*_choices(dialect, where, codes))]
    values = [value for _, found in walks for value in found]
    if len(walks) == 1:
        return walks[0][0], values
    merged = " UNION ALL ".join(f"SELECT * FROM ({query}) AS walk{n}" for n, (query, _) in enumerate(walks))
    return f"{merged} ORDER BY 1 DESC, 2 DESC LIMIT {limit:d}", values


class _Lead(Enum):
    """Which B-tree a page is walked in. The first that fits: they come by how few channels they have.

    What is open, what is below one channel and what was forked from one is few.
    """

    DUE = "deadline"
    FEW = "speaker, waiting, parent or origin"
    OPEN = "open channels"
    TAG = "tags"
    ANY = "code, flow, both or created: the database chooses"


def leading(where: ChannelFilter) -> ChannelFilter:
    """Return the part of a filter that one B-tree orders: the same filter if that is all of it.

    The first participant leads before labels. So a list for a person who sees only their own channels looks
    at no other channel.
    """
    lead = _lead(where)
    if lead is _Lead.TAG:
        tag: dict[str, Any] = (
            {"participants": where.participants[:1]}
            if where.participants
            else {"labels": dict([*where.labels.items()][:1])}
        )
        return ChannelFilter(since=where.since, until=where.until, **tag)
    if lead is not _Lead.ANY:
        return where
    has_codes = where.close_codes or where.but_close_codes
    has_runs = has_codes or (where.is_run and not where.flow)
    return replace(where, type="", is_waiting=None, is_run=where.is_run if has_runs else None)


def _lead(where: ChannelFilter) -> _Lead:
    if where.due is not None:
        return _Lead.DUE
    if where.speaker_id or where.waiting_for or where.parent_id or where.origin:
        return _Lead.FEW
    if where.is_closed is False:
        return _Lead.OPEN
    return _Lead.TAG if where.labels or where.participants else _Lead.ANY


def _choices(dialect: Dialect, where: ChannelFilter, codes: Sequence[str]) -> Iterator[Sequence[Condition]]:
    """Yield conditions of which one has to hold, each with a walk of its own (Rule 2)."""
    if where.waiting_for:
        yield [_is("waiting", one) for one in dict.fromkeys(where.waiting_for)]
    excluded = set(_codes(where, where.but_close_codes))
    wanted = [code for code in _codes(where, where.close_codes) if code not in excluded]
    if where.close_codes and _lead(where) is _Lead.ANY:
        yield [_has_code(one) for one in wanted] or _NEVER
    elif where.close_codes:
        yield [_one_of(f"{dialect.aside}h.code IN", wanted)] if wanted else _NEVER
    elif needs_codes(where):
        marked = (one for one in codes if where.is_run in (None, one.startswith(_RUN_MARK)))
        yield [*(_has_code(one) for one in marked if one not in excluded), *_uncoded(where)] or _NEVER
    elif excluded:
        yield [_one_of("h.code NOT IN", sorted(excluded))]


def _walk(
    dialect: Dialect,
    where: ChannelFilter,
    conditions: list[Condition],
    after: ChannelRow | None,
    limit: int,
) -> Condition:
    """Return the query that walks one B-tree. `{}` stands for a parameter until the end."""
    lead, first = _lead(where), "h"
    tables = [f"{dialect.prefix}heads AS h"]
    tags = [_member(one) for one in dict.fromkeys(where.participants)]
    tags += [_label(*one) for one in where.labels.items()]
    if lead is _Lead.TAG:
        first = "t"
        tables.insert(0, f"{dialect.prefix}tags AS t")
        conditions.append(("t.tag = {} AND h.channel = t.channel", [tags.pop(0)]))
    conditions += [(_has(dialect, first), [one]) for one in tags]
    conditions += _terms(dialect, where)
    # What falls due is few: it is found by the deadline, and sorted.
    created = f"({first}.created + 0)" if lead is _Lead.DUE else f"{first}.created"
    if where.since is not None:
        conditions.append((f"{created} >= {{}}", [micros(where.since)]))
    if where.until is not None:
        conditions.append((f"{created} < {{}}", [micros(where.until)]))
    if after is not None:
        place = dialect.channel.format("{}")
        values: list[SqlValue] = [micros(after.created_at), after.channel_id]
        conditions.append((f"({created}, {first}.channel) < ({{}}, {place})", values))
    query = (
        f"SELECT h.created, h.channel, h.row FROM {' CROSS JOIN '.join(tables)} "
        f"WHERE {' AND '.join(text for text, _ in conditions)} "
        f"ORDER BY {created} DESC, {first}.channel DESC LIMIT {limit:d}"
    )
    values = [value for _, found in conditions for value in found]
    return query.replace("{}", dialect.place), values


def _terms(dialect: Dialect, where: ChannelFilter) -> Iterator[Condition]:
    """Yield the conditions on columns; `aside` are those that others lead."""
    yield "h.created IS NOT NULL", []
    aside = "" if _lead(where) is _Lead.ANY else dialect.aside
    for column, value in (
        ("speaker", where.speaker_id),
        ("parent", where.parent_id),
        ("origin", where.origin),
    ):
        if value:
            yield _is(column, value)
    if where.flow:
        yield _is("flow", where.flow, aside)
    if where.type:
        yield "h.type = {}", [_key(where.type)]
    if where.is_closed is not None:
        yield ("h.closed" if where.is_closed else "NOT h.closed"), []
    if where.is_waiting is not None:
        yield f"h.waiting {'<>' if where.is_waiting else '='} ''", []
    if where.is_run is not None:
        run = f"{aside}h.flow <> '' AND h.parent = ''"
        yield (run if where.is_run else f"NOT ({run})"), []
    if where.due is not None:
        yield "h.deadline IS NOT NULL AND h.deadline <= {}", [micros(where.due)]


def _is(column: str, value: str, aside: str = "") -> Condition:
    """Return that a column has a value; with `<> ''` a database finds the partial index."""
    return f"{aside}h.{column} <> '' AND {aside}h.{column} = {{}}", [_key(value)]


def _has_code(code: str) -> Condition:
    """Return that the column of close codes has this, as it stands there."""
    return "h.code <> '' AND h.code = {}", [code]


def _uncoded(where: ChannelFilter) -> Iterator[Condition]:
    """Yield the walks of channels without a close code. A closed run always has its mark (Rule 3)."""
    if "" in where.but_close_codes:
        return
    if where.is_closed is not True:
        yield "h.code = '' AND NOT h.closed", []
    if where.is_run is not True:
        yield "h.code = '' AND h.closed", []


def _one_of(column: str, codes: Sequence[str]) -> Condition:
    return f"{column} ({', '.join('{}' for _ in codes)})", [*codes]


def _code_of(row: ChannelRow) -> str:
    """Return a row's close code as its column has it (Rule 3)."""
    is_marked = row.is_run and (row.close_code or row.is_closed)
    return f"{_RUN_MARK if is_marked else ''}{_key(row.close_code)}"


def _codes(where: ChannelFilter, codes: Iterable[str]) -> list[str]:
    """Return how these close codes stand in their column, for what the filter asks about."""
    marks = {None: ("", _RUN_MARK), True: (_RUN_MARK,), False: ("",)}[where.is_run]
    return [f"{mark}{_key(code)}" for code in dict.fromkeys(codes) for mark in marks]


def _has(dialect: Dialect, first: str) -> str:
    # The OFFSET makes PostgreSQL look it up for each row that is walked. It would join the table otherwise,
    # and a plan that does not know the value reads all channels that have it.
    return (
        f"EXISTS (SELECT 1 FROM {dialect.prefix}tags AS one WHERE one.tag = {{}} "
        f"AND one.created = {first}.created AND one.channel = {first}.channel LIMIT 1 OFFSET 0)"
    )


def micros(at: datetime) -> int:
    """Return a time as whole microseconds, which sort and compare as numbers."""
    return (at - _EPOCH) // _MICROSECOND


def _label(key: str, value: str) -> str:
    return _key(f"{len(key)}:{key}={value}")


def _member(participant: str) -> str:
    """Return the tag of a participant: no label begins so."""
    return f"@{_key(participant)}"


def _key(text: str) -> str:
    """Return a text as a column has it (Rule 4)."""
    body = text.encode(errors="surrogatepass")
    if len(body) <= MAX_KEY_BYTES and b"\0" not in body and not text.startswith("~") and _is_text(body):
        return text
    return f"~{blake2b(body, digest_size=24).hexdigest()}"


key_of: Final = _key


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
