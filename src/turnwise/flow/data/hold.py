"""A step's hold on the database: from its first write until it has ended.

    reads: no transaction     first write: BEGIN IMMEDIATE     end: COMMIT, or ROLLBACK

Rule 1: whatever is read before the first write is read outside of any transaction. In a
read transaction that becomes a write transaction SQLite finds its snapshot outdated as soon
as anybody has written meanwhile, and the log is written all the time.

Rule 2: no write runs outside of the transaction. What is not known to read, writes.

Rule 3: whoever holds the database holds everybody up, so a hold has a limit. Past it the
transaction is rolled back and the connection takes no more writes.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection

from turnwise.errors import CommitRefused, WriteRefused
from turnwise.hub.clock import Clock
from turnwise.log.turnstile import Place, Turnstile

HOLD_SECONDS: Final = 5.0
"""How long a step may go on after its first write. Less than the log waits for the file."""
OPTION: Final = "turnwise_hold"
"""The execution option by which a connection knows whose it is."""
_BLANK: Final = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_LOOKS: Final = r"(?:\w+\.)?(?:table_x?info|table_list|index_list|index_x?info|foreign_key_(?:list|check))\b"
_READS: Final = re.compile(
    rf"{_BLANK}(?:SELECT\b|VALUES\b|EXPLAIN\b|PRAGMA\s+(?:{_LOOKS}|\w+\s*;?\s*$))", re.IGNORECASE | re.DOTALL
)
_ENDS: Final = re.compile(
    rf"{_BLANK}(BEGIN|COMMIT|END|ROLLBACK(?!\s+(?:TRANSACTION\s+)?TO\b))\b", re.IGNORECASE | re.DOTALL
)


class Hold:
    """One step's. Its methods that take a connection are called where SQLAlchemy may wait."""

    def __init__(self, turnstile: Turnstile, clock: Clock, *, wait_seconds: float) -> None:
        self.begun = False
        self.overdue = False
        self._turnstile = turnstile
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._place: Place | None = None
        self._limit: asyncio.Task[None] | None = None

    def before(self, connection: Connection, statement: str) -> None:
        """See that a statement runs where it may. Raises `CommitRefused` and `WriteRefused`."""
        if found := _ENDS.match(statement):
            raise CommitRefused(f"a step said {found[1].upper()}")
        self._check()
        if not _READS.match(statement):
            self.begin(connection)

    def begin(self, connection: Connection) -> None:
        """Hold the database, from now on if not before. Raises the driver's error if it is busy."""
        self._check()
        if self.begun:
            return
        raw = raw_connection(connection)
        raw.run_async(lambda _: self._take_turn())
        try:
            raw.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._leave()
            raise
        self.begun = True
        driver = connection.connection.driver_connection
        self._limit = asyncio.get_running_loop().create_task(self._enforce_limit(driver))

    def commit(self, connection: Connection) -> None:
        """Commit. An error means *unknown*."""
        self.unlimited()
        # Not the driver's own method: it says nothing where no transaction is open.
        raw_connection(connection).execute("COMMIT")
        self.begun = False

    def unlimited(self) -> None:
        """Stay below the limit for good: the end is near. Raises `WriteRefused` if it is too late."""
        self._check()
        if self._limit is not None:
            self._limit.cancel()

    async def end(self) -> None:
        """Let the next one have it. The transaction has ended, or its connection is gone."""
        limit, self._limit = self._limit, None
        if limit is not None:
            if not self.overdue:
                limit.cancel()
            await asyncio.wait((limit,))
        self.ended()

    def ended(self) -> None:
        """The transaction has ended: there may be another one."""
        if self._limit is not None and not self.overdue:
            self._limit.cancel()
        self.begun = False
        self._leave()

    def _check(self) -> None:
        if self.overdue:
            raise WriteRefused(
                f"it went on for {HOLD_SECONDS:g} s after its first write, while nobody else could write; "
                f"write last, or in a step of its own"
            )

    async def _take_turn(self) -> None:
        self._place = await self._turnstile.take(timeout_seconds=self._wait_seconds)

    def _leave(self) -> None:
        if self._place is not None:
            self._turnstile.leave(self._place)
            self._place = None

    async def _enforce_limit(self, driver: Any) -> None:
        await self._clock.sleep(HOLD_SECONDS)
        self.overdue = True
        # In this order: a statement that is on its way is either undone or refused.
        with suppress(sqlite3.Error, ValueError):
            await driver.execute("PRAGMA query_only = ON")
            await driver.execute("ROLLBACK")
        self._leave()


def raw_connection(connection: Connection) -> Any:
    """The driver's connection in its blocking guise: `execute(sql, parameters)` gives a cursor."""
    raw: DBAPIConnection | None = connection.connection.dbapi_connection
    assert raw is not None, "a connection that is checked out has one"
    return raw
