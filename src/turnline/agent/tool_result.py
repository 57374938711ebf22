"""What a tool call comes to: one text for the model, and what it means for the floor (K2).

    text                        as it is
    JSON-able data              its JSON
    Handoff, Finish             a sentence; the routing goes beside it
    File, a list of them        a sentence; the files go to the log beside it (Y6)
    ToolResult                  message, files, context variables and routing in one; `attach`: files that
                                go with the agent's reply
    Paused                      the call waits, and runs again (N2)

What a tool returns is its author's choice and is passed on. What it raises is
not: `failure` masks variables and dependencies in it (V4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from turnline.agent.files import File
from turnline.agent.storable import cut, writable
from turnline.agent.variables import masked
from turnline.core.claims import Paused
from turnline.core.envelope import JsonObject
from turnline.core.json import normalised
from turnline.core.parts import MAX_PARTS
from turnline.core.routing import Finish, Handoff
from turnline.core.variables import check_keys
from turnline.errors import BadDraft

MAX_ERROR_CHARACTERS: Final = 1_000
MAX_INLINE_BYTES: Final = 64 * 1024
"""Of a result that is kept on its line. A longer one is kept as a file, and its line refers to it (Y6)."""
MAX_FILES: Final = MAX_PARTS - 1
"""Files that one call returns."""

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
    files: Sequence[File] = ()
    """Kept on the log with the result."""
    attach: Sequence[File] = ()
    """Kept with the result as well, and sent with the agent's reply: all who see the reply get them."""


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
    files: tuple[File, ...] = ()
    in_file: bool = False
    """Whether the first file is the whole text: it is too long for a line."""
    attached: int = 0
    """How many of the files, the last ones, go with the reply."""
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
        files = _files_in(returned)
        if isinstance(returned, ToolResult) or files:
            result = returned if isinstance(returned, ToolResult) else ToolResult("", files=files)
            return _combined(result, reason)
        if isinstance(returned, _ROUTING):
            _check_routing(returned)
            return ToolOutput(text=_sentence(returned), returned=returned, reason=reason)
        text, files = _fit(_text(returned), ())
        return ToolOutput(text=text, files=files, in_file=bool(files), reason=reason)
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
    given = _files_in([*result.files, *result.attach]) if result.files or result.attach else ()
    message = _text(result.message)
    text, files = _fit(f"{message}\n{_name_files(given)}".strip() if given else message, given)
    is_long = len(files) > len(given)
    return ToolOutput(
        text=text,
        returned=routed,
        context=context,
        reason=reason,
        files=files,
        in_file=is_long,
        attached=len(result.attach),
    )


def _files_in(returned: object) -> tuple[File, ...]:
    """Return the files that a tool returned, if it returned nothing else."""
    found = tuple(returned) if isinstance(returned, list | tuple) else (returned,)
    files = tuple(one for one in found if isinstance(one, File))
    if files and (len(files) < len(found) or len(files) > MAX_FILES):
        expected = f"at most {MAX_FILES} files, and nothing else"
        raise BadDraft("files", found=f"{len(files)} among {len(found)} values", expected=expected)
    return files


def _name_files(files: Sequence[File]) -> str:
    return "\n".join(f"[file {one.name} ({one.media_type})]" for one in files)


def _fit(text: str, files: tuple[File, ...]) -> tuple[str, tuple[File, ...]]:
    """Return what the model is told of a text, and the files; a long text is the first of them."""
    whole = text.encode()
    if len(whole) <= MAX_INLINE_BYTES:
        return text, files
    return cut(text), (File(whole, "result.txt", "text/plain"), *files)


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
            return cut(_text(f"handed off to {target!r}" + (f": {reason}" if reason else "")))
        case Finish(reason=reason, summary=summary):
            return cut(_text(f"finished ({reason})" + (f": {summary}" if summary else "")))


def _text(value: object) -> str:
    if isinstance(value, str) and not isinstance(value, Enum):
        text = str.__str__(value)
    else:
        text = _encoder.encode(value).decode()
    return writable(text)


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
