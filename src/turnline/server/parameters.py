"""Parameters in a path or a query are texts; a field's type says what they stand for.

Rule: an operation knows the names in its query. Another name, or one that is given twice, is an error.

What cannot be read as its type stays a text, so that the check names it like any other
mistake.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from turnline.core.channel import ChannelFilter
from turnline.core.envelope import JsonObject
from turnline.errors import BadQuery
from turnline.flow.definition.fields import Fields, FieldSpec
from turnline.flow.fields import Problem
from turnline.hub.hub import Hub
from turnline.log.walks import MAX_LABELS, filter_of
from turnline.server.operation import Handler, Operation
from turnline.server.problems import invalid
from turnline.server.settings import MOST_IN_A_PAGE, PAGE

_INTEGER: Final = re.compile(r"-?[0-9]{1,300}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?")
_BOOLEANS: Final = {"true": True, "false": False}
_SEQ: Final = re.compile(r"[0-9]{1,15}")


def _text(name: str, description: str) -> JsonObject:
    return {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}


LIMIT: Final[JsonObject] = {
    "name": "limit",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": MOST_IN_A_PAGE, "default": PAGE},
}
LIST_PARAMETERS: Final[list[JsonObject]] = [
    _text("since", "Created then or later: a time, or how long ago, such as `24h`."),
    _text("until", "Created before: a time, or how long ago."),
    {
        "name": "label",
        "in": "query",
        "description": "A label, as KEY=VALUE. Several have to hold together.",
        "schema": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_LABELS},
    },
    _text("participant", "A participant's id or name."),
    _text("flow", "The name of a flow."),
    _text("after", "What `next` of the page before was."),
    LIMIT,
]
"""What every list of channels is filtered by, the newest first."""


def of_query(
    fields: Fields, given: Sequence[tuple[str, str]], *, within: str = "query"
) -> tuple[JsonObject, list[Problem]]:
    """Return what a query or a form says, and what it says more than once without being a list."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for name, text in given:
        by_name[name].append(text)
    found: JsonObject = {}
    problems = []
    for name, texts in by_name.items():
        spec = fields.get(name)
        if spec is not None and spec.type == "array":
            found[name] = [value_of(spec.items, text) for text in texts]
        elif len(texts) > 1:
            problems.append(Problem((within, name), "it is given more than once"))
        else:
            found[name] = value_of(spec, texts[0])
    return found, problems


def value_of(spec: FieldSpec | None, text: str) -> object:
    """What a text stands for."""
    kind = "string" if spec is None else spec.type
    if kind == "boolean":
        return _BOOLEANS.get(text, text)
    if kind in ("integer", "number") and _INTEGER.fullmatch(text):
        return int(text)
    if kind in ("integer", "number") and _NUMBER.fullmatch(text):
        return float(text)
    return text


def page_size(request: Request) -> int:
    """`?limit=`, or the usual one."""
    text = request.query_params.get("limit", str(PAGE))
    if _SEQ.fullmatch(text) is None or not 1 <= int(text) <= MOST_IN_A_PAGE:
        raise invalid([Problem(("query", "limit"), f"expected a number from 1 to {MOST_IN_A_PAGE}")])
    return int(text)


def check_query(operation: Operation) -> Handler:
    """Return the operation's handler, for requests whose query has only parameters that it knows.

    A parameter that nothing reads is an error: whoever misspells a filter would get everything.
    """
    known = {one["name"]: one["schema"] for one in operation.parameters if one["in"] == "query"}

    async def answer(request: Request) -> Response:
        given = Counter(name for name, _ in request.query_params.multi_items())
        listed = f"expected one of {', '.join(known)}" if known else "expected none"
        problems = [
            Problem(("query", name[:80]), f"no such parameter; {listed}") for name in given - known.keys()
        ]
        problems += [
            Problem(("query", name), "it is given more than once")
            for name, count in given.items()
            if count > 1 and name in known and known[name].get("type") != "array"
        ]
        if problems:
            raise invalid(problems)
        return await operation.handler(request)

    return operation.handler if operation.has_own_query else answer


async def list_query(request: Request, hub: Hub) -> ChannelFilter:
    """Return what a query says of the filters that every list of channels has (`LIST_PARAMETERS`)."""
    query = request.query_params
    try:
        return filter_of(
            since=query.get("since", ""),
            until=query.get("until", ""),
            labels=query.getlist("label"),
            participants=await hub.find_ids(one for one in [query.get("participant")] if one),
            flow=query.get("flow", ""),
            now=hub.clock.now(),
        )
    except BadQuery as error:
        raise invalid([Problem(("query", error.field), f"expected {error.expected}")]) from None


def last_seen(request: Request) -> int:
    """The line behind which events are wanted: `Last-Event-ID`, or `?after=`."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if _SEQ.fullmatch(text) is None:
        is_header = bool(request.headers.get("last-event-id"))
        place = ("header", "Last-Event-ID") if is_header else ("query", "after")
        raise invalid([Problem(place, "expected the number of a line")])
    return int(text)
