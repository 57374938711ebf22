"""The names of the tools that an agent on a network has beside its own (`turnline.client.plugin`)."""

from __future__ import annotations

from typing import Final

from turnline.agent.agent import Agent

NETWORK_TOOLS: Final = frozenset({"delegate", "peers", "channels", "tasks", "context"})


def tool_names(agent: Agent, *others: str) -> frozenset[str]:
    """Return the names of an agent's own tools, and of `others` that it is given."""
    return frozenset({*others, *(tool.name for tool in agent.tools)})
