"""X5: a damaged file is noticed, or the damage does not matter; a wrong envelope is never returned.

The write-ahead file is the exception to "noticed": it is torn by every crash, so
SQLite takes what is whole and forgets the rest. There the rule is that what is
left is the beginning of what was acknowledged, in its order, in whole appends.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec import Struct

from tests.faults.counts import CHANGED_ROWS, FLIPS_IN_THE_FILE, FLIPS_IN_THE_WAL, TORN, seed
from turnline.core.codec import SALT_BYTES, join, read_structure
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord, LogError, LogUnavailable
from turnline.log.sqlite import SqliteLog
from turnline.testing.damage import flip_byte
from turnline.testing.lines import line

SEED = seed(20300101)
SMALL_PAGE = 512
"""The smallest SQLite has: more pages, more kinds of them, and fewer bytes to cut at."""
FRAME_HEADER = 24
CHECKPOINTED, IN_THE_WAL = 30, 6
"""Appends in the main file, and behind them in the write-ahead file."""
MEMORY = Path("/dev/shm")

Append = tuple[Envelope, ...]


class WrongEnvelope(AssertionError):
    """The log returned something that was never written there."""


class Storage(Struct, frozen=True, kw_only=True):
    """The bytes of a log in use, and what was acknowledged to whoever wrote them."""

    main: bytes
    wal: bytes
    appends: list[Append]


class TrustingLog(SqliteLog):
    """The twin: it reads what is there and checks nothing."""

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        query = (
            "SELECT seq, envelope_id, CAST(head AS BLOB), CAST(payload AS BLOB) FROM turnline_names "
            "JOIN turnline_records USING (channel) LEFT JOIN turnline_contents USING (position) "
            "WHERE id = ? AND seq > ? ORDER BY seq"
        )
        with closing(sqlite3.connect(self.path)) as connection:
            for seq, envelope_id, head, payload in connection.execute(query, (channel_id, after)):
                try:
                    structure = read_structure(head)
                    content = {} if payload is None else msgspec.json.decode(payload[SALT_BYTES:])[0]
                except ValueError as error:
                    raise CorruptRecord(channel_id, seq=0, because=str(error)) from error
                yield Envelope(
                    schema_version=structure.v,
                    envelope_id=envelope_id,
                    channel_id=channel_id,
                    seq=seq,
                    sender_id=structure.sender,
                    event_type=structure.type,
                    event_data=join(structure.data, content),
                    created_at=structure.at,
                )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory where there is such a place: nothing here depends on a disk, and it is quicker."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as temporary:
        yield Path(temporary)


@pytest.fixture
async def storage(folder: Path) -> Storage:
    path = damaged(folder, b"")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {SMALL_PAGE}")
        connection.execute("PRAGMA journal_mode = WAL")
    groups = [group(number) for number in range(CHECKPOINTED + IN_THE_WAL)]
    await write(path, groups[:CHECKPOINTED])
    log = SqliteLog(path)
    await fill(log, groups[CHECKPOINTED:])
    main, wal = both(path)
    await log.close()
    return Storage(main=main, wal=wal, appends=groups)


def group(number: int) -> Append:
    """The append of this number: two lines each, turn by turn on three channels, some longer than a page."""
    channel_id, first = "abc"[number % 3], number // 3 * 2 + 1
    size = 900 if number % 5 == 0 else 20
    return tuple(line(channel_id, seq, data={"text": f"{seq}" * size}) for seq in (first, first + 1))


async def fill(log: SqliteLog, groups: list[Append]) -> None:
    for envelopes in groups:
        await log.append(envelopes[0].channel_id, envelopes, after=envelopes[0].seq - 1)


async def write(path: Path, groups: list[Append]) -> None:
    log = SqliteLog(path)
    await fill(log, groups)
    await log.close()


def written(appends: list[Append], channel_id: str) -> list[Envelope]:
    return [e for envelopes in appends for e in envelopes if e.channel_id == channel_id]


async def verdict(kind: type[SqliteLog], path: Path, appends: list[Append]) -> str:
    """Return `same`, `detected` or `short`, or raise `WrongEnvelope`."""
    try:
        log = kind(path)
    except LogUnavailable:
        return "detected"
    try:
        told = [await look(log, channel_id, written(appends, channel_id)) for channel_id in "abc"]
    finally:
        await log.close()
    return max(told, key=["same", "short", "detected"].index)


async def look(log: SqliteLog, channel_id: str, expected: list[Envelope]) -> str:
    found: list[Envelope] = []
    try:
        async for envelope in log.read(channel_id):
            found.append(envelope)
            # A line without its content says so, and is damage at the end: nothing was erased here.
            if envelope not in expected[len(found) - 1 : len(found)] and not envelope.is_erased:
                raise WrongEnvelope(f"{envelope} on channel {channel_id!r}")
        if any(one.is_erased for one in found):
            raise WrongEnvelope(f"lines without content on channel {channel_id!r}")
        for wanted in expected[:: len(expected) // 2]:
            answer = await log.find(channel_id, wanted.envelope_id)
            if answer not in (None, wanted):
                raise WrongEnvelope(f"{answer} for {wanted.envelope_id!r}")
        await log.channels()
    except LogError:
        return "detected"
    return "same" if len(found) == len(expected) else "short"


async def whole_beginning(path: Path, appends: list[Append]) -> bool:
    """Whether what the log at `path` holds is what the first so many appends wrote."""
    log = SqliteLog(path)
    found = {name: [e async for e in log.read(name)] for name in "abc"}
    await log.close()
    count = sum(map(len, found.values())) // 2
    return all(found[name] == written(appends[:count], name) for name in "abc")


def damaged(folder: Path, main: bytes, wal: bytes = b"") -> Path:
    """Put a log together from bytes, where the last case's was."""
    path = folder / "case.db"
    for leftover in folder.glob("case.db*"):
        leftover.unlink()
    path.write_bytes(main)
    if wal:
        Path(f"{path}-wal").write_bytes(wal)
    return path


def both(path: Path) -> tuple[bytes, bytes]:
    return path.read_bytes(), Path(f"{path}-wal").read_bytes()


def checkpointed(folder: Path, storage: Storage) -> bytes:
    """All of it in one file."""
    path = damaged(folder, storage.main, storage.wal)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


def places(length: int) -> list[int]:
    """Where to cut: at every byte of the last frame, whose header is the commit, and all over the rest."""
    last_frame = length - SMALL_PAGE - FRAME_HEADER
    step = max(1, last_frame // max(1, TORN - SMALL_PAGE - FRAME_HEADER))
    return [*range(0, last_frame, step), *range(last_frame, length + 1)]


def change_rows(path: Path, random: Random) -> None:
    """Drop, swap or alter what a record's row says."""
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute("SELECT position FROM turnline_records").fetchall()
        (one,), (two,) = random.sample(rows, 2)
        for statement in random.choice(CHANGES):
            connection.execute(statement, {"one": one, "two": two})


def swap(*columns: str, table: str = "turnline_records") -> tuple[str, ...]:
    """Exchange these columns of two rows."""
    listed = ", ".join(columns)
    return (
        f"CREATE TEMP TABLE kept AS SELECT {listed} FROM {table} WHERE position = :one",
        "UPDATE turnline_records SET channel = 'x', seq = -1 WHERE position = :one"
        if "seq" in columns
        else f"UPDATE {table} SET {columns[0]} = x'00' WHERE position = :one",
        f"CREATE TEMP TABLE other AS SELECT {listed} FROM {table} WHERE position = :two",
        f"UPDATE {table} SET ({listed}) = (SELECT {listed} FROM kept) WHERE position = :two",
        f"UPDATE {table} SET ({listed}) = (SELECT {listed} FROM other) WHERE position = :one",
    )


CHANGES: list[tuple[str, ...]] = [
    ("DELETE FROM turnline_records WHERE position = :one",),
    (
        "DELETE FROM turnline_records WHERE channel = "
        "(SELECT channel FROM turnline_records WHERE position = :one)",
    ),
    ("DELETE FROM turnline_records WHERE position >= :one",),
    ("UPDATE turnline_records SET head = substr(head, 1, length(head) - 1) WHERE position = :one",),
    ("UPDATE turnline_records SET head = x'' WHERE position = :one",),
    ("UPDATE turnline_records SET head = 'text' WHERE position = :one",),
    ("DELETE FROM turnline_contents WHERE position = :one",),
    ("DELETE FROM turnline_contents WHERE position >= :one",),
    ("UPDATE turnline_contents SET payload = substr(payload, 1, length(payload) - 1) WHERE position = :one",),
    ("UPDATE turnline_contents SET payload = x'' WHERE position = :one",),
    ("UPDATE turnline_contents SET payload = 'text' WHERE position = :one",),
    (
        "UPDATE turnline_records SET hash = (SELECT hash FROM turnline_records WHERE position = :two) "
        "WHERE position = :one",
    ),
    (
        "UPDATE turnline_records SET head = (SELECT head FROM turnline_records WHERE position = :two) "
        "WHERE position = :one",
    ),
    (
        "UPDATE turnline_contents SET payload = "
        "(SELECT payload FROM turnline_contents WHERE position = :two) "
        "WHERE position = :one",
    ),
    ("UPDATE turnline_records SET envelope_id = 'forged' WHERE position = :one",),
    ("UPDATE turnline_records SET seq = seq + 1000 WHERE position = :one",),
    (
        "INSERT INTO turnline_records (channel, seq, envelope_id, hash, head) SELECT channel, "
        "(SELECT max(seq) + 1 FROM turnline_records AS r WHERE r.channel = turnline_records.channel), "
        "'again', hash, head "
        "FROM turnline_records WHERE position = :one",
    ),
    swap("head"),
    swap("head", "hash"),
    swap("payload", table="turnline_contents"),
    swap("channel", "seq"),
]


async def test_the_undamaged_storage_reads_back(folder: Path, storage: Storage) -> None:
    path = damaged(folder, storage.main, storage.wal)
    assert await verdict(SqliteLog, path, storage.appends) == "same"
    path = damaged(folder, checkpointed(folder, storage))
    assert await verdict(SqliteLog, path, storage.appends) == "same"


async def test_a_torn_write_ahead_file_leaves_a_whole_beginning(folder: Path, storage: Storage) -> None:
    cuts = places(len(storage.wal))
    for cut in cuts:
        path = damaged(folder, storage.main, storage.wal[:cut])
        assert await whole_beginning(path, storage.appends), cut

    assert len(cuts) >= min(TORN, len(storage.wal))


async def test_bits_flipped_in_the_write_ahead_file_leave_a_whole_beginning(
    folder: Path, storage: Storage
) -> None:
    random = Random(SEED)
    for _ in range(FLIPS_IN_THE_WAL):
        index, mask = random.randrange(len(storage.wal)), 1 << random.randrange(8)
        path = damaged(folder, storage.main, flip_byte(storage.wal, index, mask=mask))
        assert await whole_beginning(path, storage.appends), (index, mask)


async def test_bits_flipped_in_the_file_are_detected_or_harmless(folder: Path, storage: Storage) -> None:
    main, random = checkpointed(folder, storage), Random(SEED)
    counts: Counter[str] = Counter()
    for _ in range(FLIPS_IN_THE_FILE):
        index, mask = random.randrange(len(main)), 1 << random.randrange(8)
        path = damaged(folder, flip_byte(main, index, mask=mask))
        told = await verdict(SqliteLog, path, storage.appends)
        assert told != "short", (index, mask)
        counts[told] += 1

    assert counts["detected"]
    assert counts["same"]


async def test_rows_dropped_swapped_or_altered_are_detected(folder: Path, storage: Storage) -> None:
    main, random = checkpointed(folder, storage), Random(SEED)
    for _ in range(CHANGED_ROWS):
        path = damaged(folder, main)
        change_rows(path, random)
        assert await verdict(SqliteLog, path, storage.appends) == "detected"


async def test_twin_without_the_checksum_a_wrong_envelope_is_returned_and_caught(
    folder: Path, storage: Storage
) -> None:
    main, random = checkpointed(folder, storage), Random(SEED)
    caught = 0
    for _ in range(CHANGED_ROWS):
        path = damaged(folder, main)
        change_rows(path, random)
        try:
            await verdict(TrustingLog, path, storage.appends)
        except WrongEnvelope:
            caught += 1

    assert caught > CHANGED_ROWS // 4
