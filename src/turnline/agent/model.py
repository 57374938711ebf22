"""The port to models: one request, one reply. `models/` and `scripted.py` are behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from turnline.agent.messages import Message, ModelReply
from turnline.core.envelope import JsonObject

OnText = Callable[[str], None]
"""Called with pieces of the reply's text as they come."""


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it."""

    name: str
    description: str
    schema: JsonObject
    """JSON Schema of its arguments. Injected parameters are not in it."""


class ModelRequest(Struct, frozen=True, kw_only=True):
    """Everything a model is told."""

    agent: str
    """Whose request it is; for errors and scripts, not for the provider."""
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema: JsonObject | None = None
    """JSON Schema of the answer, where one is asked for; the reply's text is then JSON."""


@runtime_checkable
class Model(Protocol):
    """Something that answers."""

    name: str

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        """Return the model's answer; with `on_text`, its text is streamed as it comes.

        One attempt: retrying is the caller's. Raises `ModelError`, with what is
        known of why and of whether to try again.
        """
        ...


@runtime_checkable
class ModelConfig(Protocol):
    """A choice of model, as data. It makes the model when that is first needed."""

    def create(self) -> Model: ...
