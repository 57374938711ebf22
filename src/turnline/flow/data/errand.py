"""Several statements in one go, in the thread of an aiosqlite connection.

Every statement by itself is sent to that thread and its answer waited for, twice over with
the cursor; what is done while everybody waits for the database is better sent at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

Errand = Callable[[sqlite3.Connection], None]


class ErrandConnection(sqlite3.Connection):
    """What `sqlite3.connect` has to make (its `factory`), so that errands can be sent."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement. An errand comes in the place of its parameters, which aiosqlite hands on."""
        if callable(parameters):
            parameters(self)
            return self.cursor()
        return super().execute(sql, parameters)


def send(connection: Connection, errand: Errand) -> None:
    """Let `errand` use the connection of a pool in its own thread. Raises what it raises."""
    raw: Any = connection.connection.dbapi_connection
    raw.run_async(lambda driver: driver.execute("an errand", errand))


async def send_to(driver: Any, errand: Errand) -> None:
    """The same, where one may wait."""
    await driver.execute("an errand", errand)
