"""Context variables: what `context.set` may say, and what it does.

    {"expect": {...}, "delete": [...], "set": {...}, "increment": {...}, "append": {...}}

Applied in that order; every part is optional. `expect` compares and writes
nothing; if it does not hold, the whole update is refused (C1). Keys that start
with `_` are the engine's (C4).

`check` refuses; `applied` never does: what was accepted once can always be
folded again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from turnline.core.envelope import JsonObject
from turnline.core.json import is_number
from turnline.errors import BadDraft, ContextMismatch

MAX_CONTEXT_BYTES: Final = 1024 * 1024
"""Of all context variables of one channel together, as JSON, unless the hub was opened with another limit."""
_PARTS: Final = ("expect", "delete", "set", "increment", "append")

Variables = dict[str, Any]

_encoder = msgspec.json.Encoder()


def check(channel_id: str, variables: Variables, update: JsonObject, *, field: str = "event_data") -> None:
    """Refuse an update that cannot be applied to `variables`."""
    _check_shape(update, field)
    for key, expected in update.get("expect", {}).items():
        if variables.get(key) != expected:
            raise ContextMismatch(channel_id, key=key, expected=expected, found=variables.get(key))
    after = _replaced(variables, update)
    for key, amount in update.get("increment", {}).items():
        if not is_number(after.get(key, 0)):
            raise _wrong_kind(key, after[key], field, "increment", "a number, or not set")
        if _sum(after.get(key, 0), amount) is None:
            raise BadDraft(
                f"{field}.increment.{key}", found="more than a number can hold", expected="a finite sum"
            )
    for key in update.get("append", {}):
        if not isinstance(after.get(key, []), list):
            raise _wrong_kind(key, after[key], field, "append", "a list, or not set")


def check_size(before: Variables, after: Variables, most: int) -> None:
    """Refuse an update that makes the variables larger than `most` bytes. One that shrinks them is taken.

    The error does not say how large they are: some of them may be hidden from the sender.
    """
    size = len(_encoder.encode(after))
    if size > most and size > len(_encoder.encode(before)):
        found = "too large with this update"
        expected = f"at most {most} (context_bytes). Delete variables, keep large data elsewhere, or raise it"
        raise BadDraft("the channel's context", found=found, expected=expected)


def applied(variables: Variables, update: JsonObject) -> Variables:
    """Return `variables` after `update`. What does not fit is left as it is."""
    after = _replaced(variables, update)
    for key, amount in _object(update, "increment").items():
        total = _sum(after.get(key, 0), amount)
        if total is not None:
            after[key] = total
    for key, item in _object(update, "append").items():
        if isinstance(after.get(key, []), list):
            after[key] = [*after.get(key, []), item]
    return after


def check_keys(keys: Iterable[str], field: str) -> None:
    """Refuse keys that are the engine's."""
    for key in keys:
        if key.startswith("_"):
            raise BadDraft(
                f"{field}.{key}", found="a reserved key", expected="a key that does not start with '_'"
            )


def _check_shape(update: JsonObject, field: str) -> None:
    unknown = update.keys() - set(_PARTS)
    if unknown or not update:
        found = f"with {sorted(unknown)}" if unknown else "empty"
        raise BadDraft(field, found=found, expected=f"one or more of {', '.join(_PARTS)}")
    for part in ("expect", "set", "increment", "append"):
        if not isinstance(update.get(part, {}), dict):
            raise BadDraft(f"{field}.{part}", found=f"a {type(update[part]).__name__}", expected="an object")
        check_keys(update.get(part, {}), f"{field}.{part}")
    delete = update.get("delete", [])
    if not isinstance(delete, list) or not all(isinstance(key, str) for key in delete):
        raise BadDraft(f"{field}.delete", found=repr(delete)[:80], expected="a list of keys")
    check_keys(delete, f"{field}.delete")
    for key, amount in update.get("increment", {}).items():
        if not is_number(amount):
            raise BadDraft(
                f"{field}.increment.{key}", found=f"a {type(amount).__name__}", expected="a number"
            )


def _replaced(variables: Variables, update: JsonObject) -> Variables:
    deleted = update.get("delete")
    kept = dict(variables)
    for key in deleted if isinstance(deleted, list) else ():
        if isinstance(key, str):
            kept.pop(key, None)
    return kept | _object(update, "set")


def _object(update: JsonObject, part: str) -> JsonObject:
    value = update.get(part)
    return value if isinstance(value, dict) else {}


def _sum(value: Any, amount: Any) -> int | float | None:
    """The sum, or None if the two do not add up to a number that JSON can hold."""
    if not is_number(value) or not is_number(amount):
        return None
    try:
        total: int | float = value + amount
    except OverflowError:  # A float and an integer that no float can hold.
        return None
    return total if is_number(total) else None


def _wrong_kind(key: str, value: object, field: str, part: str, expected: str) -> BadDraft:
    found = f"for a context variable that holds a {type(value).__name__}"
    return BadDraft(f"{field}.{part}.{key}", found=found, expected=expected)
