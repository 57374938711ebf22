"""Parameters in a path or a query are texts; a field's type says what they stand for.

What cannot be read as its type stays a text, so that the check names it like any other
mistake.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request

from turnline.core.channel import ID_PATTERN
from turnline.core.envelope import JsonObject
from turnline.flow.definition.fields import Fields, FieldSpec
from turnline.flow.fields import Problem
from turnline.server.problems import invalid
from turnline.server.settings import MOST_IN_A_PAGE, PAGE

_INTEGER: Final = re.compile(r"-?[0-9]{1,300}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?")
_BOOLEANS: Final = {"true": True, "false": False}
_SEQ: Final = re.compile(r"[0-9]{1,15}")


def of_query(fields: Fields, given: Sequence[tuple[str, str]]) -> tuple[JsonObject, list[Problem]]:
    """Return what a query says, and what it says more than once without being a list."""
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
            problems.append(Problem(("query", name), "it is given more than once"))
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


def cursor(request: Request) -> str:
    """`?after=`: the id of the last run that was seen."""
    text = request.query_params.get("after", "")
    if text and ID_PATTERN.fullmatch(text) is None:
        raise invalid([Problem(("query", "after"), "expected the id of a run")])
    return text


def last_seen(request: Request) -> int:
    """The line behind which events are wanted: `Last-Event-ID`, or `?after=`."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if _SEQ.fullmatch(text) is None:
        is_header = bool(request.headers.get("last-event-id"))
        place = ("header", "Last-Event-ID") if is_header else ("query", "after")
        raise invalid([Problem(place, "expected the number of a line")])
    return int(text)
