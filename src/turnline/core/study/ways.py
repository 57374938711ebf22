"""The ways on: from whose turns each transition leads, as far as the graph says it.

    Ways(graph, cast).sources(way) -> ["drafter", "reviewer"]

It tells apart speakers and turns, and nothing else. Whatever a condition asks beside them may
hold or not; which of it may hold together is what `exploration` looks at, for longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from turnline.core.channel import ChannelSpec
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.router import resolved
from turnline.core.step_targets import FanOutTarget, NestedTarget
from turnline.core.study.cast import Cast
from turnline.core.study.picture import OTHERWISE
from turnline.core.study.wording import told
from turnline.core.transitions import (
    AgentTarget,
    AllOf,
    Always,
    AnyOf,
    AtTurn,
    Condition,
    FromSpeaker,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TransitionTarget,
    TurnFailed,
    next_in,
    parts_of,
)

MOST_LOOKS: Final = 400_000
"""Speakers x turns x ways. In a graph with more of them, one turn is not told from another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A transition or the default, with ids where names were written."""

    then: TransitionTarget
    label: str
    """What has to hold beside whose turn it was; empty if nothing has to."""
    index: int | None = None
    """Of the transition; None for the default."""
    speakers: frozenset[str] | None = None
    """Whose turn it has to be; None if that is not said."""
    turn: int | None = None
    """Which turn it has to be; None if that is not said."""
    is_sure: bool = False
    """Whether nothing has to hold beside these two."""
    is_about_failure: bool = False
    """Whether it is also tried after a turn that failed: then no other takes the turn from it."""


class Ways:
    """The ways of a graph, in the order in which they are tried; the default is the last."""

    def __init__(self, graph: TransitionGraph, cast: Cast) -> None:
        self._cast = cast
        self.initial = cast.spec.resolve(graph.initial_speaker)
        tried = sorted(enumerate(graph.transitions), key=lambda one: one[1].priority)
        default = Way(then=resolved(graph.default_target, cast.spec), label=OTHERWISE)
        self.all = self._affordable(*(_way(index, one, cast.spec) for index, one in tried), default)
        self._sources: dict[int | None, dict[str, None]] = {way.index: {} for way in self.all}
        self.speakers: dict[str, None] = {}
        """Who may have the floor: the first, whom transitions name as speakers, and whom those lead to."""
        self._walk()

    def sources(self, way: Way) -> list[str]:
        """After whose turns it may lead on. One that names its speakers leads from each of them."""
        sources = self._sources[way.index] if way.speakers is None else way.speakers
        return [one for one in self.speakers if one in sources]

    def next(self, target: TransitionTarget, speaker: str) -> str | None:  # noqa: PLR0911  A line per target.
        """Who has the floor after a turn of `speaker`; None for an end, and where the graph does not say."""
        match target:
            case AgentTarget(agent_id=agent_id):
                return agent_id
            case StayTarget():
                return speaker
            case FanOutTarget(step=step) | NestedTarget(step=step):
                return step
            case RoundRobinTarget(participants=order) if order:
                return next_in(tuple(order), speaker)
            case RoundRobinTarget() if self._cast.is_closed and self._cast.opener is not None:
                return next_in(self._cast.spec.turn_order or self._cast.everyone, speaker)
            case RevertToInitiatorTarget():
                return self._cast.opener
        return None

    def _affordable(self, *ways: Way) -> tuple[Way, ...]:
        looks = len(self._cast.everyone) * _last_turn(ways) * len(ways)
        if looks <= MOST_LOOKS:
            return ways
        return tuple(replace(way, turn=None, is_sure=way.is_sure and way.turn is None) for way in ways)

    def _walk(self) -> None:
        later = _last_turn(self.all) + 1
        named = dict.fromkeys(one for way in self.all for one in sorted(way.speakers or ()))
        pending = deque([(self.initial, 1), *((one, later) for one in named)])
        seen = set(pending)
        while pending:
            speaker, turn = pending.popleft()
            self.speakers[speaker] = None
            for way in self._after(speaker, turn):
                self._sources[way.index][speaker] = None
                led = self.next(way.then, speaker)
                if led is not None and (place := (led, min(turn + 1, later))) not in seen:
                    seen.add(place)
                    pending.append(place)

    def _after(self, speaker: str, turn: int) -> Iterator[Way]:
        """The ways that may lead on from a turn, up to the first that is sure to."""
        is_taken = False
        for way in self.all:
            is_of_it = (way.speakers is None or speaker in way.speakers) and way.turn in (None, turn)
            if is_of_it and (way.is_about_failure or not is_taken):
                yield way
                is_taken = is_taken or way.is_sure


def _last_turn(ways: Iterable[Way]) -> int:
    """The last turn that is told from those after it."""
    return max(way.turn or 0 for way in ways)


def _way(index: int, transition: Transition, spec: ChannelSpec) -> Way:
    speakers = _speakers(resolved(transition.when, spec))
    rest = tuple(_beside_the_speaker(transition.when))
    turns = [one.turn for one in rest if isinstance(one, AtTurn) and isinstance(one.turn, int)]
    return Way(
        then=resolved(transition.then, spec),
        label=told(AllOf(*rest) if len(rest) > 1 else rest[0]) if rest else "",
        index=index,
        speakers=None if speakers is None else frozenset(speakers),
        turn=turns[0] if turns else None,
        is_sure=len(rest) == len(turns[:1]),
        is_about_failure=any(isinstance(part, TurnFailed) for part in parts_of(transition.when)),
    )


def _speakers(condition: Condition) -> set[str] | None:
    """Whose turn it has to be; None if the condition does not say."""
    match condition:
        case FromSpeaker(agent_id=agent_id):
            return {agent_id}
        case TurnFailed(agent_id=str(agent_id)):
            return {agent_id}
        case AllOf(conditions=parts):
            named = [one for part in parts if (one := _speakers(part)) is not None]
            return set.intersection(*named) if named else None
        case AnyOf(conditions=parts):
            each = [_speakers(part) for part in parts]
            known = [one for one in each if one is not None]
            return set().union(*known) if len(known) == len(each) else None
    return None


def _beside_the_speaker(condition: Condition) -> Iterator[Condition]:
    """What has to hold, all of it, beside what an edge says by where it begins."""
    match condition:
        case FromSpeaker() | Always():
            return
        case AnyOf(conditions=parts) if all(isinstance(one, FromSpeaker) for one in parts):
            return
        case TurnFailed():
            yield TurnFailed()
        case AllOf(conditions=parts):
            for part in parts:
                yield from _beside_the_speaker(part)
        case _:
            yield condition
