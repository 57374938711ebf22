"""Multi-agent workflows that survive anything: every turn is a line on one log.

The everyday names are here; `turnline.network` has everything for channels. They
are imported when they are first used, so that `import turnline` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnline.agent.agent import Agent, Reply
    from turnline.agent.context import Context
    from turnline.agent.files import File
    from turnline.agent.inject import Depends, Inject, Variable
    from turnline.agent.mcp import McpServer
    from turnline.agent.tool import ToolRetry, tool
    from turnline.agent.tool_result import ToolResult
    from turnline.client.channel import RunResult
    from turnline.client.run import run, run_sync
    from turnline.core.routing import Finish, Handoff
    from turnline.errors import TurnlineError
    from turnline.flow.node import node

__version__ = "0.1.0"

_HOMES = {
    "Agent": "turnline.agent.agent",
    "Context": "turnline.agent.context",
    "Depends": "turnline.agent.inject",
    "File": "turnline.agent.files",
    "Finish": "turnline.core.routing",
    "Handoff": "turnline.core.routing",
    "Inject": "turnline.agent.inject",
    "McpServer": "turnline.agent.mcp",
    "Reply": "turnline.agent.agent",
    "RunResult": "turnline.client.channel",
    "ToolResult": "turnline.agent.tool_result",
    "ToolRetry": "turnline.agent.tool",
    "TurnlineError": "turnline.errors",
    "Variable": "turnline.agent.inject",
    "node": "turnline.flow.node",
    "run": "turnline.client.run",
    "run_sync": "turnline.client.run",
    "tool": "turnline.agent.tool",
}

__all__ = [
    "Agent",
    "Context",
    "Depends",
    "File",
    "Finish",
    "Handoff",
    "Inject",
    "McpServer",
    "Reply",
    "RunResult",
    "ToolResult",
    "ToolRetry",
    "TurnlineError",
    "Variable",
    "__version__",
    "node",
    "run",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'turnline' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
