"""The tools of one round, by name. What the model calls and is not there, it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from turnline.agent.context import Context
from turnline.agent.messages import ToolCall
from turnline.agent.model import ToolSpec
from turnline.agent.tool import Tool, as_tool
from turnline.agent.tool_result import ToolOutput
from turnline.errors import BadTool
from turnline.errors.base import hint, short

_NAME_CHARACTERS = 64
"""Of a name that is looked for among the known ones; what is longer is like none of them."""


class Toolbox:
    """Tools by name. Plain functions become tools; a name is given once."""

    def __init__(self, tools: Iterable[Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool[..., Any]] = {}
        for made in map(as_tool, tools):
            if made.name in self._tools:
                raise BadTool(made.name, because="another tool has that name; give one of them name=...")
            self._tools[made.name] = made
        self._specs = tuple(made.spec() for made in self)

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Tool[..., Any] | None:
        return self._tools.get(name)

    def joined(self, tools: Iterable[Callable[..., Any]]) -> Toolbox:
        """Return a toolbox with these tools and those of this one."""
        return Toolbox([*self, *tools])

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools as the model sees them."""
        return self._specs

    async def call(self, call: ToolCall, context: Context) -> ToolOutput:
        """Run one call of the model's, and return how it ended. Raises what `Tool.call` raises."""
        found = self._tools.get(call.tool)
        if found is None:
            return ToolOutput(text=self._unknown(call.tool), failed=True)
        if call.malformed:
            return ToolOutput(text=_malformed(call), failed=True)
        return await found.call(call.arguments, context)

    def _unknown(self, name: str) -> str:
        listed = ", ".join(self._tools) or "none"
        near = hint(name[:_NAME_CHARACTERS], self._tools)
        return f"there is no tool {short(name)}; known: {listed}.{near}"


def _malformed(call: ToolCall) -> str:
    if call.because:
        return f"the arguments of {call.tool!r} cannot be stored: {call.because}. Call it again."
    found = short(call.malformed)
    return f"wrong arguments for {call.tool!r}: found {found}, expected a JSON object. Call it again."
