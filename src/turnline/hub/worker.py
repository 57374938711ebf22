"""Who works on a turn, and whether that worker can still be alive.

A worker is named `host:pid:start/place`: the process, and a place in it. A
worker that has left, or whose process is gone (its number may belong to another
one by now), never posts again, so its claims can be taken over at once. Of a
process on another host nothing is known; its claims end with their lease.

Rule: a host is where process numbers mean the same. Machines and containers may
share a name, and each counts its processes from 1: by its name alone, one that
lives would be taken for one that has ended.

This module is the `Process` that a hub is in; a simulation of several has its own.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol


class Process(Protocol):
    """The process that a hub is in: who works there, and what can be seen from it of the others."""

    def join(self, place: str) -> str:
        """A worker begins here; return its name."""
        ...

    def leave(self, worker: str) -> None:
        """The worker has ended."""
        ...

    def is_here(self, worker: str) -> bool:
        """Whether the worker is one of this process, and has not left."""
        ...

    def is_near(self, worker: str) -> bool:
        """Whether the worker is one of another process whose end can be noticed from here."""
        ...

    def is_gone(self, worker: str) -> bool:
        """Whether the worker is known to have ended: it never posts again."""
        ...


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")


@lru_cache(maxsize=1)
def this_host() -> str:
    """The name of this machine, and a mark of this run of it and of the processes that can be seen here."""
    seen = ""
    with suppress(OSError):  # Where there is no /proc, the name has to do.
        seen = f"{_BOOT.read_text().strip()} {os.readlink(_NAMESPACE)}"
    mark = blake2b(seen.encode(), digest_size=4).hexdigest() if seen else "host"
    return f"{socket.gethostname()}~{mark}"


@lru_cache(maxsize=1)
def this_process() -> str:
    """The name of this process, as claims carry it."""
    return f"{this_host()}:{os.getpid()}:{_started(os.getpid())}"


_here: Final[set[str]] = set()
"""The workers of this process."""


def join(place: str) -> str:
    """A worker begins in this process; return its name."""
    worker = f"{this_process()}/{place}"
    _here.add(worker)
    return worker


def leave(worker: str) -> None:
    _here.discard(worker)


def is_here(worker: str) -> bool:
    """Whether the worker is one of this process, and has not left."""
    return worker in _here


def is_near(worker: str) -> bool:
    """Whether the worker is one of another process of this host, so that its end can be noticed."""
    host = worker.partition(":")[0]
    return host == this_host() and worker not in _here


def is_gone(worker: str) -> bool:
    """Whether the worker is known to have ended."""
    process = worker.partition("/")[0]
    if process == this_process():
        return worker not in _here
    host, _, rest = process.partition(":")
    pid, _, started = rest.partition(":")
    if host != this_host() or not pid.isdigit():
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str:
    """When a process started, in the system's own units; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else _alive(pid)
    # The command's name, in parentheses, may contain anything; the fields are counted behind it.
    return stat.rpartition(")")[2].split()[19]


def _alive(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "alive"
    return "alive"
