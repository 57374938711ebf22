"""`mcp`: call a tool of an MCP server, and what becomes of its result.

The server is one that turnwise.yaml names, a command to start or an address, or an
address in the step. A server that is started lives for the one call.

Rule 1: the SDK is imported with the first call; without it the error says how to get it.

Rule 2: a result is from outside (F1), and so is a tool's error: it fails the step.
"""

# ruff: noqa: PLC0415  The SDK is in an extra.

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import httpx2
import msgspec
from msgspec import Struct

from turnwise.errors import BadStepValue, CallFailed, FlowError, MissingExtra, UnknownName
from turnwise.flow.definition.steps import McpStep, Output
from turnwise.flow.exchange import address_of, checked_headers
from turnwise.flow.output import read, wants_json, written
from turnwise.flow.values import filled, headers, secrets_of, without
from turnwise.flow.work import Done, Work

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

TIMEOUT_SECONDS: Final = 120.0
"""From starting the server to its answer, where the step has no timeout of its own."""
CONNECT_SECONDS: Final = 30.0
_ERROR_CHARACTERS: Final = 500
_WRAPPED: Final = {"result"}
"""What the SDK puts around a result that is no object."""


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a server: `command`, or `url`."""

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    """Templates; `{{ secret.NAME }}` is allowed."""


async def perform(work: Work[McpStep]) -> Done:
    block = work.step.mcp
    server = _server(work)
    arguments = filled(block.arguments, work.public, at="mcp.arguments")
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS if work.step.timeout is None else None), AsyncExitStack() as stack:
            client = await _connected(work, server, stack)
            result = await client.call_tool(block.tool, arguments)
    except (TimeoutError, FlowError, MissingExtra):
        raise
    except Exception as error:  # The SDK's own, alone or in a group, and the system's.
        raise CallFailed(_called(work), because=_told(work, server, error)) from None
    return _done(work, server, result)
