"""A proxy between a log and one server that loses, on request, what a network may lose.

    lose_answers    so many appends land, but their answers do not come back
    delay_appends   so many appends are cut off on the way, and arrive only when the next one does

In both cases the connection breaks, as it would, and the client makes a new one.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from turnline.log.nats_address import NatsAddress

CHUNK_BYTES = 1 << 20


class Link:
    """One connection of a client, and ours to the server."""

    def __init__(
        self, client: tuple[StreamReader, StreamWriter], server: tuple[StreamReader, StreamWriter]
    ) -> None:
        self.from_client, self.to_client = client
        self.from_server, self.to_server = server
        self.answered = asyncio.Event()

    def cut(self) -> None:
        self.to_client.close()
        self.to_server.close()


class Proxy:
    def __init__(self, address: str) -> None:
        where = NatsAddress(address)
        self._upstream = where.hosts[0].split(":")
        self._append = f"HPUB {where.stream}.".encode()
        self._answer = f'"stream":"{where.stream}"'.encode()
        self._stream = where.stream
        self._late: list[tuple[Link, bytes]] = []
        self._links: list[Link] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.lose_answers = 0
        self.delay_appends = 0
        self.answers: list[bytes] = []
        """What the server answered to appends, lost or not."""
        self.address = ""
        """Where it listens."""
        self.direct = address
        """The way past it."""

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.address = f"nats://127.0.0.1:{port}/{self._stream}"
        return server

    def close(self) -> None:
        for link in self._links:
            link.cut()
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        host, port = self._upstream
        link = Link((reader, writer), await asyncio.open_connection(host, int(port)))
        self._links.append(link)
        for pump in (self._up(link), self._down(link)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _up(self, link: Link) -> None:
        while chunk := await link.from_client.read(CHUNK_BYTES):
            if self._append in chunk:
                if self.delay_appends:
                    self.delay_appends -= 1
                    self._late.append((link, chunk))
                    link.to_client.close()
                    return  # The server does not notice: what is late is still on the way.
                await self._let_late_ones_go()
            link.to_server.write(chunk)
        link.to_server.close()

    async def _let_late_ones_go(self) -> None:
        for link, chunk in self._late:
            link.to_server.write(chunk)
            await link.answered.wait()
        self._late.clear()

    async def _down(self, link: Link) -> None:
        while chunk := await link.from_server.read(CHUNK_BYTES):
            if self._answer in chunk:
                self.answers.append(chunk)
                link.answered.set()
                if self.lose_answers:
                    self.lose_answers -= 1
                    link.cut()
                    return
            if not link.to_client.is_closing():
                link.to_client.write(chunk)
        link.to_client.close()


@asynccontextmanager
async def proxy_to(address: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(address)
    async with await proxy.serve():
        try:
            yield proxy
        finally:
            proxy.close()
