"""The file of a `SqliteLog`: made, opened, rebuilt, or refused with a reason and left alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from turnline.errors import LogUnavailable
from turnline.log.sqlite import SqliteLog
from turnline.log.sqlite_file import FORMAT, NETWORK_FILE_SYSTEMS, Durability, LogFile, file_system
from turnline.testing.lines import closing_line, line, lines, say


def change(path: Path, *statements: str) -> None:
    """Change the file as no log would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    log = SqliteLog(tmp_path / "log.db")
    yield log
    await log.close()


@pytest.mark.parametrize(("durability", "synchronous"), [("power", 2), ("process", 1)])
async def test_durability_is_what_sqlite_is_told(
    tmp_path: Path, durability: Durability, synchronous: int
) -> None:
    """2 is FULL: a commit is synced before it is acknowledged. 1 is NORMAL."""
    log = SqliteLog(tmp_path / "log.db", durability=durability)
    file = LogFile(log.path, durability=durability, busy_timeout_seconds=1)

    with closing(file.connect()) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert log.durability == durability
    await log.close()


async def test_power_is_the_default_and_anything_else_is_refused(log: SqliteLog, tmp_path: Path) -> None:
    assert log.durability == "power"
    with pytest.raises(ValueError, match="'power' or 'process'"):
        SqliteLog(tmp_path / "other.db", durability="hope")  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["DELETE FROM turnline_heads", "DROP TABLE turnline_heads"])
async def test_heads_that_are_gone_are_rebuilt_from_the_records(log: SqliteLog, loss: str) -> None:
    await log.append("a", [line("a", 1), line("a", 2)], after=0)
    await log.append("b", [line("b", 1), closing_line("b", 2)], after=0)
    before = await log.channels()
    await log.close()
    change(log.path, loss)

    again = SqliteLog(log.path)
    assert await again.channels() == before
    assert [head.channel_id for head in await again.channels(closed=False)] == ["a"]
    assert await say(again, "a", "new") == 3
    assert len(await lines(again, "a")) == 3
    await again.close()


async def test_the_folder_is_made(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / ".turnline" / "deep" / "log.db")

    assert await say(log, "c", "first") == 1
    assert log.address == f"sqlite:///{tmp_path}/.turnline/deep/log.db"
    await log.close()


@pytest.mark.parametrize("path", [":memory:", ""])
def test_a_log_in_memory_is_another_class(path: str) -> None:
    with pytest.raises(LogUnavailable, match="MemoryLog"):
        SqliteLog(path)


def test_a_folder_is_not_a_log(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="folder"):
        SqliteLog(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
async def test_a_file_that_can_only_be_read_is_refused_at_once(log: SqliteLog, tmp_path: Path) -> None:
    await log.close()
    os.chmod(tmp_path / "log.db", 0o444)

    with pytest.raises(LogUnavailable, match="can only be read; let this user write the file"):
        SqliteLog(tmp_path / "log.db")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(LogUnavailable, match="file"):
        SqliteLog(tmp_path / "file" / "log.db")


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_text("Dear diary, " * 100)

    with pytest.raises(LogUnavailable, match="not a database"):
        SqliteLog(path)
    assert path.read_text() == "Dear diary, " * 100


def test_somebody_elses_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    change(path, "CREATE TABLE orders (id)")
    before = path.read_bytes()

    with pytest.raises(LogUnavailable, match="not a Turnline log"):
        SqliteLog(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1])
async def test_a_file_of_another_format_is_refused(log: SqliteLog, number: int) -> None:
    await log.close()
    change(log.path, f"PRAGMA user_version = {number}")

    with pytest.raises(LogUnavailable, match=f"its format is {number}, this program reads {FORMAT}"):
        SqliteLog(log.path)


def test_network_file_systems_are_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n")

    with pytest.raises(LogUnavailable, match=r"network file system \(nfs4\)"):
        SqliteLog(tmp_path / "log.db", mounts=mounts)
    assert not (tmp_path / "log.db").exists()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ann/log.db", "ext4"),
        ("/mnt/share/log.db", "cifs"),
        ("/mnt/share/deep/log.db", "cifs"),
        ("/mnt/shared/log.db", "ext4"),
        ("/mnt/my disk/log.db", "fuse.sshfs"),
        ("/mnt/twice/log.db", "tmpfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    mounts = (
        "/dev/vda / ext4 rw 0 0\n"
        "//server/share /mnt/share cifs rw 0 0\n"
        "me@host:/ /mnt/my\\040disk fuse.sshfs rw 0 0\n"
        "server:/x /mnt/twice nfs rw 0 0\n"
        "tmpfs /mnt/twice tmpfs rw 0 0\n"
    )
    assert file_system(Path(path), mounts) == kind
    assert {"cifs", "fuse.sshfs", "nfs"} <= NETWORK_FILE_SYSTEMS


def test_without_a_list_of_mounts_nothing_is_refused(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", mounts=tmp_path / "none")

    asyncio.run(log.close())


async def test_two_processes_may_make_one_file_at_once(tmp_path: Path) -> None:
    script = "import sys; from turnline.log.sqlite import SqliteLog; SqliteLog(sys.argv[1])"
    path = tmp_path / "log.db"
    racers = [await asyncio.create_subprocess_exec(sys.executable, "-c", script, path) for _ in range(4)]

    assert await asyncio.gather(*(racer.wait() for racer in racers)) == [0, 0, 0, 0]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)


async def test_a_log_that_was_copied_away_is_the_same_log(log: SqliteLog, tmp_path: Path) -> None:
    await log.append("c", [line("c", 1)], after=0)
    await log.close()
    shutil.copy(log.path, tmp_path / "copy.db")

    copy = SqliteLog(tmp_path / "copy.db")
    assert await lines(copy, "c") == [line("c", 1)]
    await copy.close()


async def test_a_log_without_its_records_is_not_begun_anew(log: SqliteLog) -> None:
    await log.append("c", [line("c", 1)], after=0)
    await log.close()
    change(log.path, "ALTER TABLE turnline_records RENAME TO recordz")

    with pytest.raises(LogUnavailable, match="backup"):
        SqliteLog(log.path)
