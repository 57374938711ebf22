"""Where data models are kept.

no url, the log on a file        the log's own file: rows land with the packet (F7)
no url, the log on PostgreSQL    the log's own database: rows land with the packet (F7)
no url, the log in memory        in memory too, for as long as the process lasts
no url, any other log            nowhere: `NoDatabase`
sqlite:///app.db                 a file of their own: rows land just before the packet
postgresql://host/app            a PostgreSQL database: rows land just before the packet, unless it is
                                 the log's own and named in the same words
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from turnline.errors import NoDatabase, UnknownName
from turnline.flow.data import postgres, sqlite
from turnline.flow.data.hold import Hold
from turnline.hub.timers import Clock
from turnline.log.address import MEMORY, scheme_of
from turnline.log.base import JoinsTransactions, Log
from turnline.log.joined import SharedDatabase
from turnline.log.sqlite_file import make_private_file, make_private_folder

_OWN_FILE: Final = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA fullfsync = ON")

T = TypeVar("T")


class Home(Protocol):
    """A database, and how it is shared."""

    @property
    def address(self) -> str:
        """For people: nobody's name or password is in it."""
        ...

    @property
    def shares_log(self) -> bool: ...

    @property
    def reserved(self) -> frozenset[str]:
        """Tables of somebody else."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its driver raises."""
        ...

    def open_engine(self) -> AsyncEngine:
        """Return an engine; nothing is connected yet. Raises `MissingExtra`."""
        ...

    def new_hold(self, clock: Clock) -> Hold: ...

    async def changed_alone(self, engine: AsyncEngine, change: Callable[[Connection], T]) -> T:
        """Return what `change` does to the tables, in a transaction of its own: all of it, or nothing."""
        ...

    @property
    def begin_reading(self) -> str:
        """The first statement of a transaction that reads all tables as of one moment."""
        ...

    @property
    def begin_writing(self) -> str:
        """The first statement of a transaction that keeps out every other one of its kind."""
        ...

    def reason(self, error: BaseException) -> str:
        """Say what the driver found, without anybody's data."""
        ...

    def refusal(self, error: BaseException) -> str | None:
        """Say which rule of the tables a write breaks, without anybody's data; None if it is not that."""
        ...


def find_home(log: Log, url: str | None) -> Home:
    """Return where the models are kept. Raises `NoDatabase`, and `UnknownName` for a bad address."""
    shared = log.database if isinstance(log, JoinsTransactions) else None
    if url is None:
        if shared is None and log.address != MEMORY:
            raise NoDatabase("the rows of this project", log=scheme_of(log.address))
        url = MEMORY if shared is None else shared.url
    if url in (MEMORY, f"{sqlite.SCHEME}:memory:"):
        return sqlite.SqliteHome(address=MEMORY, url=sqlite.memory_url(uuid4().hex))
    if url.startswith(sqlite.SCHEME) and url != sqlite.SCHEME:
        return _file(Path(url.removeprefix(sqlite.SCHEME)).absolute(), shared)
    found = (postgres.with_log(shared, url) if shared else None) or postgres.read_url(url)
    if found is None:
        do = "Or give the path of a file, sqlite:///app.db, or a server, postgresql://host/name."
        raise UnknownName("data address", _shown(url), [MEMORY], do=do)
    return found


def _file(path: Path, shared: SharedDatabase | None) -> Home:
    address, file = f"{sqlite.SCHEME}{path}", sqlite.file_url(str(path))
    if shared is None or path.resolve() != Path(shared.url.removeprefix(sqlite.SCHEME)).resolve():
        make_private_folder(path.parent)
        make_private_file(path)
        return sqlite.SqliteHome(address=address, url=file, prepare=_OWN_FILE)
    return sqlite.SqliteHome(
        address=address,
        url=file,
        shares_log=True,
        prepare=shared.prepare,
        busy_timeout_seconds=shared.busy_timeout_seconds,
        reserved=shared.tables,
        turnstile=shared.turnstile,
    )


def _shown(url: str) -> str:
    """An address without what may be a name and a password, wherever they stand."""
    return re.sub(r"\?.*", "", re.sub(r"^([^/]*//)?.*@", r"\1***@", url, flags=re.DOTALL), flags=re.DOTALL)
