"""Targets: the `then` of a transition.

A target is a frozen dataclass with a `name` and `resolve(state, envelope)`,
which answers who has the floor next, or with which reason the channel closes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from turnline.core.conditions import speaker_of
from turnline.core.envelope import Envelope
from turnline.core.registry import Registry
from turnline.core.state import State


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
        return TransitionDecision(next_speaker=next_in(order, speaker_of(envelope)))


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
