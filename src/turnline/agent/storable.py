"""What a model or a tool says, in a form that a log takes (E2).

A model may send anything: NUL characters, halves of surrogate pairs, NaN, megabytes. What cannot be stored
must not end the channel. A text gets U+FFFD for what a log refuses, and is cut. A call whose arguments cannot
be stored has none; the model learns why and can call again. A result that cannot be stored is a failed call.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Final

import msgspec
from msgspec.structs import replace

from turnline.agent.messages import ModelReply, ToolCall, Usage
from turnline.agent.round import ToolAnswer
from turnline.core.json import MAX_BYTES, normalised
from turnline.errors import BadDraft

MAX_TEXT_CHARACTERS: Final = 200_000
"""Of what a tool tells the model, and of a reply that does not fit on the log."""
MAX_MALFORMED: Final = 4_000
"""Characters that are kept of arguments that cannot be used."""
MAX_CALLS: Final = 300
"""Calls of a reply that does not fit on the log. The others are left out, and the reply's text says so."""
_AROUND_BYTES: Final = 1_000
"""What a line has around a reply."""
_NAME_CHARACTERS: Final = 200
"""Of the name of a tool or a model, and of the id of a call, in a reply that does not fit on the log."""
_UNWRITABLE: Final = re.compile(r"[\x00\ud800-\udfff]")


def writable(text: str) -> str:
    """Return `text` with U+FFFD for what a log refuses: NUL, and halves of characters."""
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def cut(text: str) -> str:
    """Return at most `MAX_TEXT_CHARACTERS` of `text`, and say so."""
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    return f"{text[:MAX_TEXT_CHARACTERS]} … (cut here; {len(text)} characters in all)"


def refused_call(call: ToolCall, sent: object, because: str) -> ToolCall:
    """Return `call` without arguments, and with why they cannot be used."""
    try:
        text = sent if isinstance(sent, str) else json.dumps(sent, default=repr)
    except (ValueError, TypeError, RecursionError):
        text = type(sent).__name__
    return replace(call, arguments={}, malformed=writable(text[:MAX_MALFORMED]) or "…", because=because)


def storable_reply(reply: ModelReply) -> ModelReply:
    """Return `reply` as a log takes it: as it is, or without what cannot be stored."""
    for whole in (reply, replace(reply, raw=None)):
        if not _problem(whole):
            return whole
    usage = reply.usage if isfinite(reply.usage.cost) else replace(reply.usage, cost=Usage().cost)
    text = cut(writable(reply.text))
    if len(reply.calls) > MAX_CALLS:
        text += f" … (cut here; {len(reply.calls)} calls in all)"
    calls = [_storable_call(call) for call in reply.calls[:MAX_CALLS]]
    model = writable(reply.model)[:_NAME_CHARACTERS]
    stored = ModelReply(text=text, calls=calls, usage=usage, model=model)
    size = _size(stored) + _AROUND_BYTES
    for place in sorted(range(len(calls)), key=lambda at: -_size(calls[at])):
        if size <= MAX_BYTES:
            break
        because = f"the arguments of all calls together are longer than {MAX_BYTES} bytes"
        refused = refused_call(calls[place], "", because)
        size += _size(refused) - _size(calls[place])
        calls[place] = refused
    return replace(stored, calls=calls)


def storable_answer(answer: ToolAnswer) -> ToolAnswer:
    """Return `answer`, or a failed one where the result cannot be stored."""
    because = _problem(answer)
    return unstorable_answer(answer, because) if because else answer


def unstorable_answer(answer: ToolAnswer, because: str) -> ToolAnswer:
    """Return what the model is told of a result that cannot be stored."""
    text = f"the tool has run, but its result cannot be stored: {because}"
    return ToolAnswer(call_id=answer.call_id, tool=answer.tool, text=text, failed=True)


def _storable_call(call: ToolCall) -> ToolCall:
    named = replace(
        call,
        call_id=writable(call.call_id)[:_NAME_CHARACTERS],
        tool=writable(call.tool)[:_NAME_CHARACTERS],
        malformed=writable(call.malformed)[:MAX_MALFORMED],
    )
    because = _problem(ModelReply(calls=[replace(named, malformed="")]))
    return refused_call(named, call.arguments, because) if because else named


def _problem(entry: ModelReply | ToolAnswer) -> str:
    """Return why a log would refuse the entry; empty if it would not."""
    try:
        normalised({"entry": msgspec.to_builtins(entry)}, field="it")
    except BadDraft as refused:
        place = refused.field.rpartition("arguments")[2]
        return f"{place.lstrip('.') or 'it'} is {refused.found}; expected {refused.expected}"
    except (RecursionError, msgspec.MsgspecError, TypeError, ValueError) as error:
        return f"it has no JSON form ({type(error).__name__}); expected JSON"
    return ""


def _size(part: ModelReply | ToolCall) -> int:
    return len(msgspec.json.encode(part))
