"""`/ws`: where agents and people of other processes reach a server's hub. See `WsDoor`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from turnline.errors import HubClosed, Unauthenticated
from turnline.server.access import Access
from turnline.server.auth.credentials import Credentials, credentials_of
from turnline.server.auth.principal import Principal
from turnline.server.house import House
from turnline.server.limits import note_token
from turnline.server.ws_connection import WireClosed
from turnline.server.ws_door import WsDoor

PATH: Final = "/ws"
_GOING_AWAY: Final = 1001
_NOT_ALLOWED: Final = 1008


class WsRoute:
    """The WebSocket endpoint of a server; a plain ASGI app."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._door: WsDoor | None = None
        self._draining: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Send everybody away in the end, and wait until they have gone."""
        try:
            yield
        finally:
            if self._draining is not None:
                self._house.runtime.drain()
                await self._draining

    def _opened(self) -> WsDoor:
        """The door, from the first connection on until the runtime is told to stop."""
        if self._door is None:
            runtime = self._house.runtime
            self._door = WsDoor(runtime.hub, _Known(self._house.access), settings=self._house.settings.ws)
            self._draining = asyncio.create_task(_drain(self._door, runtime.stopping))
        return self._door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire = _Wire(scope, receive, send)
        await receive()  # The request to connect.
        if wire.origin is not None and wire.origin not in self._house.settings.origins:
            # A web page of anybody's can connect with the rights of whoever looks at it.
            await send({"type": "websocket.close", "code": _NOT_ALLOWED})
        elif not self._house.runtime.is_ready:
            await send({"type": "websocket.close", "code": _GOING_AWAY})
        else:
            await send({"type": "websocket.accept"})
            await self._opened().serve(wire)


async def _drain(door: WsDoor, stopping: asyncio.Event) -> None:
    await stopping.wait()
    await door.close()


class _Known:
    """The server's authenticator, once it is open. See `Authenticator`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def authenticate(self, credentials: Credentials) -> Principal:
        if self._access.authenticator is None:
            raise HubClosed
        return await self._access.authenticator.authenticate(credentials)


class _Wire:
    """A connection as ASGI has it. See `Wire`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send

    @property
    def origin(self) -> str | None:
        return next(iter(self._headers(b"origin")), None)

    @property
    def credentials(self) -> Credentials:
        client = self._scope.get("client")
        peer = client[0] if client else ""
        try:
            return credentials_of(self._headers(b"authorization"), peer=peer)
        except Unauthenticated:
            return Credentials("-", peer=peer)  # Nobody's: it is refused with the rest.

    async def receive(self) -> str | bytes:
        message = await self._receive()
        if message["type"] != "websocket.receive":
            raise WireClosed
        text: str | None = message.get("text")
        found: str | bytes = message.get("bytes") or b"" if text is None else text
        return found

    async def send(self, text: str) -> None:
        await self._out({"type": "websocket.send", "text": text})

    def note_token(self) -> None:
        note_token(self._scope)

    async def close(self, reason: str) -> None:
        await self._out({"type": "websocket.close", "code": 1000, "reason": reason})

    async def _out(self, message: Message) -> None:
        try:
            await self._send(message)
        except (OSError, RuntimeError):  # What ASGI servers raise once nobody is there.
            raise WireClosed from None

    def _headers(self, name: bytes) -> list[str]:
        headers: list[tuple[Any, Any]] = self._scope["headers"]
        return [value.decode("latin-1") for key, value in headers if key.lower() == name]
