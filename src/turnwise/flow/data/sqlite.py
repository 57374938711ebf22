"""SQLite for data models: an engine whose connections are read from freely and written to under a hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from turnwise.errors import CommitRefused
from turnwise.flow.data.errand import ErrandConnection, send
from turnwise.flow.data.hold import OPTION, Hold

SCHEME: Final = "sqlite:///"
CONNECTIONS: Final = 64
"""At a time. A step has one from its first staged write on, or while it reads."""
KEPT_CONNECTIONS: Final = 8
WAIT_SECONDS: Final = 30.0
"""How long a step waits for one."""

T = TypeVar("T")


def file_url(path: str) -> URL:
    return URL.create("sqlite+aiosqlite", database=path)


def memory_url(name: str) -> URL:
    """A database in memory that all connections of this process share, and that ends with the last one."""
    return URL.create(
        "sqlite+aiosqlite", database=f"file:/turnwise-{name}", query={"vfs": "memdb", "uri": "true"}
    )


def open_engine(url: URL, *, prepare: Sequence[str], busy_timeout_seconds: float) -> AsyncEngine:
    """Return an engine; `prepare` is what each of its connections begins with."""
    engine = create_async_engine(
        url,
        hide_parameters=True,  # They are the user's data, and errors are shown.
        pool_size=KEPT_CONNECTIONS,
        max_overflow=CONNECTIONS - KEPT_CONNECTIONS,
        pool_timeout=WAIT_SECONDS,
        connect_args={"timeout": busy_timeout_seconds, "isolation_level": None, "factory": ErrandConnection},
    )

    def connected(connection: Any, _: object) -> None:
        for statement in (*prepare, "PRAGMA foreign_keys = ON"):
            connection.execute(statement)

    event.listen(engine.sync_engine, "connect", connected)
    event.listen(engine.sync_engine, "before_cursor_execute", _before_statement)
    event.listen(engine.sync_engine, "commit", _before_commit)
    return engine


def _before_statement(connection: Connection, _: object, statement: str, *__: object) -> None:
    hold = connection.get_execution_options().get(OPTION)
    if isinstance(hold, Hold):
        hold.before(connection, statement)


def _before_commit(connection: Connection) -> None:
    if OPTION in connection.get_execution_options():
        raise CommitRefused("a step's connection was to be committed")


def changed_alone(connection: Connection, change: Callable[[Connection], T]) -> T:
    """Return what `change` does to the tables, in a transaction of its own: all of it, or nothing.

    Foreign keys are not looked at meanwhile, so that a table others refer to can be copied.
    """
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
