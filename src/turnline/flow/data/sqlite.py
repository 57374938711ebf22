"""SQLite for data models: connections are read from freely and written to under a hold."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from sqlalchemy import URL, Connection, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from turnline.errors import CommitRefused
from turnline.flow.data.errand import ErrandConnection, send
from turnline.flow.data.hold import OPTION
from turnline.flow.data.sqlite_hold import SqliteHold
from turnline.hub.timers import Clock
from turnline.log.sqlite_file import WAL_SWITCH_ATTEMPTS, WAL_SWITCH_PAUSE_SECONDS, code, reason
from turnline.log.turnstile import Turnstile

SCHEME: Final = "sqlite:///"
CONNECTIONS: Final = 64
"""At a time. A step has one from its first staged write on, or while it reads."""
KEPT_CONNECTIONS: Final = 8
WAIT_SECONDS: Final = 30.0
"""How long a step waits for one."""
BUSY_TIMEOUT_SECONDS: Final = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteHome:
    """See `turnline.flow.data.home.Home`."""

    errors: ClassVar[tuple[type[Exception], ...]] = (sqlite3.Error,)
    begin_reading: ClassVar[str] = "BEGIN"
    begin_writing: ClassVar[str] = "BEGIN IMMEDIATE"

    address: str
    url: URL
    shares_log: bool = False
    prepare: tuple[str, ...] = ()
    """The statements every connection begins with."""
    busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS
    reserved: frozenset[str] = frozenset()
    turnstile: Turnstile = field(default_factory=Turnstile)

    def open_engine(self) -> AsyncEngine:
        engine = create_async_engine(
            self.url,
            hide_parameters=True,  # They are the user's data, and errors are shown.
            pool_size=KEPT_CONNECTIONS,
            max_overflow=CONNECTIONS - KEPT_CONNECTIONS,
            pool_timeout=WAIT_SECONDS,
            connect_args={
                "timeout": self.busy_timeout_seconds,
                "isolation_level": None,
                "factory": ErrandConnection,
            },
        )

        def connected(connection: Any, _: object) -> None:
            for statement in (*self.prepare, "PRAGMA foreign_keys = ON"):
                _patiently(connection, statement)

        event.listen(engine.sync_engine, "connect", connected)
        event.listen(engine.sync_engine, "before_cursor_execute", _before_statement)
        event.listen(engine.sync_engine, "commit", _before_commit)
        return engine

    def new_hold(self, clock: Clock) -> SqliteHold:
        return SqliteHold(self.turnstile, clock, wait_seconds=self.busy_timeout_seconds)

    async def changed_alone(self, engine: AsyncEngine, change: Callable[[Connection], T]) -> T:
        place = await self.turnstile.take(timeout_seconds=self.busy_timeout_seconds)
        try:
            async with engine.connect() as connection:
                return await connection.run_sync(partial(_changed_alone, change=change))
        finally:
            self.turnstile.leave(place)

    def reason(self, error: BaseException) -> str:
        return reason(error) if isinstance(error, sqlite3.Error) else str(error)

    def refusal(self, error: BaseException) -> str | None:
        return str(error) if isinstance(error, sqlite3.IntegrityError) else None


def file_url(path: str) -> URL:
    return URL.create("sqlite+aiosqlite", database=path)


def memory_url(name: str) -> URL:
    """A database in memory that all connections of this process share, and that ends with the last one."""
    return URL.create(
        "sqlite+aiosqlite", database=f"file:/turnline-{name}", query={"vfs": "memdb", "uri": "true"}
    )


def _patiently(connection: Any, statement: str) -> None:
    """SQLite does not wait for somebody else who is switching the same new file to WAL; so we do."""
    for _ in range(WAL_SWITCH_ATTEMPTS):
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if code(error) != sqlite3.SQLITE_BUSY:
                raise
            await_only(asyncio.sleep(WAL_SWITCH_PAUSE_SECONDS))
        else:
            return
    connection.execute(statement)


def _before_statement(connection: Connection, _: object, statement: str, *__: object) -> None:
    hold = connection.get_execution_options().get(OPTION)
    if isinstance(hold, SqliteHold):
        hold.before(connection, statement)


def _before_commit(connection: Connection) -> None:
    if OPTION in connection.get_execution_options():
        raise CommitRefused("a step's connection was to be committed")


def _changed_alone(connection: Connection, change: Callable[[Connection], T]) -> T:
    """Foreign keys are not looked at meanwhile, so that a table others refer to can be copied."""
    send(connection, lambda own: _run(own, "PRAGMA foreign_keys = OFF", "BEGIN IMMEDIATE"))
    try:
        done = change(connection)
        send(connection, lambda own: _run(own, "COMMIT"))
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite has done it itself after some errors.
            send(connection, lambda own: _run(own, "ROLLBACK"))
        raise
    finally:
        send(connection, lambda own: _run(own, "PRAGMA foreign_keys = ON"))
    return done


def _run(own: sqlite3.Connection, *statements: str) -> None:
    for statement in statements:
        own.execute(statement)
