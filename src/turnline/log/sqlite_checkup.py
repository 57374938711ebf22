"""How a `SqliteLog`'s file is: its mode, its disk, and what a commit on it survives."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from turnline.errors import LogUnavailable
from turnline.log.checkup import Checkup, Finding, Watch
from turnline.log.records import open_records
from turnline.log.sqlite_file import MAX_LEFTOVER_WAL_BYTES, MOUNTS, NETWORK_FILE_SYSTEMS, file_system

MIN_FREE_BYTES: Final = 256 * 1024 * 1024
LARGE_WAL_BYTES: Final = 4 * MAX_LEFTOVER_WAL_BYTES
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})

MEANS: Final = (
    "An acknowledged append was synced to the disk (WAL, synchronous=FULL): it survives a crash of the "
    "program and loss of power, as far as the disk keeps what it says it has synced.",
    "It does not survive loss of the disk: export the log, or copy it to another one.",
    "A program that opens the log with durability='process' says less: power takes its last appends along.",
)


async def check_up_sqlite(address: str, watch: Watch, *, mounts: Path = MOUNTS) -> Checkup:
    """Look at the file, or at the place where it would be. Raises `LogUnavailable`."""
    rest = address.removeprefix("sqlite:///")
    path = Path(rest)
    if rest in {address, "", "."}:
        raise LogUnavailable(address, because="expected `sqlite:///` and the path of a file")
    try:
        return _checked(address, path, await _facts(address, path), mounts)
    except OSError as error:
        raise LogUnavailable(address, because=f"{error.strerror}: {error.filename}") from error


async def _facts(address: str, path: Path) -> dict[str, str]:
    """What the file itself says; nothing if there is none."""
    if not _exists(path):
        return {}
    records = await open_records(address)
    try:
        return await records.facts()
    finally:
        await records.close()


def _exists(path: Path) -> bool:
    """Whether there is a log; a file without a byte is one that nobody has opened yet."""
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False


def _checked(address: str, path: Path, facts: dict[str, str], mounts: Path) -> Checkup:
    place = path if facts else _nearest(path)
    if place != path and not place.is_dir():
        raise LogUnavailable(address, because=f"{place} is a file, where a folder is expected")
    free = shutil.disk_usage(place).free
    kind = file_system(
        place / "log.db" if place.is_dir() else place, mounts.read_text() if mounts.exists() else ""
    )
    own = {name: facts[name] for name in ("journal mode", "file bytes", "write-ahead bytes") if facts}
    shown = {
        "SQLite": sqlite3.sqlite_version,
        "synchronous": "FULL, set by turnline on each connection that writes",
        "file system": kind or "cannot be seen here",
        "free bytes on the disk": str(free),
        **(own or {"file": "not there yet; whoever opens the log first makes it"}),
    }
    return Checkup(
        address=address,
        facts=shown,
        means=list(MEANS),
        findings=[*_disk(kind, free), *_writable(place), *_file(own)],
    )


def _nearest(path: Path) -> Path:
    """The folder, or the file in its place, that is there already."""
    return next(place for place in path.absolute().parents if place.exists())


def _file(own: dict[str, str]) -> Iterator[Finding]:
    mode, wal = own.get("journal mode", "wal"), int(own.get("write-ahead bytes", 0))
    if mode != "wal":
        do = "Open it once with turnline, which sets it; somebody else has changed it."
        yield Finding("journal mode", mode, "wal", do)
    if wal > LARGE_WAL_BYTES:
        do = "Look for a program that reads the file for hours: it keeps SQLite from tidying up."
        yield Finding("write-ahead bytes", str(wal), f"at most {LARGE_WAL_BYTES}", do)


def _disk(kind: str, free: int) -> Iterator[Finding]:
    if kind in NETWORK_FILE_SYSTEMS:
        do = "Move it to a local disk, or to PostgreSQL: turnline log export | turnline log import."
        yield Finding("file system", f"{kind}, over a network", "a local one, whose locks and syncs hold", do)
    if kind in IN_MEMORY:
        yield Finding(
            "file system", f"{kind}, which is memory", "a disk", "Move the file: it is lost with power."
        )
    if free < MIN_FREE_BYTES:
        do = "Make room: a full disk makes the log read-only until there is some."
        yield Finding("free bytes on the disk", str(free), f"at least {MIN_FREE_BYTES}", do)


def _writable(place: Path) -> Iterator[Finding]:
    folder = place if place.is_dir() else place.absolute().parent
    if not os.access(place, os.W_OK) or not os.access(folder, os.W_OK):
        do = "Give this user the right to write both, or look as the user that runs the hub."
        yield Finding("permissions", f"{place} or its folder cannot be written", "both can", do)
