"""A damaged file of a `SqliteLog`: its channels, out of its pages into a good file (Y5).

    found = read_damaged(path)        every line that is what was written, page by page
    write_salvaged(found, new)        a log with these lines, at their old positions

Rule 1: the damaged file is only read. It stays beside the new one, as `log.db.damaged`.

Rule 2: a line counts if the chain says so (`log.repair`). A channel that lost lines keeps the others; it is
damaged there too, and no other channel is.

Rule 3: a file of a message counts if its bytes have its digest. The others are counted as lost.

Rule 4: tables of the project in the same file are copied row by row, as far as SQLite can read them.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from turnline.core.codec import (
    HASH_BYTES,
    NO_HASH,
    Record,
    pack_id,
    ranges,
    read_structure,
    rehash,
    unpack_id,
)
from turnline.core.directory import DIRECTORY_CHANNEL
from turnline.errors import CorruptRecord, LogUnavailable
from turnline.log.base import DEFINITION_PREFIX, closes, read_tombstone
from turnline.log.repair import Range, salvage
from turnline.log.seals import LOG_ID_CHANNEL, SEALS_CHANNEL
from turnline.log.sqlite_file import (
    APPLICATION_ID,
    BLOB_TABLES,
    FORMAT,
    SQLITE_RAISES,
    LogFile,
    make_private_file,
    reason,
)
from turnline.log.sqlite_pages import MAGIC, Pages, Value, read_pages, rows_in
from turnline.log.sqlite_records import SqliteRecords
from turnline.log.sqlite_work import mark_of

_NOTHING: Final = (
    "nothing of a Turnline log was found in it. If you have an export, import it into a new log with "
    "`turnline log import`"
)
KNOWN_CHANNELS: Final = (DIRECTORY_CHANNEL, SEALS_CHANNEL, "_audit", "_revocations", "_doctor", "_mark-log")
"""Ids that may be tried for records whose name is lost."""
MAX_DAMAGED_FILES: Final = 1_000
_SHM_OPEN_BYTE: Final = 128
"""Every connection to a file in WAL mode holds a lock on this byte of its -shm file."""


class Placed(Struct, frozen=True):
    """A record, and where it stands."""

    position: int
    record: Record


class SalvagedChannel(Struct, frozen=True, kw_only=True):
    """What is left of a channel."""

    channel_id: str
    lines: list[Placed]
    end: int
    """How many lines it had, as far as that is known."""
    hash: bytes
    """Of the last of them."""
    lost: list[Range] = field(default_factory=list)


class SalvagedFile(Struct, frozen=True):
    """A file of a message, whole."""

    blob: tuple[Value, ...]
    """Its row."""
    chunks: list[bytes]


class SalvagedLog(Struct, frozen=True, kw_only=True):
    """What is left of a file."""

    channels: list[SalvagedChannel]
    tombstones: dict[str, bytes] = field(default_factory=dict)
    """Pruned channels, whose ids must not be used again."""
    files: list[SalvagedFile] = field(default_factory=list)
    lost_files: int = 0
    nameless: int = 0
    """Channels with lines and without a name: nothing of them can be checked."""

    @property
    def lines(self) -> int:
        return sum(len(one.lines) for one in self.channels)


async def find_file_damage(path: Path) -> str:
    """Return what is wrong with the file, and not with a channel on it; empty if nothing is.

    Raises `LogUnavailable` for a file of another format, and for one that another process has open.
    """
    address = f"sqlite:///{path}"
    _refuse_in_use(path, address)
    _refuse_other_format(path, address)
    try:
        records = SqliteRecords(path)
    except LogUnavailable as error:
        return error.because
    try:
        return "; ".join(await records.damage())
    except LogUnavailable as error:
        return error.because
    finally:
        await records.close()


def read_damaged(path: Path) -> SalvagedLog:
    """Return every line in the file that is what was written. Raises `LogUnavailable`."""
    try:
        pages = read_pages(path, Path(f"{path}-wal"))
    except OSError as error:
        raise LogUnavailable(f"sqlite:///{path}", because=f"{error.strerror}: {error.filename}") from error
    found = _Found(pages)
    if not found.records:
        raise LogUnavailable(f"sqlite:///{path}", because=_NOTHING)
    return found.log()


def keep_damaged(path: Path) -> Path:
    """Give the damaged file and its -wal file another name, besides their own. Return it."""
    for number in range(1, MAX_DAMAGED_FILES):
        kept = path.with_name(f"{path.name}.damaged{'' if number == 1 else f'-{number}'}")
        if kept.exists() and not kept.samefile(path):
            continue
        if not kept.exists():  # Otherwise a repair was killed after this.
            wal = Path(f"{path}-wal")
            if wal.exists():
                os.link(wal, f"{kept}-wal")
            os.link(path, kept)
        return kept
    raise LogUnavailable(f"sqlite:///{path}", because=f"{MAX_DAMAGED_FILES} damaged files are beside it")


def write_salvaged(found: SalvagedLog, kept: Path, path: Path) -> list[str]:
    """Put a good file with the lines in the place of `path`; `kept` is the damaged one (rule 1).

    Return what could not be copied of the project's own tables.
    """
    new = path.with_name(f"{path.name}.repaired")
    for leftover in (new, Path(f"{new}-wal"), Path(f"{new}-shm")):
        leftover.unlink(missing_ok=True)
    file = LogFile(new, durability="power", busy_timeout_seconds=1.0)
    with file.told(), closing(file.connect()) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for number, channel in enumerate(found.channels, 1):
            _write(connection, number, channel)
        connection.executemany(
            "INSERT INTO turnline_tombstones (id, body) VALUES (?, ?)", found.tombstones.items()
        )
        _write_files(connection, found.files)
        connection.execute("COMMIT")
        lost = _copy_tables(kept, connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in ("-wal", "-shm"):  # They would be taken for those of the new file.
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    new.replace(path)
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(folder)
    os.close(folder)
    return lost


class _Found:
    """The rows of a log in the pages of a file."""

    def __init__(self, pages: Pages) -> None:
        self.records: dict[int, dict[int, list[Placed]]] = {}
        """Number of a channel -> seq -> what may be that line."""
        self._contents: dict[int, list[bytes]] = {}
        self._names: dict[int, str] = {}
        self._ids: set[str] = set(KNOWN_CHANNELS)
        self._heads: dict[int, tuple[int, bytes]] = {}
        self._tombstones: dict[str, bytes] = {}
        self._blobs: dict[int, tuple[Value, ...]] = {}
        self._chunks: dict[int, dict[int, bytes]] = {}
        for row in rows_in(pages):
            self._take(row.rowid, row.values)

    def _take(self, rowid: int | None, values: list[Value]) -> None:
        match (rowid, *values):
            case (None, str(name), int()):
                self._ids.add(name)
            case (int(number), None, str(name), int(mark)) if mark_of(name) == mark:
                self._names[number] = name
            case (int(position), None, int(number), int(seq), str(id_), bytes(hash_), bytes(head)):
                self._take_record(position, number, Record(seq=seq, envelope_id=id_, head=head, hash=hash_))
            case (int(position), None, int(number), int(seq), bytes(id_), bytes(hash_), bytes(head)):
                record = Record(seq=seq, envelope_id=unpack_id(id_), head=head, hash=hash_)
                self._take_record(position, number, record)
            case (int(), None, str(name), int() | None, bytes(body)) if _is_tombstone(name, body):
                self._tombstones[name] = body
            case (int(blob), None, str(root), str(id_), str(digest), int(), int(), str(), int()):
                self._blobs[blob] = (blob, root, id_, digest, *values[4:])
            case (int(), None, int(blob), int(number), bytes(data)):
                self._chunks.setdefault(blob, {})[number] = data
            case (int(position), None, bytes(payload)):
                self._contents.setdefault(position, []).append(payload)
            case (int(number), None, int(seq), bytes(hash_), int(), int(), *_) if len(hash_) == HASH_BYTES:
                self._heads[number] = (seq, hash_)

    def _take_record(self, position: int, number: int, record: Record) -> None:
        of_channel = self.records.setdefault(number, {})
        of_channel.setdefault(record.seq, []).append(Placed(position, record))

    def log(self) -> SalvagedLog:
        channels, nameless = list[SalvagedChannel](), 0
        self._ids |= {one for rows in self.records.values() for one in _ids_in(rows)}
        for number, rows in sorted(self.records.items()):
            name = self._names.get(number) or next((one for one in self._ids if _fits(one, rows)), None)
            if name is None:
                nameless += 1
            elif name != LOG_ID_CHANNEL:  # Positions may be used again: the next seal covers every channel.
                channels.append(self._channel(number, name, rows))
        for number, name in sorted(self._names.items()):
            if number not in self.records and name != LOG_ID_CHANNEL:
                end, hash_ = self._heads.get(number, (1, NO_HASH))
                channels.append(
                    SalvagedChannel(channel_id=name, lines=[], end=end, hash=hash_, lost=[(1, end)])
                )
        files = list(self._files())
        whole = {one.blob[0] for one in files}
        begun = {blob for blob, row in self._blobs.items() if not row[3]}  # Uploads that never ended.
        return SalvagedLog(
            channels=channels,
            tombstones=self._tombstones,
            files=files,
            lost_files=len((self._blobs.keys() | self._chunks.keys()) - whole - begun),
            nameless=nameless,
        )

    def _files(self) -> Iterator[SalvagedFile]:
        for blob, row in sorted(self._blobs.items()):
            chunks = [data for _, data in sorted(self._chunks.get(blob, {}).items())]
            if row[3] and sha256(b"".join(chunks)).hexdigest() == row[3]:
                yield SalvagedFile(row, chunks)

    def _channel(self, number: int, name: str, rows: dict[int, list[Placed]]) -> SalvagedChannel:
        whole = {seq: [self._with_content(one) for one in some] for seq, some in rows.items()}
        end, hash_ = self._heads.get(number, (0, NO_HASH))
        found = salvage(name, {seq: [one.record for one in some] for seq, some in whole.items()}, end=hash_)
        lines = [
            Placed(_position_of(record, whole[seq]), record) for seq, (_, record) in sorted(found.items())
        ]
        last = max(found, default=0)
        if end < last or (end == last and last and hash_ != found[last][1].hash):
            end, hash_ = last, found[last][1].hash
        lost = ranges(seq for seq in range(1, end + 1) if seq not in found)
        return SalvagedChannel(channel_id=name, lines=lines, end=end, hash=hash_, lost=lost)

    def _with_content(self, placed: Placed) -> Placed:
        """Return the record with the payload that is kept for its position; SQLite may show several."""
        for payload in self._contents.get(placed.position, ()):
            record = replace(placed.record, payload=payload)
            if _has_digest(record):
                return Placed(placed.position, record)
        return placed


def _position_of(record: Record, placed: Iterable[Placed]) -> int:
    # A record whose hash was damaged is not the one that was found, but it has the same head.
    return next(one.position for one in placed if one.record.head == record.head)


def _has_digest(record: Record) -> bool:
    try:
        return read_structure(record.head).digest == sha256(record.payload or b"").digest()
    except ValueError:
        return False


def _is_tombstone(name: str, body: bytes) -> bool:
    with suppress(CorruptRecord):
        return read_tombstone(body).channel_id == name
    return False


def _ids_in(rows: dict[int, list[Placed]]) -> Iterator[str]:
    """Yield ids of channels that the heads of lines name: their own, children, definitions of flows."""
    for placed in (one for some in rows.values() for one in some):
        with suppress(ValueError):
            data = read_structure(placed.record.head).data
            yield from (str(data[key]) for key in ("channel_id", "child") if key in data)
            flow = data.get("knobs", {}).get("flow", {}) if isinstance(data.get("knobs"), dict) else {}
            if isinstance(flow, dict) and "digest" in flow:
                yield f"{DEFINITION_PREFIX}{flow['digest']}"


def _fits(name: str, rows: dict[int, list[Placed]]) -> bool:
    """Return whether lines have hashes of this channel."""
    for seq, some in rows.items():
        before = [NO_HASH] if seq == 1 else [one.record.hash for one in rows.get(seq - 1, ())]
        for record in (one.record for one in some):
            if any(rehash(name, record, previous=one).hash == record.hash for one in before):
                return True
    return False


def _write(connection: Connection, number: int, channel: SalvagedChannel) -> None:
    connection.execute(
        "INSERT INTO turnline_names VALUES (?, ?, ?)",
        (number, channel.channel_id, mark_of(channel.channel_id)),
    )
    for position, record in ((one.position, one.record) for one in channel.lines):
        connection.execute(
            "INSERT INTO turnline_records VALUES (?, ?, ?, ?, ?, ?)",
            (position, number, record.seq, pack_id(record.envelope_id), record.hash, record.head),
        )
        if record.payload is not None:
            connection.execute("INSERT INTO turnline_contents VALUES (?, ?)", (position, record.payload))
    last = channel.lines[-1] if channel.lines else None
    is_closed = (
        last is not None
        and not channel.lost
        and closes(channel.channel_id, read_structure(last.record.head).type)
    )
    # A head that tells of lines which are gone keeps the channel from continuing as if nothing was lost.
    connection.execute(
        "INSERT INTO turnline_heads (channel, seq, hash, closed, position) VALUES (?, ?, ?, ?, ?)",
        (number, channel.end, channel.hash, is_closed, 0 if last is None else last.position),
    )


def _write_files(connection: Connection, files: Iterable[SalvagedFile]) -> None:
    for number, file in enumerate(files):
        for statement in BLOB_TABLES.split(";") if not number else ():
            connection.execute(statement)
        connection.execute("INSERT INTO turnline_blobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", file.blob)
        for place, data in enumerate(file.chunks):
            connection.execute(
                "INSERT INTO turnline_chunks (blob, number, data) VALUES (?, ?, ?)",
                (file.blob[0], place, data),
            )


def _copy_tables(kept: Path, connection: Connection) -> list[str]:
    """Copy the tables that are not the log's. Return what is lost, for people."""
    with _readable_copy(kept) as copy:
        try:
            query = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type <> 'table'"
            things = [row for row in copy.execute(query) if not row[1].startswith(("turnline_", "sqlite_"))]
        except SQLITE_RAISES as error:
            return [f"the tables of data models, if there were any: {reason(error)}"]
        return [what for one in things for what in _copy_thing(copy, connection, *one)]


def _copy_thing(copy: Connection, connection: Connection, kind: str, name: str, sql: str) -> list[str]:
    try:
        connection.execute(sql)
    except SQLITE_RAISES as error:
        return [f"the {kind} {name!r}: {reason(error)}"]
    if kind != "table":
        return []
    quoted = '"' + name.replace('"', '""') + '"'
    for order in ("ASC", "DESC"):  # From both ends up to a damaged page.
        try:
            for row in copy.execute(f"SELECT * FROM {quoted} NOT INDEXED ORDER BY rowid {order}"):
                places = ", ".join("?" * len(row))
                connection.execute(f"INSERT OR IGNORE INTO {quoted} VALUES ({places})", row)
        except SQLITE_RAISES as error:
            lost = f"rows of the table {name!r}: {reason(error)}"
        else:
            return []
    return [lost]


@contextmanager
def _readable_copy(kept: Path) -> Iterator[Connection]:
    """Give a connection to a copy of the file that has as many pages as its header says."""
    pages = read_pages(kept, Path(f"{kept}-wal"))
    with tempfile.TemporaryDirectory(dir=kept.absolute().parent) as folder:
        path = Path(folder) / "copy.db"
        make_private_file(path)
        content = b"".join(pages.content)
        told = int.from_bytes(content[28:32]) * pages.size
        # In journal mode DELETE it needs no -wal file.
        path.write_bytes((content[:18] + b"\1\1" + content[20:]).ljust(min(told, 2 * len(content)), b"\0"))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            yield connection


def _refuse_other_format(path: Path, address: str) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise LogUnavailable(address, because=f"{error.strerror}: {error.filename}") from error
    is_ours = header.startswith(MAGIC) and int.from_bytes(header[68:72]) == APPLICATION_ID
    found = int.from_bytes(header[60:64])
    if is_ours and found != FORMAT and not Path(f"{path}-wal").exists():
        raise LogUnavailable(address, because=f"its format is {found}, this program reads {FORMAT}")


def _refuse_in_use(path: Path, address: str) -> None:
    shm = Path(f"{path}-shm")
    with suppress(FileNotFoundError), shm.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _SHM_OPEN_BYTE)
        except OSError:
            because = "another process has it open; stop it first"
            raise LogUnavailable(address, because=because) from None
