"""A step's hold on a PostgreSQL database: its one transaction.

    first statement: BEGIN, by the driver     end: COMMIT, or ROLLBACK

Rule 1: whatever is not known to read only may have written, a SELECT with a function in it included.
So there is something to commit from the first statement on that no repository has made.

Rule 2: after an error PostgreSQL takes nothing but the way back to a savepoint, and answers COMMIT
with a rollback and no error. So the state of the transaction is looked at before both.

Nobody else is held up by a step that has written, except by rows it has changed; so a hold has no
limit here, and whoever waits for a row has one (`postgres.LOCK_SECONDS`).
"""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import Connection

from turnline.errors import CommitRefused, WriteRefused
from turnline.flow.data.hold import UNDONE
from turnline.flow.data.postgres_errors import clean
from turnline.log.joined import Cursor, Write

_BLANK: Final = re.compile(r"(?:\s|--[^\n]*+)++")
_MARK: Final = re.compile(r"/\*|\*/")
_BACK: Final = re.compile(r"ROLLBACK\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b", re.IGNORECASE)
_ENDS: Final = re.compile(
    r"(BEGIN|START|COMMIT|END|ABORT|ROLLBACK|PREPARE(?=\s+TRANSACTION\b))\b", re.IGNORECASE
)
_IDLE, _INTRANS, _INERROR = 0, 2, 3
"""Of `psycopg.pq.TransactionStatus`, which are libpq's own."""


class PostgresHold:
    """See `turnline.flow.data.hold.Hold`."""

    def __init__(self) -> None:
        self.begun = False
        self.undone = ""
        self.lost = ""
        self._is_committing = False

    @property
    def keeps_others_out(self) -> bool:
        return False

    @property
    def is_spoiled(self) -> bool:
        return self._is_committing

    def before(self, connection: Connection, statement: str, *, reads: bool) -> None:
        """See that a statement runs where it may. Raises `CommitRefused` and `WriteRefused`."""
        opening = _opening(statement)
        if _BACK.match(opening):
            return
        if found := _ENDS.match(opening):
            raise CommitRefused(f"a step said {found[1].upper()}")
        self._check(connection)
        self.begun = self.begun or not reads

    def commit(self, connection: Connection, write: Write) -> None:
        raw: Any = connection.connection.dbapi_connection
        self._check(connection)
        write(_Statements(raw))
        self._check(connection)
        self._is_committing = True
        try:
            raw.commit()
        except Exception as error:  # The driver's; it is loaded only where it is used.
            clean(error)
            raise
        self._is_committing = False
        self.ended()

    def ended(self) -> None:
        self.begun = False
        self.lost = ""

    async def end(self) -> None:
        self.ended()

    def _check(self, connection: Connection) -> None:
        status = _status(connection)
        if status == _INERROR or (self.begun and status == _IDLE):
            raise WriteRefused(UNDONE)


class _Statements:
    """See `turnline.log.joined.Statements`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def execute(self, sql: str, parameters: Any = (), /) -> Cursor:
        cursor = self._raw.cursor()
        cursor.execute(sql, parameters)
        return cursor  # type: ignore[no-any-return]


def _status(connection: Connection) -> int:
    driver: Any = connection.connection.driver_connection
    return int(driver.info.transaction_status)


def _opening(statement: str) -> str:
    """The statement without the blanks and comments in front, which may stand in each other."""
    at = depth = 0
    while True:
        if depth == 0:
            blank = _BLANK.match(statement, at)
            at = blank.end() if blank else at
            if not statement.startswith("/*", at):
                return statement[at : at + 60]
        mark = _MARK.search(statement, at)
        if mark is None:
            return ""
        depth += 1 if mark[0] == "/*" else -1
        at = mark.end()
