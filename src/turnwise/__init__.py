"""Multi-agent workflows that survive anything: every turn is a line on one log.

The everyday names are here; `turnwise.network` has everything for channels. They
are imported when they are first used, so that `import turnwise` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnwise.agent.agent import Agent, Reply
    from turnwise.agent.context import Context
    from turnwise.agent.inject import Depends, Inject, Variable
    from turnwise.agent.mcp import McpServer
    from turnwise.agent.tool import tool
    from turnwise.agent.tool_result import ToolResult
    from turnwise.client.run import RunResult, run, run_sync
    from turnwise.core.routing import Finish, Handoff
    from turnwise.errors import TurnwiseError
    from turnwise.flow.node import node

__version__ = "0.1.0"

_HOMES = {
    "Agent": "turnwise.agent.agent",
    "Context": "turnwise.agent.context",
    "Depends": "turnwise.agent.inject",
    "Finish": "turnwise.core.routing",
    "Handoff": "turnwise.core.routing",
    "Inject": "turnwise.agent.inject",
    "McpServer": "turnwise.agent.mcp",
    "Reply": "turnwise.agent.agent",
    "RunResult": "turnwise.client.run",
    "ToolResult": "turnwise.agent.tool_result",
    "TurnwiseError": "turnwise.errors",
    "Variable": "turnwise.agent.inject",
    "node": "turnwise.flow.node",
    "run": "turnwise.client.run",
    "run_sync": "turnwise.client.run",
    "tool": "turnwise.agent.tool",
}

__all__ = [
    "Agent",
    "Context",
    "Depends",
    "Finish",
    "Handoff",
    "Inject",
    "McpServer",
    "Reply",
    "RunResult",
    "ToolResult",
    "TurnwiseError",
    "Variable",
    "__version__",
    "node",
    "run",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'turnwise' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
