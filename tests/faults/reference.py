"""A small model of a round-robin workflow channel, written without looking at the real one.

Mutable, obvious, and slow where it likes: what the log adds up to has to agree with it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any


class Model:
    """What should be true of the channel."""

    def __init__(self, order: list[str], max_turns: int) -> None:
        self.order = order
        self.max_turns = max_turns
        self.floor: str | None = order[0]
        self.turns = 0
        self.reason = ""
        self.claimed = False
        self.variables: dict[str, Any] = {}
        """As the turn found them."""
        self.writes: list[tuple[dict[str, Any], bool]] = []
        """What was written since, and whether the turn itself did."""

    @property
    def open(self) -> bool:
        return not self.reason

    def visible(self) -> dict[str, Any]:
        """What a reader sees: everything, the turn's own writes included."""
        seen = deepcopy(self.variables)
        for update, _ in self.writes:
            apply(seen, update)
        return seen

    def forget_the_turn(self) -> None:
        self.writes = [(update, in_turn) for update, in_turn in self.writes if not in_turn]

    def write(self, update: dict[str, Any], *, in_turn: bool) -> None:
        self.writes.append((update, in_turn))

    def claim(self) -> None:
        self.forget_the_turn()
        self.claimed = True

    def release(self) -> None:
        self.claimed = False

    def speak(self, update: dict[str, Any]) -> None:
        self.variables = self.visible()
        apply(self.variables, update)
        self._next()

    def give_up(self) -> None:
        self.turns += 1
        self.close("turn_failed")

    def close(self, reason: str) -> None:
        self.forget_the_turn()
        self.claimed = False
        self.reason = reason
        self.floor = None

    def _next(self) -> None:
        assert self.floor is not None
        self.writes.clear()
        self.claimed = False
        self.turns += 1
        self.floor = self.order[(self.order.index(self.floor) + 1) % len(self.order)]
        if self.turns == self.max_turns:
            self.close("max_turns")


def apply(variables: dict[str, Any], update: dict[str, Any]) -> None:
    for key in update.get("delete", []):
        variables.pop(key, None)
    variables.update(update.get("set", {}))
    for key, amount in update.get("increment", {}).items():
        variables[key] = variables.get(key, 0) + amount
