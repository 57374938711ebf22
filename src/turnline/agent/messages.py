"""What goes between an agent and its model, as data.

Everything here is JSON when it is written down: a recorded reply can be read
back by another process and the round goes on from it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from turnline.core.envelope import JsonObject

_NO_COST: Final = 0.0
"""One object: a default that is told from other values by its identity is not written."""


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What model calls used and cost."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = _NO_COST
    """In dollars, as far as the price is known."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=(self.cost + other.cost) or _NO_COST,
        )


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool the model wants called."""

    call_id: str
    tool: str
    arguments: JsonObject = {}
    malformed: str = ""
    """What the model sent instead of arguments that can be used, if it did; then there are none."""
    because: str = ""
    """Why they cannot be stored, where they are a JSON object."""


class MessageFile(Struct, frozen=True, kw_only=True):
    """A file that a model is shown."""

    name: str
    media_type: str
    data: bytes


class UserMessage(Struct, frozen=True, kw_only=True, tag="user", omit_defaults=True):
    """What somebody says to the agent."""

    text: str
    name: str = ""
    """Who says it, where there are several."""
    files: list[MessageFile] = []


class ModelReply(Struct, frozen=True, kw_only=True, tag="model", omit_defaults=True):
    """What the model answers: text, tool calls, or both."""

    text: str = ""
    calls: list[ToolCall] = []
    usage: Usage = Usage()
    model: str = ""
    raw: JsonObject | None = None
    """The provider's own form of the reply, sent back to it unchanged (signatures of its thinking, say)."""


class ToolMessage(Struct, frozen=True, kw_only=True, tag="tool", omit_defaults=True):
    """What a tool answered."""

    call_id: str
    tool: str
    text: str
    failed: bool = False


Message = UserMessage | ModelReply | ToolMessage
