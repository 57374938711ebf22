"""Choices: a computation that may go several ways, played once for each.

    every(lambda choices: choices.of("ab") + choices.of("12"))    # a1 a2 b1 b2

The computation asks for each choice when it needs it, so ways that differ in nothing are
not told apart. What it does must follow from the answers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


class TooMany(Exception):
    """There is more to look at than somebody is willing to."""


class Budget:
    """How much may be looked at, all together: conditions asked, turns tried."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def spend(self, looks: int = 1) -> None:
        """Raises `TooMany` once everything is spent, and from then on."""
        self._left -= looks
        if self._left < 0:
            raise TooMany


class Choices:
    """The answers of one way through a computation."""

    def __init__(self, script: Sequence[int] = ()) -> None:
        self._script = script
        self.taken: list[int] = []
        self.widths: list[int] = []

    def of(self, options: Sequence[T]) -> T:
        """Return one of `options`; another way returns another one."""
        place = self._script[len(self.taken)] if len(self.taken) < len(self._script) else 0
        if len(options) > 1:
            self.taken.append(place)
            self.widths.append(len(options))
        return options[place if len(options) > 1 else 0]


def every(play: Callable[[Choices], T]) -> Iterator[T]:
    """What `play` comes to, for each way through it."""
    script: list[int] = []
    while True:
        choices = Choices(script)
        yield play(choices)
        script = choices.taken
        while script and script[-1] + 1 == choices.widths[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1
