"""What a server allows and how long it waits: every limit has a name."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from turnline.server.ws_settings import WsSettings

PAGE: Final = 50
MOST_IN_A_PAGE: Final = 200


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The limits of one server."""

    body_bytes: int = 1024 * 1024
    body_seconds: float = 30.0
    """How long the body of a request may take to arrive."""
    requests: int = 1_000
    """Requests at once; more are answered 503."""
    streams: int = 1_000
    """Event streams at once, beside the requests."""
    heartbeat_seconds: float = 15.0
    """A stream that has nothing to tell says so this often."""
    drain_seconds: float = 10.0
    """How long requests in flight may take once the server is told to stop."""
    retry_after_seconds: int = 1
    studio: bool = True
    """Whether the studio is served, at `/studio`."""
    hosts: tuple[str, ...] | None = None
    """The names that requests may be for; None: any."""
    same_origin: bool = False
    """Whether what a page of another site asks is refused. `turnline serve` does; a mounted app may not."""
    public_openapi: bool = True
    """Whether `/openapi.json` needs no token. It tells flows and their fields, never data."""
    ws: WsSettings = WsSettings()
    """Of the WebSocket connections."""
    origins: tuple[str, ...] = ()
    """Web pages whose scripts may connect to `/ws`: `https://app.example.com`."""
