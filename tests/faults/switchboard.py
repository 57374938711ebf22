"""The lines between servers of a cluster, which can be cut and mended.

Each server reaches each other one by a line of its own. A line that is cut carries nothing and stays open,
as a network does that loses everything: neither end is told. It runs in a thread of its own, for servers
are started and waited for by whoever blocks.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from threading import Thread
from typing import Any

CHUNK_BYTES = 1 << 16


class Line:
    """From one server to another."""

    def __init__(self, ends: set[str], port: int) -> None:
        self.ends = ends
        self.whole = asyncio.Event()
        self.whole.set()
        self._port = port

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                await asyncio.gather(self._carry(reader, back), self._carry(there, writer))
            finally:
                back.close()
        writer.close()

    async def _carry(self, source: StreamReader, to: StreamWriter) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                await self.whole.wait()
                to.write(data)
                await to.drain()
        finally:
            to.close()


class Switchboard:
    """All lines of a cluster."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lines: list[Line] = []
        self._servers: list[asyncio.Server] = []
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()

    def line(self, source: str, target: str, port: int) -> int:
        """Lay a line to the port of `target`; return the port that `source` is to call."""
        return int(self._do(self._lay(Line({source, target}, port))))

    def cut_off(self, name: str) -> None:
        self._do(self._set(name, whole=False))

    def mend(self, name: str) -> None:
        self._do(self._set(name, whole=True))

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _lay(self, line: Line) -> int:
        server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
        self._lines.append(line)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _set(self, name: str, *, whole: bool) -> None:
        for line in self._lines:
            if name in line.ends:
                if whole:
                    line.whole.set()
                else:
                    line.whole.clear()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
