"""Conditions and targets in a few words, for findings and for the labels of a picture."""

from __future__ import annotations

from typing import Any

from turnline.core.transitions import (
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
    SignalIs,
    ToolCalled,
    TransitionTarget,
    TurnFailed,
)


def told(condition: Condition) -> str:
    """A condition in a few words."""
    match condition:
        case AllOf(conditions=parts):
            return " and ".join(map(_grouped, parts))
        case AnyOf(conditions=parts):
            return " or ".join(map(_grouped, parts))
        case Not(condition=inner):
            return f"not {_grouped(inner)}"
        case _:
            return _leaf(condition)


def target_told(target: TransitionTarget) -> str:
    """A target in a few words."""
    text = repr(target)
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"


def turns_told(number: int) -> str:
    """So many turns, in words."""
    return "1 turn" if number == 1 else f"{number} turns"


_MOST = 80


def _leaf(condition: Condition) -> str:  # noqa: C901, PLR0911  One line per condition there is.
    match condition:
        case Always():
            return "always"
        case FromSpeaker(agent_id=name):
            return f"from {name}"
        case ToolCalled(tool_name=name):
            return f"tool {name}"
        case SignalIs(signal=name):
            return f"signal {name}"
        case TurnFailed(agent_id=name):
            return "turn failed" if name is None else f"turn of {name} failed"
        case AtTurn(turn=number):
            return f"at turn {number}"
        case ContextEquals(key=key, value=value):
            return f"{key} is not set" if value is None else f"{key} = {_value(value)}"
        case ContextIn(key=key, values=values):
            return f"{key} in {', '.join(map(_value, values))}"
        case ContextThreshold(key=key, op=op, threshold=threshold):
            return f"{key} {op} {threshold}"
        case Expr(expression=text):
            return text
    return repr(condition)


def _grouped(condition: Condition) -> str:
    text = told(condition)
    return f"({text})" if isinstance(condition, AllOf | AnyOf | Expr) else text


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value else repr(value)
