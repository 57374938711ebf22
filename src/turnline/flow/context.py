"""A run's context: what goes into it, what comes out of it, what stays inside (F1-F3).

Rule 1: top-level keys that start with `_` are the engine's. Nothing from outside can
set one: `from_outside` drops them and says which.

Rule 2: what a step stores is the difference. A public value that is not JSON is an
error that names its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnline.core.envelope import JsonObject

_encoder = msgspec.json.Encoder()


def is_private(key: str) -> bool:
    return key.startswith("_")


def public(context: Mapping[str, Any]) -> JsonObject:
    """What may leave the server."""
    return {key: value for key, value in context.items() if not is_private(key)}


def private(context: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in context.items() if is_private(key)}


def from_outside(data: Mapping[str, Any]) -> tuple[JsonObject, list[str]]:
    """Return what may go into the context, and the reserved keys that were dropped."""
    return public(data), sorted(private(data))


def difference(before: JsonObject, after: Mapping[str, Any]) -> tuple[JsonObject, list[str]]:
    """Return the keys that were set, and those that were deleted.

    A value that was set may be anything: the line that it goes on is checked when it is written.
    """
    updates = {
        key: value for key, value in after.items() if key not in before or not is_same(before[key], value)
    }
    return updates, [key for key in before if key not in after]


def is_same(one: Any, other: Any) -> bool:
    """Return whether `other`, which may be anything, is the JSON value `one`. 1, 1.0 and true are three."""
    kind = type(one)
    if kind is str or kind is int or kind is bool or one is None:
        return type(other) is kind and bool(one == other)
    try:
        if not one == other:  # NaN and tuples have the text of other values.  # noqa: SIM201
            return False
        return _encoder.encode(one) == _encoder.encode(other) or _same_values(one, other)
    except Exception:  # An object of the user's own may raise anything.
        return False


def _same_values(one: Any, other: Any) -> bool:
    """Compare value by value what differs at most in the order of keys, or as 1, 1.0 and true do."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same_values(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same_values, one, other))
    return bool(one == other)
