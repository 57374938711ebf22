"""Appending inside somebody else's transaction, on the log's own database (F7).

    a step's rows  ─┐
                    ├─ one COMMIT
    its packet     ─┘

Rule 1: the envelopes are written under a savepoint. A conflict or a duplicate undoes the
savepoint alone: the transaction stays open, and whoever posts decides and appends again.

Rule 2: nothing here knows how the other side talks to the database. A `Transaction` brings
the two together, and COMMIT is its last statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from turnline.errors import LogError
from turnline.log.turnstile import Turnstile

SqlValue = str | bytes | int | float | list[Any] | None


class Cursor(Protocol):
    """What a statement gave."""

    @property
    def lastrowid(self) -> int | None: ...

    def fetchone(self) -> Any: ...


class Statements(Protocol):
    """What a write needs of a connection; `sqlite3.Connection` is one. SQL is in the database's own words."""

    def execute(self, sql: str, parameters: Sequence[SqlValue] = ..., /) -> Cursor: ...


Write = Callable[[Statements], None]


class Transaction(Protocol):
    """Somebody's writes on the log's own database, not committed yet."""

    @property
    def has_writes(self) -> bool:
        """Whether there is anything to commit, sent to the database or not."""
        ...

    @property
    def holds_database(self) -> bool:
        """Whether nobody else can write until it has ended."""
        ...

    async def commit_with(self, write: Write) -> None:
        """Commit everything, and what `write` does on the same connection: all of it or nothing.

        Raises what `write` raises; if that is a `LogError`, the transaction stays open and this
        may be called again. After any other error it has been rolled back. The database's own
        errors are raised as its driver raises them; one from COMMIT means *unknown*.
        """
        ...

    async def rollback(self) -> None:
        """Undo everything, for good; after a commit, or twice, it does nothing."""
        ...


class SharedDatabase(Struct, frozen=True, kw_only=True):
    """Where a log is kept, for whoever keeps tables beside it and wants to commit with it."""

    url: str
    prepare: tuple[str, ...]
    """The statements every connection begins with, so that a commit on it survives what the log's own do."""
    busy_timeout_seconds: float
    tables: frozenset[str]
    """Names that are the log's."""
    turnstile: Turnstile = field(default_factory=Turnstile)
    """Where writers queue up; nobody does on a database that several may write to at once."""

    def __repr__(self) -> str:
        return f"SharedDatabase(tables={sorted(self.tables)})"  # Its url may have a password.


def under_savepoint(write: Write) -> Write:
    """Return `write` as one that is undone alone when it raises a `LogError`."""

    def guarded(connection: Statements) -> None:
        connection.execute("SAVEPOINT turnline_append")
        try:
            write(connection)
        except LogError:
            connection.execute("ROLLBACK TO turnline_append")
            connection.execute("RELEASE turnline_append")
            raise
        connection.execute("RELEASE turnline_append")

    return guarded
