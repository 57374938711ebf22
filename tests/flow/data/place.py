"""A database that stays while projects come and go, and what somebody else does in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

from ...postgres import run


class Place(Protocol):
    """An empty database at first."""

    url: str

    def sql(self, statement: str) -> list[Any]: ...

    def tables(self) -> list[Any]:
        """All that is there: definitions, and every row of every table."""
        ...

    def columns(self, table: str) -> list[str]: ...

    def has_index(self, name: str) -> bool: ...


class SqlitePlace:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.db"
        self.url = f"sqlite:///{self.path}"

    def sql(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as other, other:
            return other.execute(statement).fetchall()

    def tables(self) -> list[Any]:
        found = self.sql("SELECT name, sql FROM sqlite_schema ORDER BY name")
        names = [name for name, text in found if text and text.startswith("CREATE TABLE")]
        return found + [self.sql(f'SELECT * FROM "{name}"') for name in names]

    def columns(self, table: str) -> list[str]:
        return [name for _, name, *_ in self.sql(f"PRAGMA table_info({table})")]

    def has_index(self, name: str) -> bool:
        return bool(self.sql(f"SELECT 1 FROM sqlite_schema WHERE name = '{name}'"))


_COLUMNS: Final = """
SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
WHERE table_schema = current_schema ORDER BY table_name, ordinal_position"""
_RULES: Final = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = current_schema::regnamespace ORDER BY conname"""


class PostgresPlace:
    """A schema of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def sql(self, statement: str) -> list[Any]:
        return run(self.url, statement)

    def tables(self) -> list[Any]:
        columns = self.sql(_COLUMNS)
        indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema ORDER BY indexname"
        rows = [self.sql(f'SELECT * FROM "{name}"') for name in sorted({name for name, *_ in columns})]
        return columns + self.sql(_RULES) + self.sql(indexes) + rows

    def columns(self, table: str) -> list[str]:
        return [column for name, column, *_ in self.sql(_COLUMNS) if name == table]

    def has_index(self, name: str) -> bool:
        found = f"SELECT 1 FROM pg_indexes WHERE schemaname = current_schema AND indexname = '{name}'"
        return bool(self.sql(found))
