"""Waking the tails of other processes: LISTEN and NOTIFY.

Rule 1: a notice is sent after the append's transaction, on a connection of its own. Within it, all
commits of the server would queue up for one lock.

Rule 2: it is a hint. It may be late, lost, or one for many appends; tails poll all the same. So its own
transaction is not synced: a sync would be taken from the appends.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from typing import Final

import psycopg
from psycopg import sql

from turnline.errors import LogUnavailable
from turnline.log.base import Bell
from turnline.log.postgres_server import PostgresServer

REST_SECONDS: Final = 0.01
"""Between two notices of one process: so many a second wake everybody soon enough."""
RECONNECT_SECONDS: Final = 1.0

_NAME: Final = "SELECT 'turnline_' || 'turnline_positions'::regclass::oid"
"""One for each log: several may be in one database."""
_NOTIFY: Final = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify(({_NAME}), '')"


class PostgresBell:
    """Rings `bell` when another process says so, and tells the others of this one's appends."""

    def __init__(self, server: PostgresServer, bell: Bell) -> None:
        self._server = server
        self._bell = bell
        self._is_due = False
        self._telling: Task[None] | None = None
        self._listening: Task[None] | None = None

    def tell(self) -> None:
        """Send a notice, soon."""
        self._is_due = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    def listen(self) -> None:
        """Begin to listen, if nobody has."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        tasks = [task for task in (self._telling, self._listening) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                async with self._server.connection() as connection:
                    await connection.execute(_NOTIFY, prepare=True)
            except (psycopg.Error, LogUnavailable):
                pass  # They poll.
            await asyncio.sleep(REST_SECONDS)

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except (psycopg.Error, LogUnavailable):
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _hear(self) -> None:
        connection = await self._server.connect()
        try:
            ((name,),) = await (await connection.execute(_NAME)).fetchall()
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(name)))
            self._bell.ring()  # For what was said before anybody listened.
            async for _ in connection.notifies():
                self._bell.ring()
        finally:
            await connection.close()
