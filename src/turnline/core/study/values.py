"""Which values of a context variable a graph can tell apart.

A graph looks at a variable with `ContextEquals`, `ContextIn` and `ContextThreshold`. Of all
JSON there is, a few values stand for the rest: those it names, numbers around and between
those it names, a missing one, and one that it says nothing about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from math import floor, inf, isfinite, nextafter
from typing import Any, Final

from turnline.core.json import is_number
from turnline.core.transitions import Condition, ContextEquals, ContextIn, ContextThreshold

Candidates = tuple[Any, ...]

ELSE: Final = "anything else"
"""Stands for every value that no condition names."""


def candidates_of(parts: Iterable[Condition]) -> Mapping[str, Candidates]:
    """Context key -> a value of each kind that the conditions tell apart."""
    named: dict[str, list[Any]] = {}
    for part in parts:
        match part:
            case ContextEquals(key=key, value=value):
                named.setdefault(key, []).append(value)
            case ContextIn(key=key, values=values):
                named.setdefault(key, []).extend(values)
            case ContextThreshold(key=key, threshold=threshold):
                named.setdefault(key, []).append(threshold)
    return {key: _each(values) for key, values in named.items()}


def _each(named: list[Any]) -> Candidates:
    found: list[Any] = []
    for value in (*named, *_numbers(named), None, *_truths(named), _unnamed(named)):
        if not any(_is_same(value, other) for other in found):
            found.append(value)
    return tuple(value for value in found if not isinstance(value, float) or isfinite(value))


def _numbers(named: list[Any]) -> Iterator[int | float]:
    """A number below, between and above those that are named."""
    numbers = sorted(value for value in named if is_number(value))
    if not numbers:
        yield 0  # A number, where an infinite threshold is all there is.
        return
    yield from _below(numbers[0])
    for low, high in pairwise(numbers):
        middle = (Fraction(low) + Fraction(high)) / 2
        yield from _between(low, high, (floor(middle), floor(middle) + 1, float(middle), nextafter(low, inf)))
    yield from _above(numbers[-1])


def _below(number: float) -> Iterator[int | float]:
    yield from _between(-inf, number, (floor(number) - 1, nextafter(number, -inf)))


def _above(number: float) -> Iterator[int | float]:
    yield from _between(number, inf, (floor(number) + 1, nextafter(number, inf)))


def _between(low: float, high: float, tried: Iterable[int | float]) -> Iterator[int | float]:
    return (one for one in tried if low < one < high and is_number(one))


def _truths(named: list[Any]) -> Iterator[int | bool]:
    """True equals 1 and is no number to a threshold; so does False with 0."""
    for value in named:
        if value in (0, 1):
            yield bool(value)
            yield int(value)


def _unnamed(named: list[Any]) -> str:
    text = ELSE
    while text in named:
        text += "!"
    return text


def _is_same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
