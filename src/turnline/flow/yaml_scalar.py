"""What a plain scalar of YAML means: the core schema of YAML 1.2, as far as it is JSON.

`true` and `false` are the only booleans. `on`, `yes`, `2026-01-31`, `12:30` and `1_000` are texts.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Final

MAX_DIGITS: Final = 308
"""Of an integer."""

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_BASED: Final = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

Scalar = str | int | float | bool | None


class NotJson(ValueError):
    """A scalar that YAML has and JSON has not."""


def scalar_of(text: str) -> Scalar:
    """Return what `text` means where it stands without quotes. Raises `NotJson`."""
    if text in _WORDS:
        return _WORDS[text]
    if _NO_NUMBER.fullmatch(text):
        raise NotJson("JSON has no such number")
    if _INTEGER.fullmatch(text):
        return _checked_integer(text, 10)
    if _BASED.fullmatch(text):
        return _checked_integer(text, 0)
    return _checked_float(text) if _FLOAT.fullmatch(text) else text


def _checked_integer(text: str, base: int) -> int:
    if len(text) > MAX_DIGITS:
        raise NotJson(f"an integer has at most {MAX_DIGITS} digits")
    return int(text, base)


def _checked_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise NotJson("the number is too large")
    return number
