"""What expressions compute: operators, tests and functions over JSON values (F10).

`expressions` reads the grammar; this module knows only values. A value is
None, a boolean, a number, text, a list or a mapping; those are the kinds.

Rule 1: everything here is pure and total. What has no answer (the wrong kind,
a division by zero, a number or a text too large to keep) is None; nothing
raises but `OutOfSteps`, and nothing is changed in place.

Rule 2: only values of exactly the JSON types are touched. Whatever else a
caller left among the names, NaN and infinity included, reads as None, so no
method of a stranger's class is ever called.

Rule 3: work that grows with the data is paid for in `Steps` before it is done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final, cast

MAX_STEPS: Final = 50_000
"""Of one evaluation. A step is a part of the expression, an item, or `CHARACTERS_PER_STEP` of text."""
CHARACTERS_PER_STEP: Final = 64
_STEPS_TO_LOOK_INSIDE: Final = 3
"""Comparing a list or an object takes some time before the first item is compared."""
MAX_INTEGER_BITS: Final = 256
"""Small enough that an integer always converts to a float; larger ones are None."""
MAX_RESULT_CHARACTERS: Final = 65_536
"""Of one text that an expression makes. Text that it only reads may be longer."""
MAX_DATA_DEPTH: Final = 64
MAX_ARGUMENTS: Final = 16
MAX_ROUND_DIGITS: Final = 15

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_KEPT: Final = frozenset({bool, str, list, dict})
_INTEGER: Final = re.compile(r"\s{0,9}[+-]?[0-9]{1,80}\s{0,9}")
_FLOAT: Final = re.compile(r"\s{0,9}[+-]?[0-9]{1,80}(\.[0-9]{1,80})?([eE][+-]?[0-9]{1,4})?\s{0,9}")


class OutOfSteps(Exception):
    """The evaluation cost more than it may. `Expression` catches it: the answer is None."""


class Steps:
    """What one evaluation may still spend."""

    __slots__ = ("left",)

    def __init__(self, left: int = MAX_STEPS) -> None:
        self.left = left

    def pay(self, steps: int) -> None:
        """Spend `steps`, or raise `OutOfSteps`."""
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps

    def pay_for_text(self, *texts: str) -> None:
        self.pay(1 + sum(map(len, texts)) // CHARACTERS_PER_STEP)


def plain(value: object) -> Json:
    """`value` if it is one an expression may touch, else None. Looks at the outermost level only."""
    if type(value) is int:
        return value if value.bit_length() <= MAX_INTEGER_BITS else None
    if type(value) is float:
        return value if isfinite(value) else None
    return cast("Json", value) if type(value) in _KEPT else None


def copied(value: object, steps: Steps, depth: int = 0) -> Json:
    """`value`, all levels `plain`, sharing nothing with the original."""
    steps.pay(1)
    if depth > MAX_DATA_DEPTH:
        raise OutOfSteps
    match plain(value):
        case str(text):
            steps.pay_for_text(text)
            return text
        case list(items):
            return [copied(item, steps, depth + 1) for item in items]
        case dict(items):
            return {key: copied(item, steps, depth + 1) for key, item in items.items() if type(key) is str}
        case scalar:
            return scalar


def number(value: Json) -> int | float | None:
    """`value` if it is a number; a boolean is not one."""
    return value if type(value) is int or type(value) is float else None


# --- comparing ---


def equal(left: Json, right: Json, steps: Steps) -> bool:
    """Equality as JSON has it: by kind, then by value. `true` is not 1; 1 is 1.0; None is only None.

    Walks with a stack of its own, because Python's `==` on nested lists recurses without a limit.
    """
    steps.pay(1)
    if not isinstance(left, list | dict):
        return _same_scalar(left, right, steps)
    steps.pay(_STEPS_TO_LOOK_INSIDE)
    pending: list[tuple[Json, Json]] = [(left, right)]
    while pending:
        match pending.pop():
            case (list(one), list(other)) if len(one) == len(other):
                steps.pay(1 + len(one))
                pending.extend(zip(map(plain, one), map(plain, other), strict=True))
            case (dict(one), dict(other)) if len(one) == len(other):
                steps.pay(1 + len(one))
                if one.keys() != other.keys():
                    return False
                pending.extend((plain(one[key]), plain(other[key])) for key in one)
            case (scalar, another):
                if not _same_scalar(scalar, another, steps):
                    return False
    return True


def _same_scalar(one: Json, other: Json, steps: Steps) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        steps.pay_for_text(one)
        return one == other
    if number(one) is not None and number(other) is not None:
        return one == other
    if isinstance(one, list | dict):
        return False  # Of two kinds or two sizes, or `equal` would have looked inside.
    return one is other  # None, true and false; anything else is of two kinds.


def before(left: Json, right: Json, steps: Steps) -> bool:
    """`left < right`, for two numbers or two texts; for anything else there is no order."""
    if isinstance(left, str) and isinstance(right, str):
        steps.pay_for_text(left)
        return left < right
    one, other = number(left), number(right)
    return one is not None and other is not None and one < other


def before_or_at(left: Json, right: Json, steps: Steps) -> bool:
    """`left <= right`, where `before` knows an order; so `None <= None` is false."""
    ordered = isinstance(left, str) and isinstance(right, str)
    ordered = ordered or (number(left) is not None and number(right) is not None)
    return ordered and not before(right, left, steps)


def contains(whole: Json, piece: Json, steps: Steps) -> bool:
    """`piece in whole`: an item of a list, a key of a mapping, a part of a text."""
    match whole, piece:
        case (str(), str()):
            steps.pay_for_text(whole, piece)
            return piece in whole
        case (dict(), str()):
            return piece in whole
        case (list(), _):
            return any(equal(plain(item), piece, steps) for item in whole)
        case _:
            return False


def item(holder: Json, key: Json) -> Json:
    """`holder[key]`: a mapping's value or a list's item, negative places from the end; else None."""
    if isinstance(holder, dict) and isinstance(key, str):
        return plain(holder.get(key))
    if isinstance(holder, list) and isinstance(key, int) and not isinstance(key, bool):
        return plain(holder[key]) if -len(holder) <= key < len(holder) else None
    return None


# --- arithmetic and text ---


def add(left: Json, right: Json, steps: Steps) -> Json:
    """The sum of two numbers, or two texts joined."""
    if isinstance(left, str) and isinstance(right, str):
        return joined((left, right), steps)
    return _reckoned(left, right, lambda a, b: a + b)


def joined(parts: Iterable[Json], steps: Steps) -> Json:
    """The parts as one text, or None if one of them has no text or all of them are too long."""
    texts = [_string(steps, part) for part in parts]
    known = [text for text in texts if isinstance(text, str)]
    if len(known) < len(texts) or sum(map(len, known)) > MAX_RESULT_CHARACTERS:
        return None
    steps.pay_for_text(*known)
    return "".join(known)


_Reckon = Callable[[int | float, int | float], int | float | None]


def _reckoned(left: Json, right: Json, reckon: _Reckon) -> Json:
    one, other = number(left), number(right)
    return None if one is None or other is None else plain(reckon(one, other))


def _on_numbers(reckon: _Reckon) -> Callable[[Json, Json, Steps], Json]:
    return lambda left, right, _: _reckoned(left, right, reckon)


subtract: Final = _on_numbers(lambda a, b: a - b)
multiply: Final = _on_numbers(lambda a, b: a * b)
divide: Final = _on_numbers(lambda a, b: a / b if b else None)
divide_down: Final = _on_numbers(lambda a, b: a // b if b else None)
remainder: Final = _on_numbers(lambda a, b: a % b if b else None)


# --- the functions ---


def _length(_: Steps, value: Json) -> Json:
    return len(value) if isinstance(value, str | list | dict) else None


def _changing(change: Callable[[str], str]) -> Callable[[Steps, Json], Json]:
    def changed(steps: Steps, value: Json) -> Json:
        if not isinstance(value, str) or len(value) > MAX_RESULT_CHARACTERS:
            return None
        steps.pay_for_text(value)
        text = change(value)
        # One letter can become three: "ΐ" in capitals.
        return text if len(text) <= MAX_RESULT_CHARACTERS else None

    return changed


def _contains(steps: Steps, whole: Json, piece: Json) -> Json:
    return contains(whole, piece, steps)


def _at_edge(found: Callable[[str, str], bool]) -> Callable[[Steps, Json, Json], Json]:
    def at_edge(steps: Steps, whole: Json, piece: Json) -> Json:
        if not isinstance(whole, str) or not isinstance(piece, str):
            return None
        steps.pay_for_text(piece)
        return found(whole, piece)

    return at_edge


def _string(_: Steps, value: Json) -> Json:
    """Text as it is; numbers and booleans as JSON writes them; nothing else has a text."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case _:
            return None


def _int(_: Steps, value: Json) -> Json:
    """A number without its fraction, or the integer a text spells."""
    if isinstance(value, str):
        return plain(int(value)) if _INTEGER.fullmatch(value) else None
    known = number(value)
    return None if known is None else plain(int(known))


def _float(_: Steps, value: Json) -> Json:
    if isinstance(value, str):
        return plain(float(value)) if _FLOAT.fullmatch(value) else None
    known = number(value)
    return None if known is None else float(known)


def _round(_: Steps, value: Json, digits: Json = None) -> Json:
    """The nearest integer, or the nearest number of `digits` decimals; halves go to the even one."""
    known = number(value)
    if known is None or digits is None:
        return None if known is None else plain(round(known))
    places = number(digits)
    if not isinstance(places, int) or not 0 <= places <= MAX_ROUND_DIGITS:
        return None
    return plain(round(known, places))


def _abs(_: Steps, value: Json) -> Json:
    known = number(value)
    return None if known is None else abs(known)


def _min(steps: Steps, *values: Json) -> Json:
    return _extreme(steps, values, before)


def _max(steps: Steps, *values: Json) -> Json:
    return _extreme(steps, values, lambda one, other, steps: before(other, one, steps))


def _extreme(steps: Steps, values: tuple[Json, ...], better: Callable[[Json, Json, Steps], bool]) -> Json:
    """The best of one list, or of several arguments, if all are numbers or all are texts."""
    found = _items(values)
    if not found:
        return None
    best = plain(found[0])
    for value in map(plain, found):
        steps.pay(1)
        if not before_or_at(value, best, steps) and not before(best, value, steps):
            return None
        best = value if better(value, best, steps) else best
    return best


def _items(values: tuple[Json, ...]) -> list[Json]:
    match values:
        case (list(items),):
            return items
        case (_,):
            return []
        case _:
            return list(values)


def _sum(steps: Steps, values: Json) -> Json:
    if not isinstance(values, list):
        return None
    total: Json = 0
    for value in map(plain, values):
        steps.pay(1)
        total = _reckoned(total, value, lambda a, b: a + b)
    return total


def _first(_: Steps, values: Json) -> Json:
    return item(values, 0)


def _last(_: Steps, values: Json) -> Json:
    return item(values, -1)


def _default(_: Steps, value: Json, fallback: Json) -> Json:
    return fallback if value is None else value


@dataclass(frozen=True, slots=True)
class Function:
    """One name that can be called, as `name(x, y)` or as `x|name(y)`."""

    compute: Callable[..., Json]
    fewest: int = 1
    most: int = 1


FUNCTIONS: Final[Mapping[str, Function]] = {
    "abs": Function(_abs),
    "contains": Function(_contains, 2, 2),
    "count": Function(_length),
    "default": Function(_default, 2, 2),
    "endswith": Function(_at_edge(str.endswith), 2, 2),
    "first": Function(_first),
    "float": Function(_float),
    "int": Function(_int),
    "last": Function(_last),
    "len": Function(_length),
    "length": Function(_length),
    "lower": Function(_changing(str.lower)),
    "max": Function(_max, 1, MAX_ARGUMENTS),
    "min": Function(_min, 1, MAX_ARGUMENTS),
    "round": Function(_round, 1, 2),
    "startswith": Function(_at_edge(str.startswith), 2, 2),
    "string": Function(_string),
    "sum": Function(_sum),
    "trim": Function(_changing(str.strip)),
    "upper": Function(_changing(str.upper)),
}

TESTS: Final[Mapping[str, Callable[[Json], bool]]] = {
    "False": lambda value: value is False,
    "None": lambda value: value is None,
    "True": lambda value: value is True,
    "boolean": lambda value: isinstance(value, bool),
    "defined": lambda value: value is not None,
    "false": lambda value: value is False,
    "float": lambda value: isinstance(value, float),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "mapping": lambda value: isinstance(value, dict),
    "none": lambda value: value is None,
    "number": lambda value: number(value) is not None,
    "string": lambda value: isinstance(value, str),
    "true": lambda value: value is True,
    "undefined": lambda value: value is None,
}
"""`x is <name>`. A missing key is None, so `defined` says no more than `not none`."""
