"""A proxy between a `WsLink` and its server that sees every frame, and can cut, lose or change it.

async with CuttingProxy(served.url, on_frame=cut_at(7, "lose")) as proxy:
    link = WsLink(proxy.url)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

Fate = Literal["pass", "lose", "cut"]
"""Of a frame: it arrives; it is lost with its connection; it arrives, and then the connection is cut."""
OnFrame = Callable[[int], Fate]
Change = Callable[[str, int, bool], str]
"""The text of a frame, the number of its connection, whether the client sent it -> what is passed on."""


def always_pass(number: int) -> Fate:
    return "pass"


def cut_at(frame: int, how: Fate) -> OnFrame:
    return lambda number: how if number == frame else "pass"


class CuttingProxy:
    """Counts the frames of both directions together, from 1."""

    def __init__(
        self, upstream: str, *, on_frame: OnFrame = always_pass, change: Change | None = None
    ) -> None:
        self.upstream = upstream
        self.frames = 0
        self.connections = 0
        self.on_frame = on_frame
        self._change = change
        self._server: Server | None = None
        self._open: set[tuple[ServerConnection, ClientConnection]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await serve(self._relay, "127.0.0.1", 0, compression=None, max_size=None)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def cut_all(self) -> None:
        """Cut every connection there is."""
        for pair in self._open:
            for one in pair:
                one.transport.abort()

    async def _relay(self, client: ServerConnection) -> None:
        self.connections += 1
        number = self.connections
        try:
            server = await connect(self.upstream, compression=None, proxy=None, max_size=None)
        except OSError:
            client.transport.abort()
            return
        self._open.add((client, server))
        try:
            await asyncio.gather(
                self._pump(client, server, number, from_client=True),
                self._pump(server, client, number, from_client=False),
            )
        finally:
            self._open.discard((client, server))
            await server.close()

    async def _pump(
        self,
        source: ServerConnection | ClientConnection,
        target: ServerConnection | ClientConnection,
        number: int,
        *,
        from_client: bool,
    ) -> None:
        with suppress(ConnectionClosed):
            while True:
                message = await source.recv()
                self.frames += 1
                fate = self.on_frame(self.frames)
                if fate == "lose":
                    break
                assert isinstance(message, str)
                changed = message if self._change is None else self._change(message, number, from_client)
                await target.send(changed)
                if fate == "cut":
                    await target.close()  # What was sent arrives; an abort could overtake it.
                    break
        source.transport.abort()
        await target.close() if target.close_code is not None else target.transport.abort()
