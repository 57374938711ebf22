"""Replies as OpenAI's chat completions, Anthropic's messages and Google's contents put them on the wire.

Three siblings with the same methods: `read` says what a request asks for, `body` is a whole reply as JSON,
and `events` the same reply as the lines of a stream. Text is streamed in small pieces and arguments of tools
in halves, as real servers do; Google sends a call whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from turnline.agent.messages import ModelReply, ToolCall

INPUT_TOKENS: Final = 11
OUTPUT_TOKENS: Final = 7
"""What every reply says it used."""
_PIECE: Final = 4
"""Characters of text in one event of a stream."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for."""

    model: str
    is_streamed: bool


class Wire(Protocol):
    """How one provider writes."""

    def read(self, path: str, body: Json) -> Asked | None:
        """Return what a request asks for; None if its path is another provider's."""

    def body(self, model: str, reply: ModelReply) -> Json: ...

    def events(self, model: str, reply: ModelReply) -> Iterator[bytes]: ...

    def error(self, status: int, message: str) -> Json: ...


class OpenAIWire:
    """Chat completions."""

    def read(self, path: str, body: Json) -> Asked | None:
        return _read(body) if path.endswith("/chat/completions") else None

    def body(self, model: str, reply: ModelReply) -> Json:
        message: Json = {"role": "assistant", "content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = [self._call(each) for each in reply.calls]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(reply)}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_900_000_000, "model": model}
        return {**head, "choices": [choice], "usage": self._usage()}

    def events(self, model: str, reply: ModelReply) -> Iterator[bytes]:
        head = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_900_000_000,
            "model": model,
        }
        for delta in self._deltas(reply):
            yield _data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        end = {"index": 0, "delta": {}, "finish_reason": self._finish(reply)}
        yield _data({**head, "choices": [end]})
        yield _data({**head, "choices": [], "usage": self._usage()})
        yield b"data: [DONE]\n\n"

    def error(self, status: int, message: str) -> Json:
        return {"error": {"message": message, "type": "error", "code": None, "param": None}}

    def _deltas(self, reply: ModelReply) -> Iterator[Json]:
        yield {"role": "assistant", "content": ""}
        for piece in _pieces(reply.text):
            yield {"content": piece}
        for index, each in enumerate(reply.calls):
            whole = self._call(each)
            first, second = _halves(whole["function"]["arguments"])
            yield {
                "tool_calls": [{**whole, "index": index, "function": {"name": each.tool, "arguments": first}}]
            }
            yield {"tool_calls": [{"index": index, "function": {"arguments": second}}]}

    def _call(self, each: ToolCall) -> Json:
        function = {"name": each.tool, "arguments": _arguments(each)}
        return {"id": each.call_id, "type": "function", "function": function}

    def _finish(self, reply: ModelReply) -> str:
        return "tool_calls" if reply.calls else "stop"

    def _usage(self) -> Json:
        total = INPUT_TOKENS + OUTPUT_TOKENS
        return {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": total}


class AnthropicWire:
    """Messages."""

    def read(self, path: str, body: Json) -> Asked | None:
        return _read(body) if path.endswith("/messages") else None

    def body(self, model: str, reply: ModelReply) -> Json:
        text = [{"type": "text", "text": reply.text}] if reply.text else []
        calls = [{**self._call(each), "input": json.loads(_arguments(each))} for each in reply.calls]
        return {**self._head(model), "content": [*text, *calls], "stop_reason": self._stop(reply)}

    def events(self, model: str, reply: ModelReply) -> Iterator[bytes]:
        yield _event({"type": "message_start", "message": {**self._head(model), "content": []}})
        index = 0
        if reply.text:
            pieces = [{"type": "text_delta", "text": piece} for piece in _pieces(reply.text)]
            yield from self._block(index, {"type": "text", "text": ""}, pieces)
            index += 1
        for place, each in enumerate(reply.calls, index):
            halves = _halves(_arguments(each))
            deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
            yield from self._block(place, {**self._call(each), "input": {}}, deltas)
        end = {"stop_reason": self._stop(reply), "stop_sequence": None}
        yield _event({"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT_TOKENS}})
        yield _event({"type": "message_stop"})

    def error(self, status: int, message: str) -> Json:
        return {"type": "error", "error": {"type": "api_error", "message": message}}

    def _block(self, index: int, start: Json, deltas: list[Json]) -> Iterator[bytes]:
        yield _event({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})

    def _head(self, model: str) -> Json:
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": model}
        return {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}

    def _call(self, each: ToolCall) -> Json:
        return {"type": "tool_use", "id": each.call_id, "name": each.tool}

    def _stop(self, reply: ModelReply) -> str:
        return "tool_use" if reply.calls else "end_turn"


class GoogleWire:
    """Contents of the Gemini API. The path names the model, and says whether to stream."""

    def read(self, path: str, body: Json) -> Asked | None:
        found = re.search("/models/([^/:]+):(generate|streamGenerate)Content$", path)
        return None if found is None else Asked(found[1], found[2] == "streamGenerate")

    def body(self, model: str, reply: ModelReply) -> Json:
        return self._chunk(model, [*self._texts([reply.text]), *self._calls(reply)], is_last=True)

    def events(self, model: str, reply: ModelReply) -> Iterator[bytes]:
        for part in (*self._texts(_pieces(reply.text)), *self._calls(reply)):
            yield _data(self._chunk(model, [part]))
        yield _data(self._chunk(model, [{"text": ""}], is_last=True))

    def error(self, status: int, message: str) -> Json:
        return {"error": {"code": status, "message": message, "status": "UNKNOWN"}}

    def _texts(self, pieces: list[str]) -> list[Json]:
        return [{"text": piece} for piece in pieces if piece]

    def _calls(self, reply: ModelReply) -> list[Json]:
        return [
            {"functionCall": {"id": each.call_id, "name": each.tool, "args": each.arguments}}
            for each in reply.calls
        ]

    def _chunk(self, model: str, parts: list[Json], *, is_last: bool = False) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        usage = {"promptTokenCount": INPUT_TOKENS, "totalTokenCount": INPUT_TOKENS}
        if is_last:
            total = INPUT_TOKENS + OUTPUT_TOKENS
            candidate["finishReason"] = "STOP"
            usage |= {"candidatesTokenCount": OUTPUT_TOKENS, "totalTokenCount": total}
        head = {"modelVersion": model, "responseId": "resp_1"}
        return {"candidates": [candidate], "usageMetadata": usage, **head}


WIRES: Final[tuple[Wire, ...]] = (OpenAIWire(), AnthropicWire(), GoogleWire())


def _read(body: Json) -> Asked:
    return Asked(body["model"], bool(body.get("stream")))


def _arguments(each: ToolCall) -> str:
    return each.malformed or json.dumps(each.arguments)


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _data(event: Json) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _event(event: Json) -> bytes:
    return f"event: {event['type']}\n".encode() + _data(event)
