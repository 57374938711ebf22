"""Logs by address: what a settings file or a command line says.

memory:                    ends with the process
sqlite:///log.db           a file, from the working folder
sqlite:////var/lib/log.db  a file, from the root
log.db                     the same as sqlite:///log.db
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from turnwise.errors import LogUnavailable, UnknownName
from turnwise.log.base import Log
from turnwise.log.memory import MemoryLog
from turnwise.log.sqlite import SqliteLog

PLAIN_SUFFIX: Final = ".db"
"""A path that ends so needs no scheme."""


def open_log(address: str) -> Log:
    """Return the log at `address`. Raises `UnknownName` for a scheme nobody knows, and `LogUnavailable`."""
    scheme, colon, rest = address.partition(":")
    if scheme in _SCHEMES and colon:
        return _SCHEMES[scheme](rest)
    if address.endswith(PLAIN_SUFFIX) and "://" not in address:
        return SqliteLog(address)
    raise UnknownName(
        "log scheme", address, _SCHEMES, do=f"Or give the path of a file that ends in {PLAIN_SUFFIX!r}."
    )


def _memory(rest: str) -> Log:
    if rest:
        raise LogUnavailable(f"memory:{rest}", because="nothing may follow `memory:`")
    return MemoryLog()


def _sqlite(rest: str) -> Log:
    path = rest.removeprefix("///")
    if path == rest or not path:
        raise LogUnavailable(f"sqlite:{rest}", because="expected `sqlite:///` and the path of a file")
    return SqliteLog(path)


_SCHEMES: Final[dict[str, Callable[[str], Log]]] = {"memory": _memory, "sqlite": _sqlite}
