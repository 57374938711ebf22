"""Tools of an MCP server, for an agent.

    async with McpServer(command="uvx", args=["mcp-server-time"]) as server:
        agent = Agent("ada", tools=server.tools)

Rule 1: the SDK is imported when a server is entered; without it the error says how to get it.

Rule 2: the server is outside. What it answers is text for the model; whatever fails in a call is told to the
model, without the secrets that were sent, and the next call connects again.

Rule 3: a connection is entered and left by one task of its own, as the SDK demands; calls come from any.
"""

# ruff: noqa: PLC0415  The SDK is in an extra.

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from turnline.agent.context import Context
from turnline.agent.timeouts import within
from turnline.agent.tool import Tool, ToolRetry, checked_retry
from turnline.agent.tool_result import ToolOutput, output_of
from turnline.agent.variables import masked
from turnline.core.envelope import JsonObject
from turnline.errors import AgentError, BadTool, MissingExtra, TurnlineError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool as SdkTool

CONNECT_SECONDS: Final = 30.0
CALL_SECONDS: Final = 120.0
MAX_PAGES: Final = 100
"""Of a server's list of tools; one that goes on is not believed."""
IDEMPOTENCY_KEY: Final = "turnline/idempotency-key"
"""Where a call carries its key (T3), in the request's `_meta`."""
_ERROR_CHARACTERS: Final = 500
_NAME_CHARACTERS: Final = 64
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Servers name tools as they like; providers do not take every name."""


class McpServer:
    """A connection to an MCP server: by `command`, or by `url`. Enter it, and its tools are there."""

    def __init__(
        self,
        *,
        command: str = "",
        args: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        url: str = "",
        headers: Mapping[str, str] | None = None,
        only: Iterable[str] = (),
        approval: Iterable[str] = (),
        connect_seconds: float = CONNECT_SECONDS,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        """`only` names the tools that are wanted, `approval` those that a person has to allow each time."""
        if bool(command) == bool(url):
            raise ValueError("an MCP server has either a command or a url")
        self.name = command or url
        self.tools: tuple[McpTool, ...] = ()
        self._command, self._args, self._env = command, list(args), dict(env or {})
        self._url, self._headers = url, dict(headers or {})
        self._only, self._approval = frozenset(only), frozenset(approval)
        self._connect_seconds, self._call_seconds = connect_seconds, call_seconds
        self._secrets = [*self._env.values(), *self._headers.values()]
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}, tools={[tool.name for tool in self.tools]})"

    async def __aenter__(self) -> Self:
        try:
            client = await self._connected()
            async with within(self._connect_seconds, "it has not listed its tools"):
                listed = await _listed(client)
        except BaseException as error:
            await self._leave()
            if not isinstance(error, Exception) or isinstance(error, TurnlineError):
                raise
            raise AgentError(f"MCP server {self.name!r} cannot be used: {self._told(error)}.") from None
        self.tools = tuple(McpTool(self, one, one.name in self._approval) for one in self._wanted(listed))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def call(self, tool: str, arguments: JsonObject, *, key: str = "") -> ToolOutput:
        """Call a tool of the server; whatever goes wrong is in the output."""
        meta: Any = {IDEMPOTENCY_KEY: key} if key else None
        try:
            client = await self._connected()
            async with within(self._call_seconds, "it has not answered"):
                result = await client.call_tool(tool, arguments, meta=meta)
        except Exception as error:  # The SDK's own, alone or in a group, and the system's.
            await self._leave()  # Perhaps it is the connection: the next call makes another.
            text = f"{tool!r} could not be called: {self._told(error)}."
            return ToolOutput(text=text, failed=True, error=error)
        told = output_of(masked(_text(result), *self._secrets), "")
        return replace(told, failed=bool(result.is_error))

    def _wanted(self, listed: Sequence[SdkTool]) -> list[SdkTool]:
        known = {one.name for one in listed}
        for name in sorted((self._only | self._approval) - known):
            raise BadTool(name, because=f"{self!r} has no such tool; it has {', '.join(sorted(known))}")
        return [one for one in listed if not self._only or one.name in self._only]

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._connection is None or self._connection.is_over:
                self._connection = _Connection(self._open)
            async with within(self._connect_seconds, "it has not connected"):
                return await self._connection.client()

    async def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self, stack: AsyncExitStack) -> Client:
        try:
            from mcp import Client, StdioServerParameters
            from mcp.client.streamable_http import streamable_http_client
        except ImportError:
            raise MissingExtra("tools of MCP servers", extra="mcp") from None
        if self._command:
            started = StdioServerParameters(command=self._command, args=self._args, env=self._env)
            return await stack.enter_async_context(Client(started))
        import httpx2

        http = httpx2.AsyncClient(
            headers=self._headers,
            timeout=httpx2.Timeout(self._connect_seconds, read=None),
            trust_env=False,
        )
        await stack.enter_async_context(http)
        return await stack.enter_async_context(Client(streamable_http_client(self._url, http_client=http)))

    def _told(self, error: BaseException) -> str:
        """What an exception says, without what must not be told; of a group, what its first one says."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            return str(error) or "it took too long"
        text = " ".join(masked(f"{type(error).__name__}: {error}", *self._secrets).split())
        return text[:_ERROR_CHARACTERS].rstrip(".")


class McpTool(Tool[..., Any]):
    """A tool of an MCP server, as an agent has it. Its schema is the server's."""

    def __init__(self, server: McpServer, listed: SdkTool, approval: bool) -> None:
        # Nothing of it is read off a function, so `Tool.__init__` has nothing to do.
        self.name = self.__name__ = _NOT_IN_A_NAME.sub("_", listed.name)[:_NAME_CHARACTERS]
        self.description = listed.description or ""
        self.approval = approval
        self.restarts = False
        self.retry = None
        self.function = self._called
        self._server = server
        self._remote = listed.name
        self._schema: JsonObject = dict(listed.input_schema)

    @property
    def schema(self) -> JsonObject:
        return self._schema

    async def call(self, arguments: JsonObject, context: Context) -> ToolOutput:
        """See `Tool.call`. The server validates what the model sent."""
        return await self._server.call(self._remote, arguments, key=context.idempotency_key)

    def altered(
        self,
        *,
        name: str | None,
        description: str | None,
        approval: bool,
        restarts: bool,
        retry: int | ToolRetry | None,
    ) -> McpTool:
        """See `Tool.altered`."""
        twin = copy(self)
        twin.name = twin.__name__ = self.name if name is None else name
        twin.description = self.description if description is None else description
        twin.approval = self.approval or approval
        twin.retry = self.retry if retry is None else checked_retry(twin.name, retry)
        return twin

    async def _called(self, **arguments: Any) -> str:
        return (await self._server.call(self._remote, arguments)).text


class _Connection:
    """One connection, with the task that holds it (rule 3)."""

    def __init__(self, open_client: Callable[[AsyncExitStack], Awaitable[Client]]) -> None:
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._live(open_client))

    @property
    def is_over(self) -> bool:
        return self._task.done()

    async def client(self) -> Client:
        return await asyncio.shield(self._client)

    async def close(self) -> None:
        self._closing.set()
        if not self._client.done():
            self._task.cancel()
        with suppress(BaseException):
            await self._task

    async def _live(self, open_client: Callable[[AsyncExitStack], Awaitable[Client]]) -> None:
        try:
            async with AsyncExitStack() as stack:
                self._client.set_result(await open_client(stack))
                await self._closing.wait()
        except BaseException as error:
            if not self._client.done():
                self._client.set_exception(error)
                self._client.exception()  # Somebody may have stopped waiting for it.
                return
            raise


async def _listed(client: Client) -> list[SdkTool]:
    tools: list[SdkTool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _text(result: CallToolResult) -> str:
    """What a model is told: the texts; of anything else, that it is there."""
    return "\n".join(block.text if block.type == "text" else f"({block.type})" for block in result.content)
