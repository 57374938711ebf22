"""A WebSocket connection from a client to a server, as the `websockets` library makes it.

The library is an extra: it is looked for when somebody makes a link, not before.
"""

from __future__ import annotations

from contextlib import suppress
from ssl import SSLCertVerificationError, SSLError
from typing import TYPE_CHECKING, Any, Protocol

from turnline.errors import LinkLost, MissingExtra

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


class Wire(Protocol):
    """A WebSocket connection to a server. `recv` and `send` raise `LinkLost` once it is gone."""

    async def recv(self) -> str | bytes: ...

    async def send(self, text: str) -> None: ...

    async def close(self) -> None: ...


class Connect(Protocol):
    """Connects to the server. Raises `LinkLost`."""

    async def __call__(self) -> Wire: ...


class LibraryWire:
    """A connection of the `websockets` library. See `Wire`."""

    def __init__(self, connection: ClientConnection, failures: tuple[type[Exception], ...]) -> None:
        self._connection = connection
        self._failures = failures

    async def recv(self) -> str | bytes:
        try:
            return await self._connection.recv()
        except self._failures:
            raise LinkLost("the connection was cut") from None

    async def send(self, text: str) -> None:
        try:
            await self._connection.send(text)
        except self._failures:
            raise LinkLost("the connection was cut") from None

    async def close(self) -> None:
        with suppress(*self._failures):
            await self._connection.close()


def reason(error: Exception) -> str:
    """Say why there is no connection, for people, and what to do."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"it answered {status}, and not as a hub does; correct the path of the address, such as /ws"
    if isinstance(error, SSLCertVerificationError):
        return f"{error.verify_message}; give `ssl` a context that trusts its certificate"
    if isinstance(error, SSLError):
        return f"it does not speak TLS ({error.reason}); use ws://, or let it"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}; start the server, or correct the address"
    return type(error).__name__


def library() -> tuple[Any, tuple[type[Exception], ...]]:
    """What connects, and what it raises."""
    try:
        from websockets.asyncio.client import connect  # noqa: PLC0415  Only whoever links needs it.
        from websockets.exceptions import WebSocketException  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("websockets"):
            raise
        raise MissingExtra("links over WebSocket", extra="remote") from None
    return connect, (WebSocketException, OSError, TimeoutError)
