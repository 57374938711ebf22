"""What a tool call comes to: one text for the model, and what it means for the floor (K2).

    text                        as it is
    JSON-able data              its JSON
    Handoff, Finish             a sentence; the routing goes beside it
    ToolResult                  message, context variables and routing in one
    Paused                      the call waits, and runs again (N2)

What a tool returns is its author's choice and is passed on. What it raises is
not: `failure` masks variables and dependencies in it (V4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from turnline.agent.storable import cut, writable
from turnline.agent.variables import masked
from turnline.core.claims import Paused
from turnline.core.envelope import JsonObject
from turnline.core.json import normalised
from turnline.core.routing import Finish, Handoff
from turnline.core.variables import check_keys
from turnline.errors import BadDraft

MAX_ERROR_CHARACTERS: Final = 1_000

_ROUTING: Final = (Handoff, Finish)
_TRACEBACK: Final = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Returned by a tool: what the model is told, context variables to set, and where the floor goes."""

    message: object
    """Text, or anything JSON-able."""
    context: JsonObject = field(default_factory=dict)
    """Set on the channel, with the turn."""
    handoff: Handoff | Finish | str | None = None
    """A text is the target of a `Handoff`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """How a tool call ended."""

    text: str
    """For the model."""
    failed: bool = False
    returned: Handoff | Finish | None = None
    context: JsonObject = field(default_factory=dict)
    reason: str = ""
    """The call's `reason` argument, if it had one and succeeded: it travels with the routing."""
    error: Exception | None = field(default=None, repr=False, compare=False)
    """What the tool raised. `retry` decides by it; it may hold secrets, so it goes nowhere else."""


class CallPaused(BaseException):
    """A tool call waits: it runs again, with the same idempotency key, when what it waits for is there (N2).

    It is not an `Exception`, so that a tool that catches its own errors does not catch this.
    """

    def __init__(self, paused: Paused) -> None:
        self.paused = paused
        super().__init__(paused.reason)


def output_of(returned: object, reason: str = "") -> ToolOutput:
    """Return what a tool's return value comes to; a value that has no JSON form is a failed call.

    Raises `CallPaused` for a `Paused`. One with a key would be the task or the event of a flow's step.
    """
    if isinstance(returned, Paused):
        if returned.key:
            return ToolOutput(text="the tool returned Paused with a key, which only a step may", failed=True)
        raise CallPaused(returned)
    try:
        if isinstance(returned, ToolResult):
            return _combined(returned, reason)
        if isinstance(returned, _ROUTING):
            _check_routing(returned)
            return ToolOutput(text=_sentence(returned), returned=returned, reason=reason)
        return ToolOutput(text=_text(returned), reason=reason)
    except BadDraft as refused:
        return ToolOutput(text=f"the tool's result was refused: {refused}", failed=True)
    except Exception:  # The encoders' own errors, and those of the user's serialisers.
        kind = type(returned).__name__
        return ToolOutput(text=f"the tool returned a {kind} that has no JSON form", failed=True)


def failure(error: Exception, *secret: object) -> ToolOutput:
    """Return what the model is told of a tool's exception: type and message, without what is in `secret`."""
    kind, message = type(error).__name__, _message(error)
    text = masked(f"{kind}: {message}" if message else kind, *secret)
    return ToolOutput(text=writable(text)[:MAX_ERROR_CHARACTERS], failed=True, error=error)


def _combined(result: ToolResult, reason: str) -> ToolOutput:
    context = normalised(result.context, field="context")
    check_keys(context, "context")
    routed = Handoff(result.handoff) if isinstance(result.handoff, str) else result.handoff
    if routed is not None:
        _check_routing(routed)
    return ToolOutput(text=_text(result.message), returned=routed, context=context, reason=reason)


def _check_routing(routed: Handoff | Finish) -> None:
    """Refuse what a packet could not hold, whatever the tool's type hints promised."""
    if not isinstance(routed, _ROUTING):
        raise BadDraft(
            "handoff", found=f"a {type(routed).__name__}", expected="a Handoff, a Finish or a name"
        )
    second = routed.target if isinstance(routed, Handoff) else routed.summary
    for value in (second, routed.reason):
        if not isinstance(value, str):
            field = type(routed).__name__
            raise BadDraft(field, found=f"with a {type(value).__name__}", expected="texts (an id or a name)")


def _sentence(routed: Handoff | Finish) -> str:
    match routed:
        case Handoff(target=target, reason=reason):
            return _text(f"handed off to {target!r}" + (f": {reason}" if reason else ""))
        case Finish(reason=reason, summary=summary):
            return _text(f"finished ({reason})" + (f": {summary}" if summary else ""))


def _text(value: object) -> str:
    if isinstance(value, str) and not isinstance(value, Enum):
        text = str.__str__(value)
    else:
        text = _encoder.encode(value).decode()
    return cut(writable(text))


def _jsonable(value: Any) -> Any:
    """What msgspec does not know: pydantic's models, and the types only pydantic knows."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        raise TypeError(type(value).__name__) from None


_encoder: Final = msgspec.json.Encoder(enc_hook=_jsonable)


def _message(error: Exception) -> str:
    if isinstance(error, ValidationError):  # Its own text has several lines and quotes what it was given.
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problems)
    try:
        return str(error).partition(_TRACEBACK)[0].strip()
    except Exception:  # A user's `__str__`; the type says enough.
        return ""
