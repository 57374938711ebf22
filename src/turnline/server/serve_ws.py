"""`serve_ws`: a hub for agents and people in other processes, over WebSocket.

    async with serve_ws(hub, "127.0.0.1", 8765) as served:
        print(served.url)

Without an authenticator only this machine itself is served. With one, whoever connects may do
what its scopes allow, as participants that it has registered itself. Encryption is up to
`ssl`, or to a proxy in front.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, Self

from turnline.errors import Forbidden, MissingExtra, NameTaken, Unauthenticated, UnknownName
from turnline.hub.hub import Hub
from turnline.server.auth.authenticator import Authenticator, OnlyLoopback
from turnline.server.auth.credentials import Credentials, credentials_of, is_loopback
from turnline.server.auth.principal import Principal
from turnline.server.ws_connection import WireClosed
from turnline.server.ws_door import WsDoor
from turnline.server.ws_settings import WsCounters, WsSettings

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection

LOCAL: Final = Principal(user_id="local", scopes=frozenset({"*"}))
"""Everybody on this machine, where there are no tokens."""


class ServedWs:
    """A hub that is being served. `async with` it, or `open` and `close`."""

    def __init__(
        self, door: WsDoor, host: str, port: int, *, ssl: SSLContext | None, origins: Sequence[str]
    ) -> None:
        self._door = door
        self._host = host
        self._port = port
        self._ssl = ssl
        self._origins = origins
        self._server: Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None, "it is not open"
        return int(next(iter(self._server.sockets)).getsockname()[1])

    @property
    def url(self) -> str:
        """Where `WsLink` finds it."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'ws' if self._ssl is None else 'wss'}://{host}:{self.port}"

    @property
    def counters(self) -> WsCounters:
        return self._door.counters

    async def open(self) -> None:
        """Begin to listen. Raises `NameTaken` if somebody else does."""
        serve = _library()
        settings = self._door.settings
        try:
            self._server = await serve(
                self._take,
                self._host,
                self._port,
                ssl=self._ssl,
                # A web page of anybody's can connect to this machine; its browser then says whose page it is.
                origins=[None, *self._origins],
                compression=None,
                max_size=settings.frame_bytes,
                max_queue=4,
                write_limit=settings.frame_bytes,
                open_timeout=settings.hello_seconds,
                close_timeout=1,
                server_header=None,
            )
        except OSError as error:
            if isinstance(error, OSError) and error.errno is None:
                raise UnknownName("address of this machine", self._host, ["127.0.0.1", "0.0.0.0"]) from None
            raise NameTaken(
                "address",
                f"{self._host}:{self._port}",
                do="Choose another port, or stop whoever listens there.",
            ) from None

    async def close(self) -> None:
        """Send everybody away; they come back to whoever serves the hub next."""
        server, self._server = self._server, None
        if server is not None:
            server.close(close_connections=False)
            await self._door.close()
            server.close()
            await server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _take(self, connection: ServerConnection) -> None:
        await self._door.serve(_Wire(connection))


def serve_ws(
    hub: Hub,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    authenticator: Authenticator | None = None,
    ssl: SSLContext | None = None,
    origins: Sequence[str] = (),
    settings: WsSettings | None = None,
) -> ServedWs:
    """Serve `hub` to `WsLink`s; port 0 takes any that is free.

    Without an authenticator, `host` has to be this machine's own: `Forbidden` otherwise.
    `origins` are the web pages whose scripts may connect; by default none.
    """
    if authenticator is None and not (host == "localhost" or is_loopback(host)):
        because = "without an authenticator only this machine itself is served; give one, or use 127.0.0.1"
        raise Forbidden("everybody", operation="serve_ws", resource=host, because=because)
    door = WsDoor(hub, authenticator or OnlyLoopback(LOCAL), is_open=authenticator is None, settings=settings)
    return ServedWs(door, host, port, ssl=ssl, origins=origins)


class _Wire:
    """A connection of the `websockets` library. See `Wire`."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    @property
    def credentials(self) -> Credentials:
        address = self._connection.remote_address
        peer = str(address[0]) if isinstance(address, tuple) else ""
        request = self._connection.request
        headers = [] if request is None else request.headers.get_all("Authorization")
        try:
            return credentials_of(headers, peer=peer)
        except Unauthenticated:
            return Credentials("-", peer=peer)  # Nobody's: it is refused with the rest.

    async def receive(self) -> str | bytes:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        try:
            return await self._connection.recv()
        except ConnectionClosed:
            raise WireClosed from None

    async def send(self, text: str) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        try:
            await self._connection.send(text)
        except ConnectionClosed:
            raise WireClosed from None

    def note_token(self) -> None:
        """See `Wire`: this server counts its connections by itself."""

    async def close(self, reason: str) -> None:
        try:
            async with asyncio.timeout(1):
                await self._connection.close(reason=reason)
        except TimeoutError:
            self._connection.transport.abort()


def _library() -> Any:
    try:
        from websockets.asyncio.server import serve  # noqa: PLC0415  Only whoever serves needs it.
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("websockets"):
            raise
        raise MissingExtra("links over WebSocket", extra="remote") from None
    return serve
