"""The turns that somebody might take, and where the graph would lead after each.

    Possible(graph, cast).moves("alice", turn=1) -> (Move, Move, ...)

Rule 1: nothing possible is left out. Whoever speaks may call any tool it may have, give any
signal, hand off, fail, and find any context variable at any value: others write, too.

Rule 2: what the graph cannot tell apart is one move. A turn is not chosen and then looked
at; it is narrowed down by the conditions that look at it, in the order in which the router
asks them.

Rule 3: the built-in conditions and targets answer for themselves, on a state and an envelope
of the kind they will see. An `Expr` and a class of the user's own may answer either way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from turnline.core.channel import ChannelSpec
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.event_types import EV_PACKET, EV_TURN_FAILED, HUB
from turnline.core.graph import TransitionGraph
from turnline.core.router import Router, resolved
from turnline.core.state import LONG_AGO, State
from turnline.core.step_targets import FanOutTarget, NestedTarget
from turnline.core.study.cast import Cast
from turnline.core.study.choices import Budget, Choices, every
from turnline.core.study.values import Candidates, candidates_of
from turnline.core.transitions import (
    AgentTarget,
    AllOf,
    Always,
    AnyOf,
    AtTurn,
    Condition,
    ContextEquals,
    ContextIn,
    ContextThreshold,
    Expr,
    FromSpeaker,
    Not,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    SignalIs,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TransitionTarget,
    TurnFailed,
    parts_of,
)

T = TypeVar("T")

BOUND: Final = 200_000
"""How many conditions are asked before a graph is too large to be looked at as a whole."""


class Sign(NamedTuple):
    """What a packet says about the floor."""

    tool: str | None = None
    signal: str | None = None

    @property
    def routing(self) -> JsonObject:
        if self.signal is not None:
            return {"kind": "signal", "signal": self.signal}
        return {"kind": "text"} if self.tool is None else {"kind": "text", "tool": self.tool}


PLAIN: Final = Sign()


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A kind of turn, and where the floor goes after it."""

    speaker: str
    turn: int
    way: str
    """`turn` or `failed`. Handoffs are no moves: they go from anybody to anybody, or there are none."""
    by: str
    """`transition`, `default`, `turn_failed` or `max_turns`."""
    index: int | None = None
    """Of the transition that won; where `max_turns` closes the channel, of the one that would have."""
    to: str | None = None
    reason: str = ""
    signs: tuple[Sign, ...] = (PLAIN,)
    values: Mapping[str, Candidates]
    """Context key -> the values it may have, where somebody looked."""
    texts: Mapping[str, bool]
    """Expression -> whether it holds, where somebody looked."""
    is_guess: bool = False
    """Whether a class of the user's own answered."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A transition among the cast."""

    index: int
    when: Condition
    then: TransitionTarget
    priority: int

    @property
    def is_about_failure(self) -> bool:
        return any(isinstance(part, TurnFailed) for part in parts_of(self.when))


class Possible:
    """Everything that can happen on channels with this graph."""

    def __init__(self, graph: TransitionGraph, cast: Cast, *, bound: int = BOUND) -> None:
        self.graph = graph
        self.budget = Budget(bound)
        """For everything that is asked of it. Whatever asks may raise `TooMany`."""
        self.cast = cast
        spec = cast.spec
        self.router = Router(graph, spec)
        self.initial = self.router.initial_speaker
        rules = [
            Rule(index, resolved(one.when, spec), resolved(one.then, spec), one.priority)
            for index, one in enumerate(graph.transitions)
        ]
        self.rules = tuple(rules)
        """As the graph lists them."""
        self.tried = tuple(sorted(rules, key=lambda rule: rule.priority))
        """As they are tried."""
        self._on_failure = tuple(rule for rule in self.tried if rule.is_about_failure)
        self._everyone = cast.everyone
        self.truths = Truths()
        self.default = resolved(graph.default_target, spec)
        parts = [part for rule in rules for part in parts_of(rule.when)]
        self.values = candidates_of(parts)
        self.tools = tuple(dict.fromkeys(one.tool_name for one in parts if isinstance(one, ToolCalled)))
        self.signals = tuple(dict.fromkeys(one.signal for one in parts if isinstance(one, SignalIs)))
        self.horizon = max((_whole(one.turn) for one in parts if isinstance(one, AtTurn)), default=0)
        """The last turn that some condition tells from others."""
        self._known: dict[tuple[str, int], tuple[Move, ...]] = {}

    def moves(self, speaker: str, turn: int) -> tuple[Move, ...]:
        """Every move of `speaker` at this turn. Raises `TooMany`."""
        key = (speaker, min(turn, self.horizon + 1))
        if key not in self._known:
            self._known[key] = tuple(every(lambda choices: self._move(*key, choices)))
        return self._known[key]

    def look(self, speaker: str, turn: int, choices: Choices, *, failed: bool = False) -> Look:
        """A turn of which nothing is known yet but whose it is, which one, and whether it failed."""
        signs = (PLAIN,) if failed else self._signs(speaker)
        return self.look_among(speaker, turn, signs, choices, failed=failed)

    def look_among(
        self, speaker: str, turn: int, signs: tuple[Sign, ...], choices: Choices, *, failed: bool
    ) -> Look:
        """The same, with the signs that it may have."""
        return Look(
            speaker,
            turn,
            failed=failed,
            signs=signs,
            values=self.values,
            choices=choices,
            budget=self.budget,
            truths=self.truths,
        )

    def winner(self, look: Look) -> Rule | None:
        """The first rule that holds; None if it is the default's turn."""
        rules = self._on_failure if look.failed else self.tried
        return next((rule for rule in rules if look.holds(rule.when)), None)

    def _signs(self, speaker: str) -> tuple[Sign, ...]:
        tools = (Sign(tool=one) for one in self.tools if self.cast.may_call(speaker, one))
        return (PLAIN, *tools, *(Sign(signal=one) for one in self.signals))

    def _move(self, speaker: str, turn: int, choices: Choices) -> Move:
        way = choices.of(("turn", "failed"))
        look = self.look(speaker, turn, choices, failed=way == "failed")
        rule = self.winner(look)
        if rule is None and way == "failed":
            return look.move(way, "turn_failed", reason="turn_failed")
        target = self.default if rule is None else rule.then
        by, index = ("default", None) if rule is None else ("transition", rule.index)
        to, reason = self._led(target, look)
        return look.move(way, by, index=index, to=to, reason=reason)

    def _led(self, target: TransitionTarget, look: Look) -> tuple[str | None, str]:
        match target:
            case AgentTarget() | StayTarget() | TerminateTarget() | FanOutTarget() | NestedTarget():
                return self._answer(target, look)
            case RoundRobinTarget(participants=order) if order or self._order_is_known:
                return self._answer(target, look)
            case RevertToInitiatorTarget() if self.cast.opener is not None:
                return self._answer(target, look)
            case RoundRobinTarget() | RevertToInitiatorTarget():
                return look.choices.of(self._everyone), ""
        look.is_guess = True
        to = look.choices.of((*self._everyone, None))
        return to, "" if to else "whatever it says"

    @property
    def _order_is_known(self) -> bool:
        return self.cast.is_closed and self.cast.opener is not None

    def _answer(self, target: TransitionTarget, look: Look) -> tuple[str | None, str]:
        spec = self.cast.spec
        state = state_of(spec, look.turn, {})
        decision = target.resolve(state, envelope_of(look.speaker, look.signs[0], failed=look.failed))
        if decision.next_speaker is None:
            return None, decision.close_reason or "terminated"
        return spec.resolve(decision.next_speaker), ""


class Look:
    """A turn, as far as conditions have looked at it."""

    def __init__(
        self,
        speaker: str,
        turn: int,
        *,
        failed: bool,
        signs: tuple[Sign, ...],
        values: Mapping[str, Candidates],
        choices: Choices,
        budget: Budget,
        truths: Truths,
    ) -> None:
        self._budget = budget
        self._truths = truths
        self.speaker = speaker
        self.turn = turn
        self.failed = failed
        self.signs = signs
        self.choices = choices
        self.is_guess = False
        self._all_values = values
        self._places: dict[str, tuple[int, ...]] = {}
        """Context key -> which of its values it may have."""
        self.texts: dict[str, bool] = {}

    def holds(self, condition: Condition) -> bool:
        """Whether a condition holds of the turn; from now on it is one of which that is so."""
        self._budget.spend()
        row = _LOOKS.get(type(condition), Look._guessed)
        return row(self, condition)

    def move(
        self, way: str, by: str, *, index: int | None = None, to: str | None = None, reason: str = ""
    ) -> Move:
        return Move(
            speaker=self.speaker,
            turn=self.turn,
            way=way,
            by=by,
            index=index,
            to=to,
            reason=reason,
            signs=self.signs,
            values={
                key: tuple(self._all_values[key][one] for one in places)
                for key, places in self._places.items()
            },
            texts=self.texts,
            is_guess=self.is_guess,
        )

    def _guessed(self, condition: Condition) -> bool:
        self.is_guess = True
        return self.choices.of((True, False))

    def _of_text(self, condition: Expr) -> bool:
        text = condition.expression
        if text not in self.texts:
            self.texts[text] = self.choices.of((True, False))
        return self.texts[text]

    def _of_turn(self, condition: Condition) -> bool:
        return self._truths.of_turn(condition, self.speaker, self.turn, self.failed)

    def _of_value(self, condition: ContextEquals | ContextIn | ContextThreshold) -> bool:
        key = condition.key
        values = self._all_values[key]
        there = self._places.get(key) or tuple(range(len(values)))
        answer, self._places[key] = self._split(there, self._truths.of_values(condition, values))
        return answer

    def _of_sign(self, condition: Condition) -> bool:
        known = self._truths.of_signs(condition, self.signs)
        answer, self.signs = self._split(self.signs, known)
        return answer

    def _split(self, there: tuple[T, ...], true: Collection[T]) -> tuple[bool, tuple[T, ...]]:
        """Choose one answer, and keep those that give it."""
        yes = tuple(one for one in there if one in true)
        no = tuple(one for one in there if one not in true)
        answer = self.choices.of(tuple(one for one, kept in ((True, yes), (False, no)) if kept))
        return answer, yes if answer else no


class Truths:
    """What conditions answered, so that each is asked the same thing once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Any] = {}

    def of_turn(self, condition: Condition, speaker: str, turn: int, failed: bool) -> bool:
        key = (id(condition), speaker, turn, failed)
        if key not in self._known:
            self._known[key] = _asked(condition, speaker, PLAIN, turn=turn, failed=failed)
        return bool(self._known[key])

    def of_values(
        self, condition: ContextEquals | ContextIn | ContextThreshold, values: Candidates
    ) -> set[int]:
        """The places of those values with which it holds."""
        key = (id(condition),)
        if key not in self._known:
            self._known[key] = {
                place
                for place, value in enumerate(values)
                if _asked(condition, "", PLAIN, variables={condition.key: value})
            }
        found: set[int] = self._known[key]
        return found

    def of_signs(self, condition: Condition, signs: tuple[Sign, ...]) -> set[Sign]:
        """Those with which it holds."""
        known: dict[Sign, bool] = self._known.setdefault((id(condition), "signs"), {})
        for sign in signs:
            if sign not in known:
                known[sign] = _asked(condition, "", sign)
        return {sign for sign in signs if known[sign]}


def _asked(
    condition: Condition,
    speaker: str,
    sign: Sign,
    *,
    turn: int = 1,
    failed: bool = False,
    variables: dict[str, Any] | None = None,
) -> bool:
    """What a condition itself says."""
    state = state_of(ChannelSpec(), turn, variables or {})
    return bool(condition.evaluate(state, envelope_of(speaker, sign, failed=failed)))


_LOOKS: Final[dict[type, Callable[[Look, Any], bool]]] = {
    AllOf: lambda look, all_of: all(look.holds(part) for part in all_of.conditions),
    AnyOf: lambda look, any_of: any(look.holds(part) for part in any_of.conditions),
    Not: lambda look, negation: not look.holds(negation.condition),
    Expr: Look._of_text,
    ContextEquals: Look._of_value,
    ContextIn: Look._of_value,
    ContextThreshold: Look._of_value,
    ToolCalled: Look._of_sign,
    SignalIs: Look._of_sign,
    Always: Look._of_turn,
    FromSpeaker: Look._of_turn,
    TurnFailed: Look._of_turn,
    AtTurn: Look._of_turn,
}
"""What is not here, or is a subclass of what is, is a class of the user's own."""


def state_of(spec: ChannelSpec, turn: int, variables: dict[str, Any]) -> State:
    """Return a state as conditions and targets see it after a turn."""
    return State(
        spec=spec,
        participant_order=[one.agent_id for one in spec.participants],
        creator_id=spec.creator_id,
        turn_count=turn,
        context_vars=variables,
    )


def envelope_of(speaker: str, sign: Sign, *, failed: bool) -> Envelope:
    """The envelope of a turn, as conditions and targets see it."""
    data: JsonObject = {"agent_id": speaker} if failed else {"body": "", "routing": sign.routing}
    return Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id="study",
        channel_id="study",
        seq=1,
        sender_id=HUB if failed else speaker,
        event_type=EV_TURN_FAILED if failed else EV_PACKET,
        event_data=data,
        created_at=LONG_AGO,
    )


def _whole(turn: object) -> int:
    return max(int(turn), 0) if isinstance(turn, int | float) else 0
