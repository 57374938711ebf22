"""Examples of input: what a stranger can send to a flow, and its own check accepts."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping
from typing import Final

from turnline.core.envelope import JsonObject
from turnline.flow.body import checked_body
from turnline.flow.definition.base import Json
from turnline.flow.definition.fields import Fields, FieldSpec
from turnline.flow.definition.flow import Flow

MOST_REPEATED: Final = 1_000
"""Items or characters of one value. A field that needs more has no example."""

_EXAMPLES: Final[Mapping[str, Json]] = {
    "boolean": True,
    "date": "2030-01-31",
    "datetime": "2030-01-31T12:00:00Z",
    "uuid": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "email": "ada@example.com",
}
_CHARACTERS: Final = (
    string.ascii_lowercase + string.ascii_uppercase + string.digits + string.punctuation + " "
)
_GROUP: Final = re.compile(r"(?<!\\)\((?:\?:|\?P<\w+>)?((?:[^()\\]|\\.)*)\)(\{\d+(?:,\d*)?\}|[*+?])?")
_ATOM: Final = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\])(\{\d+(?:,\d*)?\}|[*+?])?\??")


def example_input(flow: Flow) -> JsonObject | None:
    """Return input with what is required and what stands in the path.

    None if there is no trigger, or no example that passes the flow's own check.
    """
    trigger = flow.spec.trigger
    if trigger is None:
        return None
    fields = trigger.input or {}
    in_path = {name: _value(fields.get(name, FieldSpec())) for name in trigger.parameters}
    found = _object(fields) | in_path
    _, problems = checked_body(flow, found)
    return None if problems else found


def _object(fields: Fields) -> JsonObject:
    return {name: _value(spec) for name, spec in fields.items() if spec.required}


def _value(spec: FieldSpec) -> Json:
    if spec.enum:
        return spec.enum[0]
    match spec.type:
        case "integer":
            return int(_number(spec, 1, step=1))
        case "number":
            return _number(spec, 1.5, step=0.5)
        case "object":
            return _object(spec.properties or {})
        case "array":
            return [_value(spec.items or FieldSpec())] * min(math.ceil(spec.min or 0), MOST_REPEATED)
    return _EXAMPLES.get(spec.type) or _text(spec)


def _number(spec: FieldSpec, usual: float, *, step: float) -> float:
    low = -math.inf if spec.min is None else math.ceil(spec.min / step) * step
    high = math.inf if spec.max is None else math.floor(spec.max / step) * step
    return min(max(usual, low), high)


def _text(spec: FieldSpec) -> str:
    if spec.pattern is not None:
        return _matching(spec.pattern)
    least, most = math.ceil(spec.min or 0), math.floor(MOST_REPEATED if spec.max is None else spec.max)
    return "text".ljust(min(least, MOST_REPEATED), "x")[: max(most, 0)]


def _matching(pattern: str) -> str:
    """Return a text for a simple pattern: literals, classes, groups, counts. Others are left to the check."""
    while (group := _GROUP.search(pattern)) is not None:
        inside = group[1].partition("|")[0] * _least(group[2])
        pattern = pattern[: group.start()] + inside + pattern[group.end() :]
    pattern = pattern.partition("|")[0].removeprefix("^").removesuffix("$")
    return "".join(_character(atom) * _least(count) for atom, count in _ATOM.findall(pattern))


def _least(count: str | None) -> int:
    if not count or count == "+":
        return 1
    return 0 if count in "*?" else min(int(count[1:-1].partition(",")[0]), MOST_REPEATED)


def _character(atom: str) -> str:
    """Return a character that one atom of a pattern matches."""
    try:
        return next((one for one in _CHARACTERS if re.fullmatch(atom, one)), "")
    except re.error:
        return ""
