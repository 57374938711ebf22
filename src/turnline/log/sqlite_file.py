"""The file of a `SqliteLog`: what is in it, and how it is opened or refused.

    names        channel id -> the number that stands for it in the other tables. `mark` is a hash of the id:
                 an id that is damaged is found by it, so its channel is not taken for one that never was
    records      the log. (channel, seq) and (channel, envelope_id) are unique;
                 position grows with every record of the file and never changes.
                 An envelope id that a hub has drawn is kept as bytes, any other as text (`codec.pack_id`)
    contents     position -> payload. Rows are only added at the end, so no byte of one is copied into a page
                 that a later deletion does not reach (Y2)
    heads        where each channel ends, and its row of the index (Y7); rebuilt from the records when empty
    tags         label or participant -> channels that have it: for lists
    snapshots    by channel id; a cache with checksums of its own
    blobs        files of a tree of channels, by the id of its root (Y6), and
    chunks       their bytes; rows are only added at the end. Both are made with the first file
    tombstones   channel id -> what is left of a pruned channel (Y3). `channel` is the number of its lines
                 while some are there: not deleted yet, or not all restored

Their names begin with `turnline_`: a project keeps its own tables in the same file.

Rule 1: a file that is not a Turnline log, or is one of another format, is not
touched: who it belongs to is asked before anything is written.

Rule 2: whatever cannot be opened is a `LogUnavailable` that says why.

Rule 3: only its owner can read a file or a folder that is made here, whatever the umask.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Final, Literal

from turnline.core.codec import read_structure
from turnline.errors import LogUnavailable
from turnline.log.base import closes
from turnline.log.listing import Dialect
from turnline.log.turnstile import Turnstile

Durability = Literal["power", "process"]

SYNCHRONOUS: Final[dict[str, str]] = {"power": "FULL", "process": "NORMAL"}
"""FULL: every commit is synced. NORMAL: only checkpoints are, so a power cut may undo the last commits."""

APPLICATION_ID: Final = 0x54574C47  # "TWLG"
FORMAT: Final = 2
"""Of the tables, kept as `user_version`. Not the envelopes' schema version, which each of them carries."""

FILE_PAGE_BYTES: Final = 2048
"""Of a page of the file. An append changes a page of each B-tree that it writes to, and each such page is
written twice: with 2 KB an append writes half as much as with 4 KB, and a small log is a third smaller."""
CHECKPOINT_PAGES: Final = 2000
"""Pages in the -wal file at which SQLite brings them into the file: 4 MB, as SQLite has it."""
MAX_LEFTOVER_WAL_BYTES: Final = 64 * 1024 * 1024
WAL_SWITCH_ATTEMPTS: Final = 100
WAL_SWITCH_PAUSE_SECONDS: Final = 0.05

SQLITE_RAISES: Final = (sqlite3.Error, UnicodeDecodeError)
"""The second when its message quotes damaged text."""

PRIVATE_FOLDER: Final = 0o700
PRIVATE_FILE: Final = 0o600

MOUNTS: Final = Path("/proc/mounts")
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre", "davfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.davfs2", "fuse.gcsfuse"}
)

_TABLES: Final = """
CREATE TABLE turnline_names (
    channel INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    mark INTEGER NOT NULL
);
CREATE INDEX turnline_marks ON turnline_names (mark);
CREATE TABLE turnline_records (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    channel INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    envelope_id BLOB NOT NULL,
    hash BLOB NOT NULL,
    head BLOB NOT NULL,
    UNIQUE (channel, seq),
    UNIQUE (channel, envelope_id)
);
CREATE TABLE turnline_contents (
    position INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);
CREATE TABLE turnline_tombstones (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    channel INTEGER,
    body BLOB NOT NULL
);
CREATE INDEX turnline_undeleted ON turnline_tombstones (channel) WHERE channel IS NOT NULL;
"""
BLOB_TABLES: Final = """
CREATE TABLE IF NOT EXISTS turnline_blobs (
    blob INTEGER PRIMARY KEY AUTOINCREMENT,
    root TEXT NOT NULL,
    id TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    created INTEGER NOT NULL,
    user_key TEXT NOT NULL,
    kept INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS turnline_user_blobs ON turnline_blobs (user_key, size) WHERE user_key <> '';
CREATE INDEX IF NOT EXISTS turnline_blob_roots ON turnline_blobs (root);
CREATE INDEX IF NOT EXISTS turnline_new_blobs ON turnline_blobs (created) WHERE NOT kept;
CREATE TABLE IF NOT EXISTS turnline_chunks (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    blob INTEGER NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS turnline_blob_chunks ON turnline_chunks (blob, number);
"""
"""Made with the first file: a log without files has no pages for them."""
_CACHES: Final = """
CREATE TABLE IF NOT EXISTS turnline_heads (
    channel INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    closed INTEGER NOT NULL,
    position INTEGER NOT NULL,
    created INTEGER,
    type TEXT,
    flow TEXT,
    parent TEXT,
    origin TEXT,
    speaker TEXT,
    waiting TEXT,
    deadline INTEGER,
    code TEXT,
    row BLOB
);
CREATE TABLE IF NOT EXISTS turnline_tags (
    tag TEXT NOT NULL,
    created INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    PRIMARY KEY (tag, created, channel)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS turnline_tags_channel ON turnline_tags (channel);
CREATE TABLE IF NOT EXISTS turnline_snapshots (
    channel TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    checksum BLOB NOT NULL,
    body BLOB NOT NULL
);
"""
DIALECT: Final = Dialect(
    prefix="turnline_",
    place="?",
    channel="coalesce((SELECT channel FROM turnline_names WHERE id = {}), 9223372036854775807)",
    aside="+",
)
_CACHE_NAMES: Final = {f"turnline_{name}" for name in ("heads", "heads_open", "tags", "snapshots")}
_LOG_NAMES: Final = {
    *(f"turnline_{name}" for name in ("names", "marks", "records", "contents", "tombstones")),
    *(f"turnline_{name}" for name in ("blobs", "blob_roots", "new_blobs", "chunks", "blob_chunks")),
}
TABLE_NAMES: Final = frozenset(_LOG_NAMES | _CACHE_NAMES)
_LET: Final = "let this user write the file and its folder"
_DO: Final = {
    sqlite3.SQLITE_BUSY: "another program keeps it to itself, where it should hold it for moments only. End "
    "its transaction, or the program",
    sqlite3.SQLITE_NOTADB: "expected a log of Turnline's; name another file, or run `turnline log repair`",
    sqlite3.SQLITE_CORRUPT: "run `turnline log repair` with its address",
    sqlite3.SQLITE_READONLY: _LET,
    sqlite3.SQLITE_CANTOPEN: _LET,
}
"""What SQLite found -> what to do about it."""


_making: Final = threading.Lock()


class LogFile:
    """A Turnline log on a disk, checked when it is made; gives connections to it."""

    checkpoint_pages: int = CHECKPOINT_PAGES

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
            f"PRAGMA page_size = {FILE_PAGE_BYTES}",  # Of a new file; another one keeps its own.
            f"PRAGMA wal_autocheckpoint = {self.checkpoint_pages}",
            f"PRAGMA journal_size_limit = {MAX_LEFTOVER_WAL_BYTES}",
            "PRAGMA secure_delete = ON",  # What is deleted is overwritten with zeros (Y2).
        )

    def compact(self) -> None:
        """Bring what is in the -wal file into the file, and cut the former. Raises `LogUnavailable`."""
        with self.told(), closing(self._connect()) as connection:
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            because = "another connection reads or writes it, so its -wal file cannot be cut; try again"
            raise LogUnavailable(self.address, because=because)

    def connect(self) -> Connection:
        """Return a new connection, usable from any one thread at a time. Raises `LogUnavailable`."""
        with self.told():
            return self._connect()

    def connect_for_loop(self) -> Connection:
        """Return a connection that waits for no lock and makes no checkpoint. Raises `LogUnavailable`."""
        connection = self.connect()
        with self.told():
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

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
            make_private_folder(self.path.absolute().parent)
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
        try:
            make_private_file(self.path)
        except OSError as error:
            raise LogUnavailable(self.address, because=f"{error.strerror}: {error.filename}") from error


def check_owner(connection: Connection, address: str) -> None:
    """Raise `LogUnavailable` unless the file is a Turnline log that this program reads, or empty."""
    owner = _number(connection, "PRAGMA application_id")
    tables = _number(connection, "SELECT count(*) FROM sqlite_schema")
    if owner != APPLICATION_ID and (owner or tables):
        raise LogUnavailable(address, because="it is an SQLite database, but not a Turnline log")
    if owner and not _number(
        connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'turnline_records'"
    ):
        # Making the table anew would give an empty log in the place of a damaged one.
        raise LogUnavailable(address, because="its records are not there; restore it from a backup")
    found = _number(connection, "PRAGMA user_version")
    if owner and found != FORMAT:
        raise LogUnavailable(
            address,
            because=f"its format is {found}, this program reads {FORMAT}; "
            "use the version of turnline that wrote it",
        )


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


def make_private_file(path: Path) -> None:
    """Create an empty file that its owner alone can read, unless it is there. Raises `OSError`.

    SQLite gives its `-wal` and `-shm` the mode of the file.
    """
    # Closing the file drops the locks of this process on it: no connection may be open by then.
    with _making, suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))


def make_private_folder(folder: Path) -> None:
    """Create a folder that its owner alone can enter, and those above it, unless they are there."""
    if folder.exists():
        return
    make_private_folder(folder.parent)
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
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
    if "turnline_records" in names and names >= _CACHE_NAMES:
        return
    connection.execute("BEGIN IMMEDIATE")
    if not _number(connection, "PRAGMA application_id"):
        _run_all(connection, _TABLES)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    _run_all(connection, _CACHES + DIALECT.indexes)
    connection.execute("COMMIT")


def has_own_schema(connection: Connection) -> bool:
    """Return whether the tables are described as they were made: a changed letter may hide a column."""
    query = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, 9) = 'turnline_'"
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        _create(new)
        _run_all(new, BLOB_TABLES)
        return set(connection.execute(query)) <= set(new.execute(query))


def _run_all(connection: Connection, script: str) -> None:
    # Not `executescript`, which commits the transaction it finds.
    for statement in filter(str.strip, script.split(";")):
        connection.execute(statement)


def _rebuild_heads(connection: Connection) -> None:
    if not _is_empty(connection, "turnline_heads") or _is_empty(connection, "turnline_records"):
        return
    connection.execute("BEGIN IMMEDIATE")
    last = "SELECT channel, max(seq) AS seq FROM turnline_records GROUP BY channel"
    rows = connection.execute(
        "SELECT channel, seq, hash, head, position, id FROM turnline_records "
        f"JOIN ({last}) USING (channel, seq) LEFT JOIN turnline_names USING (channel)"
    )
    connection.executemany(
        "INSERT OR REPLACE INTO turnline_heads (channel, seq, hash, closed, position) VALUES (?, ?, ?, ?, ?)",
        ((*end, _closes(name, head), position) for *end, head, position, name in rows),
    )
    connection.execute("COMMIT")


def _closes(name: object, head: bytes) -> bool:
    try:
        return closes(str(name), read_structure(head).type)
    except ValueError:  # Damaged: counted as open, so that somebody looks at it and is told.
        return False


def _is_empty(connection: Connection, table: str) -> bool:
    return not _number(connection, f"SELECT EXISTS (SELECT 1 FROM {table})")


def _number(connection: Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
