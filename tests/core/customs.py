"""Conditions and targets as a user writes them: the seeds' way, and without inheriting anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from turnline.core.envelope import Envelope
from turnline.core.transitions import (
    Condition,
    TransitionCondition,
    TransitionDecision,
    TransitionTarget,
    register_condition,
    register_target,
)


@dataclass(slots=True)
class HighestRankedReviewer(TransitionTarget):
    """As seed 004 shows it: mutable, slotted, inherits the protocol."""

    name: ClassVar[str] = "first_of_rank"
    role_priority: list[str] = field(default_factory=list)

    def resolve(self, state: Any, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(next_speaker=self.role_priority[0])


@dataclass
class PlainTarget:
    """Inherits nothing; closes the channel by returning no speaker."""

    name: ClassVar[str] = "plain_target"
    reason: str

    def resolve(self, state: Any, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(close_reason=self.reason)


@dataclass(slots=True)
class LongText(TransitionCondition):
    """As seed 004 shows it."""

    name: ClassVar[str] = "long_text"
    characters: int = 10

    def evaluate(self, state: Any, envelope: Envelope) -> bool:
        return len(envelope.event_data.get("text", "")) >= self.characters


@dataclass
class PlainCondition:
    """Inherits nothing."""

    name: ClassVar[str] = "plain_condition"
    options: dict[str, Any] = field(default_factory=dict)

    def evaluate(self, state: Any, envelope: Envelope) -> bool:
        return bool(self.options.get("holds"))


@dataclass(slots=True)
class Both(TransitionCondition):
    """A user's own combination, with a list of conditions inside."""

    name: ClassVar[str] = "both"
    parts: list[Condition] = field(default_factory=list)

    def evaluate(self, state: Any, envelope: Envelope) -> bool:
        return all(part.evaluate(state, envelope) for part in self.parts)


@dataclass
class Breaks:
    """Raises, as a condition and as a target."""

    name: ClassVar[str] = "breaks"

    def evaluate(self, state: Any, envelope: Envelope) -> bool:
        raise LookupError("no such customer")

    def resolve(self, state: Any, envelope: Envelope) -> TransitionDecision:
        raise LookupError("no such customer")


@dataclass
class AnswersNonsense:
    """A target that does not answer with a decision, as a user without a type checker writes it."""

    name: ClassVar[str] = "answers_nonsense"
    answer: Any = "bob"

    def resolve(self, state: Any, envelope: Envelope) -> TransitionDecision:
        if isinstance(self.answer, dict):
            return TransitionDecision(**self.answer)
        return self.answer  # type: ignore[no-any-return]


for _condition in (LongText, PlainCondition, Both, Breaks):
    register_condition(_condition)
for _target in (HighestRankedReviewer, PlainTarget, Breaks, AnswersNonsense):
    register_target(_target)
