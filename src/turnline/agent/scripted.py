"""A model that follows a script: for tests, examples and the demo.

    ScriptedModel("hello", call("look", where="here"), "it is a lamp")

Each request takes the next item, over all turns and conversations. An item is
a text, a call, a list of calls, a `ModelReply`, an exception (raised), or a
function of the messages so far that returns one of these.

Rule 1: a script that is one single function has no state: the function answers
every request, and ids of calls follow from the messages. So a process that was
killed and started anew goes on where the conversation is; a list would begin
at its first item again.
Rule 2: what was recorded from a run is a script. `RecordingModel` keeps the
replies of any model; `save` and `ScriptedModel.load` bring them to a file and back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from turnline.agent.messages import Message, ModelReply, ToolCall, Usage
from turnline.agent.model import Model, ModelConfig, ModelRequest, OnText
from turnline.errors import ScriptExhausted

Line = str | ToolCall | Sequence[ToolCall] | ModelReply | Exception
"""What a model may say next."""
ScriptItem = Line | Callable[[tuple[Message, ...]], Line]

_EXPECTED: Final = (
    "a text, a call, a list of calls, a ModelReply, an exception, or a function that returns one"
)


def call(tool: str, /, **arguments: Any) -> ToolCall:
    """A call of `tool`, for a script. The model that follows the script gives it an id."""
    return ToolCall(call_id="", tool=tool, arguments=arguments)


class ScriptedModel:
    """See `turnline.agent.model.Model`; it is its own config. Every request it got is in `requests`."""

    __test__: ClassVar = False  # Tests know it as `TestConfig`, which pytest would collect.

    def __init__(self, *script: ScriptItem, name: str = "scripted") -> None:
        for item in script:
            _check(item)
        self.name = name
        self.requests: list[ModelRequest] = []
        self._script = script
        self._calls = 0

    @classmethod
    def load(cls, path: str | Path) -> ScriptedModel:
        """Return the script that `RecordingModel.save` wrote to `path`."""
        lines = Path(path).read_bytes().splitlines()
        return cls(*(_read(path, number, line) for number, line in enumerate(lines, 1) if line.strip()))

    def __repr__(self) -> str:
        return f"ScriptedModel({len(self._script)} items, {len(self.requests)} requests)"

    def create(self) -> ScriptedModel:
        return self

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        """Return what the script says next; raises `ScriptExhausted` when it says nothing more."""
        self.requests.append(request)
        line = self._next(request)
        if isinstance(line, Exception):
            raise line
        reply = self._numbered(_as_reply(line, self.name), request.messages)
        if on_text is not None:
            await _stream(reply.text, on_text)
        return reply

    def _next(self, request: ModelRequest) -> Line:
        turn = len(self.requests)
        if self._is_a_function:
            item = self._script[0]
        elif turn > len(self._script):
            raise ScriptExhausted(request.agent, turn=turn)
        else:
            item = self._script[turn - 1]
        line = item(request.messages) if callable(item) else item
        _check(line)
        if callable(line):
            raise TypeError(f"a script's function returned another function; expected {_EXPECTED}")
        return line

    @property
    def _is_a_function(self) -> bool:
        return len(self._script) == 1 and callable(self._script[0])

    def _numbered(self, reply: ModelReply, messages: Iterable[Message]) -> ModelReply:
        """`reply`, each of its calls with an id that the conversation does not have yet."""
        before = sum(len(message.calls) for message in messages if isinstance(message, ModelReply))
        if not self._is_a_function:
            before = max(before, self._calls)
        self._calls = before + len(reply.calls)
        calls = [
            each if each.call_id else msgspec.structs.replace(each, call_id=f"call-{number}")
            for number, each in enumerate(reply.calls, before + 1)
        ]
        return msgspec.structs.replace(reply, calls=calls)


class Exchange(NamedTuple):
    """What a model was asked and what it answered."""

    request: ModelRequest
    reply: ModelReply


class RecordingModel:
    """See `turnline.agent.model.Model`: `model`, with every request it answered kept in `exchanges`.

    A request that failed is not kept: whoever asked asks again, and that one is.
    """

    def __init__(self, model: Model | ModelConfig) -> None:
        self._model = model.create() if isinstance(model, ModelConfig) else model
        self.name = self._model.name
        self.exchanges: list[Exchange] = []

    def create(self) -> RecordingModel:
        return self

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        reply = await self._model.reply(request, on_text)
        self.exchanges.append(Exchange(request, reply))
        return reply

    def script(self) -> list[ModelReply]:
        """Return the replies as items for a `ScriptedModel`, without the provider's own form of them."""
        return [msgspec.structs.replace(each.reply, raw=None) for each in self.exchanges]

    def save(self, path: str | Path) -> None:
        """Write the script to `path`, one reply per line; nothing of the requests is in it."""
        lines = (msgspec.json.encode(reply) + b"\n" for reply in self.script())
        Path(path).write_bytes(b"".join(lines))


def _check(item: object) -> None:
    match item:
        case str() | ToolCall() | ModelReply() | Exception():
            return
        case list() | tuple() if item and all(isinstance(each, ToolCall) for each in item):
            return
        case type():
            pass
        case _ if callable(item):
            return
    raise TypeError(f"{item!r} cannot be in a script; expected {_EXPECTED}")


def _as_reply(line: str | ToolCall | Sequence[ToolCall] | ModelReply, model: str) -> ModelReply:
    match line:
        case ModelReply():
            return line
        case str():
            return ModelReply(text=line, usage=Usage(requests=1), model=model)
        case ToolCall():
            return ModelReply(calls=[line], usage=Usage(requests=1), model=model)
        case _:
            return ModelReply(calls=list(line), usage=Usage(requests=1), model=model)


async def _stream(text: str, on_text: OnText) -> None:
    for word in re.findall(r"\s*\S+|\s+$", text):
        on_text(word)
        await asyncio.sleep(0)


def _read(path: str | Path, number: int, line: bytes) -> ModelReply:
    try:
        return msgspec.json.decode(line, type=ModelReply)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}, line {number}, is not a recorded reply: {error}") from None
