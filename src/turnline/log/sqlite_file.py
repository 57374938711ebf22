"""The file of a `SqliteLog`: what is in it, and how it is opened or refused.

    records      the log. (channel, seq) and (channel, envelope_id) are unique;
                 position grows with every record of the file and never changes
    heads        where each channel ends: an index, rebuilt from the records when it is empty
    snapshots    a cache with checksums of its own

Rule 1: a file that is not a Turnline log, or is one of a newer format, is not
touched: who it belongs to is asked before anything is written.

Rule 2: whatever cannot be opened is a `LogUnavailable` that says why.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Final, Literal

from turnline.core.codec import decode
from turnline.errors import LogUnavailable
from turnline.log.base import closes
from turnline.log.turnstile import Turnstile

Durability = Literal["power", "process"]

SYNCHRONOUS: Final[dict[str, str]] = {"power": "FULL", "process": "NORMAL"}
"""FULL: every commit is synced. NORMAL: only checkpoints are, so a power cut may undo the last commits."""

APPLICATION_ID: Final = 0x54574C47  # "TWLG"
FORMAT: Final = 1
"""Of the tables, kept as `user_version`. Not the envelopes' schema version, which each of them carries."""

MAX_LEFTOVER_WAL_BYTES: Final = 64 * 1024 * 1024
WAL_SWITCH_ATTEMPTS: Final = 100
WAL_SWITCH_PAUSE_SECONDS: Final = 0.05

SQLITE_RAISES: Final = (sqlite3.Error, UnicodeDecodeError)
"""The second when its message quotes damaged text."""

MOUNTS: Final = Path("/proc/mounts")
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre", "davfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.davfs2", "fuse.gcsfuse"}
)

_TABLES: Final = """
CREATE TABLE records (
    position INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    seq INTEGER NOT NULL,
    envelope_id TEXT NOT NULL,
    hash BLOB NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (channel, seq),
    UNIQUE (channel, envelope_id)
);
"""
_CACHES: Final = """
CREATE TABLE IF NOT EXISTS heads (
    channel TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    closed INTEGER NOT NULL,
    position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_heads ON heads (channel) WHERE closed = 0;
CREATE TABLE IF NOT EXISTS snapshots (
    channel TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    body BLOB NOT NULL
);
"""
_CACHE_NAMES: Final = {"heads", "open_heads", "snapshots"}
TABLE_NAMES: Final = frozenset({"records"} | _CACHE_NAMES)
_LET: Final = "let this user write the file and its folder"
_DO: Final = {
    sqlite3.SQLITE_BUSY: "another program keeps it to itself, where it should hold it for moments only. End "
    "its transaction, or the program",
    sqlite3.SQLITE_NOTADB: "expected a log of Turnline's; name another file",
    sqlite3.SQLITE_READONLY: _LET,
    sqlite3.SQLITE_CANTOPEN: _LET,
}
"""What SQLite found -> what to do about it."""


class LogFile:
    """A Turnline log on a disk, checked when it is made; gives connections to it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability,
        busy_timeout_seconds: float,
        mounts: Path = MOUNTS,
    ) -> None:
        self.path = Path(path)
        self.address = f"sqlite:///{self.path}"
        self.durability = durability
        self.busy_timeout_seconds = busy_timeout_seconds
        self.turnstile = Turnstile()
        if durability not in SYNCHRONOUS:
            raise ValueError(f"durability is {durability!r}; expected 'power' or 'process'")
        self._refuse_odd_places(mounts)
        with self.told(), closing(self._connect()) as connection:
            check_owner(connection, self.address)
            _enter_wal_mode(connection)
            _create(connection)
            _rebuild_heads(connection)

    @property
    def prepare(self) -> tuple[str, ...]:
        """The statements every connection begins with."""
        return (
            f"PRAGMA synchronous = {SYNCHRONOUS[self.durability]}",
            # Only macOS knows it: there a plain fsync leaves the data in the drive's cache.
            f"PRAGMA fullfsync = {int(self.durability == 'power')}",
            f"PRAGMA journal_size_limit = {MAX_LEFTOVER_WAL_BYTES}",
        )

    def connect(self) -> Connection:
        """Return a new connection, usable from any one thread at a time. Raises `LogUnavailable`."""
        with self.told():
            return self._connect()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell what SQLite raises as `LogUnavailable`."""
        try:
            yield
        except SQLITE_RAISES as error:
            raise LogUnavailable(self.address, because=reason(error)) from error

    def _connect(self) -> Connection:
        connection = sqlite3.connect(
            self.path, timeout=self.busy_timeout_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            for statement in self.prepare:
                connection.execute(statement)
        except SQLITE_RAISES:
            connection.close()
            raise
        return connection

    def _refuse_odd_places(self, mounts: Path) -> None:
        if str(self.path) in {":memory:", "."}:
            raise LogUnavailable(self.address, because="it would be kept in memory only; use MemoryLog")
        try:
            _make_folder(self.path.absolute().parent)
            if self.path.is_dir():
                raise LogUnavailable(self.address, because="it is a folder; name a file in it")
            if self.path.exists() and not os.access(self.path, os.W_OK):
                # SQLite would open it without a word, and refuse the first append.
                raise LogUnavailable(self.address, because=f"it can only be read; {_LET}")
        except OSError as error:
            raise LogUnavailable(self.address, because=f"{error.strerror}: {error.filename}") from error
        kind = file_system(self.path, mounts.read_text() if mounts.exists() else "")
        if kind in NETWORK_FILE_SYSTEMS:
            raise LogUnavailable(
                self.address,
                because=f"it is on a network file system ({kind}), whose locks and syncs cannot be relied "
                f"on; use a local disk, or PostgreSQL",
            )


def check_owner(connection: Connection, address: str) -> None:
    """Raise `LogUnavailable` unless the file is a Turnline log that this program reads, or empty."""
    owner = _number(connection, "PRAGMA application_id")
    tables = _number(connection, "SELECT count(*) FROM sqlite_schema")
    if owner != APPLICATION_ID and (owner or tables):
        raise LogUnavailable(address, because="it is an SQLite database, but not a Turnline log")
    if owner and not _number(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'records'"):
        # Making the table anew would give an empty log in the place of a damaged one.
        raise LogUnavailable(address, because="its records are not there; restore it from a backup")
    found = _number(connection, "PRAGMA user_version")
    if found > FORMAT:
        because = f"its format {found} is newer than this program's {FORMAT}; upgrade turnline"
        raise LogUnavailable(address, because=because)


def file_system(path: Path, mounts: str) -> str:
    """Return what file system `path` is on, by the text of /proc/mounts; empty if that does not say."""
    place = path.absolute().parent.resolve()
    kind, depth = "", 0
    for line in mounts.splitlines():
        _, point, found, *_ = line.split(" ")
        folder = Path(point.encode().decode("unicode_escape"))  # A space is written as \040.
        # Of two mounts on one folder the later one is seen.
        if place.is_relative_to(folder) and len(folder.parts) >= depth:
            kind, depth = found, len(folder.parts)
    return kind


def reason(error: Exception) -> str:
    """Say what SQLite found, with its name for it: `disk I/O error (SQLITE_IOERR_FSYNC)`."""
    name = getattr(error, "sqlite_errorname", None)
    do = f"; {_DO[code(error)]}" if code(error) in _DO else ""
    return f"{error} ({name}){do}" if name else str(error)


def code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 for an error of Python's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _make_folder(folder: Path) -> None:
    if folder.exists():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    # A log in a folder that a power cut forgets would be forgotten with it.
    descriptor = os.open(folder.parent, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def _enter_wal_mode(connection: Connection) -> None:
    # Two processes that open a new file at once meet here, and SQLite does not wait for this lock.
    for attempt in range(1, WAL_SWITCH_ATTEMPTS + 1):
        try:
            # All of the answer: SQLite tells what kept it from the switch (a sync that failed) behind the
            # row, and in the mode that is left a power cut may undo a commit that was acknowledged.
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            break
        except sqlite3.OperationalError as error:
            if code(error) != sqlite3.SQLITE_BUSY or attempt == WAL_SWITCH_ATTEMPTS:
                raise
            time.sleep(WAL_SWITCH_PAUSE_SECONDS)


def _create(connection: Connection) -> None:
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if "records" in names and names >= _CACHE_NAMES:
        return
    connection.execute("BEGIN IMMEDIATE")
    if not _number(connection, "PRAGMA application_id"):
        _run_all(connection, _TABLES)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    _run_all(connection, _CACHES)
    connection.execute("COMMIT")


def _run_all(connection: Connection, script: str) -> None:
    # Not `executescript`, which commits the transaction it finds.
    for statement in filter(str.strip, script.split(";")):
        connection.execute(statement)


def _rebuild_heads(connection: Connection) -> None:
    if not _is_empty(connection, "heads") or _is_empty(connection, "records"):
        return
    connection.execute("BEGIN IMMEDIATE")
    last = "SELECT channel, max(seq) AS seq FROM records GROUP BY channel"
    rows = connection.execute(
        f"SELECT channel, seq, hash, body, position FROM records JOIN ({last}) USING (channel, seq)"
    )
    connection.executemany(
        "INSERT OR REPLACE INTO heads (channel, seq, hash, closed, position) VALUES (?, ?, ?, ?, ?)",
        ((channel, seq, hash_, _closes(body), position) for channel, seq, hash_, body, position in rows),
    )
    connection.execute("COMMIT")


def _closes(body: bytes) -> bool:
    try:
        return closes(decode(body))
    except ValueError:  # Damaged: counted as open, so that somebody looks at it and is told.
        return False


def _is_empty(connection: Connection, table: str) -> bool:
    return not _number(connection, f"SELECT EXISTS (SELECT 1 FROM {table})")


def _number(connection: Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
