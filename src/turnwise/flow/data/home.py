"""Where data models are kept.

no url, the log on a file     the log's own file: rows land with the packet (F7)
no url, any other log         in memory, for as long as the process lasts
sqlite:///app.db              a file of their own: rows land just before the packet
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

from sqlalchemy import URL

from turnwise.errors import UnknownName
from turnwise.flow.data import sqlite
from turnwise.log.base import JoinsTransactions, Log
from turnwise.log.turnstile import Turnstile

MEMORY: Final = "memory:"
BUSY_TIMEOUT_SECONDS: Final = 10.0
_OWN_FILE: Final = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA fullfsync = ON")


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A database, and how it is shared."""

    address: str
    """For people."""
    url: URL
    shares_log: bool = False
    prepare: tuple[str, ...] = ()
    """The statements every connection begins with."""
    busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS
    reserved: frozenset[str] = frozenset()
    """Tables of somebody else."""
    turnstile: Turnstile = field(default_factory=Turnstile)


def find_home(log: Log, url: str | None) -> Home:
    """Return where the models are kept. Raises `UnknownName` for an address nobody knows."""
    shared = log.database if isinstance(log, JoinsTransactions) else None
    if url is None:
        url = MEMORY if shared is None else shared.url
    if url in (MEMORY, f"{sqlite.SCHEME}:memory:"):
        return Home(address=MEMORY, url=sqlite.memory_url(uuid4().hex))
    name = url.removeprefix(sqlite.SCHEME)
    if name in ("", url):
        raise UnknownName("data address", url, [MEMORY], do="Or give the path of a file: sqlite:///app.db.")
    path = Path(name).absolute()
    address, file = f"{sqlite.SCHEME}{path}", sqlite.file_url(str(path))
    if shared is None or path.resolve() != Path(shared.url.removeprefix(sqlite.SCHEME)).resolve():
        path.parent.mkdir(parents=True, exist_ok=True)
        return Home(address=address, url=file, prepare=_OWN_FILE)
    return Home(
        address=address,
        url=file,
        shares_log=True,
        prepare=shared.prepare,
        busy_timeout_seconds=shared.busy_timeout_seconds,
        reserved=shared.tables,
        turnstile=shared.turnstile,
    )
