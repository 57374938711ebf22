"""What a condition looked at, and whether it held; the conditions inside it likewise.

    look(condition, state, envelope) -> Part

A condition of a user's own says nothing of what it reads: it is shown by its answer alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnline.core import transitions as known
from turnline.core.envelope import Envelope
from turnline.core.state import State
from turnline.core.transitions import Condition, holds, routing_of, speaker_of
from turnline.expressions.functions import OutOfSteps, Steps

_CHARACTERS: Final = 80
_VALUE_BYTES: Final = 2_000
"""Of one value that is shown as it is."""

_encoder = msgspec.json.Encoder()


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition, evaluated."""

    text: str
    held: bool | None
    """None: it raised."""
    values: dict[str, Any] = {}
    parts: list[Part] = []
    error: str = ""

    def told(self) -> list[str]:
        """The condition and those inside it, a line each."""
        verdict = "held" if self.held else "did not hold"
        verdict = f"cannot be evaluated: {self.error}" if self.error else verdict
        looked = f"  [{shown(self.values)}]" if self.values else ""
        return [
            f"{self.text}: {verdict}{looked}",
            *(f"  {line}" for one in self.parts for line in one.told()),
        ]


def look(condition: Condition, written: Condition, state: State, envelope: Envelope, steps: Steps) -> Part:
    """Evaluate a condition as the graph does, paid for with `steps`, and say what it looked at.

    `written` is the same one as the graph's author wrote it, with names where `condition` has ids.
    """
    held, error = _answer(condition, state, envelope, steps)
    reads = _READS.get(type(condition))
    return Part(
        text=_short(written),
        held=held,
        values={} if reads is None else _told(reads(condition, state, envelope)),
        parts=[
            look(part, as_written, state, envelope, steps)
            for part, as_written in zip(_inside(condition), _inside(written), strict=True)
        ],
        error=error,
    )


def shown(values: dict[str, Any]) -> str:
    """The values as people read them, each cut to a line."""
    return ", ".join(f"{name} = {_short(value)}" for name, value in values.items())


def _told(values: dict[str, Any]) -> dict[str, Any]:
    """The values; of a large one only its size, for many conditions may look at it."""
    sizes = {name: len(_encoder.encode(value)) for name, value in values.items()}
    return {
        name: value if sizes[name] <= _VALUE_BYTES else f"({sizes[name]} bytes of JSON)"
        for name, value in values.items()
    }


def _answer(condition: Condition, state: State, envelope: Envelope, steps: Steps) -> tuple[bool | None, str]:
    try:
        return bool(holds(condition, state, envelope, steps)), ""
    except OutOfSteps:
        return None, "the conditions cost more steps than there are"
    except Exception as error:  # A user's own class may raise anything.
        return None, f"{type(error).__name__}: {error}"


def _inside(condition: Condition) -> Iterable[Condition]:
    if not is_dataclass(condition):
        return
    for field in fields(condition):
        value = getattr(condition, field.name)
        for part in value if isinstance(value, list | tuple) else (value,):
            if known.conditions.knows(part):
                yield part


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"


def _variable(condition: Any, state: State, envelope: Envelope) -> dict[str, Any]:
    return {condition.key: state.context_vars.get(condition.key)}


def _speaker(condition: Any, state: State, envelope: Envelope) -> dict[str, Any]:
    return {"speaker": state.spec.name_of(speaker_of(envelope))}


def _failure(condition: Any, state: State, envelope: Envelope) -> dict[str, Any]:
    return {"event_type": envelope.event_type, **_speaker(condition, state, envelope)}


def _expression(condition: Any, state: State, envelope: Envelope) -> dict[str, Any]:
    return {name: state.context_vars.get(name) for name in sorted(condition.compiled.names)}


_Reads = Callable[[Any, State, Envelope], dict[str, Any]]
_READS: Final[dict[type, _Reads]] = {
    known.FromSpeaker: _speaker,
    known.ToolCalled: lambda _, state, envelope: {"tool": routing_of(envelope).get("tool")},
    known.SignalIs: lambda _, state, envelope: {"signal": routing_of(envelope).get("signal")},
    known.TurnFailed: _failure,
    known.AtTurn: lambda _, state, envelope: {"turn": state.turn_count},
    known.ContextEquals: _variable,
    known.ContextIn: _variable,
    known.ContextThreshold: _variable,
    known.Expr: _expression,
}
