"""The roots of the tree, and how values are shown in messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class TurnlineError(Exception):
    """Base class of every error Turnline raises on purpose."""


class Refused(TurnlineError):
    """A draft the rules do not allow; nothing was written."""


def hint(name: str, known: Iterable[str]) -> str:
    """The nearest known name, as a question; empty if none is near."""
    near = get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def plain(text: str) -> str:
    """Return a stranger's text, without what a terminal would obey."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


_SHORT = 80


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def count_of(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 channel`, `2 channels`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"
