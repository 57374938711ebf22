"""A step's hold on an SQLite database: from its first write until it has ended.

    reads: no transaction     first write: BEGIN IMMEDIATE     end: COMMIT, or ROLLBACK

Rule 1: whatever is read before the first write is read outside of any transaction. In a
read transaction that becomes a write transaction SQLite finds its snapshot outdated as soon
as anybody has written meanwhile, and the log is written all the time.

Rule 2: no write runs outside of the transaction. What is not known to read, writes.

Rule 3: a transaction that SQLite has rolled back by itself is noticed before the next statement,
which would land alone.

Rule 4: whoever holds the database holds everybody up, so a hold has a limit. Past it the
transaction is rolled back and the connection takes no more writes.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection

from turnline.errors import CommitRefused, WriteRefused
from turnline.flow.data.errand import send, send_to
from turnline.flow.data.hold import UNDONE
from turnline.hub.timers import Clock
from turnline.log.joined import Write
from turnline.log.turnstile import Place, Turnstile

HOLD_SECONDS: Final = 5.0
"""How long a step may go on after its first write. Less than the log waits for the file."""
_BLANK: Final = r"(?>\s|--[^\n]*+|/\*(?:(?!\*/).)*+\*/)*+"
"""Blanks and comments. Possessive, so that what does not match is found out in one go."""
_LOOKS: Final = r"(?:\w+\.)?(?:table_x?info|table_list|index_list|index_x?info|foreign_key_(?:list|check))\b"
_READS: Final = re.compile(
    rf"{_BLANK}(?:SELECT\b|VALUES\b|EXPLAIN\b|PRAGMA\s+(?:{_LOOKS}|\w+\s*;?\s*$))", re.IGNORECASE | re.DOTALL
)
_ENDS: Final = re.compile(
    rf"{_BLANK}(BEGIN|COMMIT|END|ROLLBACK(?!\s+(?:TRANSACTION\s+)?TO\b))\b", re.IGNORECASE | re.DOTALL
)


class SqliteHold:
    """See `turnline.flow.data.hold.Hold`."""

    def __init__(self, turnstile: Turnstile, clock: Clock, *, wait_seconds: float) -> None:
        self.begun = False
        self.undone = ""
        self.lost = ""
        self._turnstile = turnstile
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._place: Place | None = None
        self._limit: asyncio.Task[None] | None = None
        self._is_overdue = False

    @property
    def keeps_others_out(self) -> bool:
        return self.begun

    @property
    def is_spoiled(self) -> bool:
        return self.begun or bool(self.undone)

    def before(self, connection: Connection, statement: str) -> None:
        """See that a statement runs where it may. Raises `CommitRefused` and `WriteRefused`."""
        if found := _ENDS.match(statement):
            raise CommitRefused(f"a step said {found[1].upper()}")
        self._check(connection)
        if not _READS.match(statement):
            self.begin(connection)

    def begin(self, connection: Connection) -> None:
        """Hold the database, from now on if not before. Raises the driver's error if it is busy."""
        self._check(connection)
        if self.begun:
            return
        driver = connection.connection.driver_connection
        raw: Any = connection.connection.dbapi_connection
        raw.run_async(lambda _: self._take_turn())
        try:
            send(connection, _begin)
        except BaseException:
            self._leave()
            raise
        self.begun = True
        self._limit = asyncio.get_running_loop().create_task(self._enforce_limit(driver))

    def commit(self, connection: Connection, write: Write) -> None:

        def errand(own: sqlite3.Connection) -> None:
            write(own)
            # Not its own method: that says nothing where no transaction is open.
            own.execute("COMMIT")

        self.begin(connection)
        if self._limit is not None:  # The end is near.
            self._limit.cancel()
        send(connection, errand)
        self.ended()

    def ended(self) -> None:
        if self._limit is not None and not self._is_overdue:  # What has begun to undo, goes on.
            self._limit.cancel()
        self.begun = False
        self._leave()

    async def end(self) -> None:
        self.ended()
        limit, self._limit = self._limit, None
        if limit is not None:
            await asyncio.wait((limit,))

    def _check(self, connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if self.begun and not self.undone and not driver.in_transaction:
            self.undone = UNDONE
        if self.undone:
            raise WriteRefused(self.undone)

    async def _take_turn(self) -> None:
        self._place = await self._turnstile.take(timeout_seconds=self._wait_seconds)

    def _leave(self) -> None:
        if self._place is not None:
            self._turnstile.leave(self._place)
            self._place = None

    async def _enforce_limit(self, driver: Any) -> None:
        await self._clock.sleep(HOLD_SECONDS)
        self._is_overdue = True
        self.undone = (
            f"the step went on for {HOLD_SECONDS:g} s after its first write, while nobody else could write; "
            f"write last, or in a step of its own"
        )
        with suppress(sqlite3.Error, ValueError):
            await send_to(driver, _undo)
        self._leave()


def _begin(own: sqlite3.Connection) -> None:
    own.execute("BEGIN IMMEDIATE")


def _undo(own: sqlite3.Connection) -> None:
    """Undo everything. A statement that is on its way comes too late, and must not land alone."""
    own.execute("PRAGMA query_only = ON")
    own.execute("ROLLBACK")
