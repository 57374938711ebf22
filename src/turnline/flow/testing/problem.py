"""What is wrong with a case, and how JSON is compared: found / expected / what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from turnline.flow.definition.base import Json

SHOWN_CHARACTERS: Final = 400
ABSENT: Final = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it should be."""

    what: str
    """What was looked at: `path`, `data.score`, `step approve`."""
    found: str = ""
    expected: str = ""
    fix: str = ""

    def __str__(self) -> str:
        details = (("expected", self.expected), ("found", self.found), ("do", self.fix))
        return "\n".join([self.what, *(f"    {name}: {text}" for name, text in details if text)])


def shown(value: Json) -> str:
    """A value as a document would have it."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def lacking(expected: Json, found: Json, at: str) -> Iterator[Problem]:
    """Everything of `expected` that is not in `found`. Objects may hold more, at every level."""
    match expected, found:
        case dict(), dict():
            for key, value in expected.items():
                if key in found:
                    yield from lacking(value, found[key], f"{at}.{key}")
                else:
                    yield Problem(what=f"{at}.{key}", found=ABSENT, expected=shown(value))
        case list(), list() if len(expected) == len(found):
            for place, (one, other) in enumerate(zip(expected, found, strict=True)):
                yield from lacking(one, other, f"{at}[{place}]")
        case _ if not is_same(expected, found):
            yield Problem(what=at, found=shown(found), expected=shown(expected))


def differing(expected: Json, found: Json, at: str) -> Iterator[Problem]:
    """Everything that is different in `found`: what is missing, and what is too much."""
    if not (isinstance(expected, dict) and isinstance(found, dict)):
        if not is_same(expected, found):
            yield Problem(what=at, found=shown(found), expected=shown(expected))
        return
    for key in expected | found:
        if key not in expected:
            yield Problem(what=f"{at}.{key}", found=shown(found[key]), expected=ABSENT)
        elif key not in found:
            yield Problem(what=f"{at}.{key}", found=ABSENT, expected=shown(expected[key]))
        else:
            yield from differing(expected[key], found[key], f"{at}.{key}")


def is_same(one: Json, other: Json) -> bool:
    """Equal as a document has it: 91 and 91.0 are one number, and true is none."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case dict(), dict():
            return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)
