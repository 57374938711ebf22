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
    form_bytes: int = 64 * 1024 * 1024
    """Of a body of several parts: a message with its files."""
    form_seconds: float = 300.0
    """How long such a body may take to arrive."""
    requests: int = 1_000
    """Requests at once; more are answered 503."""
    requests_per_user: int = 500
    """Of them, those of one user; more are answered 429."""
    streams: int = 1_000
    """Event streams at once, beside the requests."""
    streams_per_user: int = 100
    """Event streams of one user at once."""
    connections: int = 10_000
    """Connections at once, and fewer where the process may not have as many descriptors."""
    connections_per_address: int = 100
    """Of them, those of one address that have not shown a token. Behind a trusted proxy: requests at once."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose `X-Forwarded-For` says who is asking: `10.0.0.7`, `10.0.0.0/8`."""
    header_seconds: float = 10.0
    """How long the headers of a request may take to arrive, from the connection's or their first byte on."""
    stuck_seconds: float = 60.0
    """How long a client may read nothing of an answer that waits for it."""
    linger_seconds: float = 5.0
    """How long a connection that was answered before its body had come stays open for the answer."""
    linger_bytes: int = 64 * 1024 * 1024
    """Of such a body, what is read and dropped."""
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
