"""`mcp`: call a tool of an MCP server, and what becomes of its result.

The server is one that turnline.yaml names, a command to start or an address, or an
address in the step. A server that is started lives for the one call.

Rule 1: the SDK is imported with the first call; without it the error says how to get it.

Rule 2: a result is from outside (F1). A tool's error fails the step, and what it says is
told without the secrets that were sent.
"""

# ruff: noqa: PLC0415  The SDK is in an extra.

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import httpx2
import msgspec
from msgspec import Struct

from turnline.agent.timeouts import within
from turnline.agent.variables import masked
from turnline.errors import BadStepValue, CallFailed, MissingExtra, TurnlineError, UnknownName
from turnline.flow.definition.steps import McpStep
from turnline.flow.exchange import address_of, checked_headers
from turnline.flow.output import read, wants_json, written
from turnline.flow.values import filled, headers, secrets_of, without
from turnline.flow.work import StepResult, StepWork

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

TIMEOUT_SECONDS: Final = 120.0
"""From starting the server to its answer, where the step has no timeout of its own."""
CONNECT_SECONDS: Final = 30.0
_ERROR_CHARACTERS: Final = 500
_WRAPPED: Final = {"result"}
"""The key of what the SDK puts around a result that is no object."""


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a server: by `command`, or by `url`."""

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    """Templates; `{{ secret.NAME }}` is allowed."""


async def perform(work: StepWork[McpStep]) -> StepResult:
    block, server = work.step.mcp, _server(work)
    secrets = secrets_of(server.headers, work.services.secret)
    arguments = filled(block.arguments, work.public, at="mcp.arguments")
    called = f"tool {block.tool!r} of MCP server {block.server!r}"
    limit = TIMEOUT_SECONDS if work.step.timeout is None else None
    try:
        async with within(limit, f"{called} has not answered"):
            result = await _called(work, server, arguments)
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"{called} failed: a timeout.") from None
    except TurnlineError:
        raise
    except Exception as error:  # The SDK's own, alone or in a group, and the system's.
        raise CallFailed(called, because=_shortened(masked(_told(error), *secrets))) from None
    if result.is_error:
        raise CallFailed(called, because=_shortened(masked(_text(result), *secrets)) or "it did not say why")
    return _done(work, without(_found(work, result), secrets))


async def _called(work: StepWork[McpStep], server: Server, arguments: dict[str, Any]) -> CallToolResult:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await _client(work, server, stack))
        return await client.call_tool(work.step.mcp.tool, arguments)


async def _client(work: StepWork[McpStep], server: Server, stack: AsyncExitStack) -> Client:
    try:
        from mcp import Client, StdioServerParameters
        from mcp.client.streamable_http import streamable_http_client
    except ImportError:
        raise MissingExtra("mcp steps", extra="mcp") from None
    if server.command:
        return Client(
            StdioServerParameters(command=server.command, args=server.args, env=server.env, cwd=server.cwd)
        )
    url = str(address_of(server.url, at="the address of the MCP server"))
    given = headers(server.headers, work.public, work.services.secret, at="mcp.headers")
    http = httpx2.AsyncClient(
        headers=checked_headers(given, at="mcp.headers"),
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        trust_env=False,
    )
    return Client(streamable_http_client(url, http_client=await stack.enter_async_context(http)))


def _server(work: StepWork[McpStep]) -> Server:
    name, known = work.step.mcp.server, work.services.mcp_servers
    if name not in known:
        if name.startswith(("http://", "https://")):
            return Server(url=name)
        do = "Name it in turnline.yaml, or write its address."
        raise UnknownName("MCP server", name, known, do=do)
    expected = "`command` with args and env, or `url` with headers"
    try:
        server = msgspec.convert(known[name], Server)
    except msgspec.ValidationError as error:
        raise BadStepValue(f"MCP server {name!r}", found=str(error), expected=expected) from None
    if bool(server.command) == bool(server.url):
        raise BadStepValue(f"MCP server {name!r}", found="with both or neither", expected=expected)
    return server


def _found(work: StepWork[McpStep], result: CallToolResult) -> Any:
    """The result: what is structured, or else the JSON or the text in it."""
    output, structured = work.step.mcp.output, result.structured_content
    if structured is None or output.format in {"text", "signal"}:
        return read(output, _text(result), step=work.step.id)
    is_wrapped = isinstance(structured, dict) and structured.keys() == _WRAPPED
    if is_wrapped and not isinstance(structured["result"], dict) and not wants_json(output):
        return structured["result"]
    return structured


def _done(work: StepWork[McpStep], found: Any) -> StepResult:
    kept = written(work.step.mcp.output, found, step=work.step.id)
    if kept.dropped:
        work.dropped("mcp", kept.dropped)
    body = f"tool {work.step.mcp.tool!r} of MCP server {work.step.mcp.server!r} answered."
    return StepResult(signal=kept.signal, updates=kept.updates, body=body)


def _text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def _told(error: BaseException) -> str:
    """What an exception says; of a group, what its first one says."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _shortened(text: str) -> str:
    return " ".join(text.split())[:_ERROR_CHARACTERS].rstrip(".")
