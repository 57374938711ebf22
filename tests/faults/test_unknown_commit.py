"""An error from COMMIT means *unknown*: what the writer answers is what it then finds in the file."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnline.errors import LogUnavailable
from turnline.log.sqlite_file import LogFile
from turnline.log.sqlite_work import Append, DeleteSnapshots, SaveSnapshot, Work
from turnline.log.sqlite_writer import Writer
from turnline.testing.lines import line


class FaultyFile(LogFile):
    """A file whose connections fail at COMMIT when told to, before or after the disk has it."""

    fault: Callable[[sqlite3.Connection], None] | None = None

    def connect(self) -> sqlite3.Connection:
        file = self

        class Faulty(sqlite3.Connection):
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if sql == "COMMIT" and file.fault is not None:
                    fault, file.fault = file.fault, None
                    fault(self)
                return super().execute(sql, *parameters)

        return sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, factory=Faulty)


def io_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = code, "SQLITE_IOERR_TEST"
    return error


def committed(connection: sqlite3.Connection) -> None:
    """The disk has it, but the answer is lost."""
    connection.commit()
    raise io_error(sqlite3.SQLITE_IOERR_UNLOCK)


def not_committed(_: sqlite3.Connection) -> None:
    raise io_error(sqlite3.SQLITE_IOERR_WRITE)


def not_synced(connection: sqlite3.Connection) -> None:
    """It can be read, but nobody knows whether the disk has it."""
    connection.commit()
    raise io_error(sqlite3.SQLITE_IOERR_FSYNC)


@pytest.fixture
def file(tmp_path: Path) -> FaultyFile:
    return FaultyFile(tmp_path / "log.db", durability="power", busy_timeout_seconds=1)


@pytest.fixture(params=[0.0, math.inf], ids=["thread", "loop"])
async def writer(file: FaultyFile, request: pytest.FixtureRequest) -> AsyncIterator[Writer]:
    writer = Writer(file, committed=lambda _: None, loop_seconds=request.param)
    yield writer
    writer.close()


def seqs(file: FaultyFile) -> list[int]:
    with closing(sqlite3.connect(file.path)) as connection:
        return [seq for (seq,) in connection.execute("SELECT seq FROM turnline_records ORDER BY seq")]


async def test_what_landed_is_answered_as_a_success(file: FaultyFile, writer: Writer) -> None:
    file.fault = committed
    await writer.submit(Append("c", [line("c", 1), line("c", 2)], after=0))

    assert seqs(file) == [1, 2]


async def test_what_did_not_land_is_unavailable_and_can_be_sent_again(
    file: FaultyFile, writer: Writer
) -> None:
    file.fault = not_committed
    with pytest.raises(LogUnavailable, match="SQLITE_IOERR_TEST"):
        await writer.submit(Append("c", [line("c", 1)], after=0))

    assert seqs(file) == []
    assert writer.stats().read_only
    await writer.submit(Append("c", [line("c", 1)], after=0))
    assert seqs(file) == [1]
    assert not writer.stats().read_only


async def test_a_failed_sync_is_never_a_success_even_if_it_can_be_read(
    file: FaultyFile, writer: Writer
) -> None:
    file.fault = not_synced
    with pytest.raises(LogUnavailable):
        await writer.submit(Append("c", [line("c", 1)], after=0))

    assert seqs(file) == [1]


async def test_while_the_probe_fails_nothing_is_tried(file: FaultyFile, writer: Writer) -> None:
    file.fault = not_committed
    with pytest.raises(LogUnavailable):
        await writer.submit(Append("c", [line("c", 1)], after=0))
    tried = writer.stats().transactions
    file.fault = not_committed
    with pytest.raises(LogUnavailable, match="SQLITE_IOERR_TEST"):
        await writer.submit(Append("c", [line("c", 1)], after=0))

    assert writer.stats().transactions == tried
    assert writer.stats().read_only


@pytest.mark.parametrize("work", [SaveSnapshot("c", seq=1, body=b"state"), DeleteSnapshots()])
async def test_snapshots_are_looked_up_too(file: FaultyFile, writer: Writer, work: Work) -> None:
    file.fault = committed
    await writer.submit(work)
