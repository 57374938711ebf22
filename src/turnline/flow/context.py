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
from turnline.core.json import normalised

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
    """Return the keys that were set, and those that were deleted. Raises `BadDraft` for what is not JSON.

    Only what was set has to fit on one line of the log; a context may be larger (`context_bytes`).
    """
    touched = {key: value for key, value in after.items() if not _is_untouched(before, key, value)}
    now = normalised(touched, field="ctx")
    updates = {key: value for key, value in now.items() if key not in before or not _same(before[key], value)}
    return updates, [key for key in before if key not in after]


def _is_untouched(before: JsonObject, key: str, value: object) -> bool:
    """Return whether `value` is JSON and the same as before. Much cheaper than `normalised`."""
    try:
        is_same_text = key in before and _encoder.encode(before[key]) == _encoder.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return False
    return is_same_text and bool(before[key] == value)  # NaN and tuples have the text of other values.


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values."""
    if _encoder.encode(one) == _encoder.encode(other):
        return True
    return bool(one == other) and _same_values(one, other)


def _same_values(one: Any, other: Any) -> bool:
    """Compare value by value what differs at most in the order of keys, or as 1, 1.0 and true do."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same_values(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same_values, one, other))
    return bool(one == other)
