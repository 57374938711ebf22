"""Logs by address: what a settings file or a command line says.

memory:                    ends with the process
sqlite:///log.db           a file, from the working folder
sqlite:////var/lib/log.db  a file, from the root
log.db                     the same as sqlite:///log.db
postgresql://host/name     a database; also postgres://
nats://a:4222,b:4222/name  a stream of these servers; see `nats_address`
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from turnline.errors import LogUnavailable, MissingExtra, UnknownName
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog

MEMORY: Final = "memory:"
PLAIN_SUFFIX: Final = ".db"
"""A path that ends so needs no scheme."""
_WITHOUT_DATABASE: Final = frozenset({MEMORY, "nats:"})


def open_log(address: str) -> Log:
    """Return the log at `address`. Raises `UnknownName` for a scheme nobody knows, and `LogUnavailable`."""
    scheme, colon, rest = address.partition(":")
    if scheme in _SCHEMES and colon:
        return _SCHEMES[scheme](rest)
    if address.endswith(PLAIN_SUFFIX) and "://" not in address:
        return SqliteLog(address)
    # Of an address only the scheme: the rest may hold a password.
    raise UnknownName(
        "log scheme",
        scheme if colon else address,
        _SCHEMES,
        do=f"Or give the path of a file that ends in {PLAIN_SUFFIX!r}.",
    )


def from_anywhere(address: str) -> str:
    """Return the address of an open log as another terminal needs it: the path of a file is absolute."""
    scheme, _, path = address.partition(":///")
    return f"{scheme}:///{Path(path).absolute()}" if scheme == "sqlite" else address


def mask(address: str) -> str:
    """Return an address to print. One that may hold a password is cut after its scheme."""
    scheme, colon, rest = address.partition("://")
    return f"{scheme}://***" if colon and scheme != "sqlite" and ("@" in rest or "?" in rest) else address


def has_database(address: str) -> bool:
    """Return whether a log at `address` keeps its lines in a database that can also keep rows."""
    return scheme_of(address) not in _WITHOUT_DATABASE


def scheme_of(address: str) -> str:
    """Return what an address begins with, for people: `nats:`, `memory:`. The rest may have a password."""
    scheme, colon, _ = address.partition(":")
    return f"{scheme}:" if colon else PLAIN_SUFFIX


def _memory(rest: str) -> Log:
    if rest:
        raise LogUnavailable(f"{MEMORY}{rest}", because="nothing may follow `memory:`")
    return MemoryLog()


def _sqlite(rest: str) -> Log:
    path = rest.removeprefix("///")
    if path == rest or not path:
        raise LogUnavailable(f"sqlite:{rest}", because="expected `sqlite:///` and the path of a file")
    return SqliteLog(path)


def _nats(rest: str) -> Log:
    try:
        from turnline.log.nats import NatsLog  # noqa: PLC0415  Only whoever asks for it needs nats-py.
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("nats", "cryptography")):
            raise
        raise MissingExtra("logs on NATS", extra="nats") from None
    return NatsLog(f"nats:{rest}")


def _postgres(rest: str) -> Log:
    try:
        from turnline.log.postgres import PostgresLog  # noqa: PLC0415  The same for psycopg.
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        raise MissingExtra("logs on PostgreSQL", extra="postgres") from None
    return PostgresLog(f"postgresql:{rest}")


_SCHEMES: Final[dict[str, Callable[[str], Log]]] = {
    "memory": _memory,
    "nats": _nats,
    "postgres": _postgres,
    "postgresql": _postgres,
    "sqlite": _sqlite,
}
