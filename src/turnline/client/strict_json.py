"""Strict JSON: what one reader takes and another does not, nobody takes.

No NaN, no key twice, no half of a surrogate pair, no NUL, no number of thousands of digits,
no more levels and no more values than allowed.

Rule: the values are counted in the text, before anything is built from it. A megabyte of
empty lists costs a parser a hundred times what a megabyte of text does.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final

from turnline.core.json import MAX_KEY_CHARACTERS, MAX_VALUES, Flaw, flaw_in

_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
"""Matched in linear time; a string that does not end goes on to the end of the text."""


class BadJson(ValueError):
    """Text that is not strict JSON; `because` says why."""

    def __init__(self, because: str) -> None:
        self.because = because
        super().__init__(because)


def loads(text: str, *, depth: int, values: int = MAX_VALUES) -> Any:
    """Return what `text` says. Raises `BadJson`; `check` looks at strings, numbers and levels."""
    if _most_values(text) > values and _most_values(_STRING.sub('""', text)) > values:
        raise BadJson(_because(Flaw.TOO_MANY, values))
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


def check(value: object, *, depth: int, values: int = MAX_VALUES) -> None:
    """Refuse what no other reader would read back as it is. Raises `BadJson`."""
    flaw = flaw_in(value, depth=depth, values=values)
    if flaw is not None:
        raise BadJson(_because(flaw, values))


def _most_values(text: str) -> int:
    """The values of `text`, or more: each is the first one, follows a comma, or opens a list or an object."""
    return 1 + text.count(",") + text.count("[") + text.count("{")


def _because(flaw: Flaw, values: int) -> str:
    return f"it has more than {values} values" if flaw is Flaw.TOO_MANY else _BECAUSE[flaw]


_BECAUSE: Final = {
    Flaw.TOO_DEEP: "it is nested too deep",
    Flaw.NUL: "it holds a NUL character",
    Flaw.SURROGATE: "it holds half of a surrogate pair",
    Flaw.LONG_NUMBER: "it holds a number that is too long",
    Flaw.NOT_FINITE: "it holds a number that is too large",
    Flaw.LONG_KEY: f"it holds a key of more than {MAX_KEY_CHARACTERS} characters",
    Flaw.OTHER_TYPE: "it holds a value that JSON does not have",
}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise BadJson(f"the key {twice[:100]!r} stands in one object twice")
    return found


def _constant(name: str) -> Any:
    raise BadJson(f"{name} is no JSON")
