"""Strict JSON: what one reader takes and another does not, nobody takes.

No NaN, no key twice, no half of a surrogate pair, no NUL, no number of thousands of digits,
no more levels than allowed.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from turnline.core.json import MAX_INTEGER_BITS


class BadJson(ValueError):
    """Text that is not strict JSON; `because` says why."""

    def __init__(self, because: str) -> None:
        self.because = because
        super().__init__(because)


def loads(text: str, *, depth: int) -> Any:
    """Return what `text` says. Raises `BadJson`; what is in strings and how deep it goes, see `check`."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except BadJson:
        raise
    except RecursionError:
        raise BadJson(f"it has more than {depth} levels") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"{error.msg.lower()} at line {error.lineno}, column {error.colno}") from None
    except ValueError:  # A number of thousands of digits.
        raise BadJson("it holds a number that is too long") from None


def check(value: object, *, depth: int) -> None:
    """Refuse what no other reader would read back as it is. Raises `BadJson`."""
    match value:
        case str():
            _check_text(value)
        case int() | float():
            _check_number(value)
        case dict() | list() if depth <= 0:
            raise BadJson("it is nested too deep")
        case dict():
            for key, item in value.items():
                _check_text(key)
                check(item, depth=depth - 1)
        case list():
            for item in value:
                check(item, depth=depth - 1)


def _check_number(value: float) -> None:
    if isinstance(value, int):
        if value.bit_length() > MAX_INTEGER_BITS:
            raise BadJson("it holds a number that is too long")
    elif not isfinite(value):
        raise BadJson("it holds a number that is too large")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise BadJson("it holds a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadJson("it holds half of a surrogate pair") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadJson(f"the key {key[:100]!r} stands in one object twice")
        found[key] = value
    return found


def _constant(name: str) -> Any:
    raise BadJson(f"{name} is no JSON")
