"""Exploration: all that may happen on a channel, turn by turn, up to a bound.

    found = explore(graph)
    found.reachable, found.close_reasons, found.longest_run, found.cycle

Who may have the floor at turn n follows from who may have it at turn n - 1, so it is worked
out for all conversations at once. Once the same speakers come again, at a turn no condition
tells from the others, nothing new will come.

Rule: nothing possible is left out, so what is not reached cannot be. What may happen, may:
whether it does is up to what the speakers say. If the bound was hit, neither holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from turnline.core.channel import Participant
from turnline.core.graph import TransitionGraph
from turnline.core.study.cast import OTHER, Tools, cast_of
from turnline.core.study.choices import TooMany
from turnline.core.study.possible import BOUND, Move, Possible
from turnline.core.study.proof import is_shown
from turnline.core.study.wording import turns_told

MAX_TURNS: Final = "max_turns"
WAYS: Final = frozenset({"turn", "failed", "handoff"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What may happen on channels with a graph."""

    reachable: tuple[str, ...]
    """Who may have the floor, in the order in which they may first have it; names."""
    unreachable: tuple[str, ...]
    """Whom the graph names and who never has it."""
    close_reasons: tuple[str, ...]
    """With which a rule, the default, `max_turns` or a failed turn may close the channel."""
    longest_run: int | None
    """In turns; None if there is no end to it."""
    cycle: tuple[str, ...]
    """Speakers that may follow each other for ever, without `max_turns`; empty if there are none."""
    bound_hit: bool
    """Whether there is more than was looked at: then the rest is a part of the truth."""

    def __str__(self) -> str:
        run = "no end" if self.longest_run is None else turns_told(self.longest_run)
        lines = [
            f"reachable: {', '.join(self.reachable)}",
            f"unreachable: {', '.join(self.unreachable) or 'nobody'}",
            f"may close with: {', '.join(self.close_reasons) or 'nothing'}",
            f"longest run: {run}",
        ]
        lines += [f"cycle: {' -> '.join((*self.cycle, self.cycle[0]))}"] if self.cycle else []
        return "\n".join([*lines, *(["not everything was looked at"] if self.bound_hit else [])])


class Walk:
    """Who may have the floor when, and the moves they may make."""

    def __init__(
        self,
        possible: Possible,
        *,
        ways: Collection[str] = WAYS,
        max_turns: int | None = None,
    ) -> None:
        self.possible = possible
        self.layers: list[frozenset[str]] = []
        """Who may have the floor at the first turn, the second, ..."""
        self.moves: list[Move] = []
        """Each once, with the first turn at which it may be made."""
        self.is_complete = True
        self.is_endless = False
        """Whether the same speakers came again: it goes on like that."""
        self._limit = possible.graph.max_turns
        self._horizon = max_turns
        self._ways = ways
        self._has_handoffs = possible.cast.handoffs and "handoff" in ways
        self._handed = frozenset(possible.cast.known) if self._has_handoffs else frozenset()
        self._known: dict[tuple[str, int, bool], frozenset[str]] = {}
        try:
            self._walk()
        except TooMany:
            self.is_complete = False

    @property
    def reached(self) -> list[str]:
        """Who may have the floor, in the order in which they may first have it."""
        return list(dict.fromkeys(one for layer in self.layers for one in sorted(layer)))

    @property
    def close_reasons(self) -> list[str]:
        """With which the channel may close, in the order in which it may happen first."""
        reasons = [move.reason for move in self.moves if move.to is None]
        may_go_on = self.is_endless or (self._has_handoffs and len(self.layers) == self._limit)
        is_cut = self._limit is not None and may_go_on
        return list(dict.fromkeys([*reasons, MAX_TURNS] if is_cut else reasons))

    @property
    def longest_run(self) -> int | None:
        """In turns; None if there is no end to it."""
        return self._limit if self.is_endless else len(self.layers)

    def _walk(self) -> None:
        layer, seen = frozenset({self.possible.initial}), set[frozenset[str]]()
        while layer and not self.is_endless:
            turn = len(self.layers) + 1
            if self._horizon is not None and turn > self._horizon:
                raise TooMany
            self.layers.append(layer)
            self.possible.budget.spend(len(layer))
            if turn > self.possible.horizon:
                self.is_endless = layer in seen
                seen.add(layer)
            layer = frozenset(one for speaker in sorted(layer) for one in self._after(speaker, turn))

    def _after(self, speaker: str, turn: int) -> frozenset[str]:
        """Who may have the floor after a turn of `speaker`."""
        key = (speaker, min(turn, self.possible.horizon + 1), turn == self._limit)
        if key not in self._known:
            moves = [one for one in self.possible.moves(speaker, turn) if one.way in self._ways]
            if turn == self._limit:
                moves = [move if move.to is None else _cut(move) for move in moves]
            self.moves += moves
            led = frozenset(move.to for move in moves if move.to is not None)
            self._known[key] = led if turn == self._limit else led | self._handed
        return self._known[key]


def explore(
    graph: TransitionGraph,
    *,
    participants: Iterable[str | Participant] | None = None,
    opener: str | None = None,
    tools: Tools | None = None,
    handoffs: bool = False,
    max_turns: int | None = None,
    bound: int = BOUND,
) -> Exploration:
    """Return what may happen on channels with `graph`: all paths, of `max_turns` turns at most.

    `participants` are names (or `Participant`s); without them, those whom the graph names take part.
    `tools` says who has which. With `handoffs`, every turn may also end with a handoff to anybody.
    """
    cast = cast_of(graph, participants=participants, opener=opener, tools=tools, handoffs=handoffs)
    walk = Walk(Possible(graph, cast, bound=bound), max_turns=max_turns)
    reached = walk.reached
    loop: Sequence[Move] = ()
    with suppress(TooMany):
        loop = cycle_in(walk) if graph.max_turns is None else ()
    return Exploration(
        reachable=tuple(map(cast.spec.name_of, reached)),
        unreachable=tuple(cast.spec.name_of(one) for one in cast.named if one not in reached),
        close_reasons=tuple(walk.close_reasons),
        longest_run=walk.longest_run,
        cycle=tuple(cast.spec.name_of(move.speaker) for move in loop),
        bound_hit=not walk.is_complete,
    )


def cycle_in(walk: Walk, *, without: Collection[str] = ()) -> tuple[Move, ...]:
    """Moves that lead to each other and back, each of which can be shown on the router itself.

    Nobody hands off in it, nobody fails, and nobody of those in `without` speaks.
    """
    moves: dict[tuple[str, int], list[Move]] = {}
    for move in walk.moves:
        if move.way == "turn" and move.to is not None and not {move.speaker, move.to} & {OTHER, *without}:
            moves.setdefault((move.speaker, move.turn), []).append(move)
    return _Search(walk.possible, moves).cycle()


class _Search:
    """Depth first, for a way back to where it has been."""

    def __init__(self, possible: Possible, moves: Mapping[tuple[str, int], Sequence[Move]]) -> None:
        self._possible = possible
        self._moves = moves
        self._done: set[tuple[str, int]] = set()

    def cycle(self) -> tuple[Move, ...]:
        last = self._possible.horizon + 1
        starts = (place for place in self._moves if place[1] == last)
        return next((found for start in starts if (found := self._from(start))), ())

    def _from(self, start: tuple[str, int]) -> tuple[Move, ...]:
        path: list[Move] = []
        pending = [iter(self._onwards(start))]
        on_path = [start]
        while pending:
            move = next(pending[-1], None)
            if move is None:
                self._done.add(on_path.pop())
                pending.pop()
                path = path[:-1]
                continue
            place = (str(move.to), start[1])
            if place in on_path:
                return (*path[on_path.index(place) :], move)
            if place not in self._done:
                path.append(move)
                on_path.append(place)
                pending.append(iter(self._onwards(place)))
        return ()

    def _onwards(self, place: tuple[str, int]) -> Iterator[Move]:
        """One move to each that can have the floor next."""
        led = set[str | None]()
        for move in self._moves.get(place, ()):
            if move.to not in led and is_shown(self._possible, move):
                led.add(move.to)
                yield move


def _cut(move: Move) -> Move:
    """The move at the last turn there is."""
    return replace(move, by=MAX_TURNS, to=None, reason=MAX_TURNS)
