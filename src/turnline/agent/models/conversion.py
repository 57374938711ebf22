"""Our messages in pydantic-ai's JSON, and its replies in ours.

    conversation(request) -> its messages, as JSON
    reply_from(raw, ...)  -> our `ModelReply`, from its message as JSON

JSON in, JSON out: nothing here imports pydantic-ai, and what goes on the log
is its JSON, never its objects. Only the bytes of files are bytes.

Rule 1: a reply that came from a provider goes back to it as it came (`raw`);
signatures of its thinking do not survive being taken apart.
Rule 2: results of tools stand right behind the reply that called them, before
anything said in the meantime: providers refuse any other order.
Rule 3: an answer given through the answer tool is kept as text, without `raw`:
it is a call that nobody answers, which providers refuse to be sent back.
Rule 4: a reply can be written to a log (E2), whatever the model sent. Characters
a log refuses are replaced; arguments it refuses are malformed; a `raw` it
refuses is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

import msgspec
from msgspec import Struct

from turnline.agent.messages import Message, ModelReply, ToolCall, ToolMessage, Usage, UserMessage
from turnline.agent.model import ModelRequest
from turnline.agent.storable import refused_call, writable
from turnline.core.envelope import JsonObject
from turnline.core.json import normalised
from turnline.errors import BadDraft

ANSWER_TOOL: Final = "turnline_answer"
"""The tool a model answers with where it cannot be held to a JSON Schema otherwise."""
_BOX: Final = "response"


class AnswerForm(Struct, frozen=True, kw_only=True):
    """How an answer that follows a JSON Schema is asked for."""

    schema: JsonObject
    """Of an object: providers take nothing else."""
    boxed: bool
    """Whether the answer itself stands in a field of that object."""


def answer_form(schema: JsonObject) -> AnswerForm:
    """Return the form in which to ask for an answer that follows `schema`."""
    if schema.get("type") == "object":
        return AnswerForm(schema=schema, boxed=False)
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    box: JsonObject = {
        "type": "object",
        "properties": {_BOX: inner},
        "required": [_BOX],
        "additionalProperties": False,
    }
    if "$defs" in schema:
        box["$defs"] = schema["$defs"]  # References start at the root, which is the box now.
    return AnswerForm(schema=box, boxed=True)


def conversation(request: ModelRequest) -> list[JsonObject]:
    """Return what the model is told, as pydantic-ai's messages in JSON."""
    told: list[JsonObject] = []
    for is_reply, group in groupby(request.messages, key=lambda message: isinstance(message, ModelReply)):
        said = list(group)
        told += map(_response, said) if is_reply else [_request(said)]
    return _instructed(told, request.instructions)


def without_raw(request: ModelRequest) -> ModelRequest:
    """Return `request` with every reply in our own form: for a `raw` that pydantic-ai cannot read."""
    plain = (
        msgspec.structs.replace(message, raw=None) if isinstance(message, ModelReply) else message
        for message in request.messages
    )
    return msgspec.structs.replace(request, messages=tuple(plain))


def reply_from(raw: JsonObject, *, form: AnswerForm | None = None, cost: float = 0.0) -> ModelReply:
    """Return pydantic-ai's response `raw` as a reply; with `form`, its text is the answer's JSON."""
    parts: list[JsonObject] = raw["parts"]
    used = raw.get("usage", {})
    reply = ModelReply(
        text=writable("".join(part["content"] for part in parts if part["part_kind"] == "text")),
        calls=[_call(part) for part in parts if part["part_kind"] == "tool-call"],
        usage=Usage(
            requests=1,
            input_tokens=used.get("input_tokens", 0),
            output_tokens=used.get("output_tokens", 0),
            cost=cost,
        ),
        model=raw.get("model_name") or "",
        raw=raw if _fits(raw) else None,
    )
    return reply if form is None else _answered(reply, form)


def _instructed(told: list[JsonObject], instructions: str) -> list[JsonObject]:
    """`told`, with the instructions on its last request, which is where pydantic-ai looks for them."""
    if not instructions:
        return told
    last = max((at for at, message in enumerate(told) if message["kind"] == "request"), default=None)
    if last is None:
        return [*told, {"kind": "request", "parts": [], "instructions": instructions}]
    return [*told[:last], {**told[last], "instructions": instructions}, *told[last + 1 :]]


def _request(messages: Iterable[Message]) -> JsonObject:
    ordered = sorted(messages, key=lambda message: not isinstance(message, ToolMessage))
    return {"kind": "request", "parts": [_told(message) for message in ordered]}


def _told(message: Message) -> JsonObject:
    match message:
        case UserMessage(text=text, name=name, files=files):
            said = f"{name}: {text}" if name else text
            shown = [{"kind": "binary", "data": one.data, "media_type": one.media_type} for one in files]
            return {"part_kind": "user-prompt", "content": [said, *shown] if shown else said}
        case ToolMessage(call_id=call_id, tool=tool, text=text, failed=failed):
            outcome = "failed" if failed else "success"
            head = {"part_kind": "tool-return", "tool_name": tool, "tool_call_id": call_id}
            return {**head, "content": text, "outcome": outcome}
        case ModelReply():
            raise AssertionError("a reply is not told to a model; it is its own")


def _response(message: Message) -> JsonObject:
    assert isinstance(message, ModelReply)
    if message.raw is not None and message.raw.get("kind") == "response":
        return message.raw
    text = [{"part_kind": "text", "content": message.text}] if message.text else []
    calls = [
        {
            "part_kind": "tool-call",
            "tool_name": call.tool,
            "args": call.malformed or call.arguments,
            "tool_call_id": call.call_id,
        }
        for call in message.calls
    ]
    return {"kind": "response", "parts": [*text, *calls], "model_name": message.model or None}


def _call(part: JsonObject) -> ToolCall:
    call, sent = ToolCall(call_id=part["tool_call_id"], tool=part["tool_name"]), part.get("args")
    if sent is None or sent == "":
        return call
    try:
        found = msgspec.json.decode(sent) if isinstance(sent, str) else sent
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return refused_call(call, sent, "")
    if not isinstance(found, dict):
        return refused_call(call, sent, "")
    try:
        return msgspec.structs.replace(call, arguments=normalised(found, field="arguments"))
    except BadDraft as refused:
        return refused_call(call, sent, f"{refused.field} is {refused.found}; expected {refused.expected}")
    except RecursionError:
        return refused_call(call, sent, "they are nested too deep")


def _fits(raw: JsonObject) -> bool:
    try:
        normalised(raw, field="raw")
    except (BadDraft, RecursionError):
        return False
    return True


def _answered(reply: ModelReply, form: AnswerForm) -> ModelReply:
    answers = [call for call in reply.calls if call.tool == ANSWER_TOOL]
    others = [call for call in reply.calls if call.tool != ANSWER_TOOL]
    if others:
        # It answered before it knew what the other tools say; the next reply is the answer.
        raw = None if answers else reply.raw
        return msgspec.structs.replace(reply, calls=others, raw=raw)
    if not answers:
        return msgspec.structs.replace(reply, text=_unboxed(reply.text, form))
    first = answers[0]
    text = first.malformed or msgspec.json.encode(first.arguments).decode()
    return msgspec.structs.replace(reply, text=_unboxed(text, form), calls=[], raw=None)


def _unboxed(text: str, form: AnswerForm) -> str:
    """The answer's own JSON. What has not the form is left as it is: whoever asked says what is wrong."""
    if not form.boxed:
        return text
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    if isinstance(found, dict) and _BOX in found:
        return msgspec.json.encode(found[_BOX]).decode()
    return text
