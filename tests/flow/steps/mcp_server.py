"""An MCP server for tests: run as a program, on its standard streams; or `served`, at an address."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

server = MCPServer("tests", log_level="ERROR")


class Lead(BaseModel):
    name: str
    score: int


@server.tool()
def rate(name: str, score: int) -> Lead:
    """An object, with its schema."""
    return Lead(name=name.upper(), score=score + 1)


@server.tool()
def greet(name: str) -> str:
    """A text."""
    return f"Hello {name}"


@server.tool()
def numbers() -> list[int]:
    """A list."""
    return [1, 2]


@server.tool(structured_output=False)
def loose() -> str:
    """JSON that is written as a text."""
    return '{"_user_id": "root", "kept": {"_id": 1}}'


@server.tool()
def variable(name: str) -> str:
    """What the environment holds."""
    return os.environ.get(name, "nothing")


@server.tool()
def fail() -> dict[str, Any]:
    """An error."""
    raise ToolError("out of\norder")


@server.tool()
def header(name: str, context: Context[Any, Any]) -> str:
    """What the caller sent as a header."""
    request = context.request_context.request
    return f"{name}={None if request is None else request.headers.get(name)}"


@server.tool()
def key(context: Context[Any, Any]) -> str:
    """The idempotency key of the call."""
    meta = context.request_context.meta or {}
    return str(dict(meta).get("turnline/idempotency-key"))


@contextmanager
def served() -> Iterator[str]:
    """The address of the server, in a thread of this process."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    app = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error", lifespan="on"))
    thread = threading.Thread(target=app.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        app.should_exit = True
        thread.join()
        listening.close()


if __name__ == "__main__":
    server.run()
