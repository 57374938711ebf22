"""What a transition is made of: conditions, its `when`, and targets, its `then`.

A condition is a frozen dataclass with a `name` and `evaluate(state, envelope)`.
The state it sees includes the envelope: the turn is counted, its sender is the
last speaker, its context updates are applied (W2). `&`, `|` and `~` combine.

What a decision may cost is limited: `holds` evaluates a condition and pays for it with the
decision's steps. A condition whose cost grows with data or parts has `evaluate_within`.

A condition only reads. It runs while a turn is decided on, never while a log is
folded, so rewriting one changes no history.

A target is a frozen dataclass with a `name` and `resolve(state, envelope)`,
which answers who has the floor next, or with which reason the channel closes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol

from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_PACKET, EV_TURN_FAILED
from turnline.core.registry import Registry
from turnline.core.state import State
from turnline.errors import BadGraph
from turnline.expressions import Expression, compile_expression
from turnline.expressions.functions import Steps


class Condition(Protocol):
    """What a transition needs of its `when`."""

    name: ClassVar[str]

    def evaluate(self, state: Any, envelope: Envelope) -> bool: ...


class TransitionCondition(Condition, Protocol):
    """A condition that combines with others. Inherit from it to get the operators."""

    def __and__(self, other: Condition) -> AllOf:
        return AllOf(*_parts(AllOf, self), *_parts(AllOf, other))

    def __rand__(self, other: Condition) -> AllOf:
        return AllOf(*_parts(AllOf, other), *_parts(AllOf, self))

    def __or__(self, other: Condition) -> AnyOf:
        return AnyOf(*_parts(AnyOf, self), *_parts(AnyOf, other))

    def __ror__(self, other: Condition) -> AnyOf:
        return AnyOf(*_parts(AnyOf, other), *_parts(AnyOf, self))

    def __invert__(self) -> Condition:
        return Not(self)


conditions: Final = Registry[Condition]("condition")
register_condition = conditions.register


@conditions.built_in
@dataclass(frozen=True, slots=True)
class Always(TransitionCondition):
    """Every turn."""

    name: ClassVar[str] = "always"

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return True


@conditions.built_in
@dataclass(frozen=True, slots=True)
class FromSpeaker(TransitionCondition):
    """The turn was this participant's; an id or a name."""

    name: ClassVar[str] = "from_speaker"
    agent_fields: ClassVar[tuple[str, ...]] = ("agent_id",)
    agent_id: str

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return speaker_of(envelope) == self.agent_id


@conditions.built_in
@dataclass(frozen=True, slots=True)
class ToolCalled(TransitionCondition):
    """The turn called this tool, and the tool succeeded."""

    name: ClassVar[str] = "tool_called"
    tool_name: str

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return routing_of(envelope).get("tool") == self.tool_name


@conditions.built_in
@dataclass(frozen=True, slots=True)
class SignalIs(TransitionCondition):
    """The turn, a step of a flow, ended with this signal."""

    name: ClassVar[str] = "signal_is"
    signal: str

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return routing_of(envelope).get("signal") == self.signal


@conditions.built_in
@dataclass(frozen=True, slots=True)
class TurnFailed(TransitionCondition):
    """The turn was given up. Without `agent_id`, whoever's it was."""

    name: ClassVar[str] = "turn_failed"
    agent_fields: ClassVar[tuple[str, ...]] = ("agent_id",)
    agent_id: str | None = None

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return envelope.event_type == EV_TURN_FAILED and self.agent_id in (None, speaker_of(envelope))


@conditions.built_in
@dataclass(frozen=True, slots=True)
class AtTurn(TransitionCondition):
    """It was the channel's n-th turn. The first is 1."""

    name: ClassVar[str] = "at_turn"
    turn: int

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return state.turn_count == self.turn


@conditions.built_in
@dataclass(frozen=True, slots=True)
class ContextEquals(TransitionCondition):
    """A context variable has this value. A missing one is None."""

    name: ClassVar[str] = "context_equals"
    key: str
    value: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.value, tuple):  # JSON has no tuples: no context variable would ever equal one.
            object.__setattr__(self, "value", list(self.value))

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return bool(state.context_vars.get(self.key) == self.value)


@conditions.built_in
@dataclass(frozen=True, slots=True)
class ContextIn(TransitionCondition):
    """A context variable has one of these values. A missing one is None."""

    name: ClassVar[str] = "context_in"
    key: str
    values: Iterable[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return state.context_vars.get(self.key) in tuple(self.values)


_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}


@conditions.built_in
@dataclass(frozen=True, slots=True)
class ContextThreshold(TransitionCondition):
    """A context variable is a number that stands in this relation to the threshold."""

    name: ClassVar[str] = "context_threshold"
    key: str
    threshold: float
    op: str = ">="

    def __post_init__(self) -> None:
        if not isinstance(self.threshold, int | float) or isinstance(self.threshold, bool):
            raise BadGraph("ContextThreshold.threshold", found=repr(self.threshold)[:80], expected="a number")
        if self.op not in _OPERATORS:
            raise BadGraph(
                "ContextThreshold.op", found=repr(self.op), expected=f"one of {', '.join(_OPERATORS)}"
            )

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        value = state.context_vars.get(self.key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and _OPERATORS[self.op](value, self.threshold)


_compiled = lru_cache(maxsize=4096)(compile_expression)


@conditions.built_in
@dataclass(frozen=True, slots=True)
class Expr(TransitionCondition):
    """An expression over the context variables holds: `Expr("score > 80 and tier == 'gold'")`."""

    name: ClassVar[str] = "expr"
    expression: str

    def __post_init__(self) -> None:
        _compiled(self.expression)

    @property
    def compiled(self) -> Expression:
        return _compiled(self.expression)

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return self.compiled.holds(state.context_vars)

    def evaluate_within(self, state: State, envelope: Envelope, steps: Steps) -> bool:
        return self.compiled.holds_within(state.context_vars, steps)


@dataclass(frozen=True, slots=True, init=False)
class _Combination(TransitionCondition):
    name: ClassVar[str] = ""
    conditions: tuple[Condition, ...] = field(default=())

    def __init__(self, *parts: Condition, conditions: Iterable[Condition] = ()) -> None:
        given = _flat(parts) + tuple(conditions)
        if not given or not all(hasattr(part, "evaluate") for part in given):
            raise BadGraph(type(self).__name__, found=repr(given)[:80], expected="one or more conditions")
        object.__setattr__(self, "conditions", given)


@conditions.built_in
@dataclass(frozen=True, slots=True, init=False)
class AllOf(_Combination):
    """Every one of these holds. `AllOf(a, b)`, or `a & b`."""

    name: ClassVar[str] = "all_of"

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return all(condition.evaluate(state, envelope) for condition in self.conditions)

    def evaluate_within(self, state: State, envelope: Envelope, steps: Steps) -> bool:
        return all(holds(condition, state, envelope, steps) for condition in self.conditions)


@conditions.built_in
@dataclass(frozen=True, slots=True, init=False)
class AnyOf(_Combination):
    """At least one of these holds. `AnyOf(a, b)`, or `a | b`."""

    name: ClassVar[str] = "any_of"

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return any(condition.evaluate(state, envelope) for condition in self.conditions)

    def evaluate_within(self, state: State, envelope: Envelope, steps: Steps) -> bool:
        return any(holds(condition, state, envelope, steps) for condition in self.conditions)


@conditions.built_in
@dataclass(frozen=True, slots=True)
class Not(TransitionCondition):
    """This does not hold. `Not(a)`, or `~a`."""

    name: ClassVar[str] = "not"
    condition: Condition

    def __post_init__(self) -> None:
        if not hasattr(self.condition, "evaluate"):
            raise BadGraph("Not", found=repr(self.condition)[:80], expected="a condition")

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return not self.condition.evaluate(state, envelope)

    def evaluate_within(self, state: State, envelope: Envelope, steps: Steps) -> bool:
        return not holds(self.condition, state, envelope, steps)


def holds(condition: Condition, state: State, envelope: Envelope, steps: Steps) -> bool:
    """Evaluate `condition`, paid for with `steps`. Raises `OutOfSteps`."""
    steps.pay(1)
    evaluate_within = getattr(condition, "evaluate_within", None)
    if evaluate_within is None:
        return condition.evaluate(state, envelope)
    return bool(evaluate_within(state, envelope, steps))


def speaker_of(envelope: Envelope) -> str:
    """Whose turn `envelope` records. The hub writes that a turn failed; the turn was still somebody's."""
    if envelope.event_type == EV_TURN_FAILED:
        return str(envelope.event_data.get("agent_id", envelope.sender_id))
    return envelope.sender_id


def routing_of(envelope: Envelope) -> dict[str, Any]:
    """What a packet says about the floor; nothing else says anything about it."""
    routing = envelope.event_data.get("routing") if envelope.event_type == EV_PACKET else None
    return routing if isinstance(routing, dict) else {}


def parts_of(condition: Condition) -> Iterable[Condition]:
    """`condition` and every condition inside it."""
    yield condition
    for f in fields(condition):  # type: ignore[arg-type]  # a registered condition is a dataclass
        value = getattr(condition, f.name)
        for part in value if isinstance(value, list | tuple) else (value,):
            if conditions.knows(part):
                yield from parts_of(part)


def _parts(kind: type[_Combination], condition: Condition) -> tuple[Condition, ...]:
    return condition.conditions if type(condition) is kind else (condition,)


def _flat(parts: tuple[Any, ...]) -> tuple[Condition, ...]:
    if len(parts) == 1 and isinstance(parts[0], list | tuple):
        return tuple(parts[0])
    return parts


@dataclass(frozen=True, slots=True)
class TransitionDecision:
    """What a target answers: the next speaker, or (with none) the reason to close."""

    next_speaker: str | None = None
    close_reason: str = ""


class TransitionTarget(Protocol):
    """What a transition needs of its `then`."""

    name: ClassVar[str]

    def resolve(self, state: Any, envelope: Envelope) -> TransitionDecision: ...


targets: Final = Registry[TransitionTarget]("target")
register_target = targets.register


@targets.built_in
@dataclass(frozen=True, slots=True)
class AgentTarget(TransitionTarget):
    """The floor goes to this participant; an id or a name."""

    name: ClassVar[str] = "agent"
    agent_fields: ClassVar[tuple[str, ...]] = ("agent_id",)
    agent_id: str

    def resolve(self, state: State, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(next_speaker=self.agent_id)


@targets.built_in
@dataclass(frozen=True, slots=True)
class RoundRobinTarget(TransitionTarget):
    """The floor goes to the next in order: the given one, else that of the participants that take turns."""

    name: ClassVar[str] = "round_robin"
    agent_fields: ClassVar[tuple[str, ...]] = ("participants",)
    participants: Iterable[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "participants", tuple(self.participants))

    def resolve(self, state: State, envelope: Envelope) -> TransitionDecision:
        order = tuple(self.participants) or turn_order(state)
        speaker = speaker_of(envelope)
        speaker = speaker if speaker in order else state.order_at
        return TransitionDecision(next_speaker=next_in(order, speaker))


@targets.built_in
@dataclass(frozen=True, slots=True)
class StayTarget(TransitionTarget):
    """The same speaker is asked again."""

    name: ClassVar[str] = "stay"

    def resolve(self, state: State, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(next_speaker=speaker_of(envelope))


@targets.built_in
@dataclass(frozen=True, slots=True)
class RevertToInitiatorTarget(TransitionTarget):
    """The floor goes back to whoever opened the channel."""

    name: ClassVar[str] = "revert_to_initiator"

    def resolve(self, state: State, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(next_speaker=state.creator_id)


@targets.built_in
@dataclass(frozen=True, slots=True)
class TerminateTarget(TransitionTarget):
    """The channel closes with this reason."""

    name: ClassVar[str] = "terminate"
    reason: str = "terminated"

    def resolve(self, state: State, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(close_reason=self.reason)


def turn_order(state: State) -> tuple[str, ...]:
    """Return the participants whose turn comes round, in order; all of them if none takes turns (N8)."""
    return state.spec.turn_order or tuple(state.participant_order)


def next_in(order: tuple[str, ...], speaker: str) -> str:
    """Who comes after `speaker`; the first, if the speaker is not in the order."""
    if speaker not in order:
        return order[0]
    return order[(order.index(speaker) + 1) % len(order)]
