"""A damaged SQLite file: every healthy channel is served again, and the report says what was lost (Y5)."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from turnline.errors import CorruptRecord, LogUnavailable
from turnline.log.base import Blobs
from turnline.log.blobs import read_blob
from turnline.log.sqlite import SqliteLog
from turnline.log.sqlite_file import FILE_PAGE_BYTES
from turnline.log.sqlite_salvage import read_damaged
from turnline.testing.blob_contract import write as write_file
from turnline.testing.damage import flip_byte
from turnline.testing.lines import line

from ..cli.projects import Called, call, turnline
from ..faults.counts import REPAIRED_PAGES
from ..hub.scenes import A_B_A, house
from .backends import Place
from .test_repair import Story
from .test_verify import spoken

PAGE = FILE_PAGE_BYTES
FILES = 3
FILE = b"0123456789abcdef" * 512


class Project(Story):
    """A log with an open conversation, many other channels, and a table of the project's own."""

    def __init__(self, path: Path) -> None:
        super().__init__(Place("sqlite", f"sqlite:///{path}"))

    async def begin(self) -> None:
        await super().begin()
        async with self.place.log() as log:
            for number in range(30):
                name = f"c{number:02}"
                await log.append(name, spoken(name, 6), after=0)
            await log.append(
                "long", [*spoken("long", 1), line("long", 2, data={"text": "x" * 9000})], after=0
            )
            for number in range(FILES):
                await write_file(log, "long", FILE * (number + 1), blob_id=f"file-{number}")
        with closing(sqlite3.connect(self.place.path)) as connection, connection:
            connection.execute("CREATE TABLE lead (id INTEGER PRIMARY KEY, name TEXT, note BLOB)")
            rows = [(number, f"lead {number}", bytes(200)) for number in range(1, 101)]
            connection.executemany("INSERT INTO lead VALUES (?, ?, ?)", rows)
        self.kept = await self.place.kept()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    told = Project(tmp_path_factory.mktemp("project") / "log.db")
    asyncio.run(told.begin())
    return told


def copy_of(project: Project, folder: Path) -> Project:
    folder.mkdir()
    path = folder / "log.db"
    shutil.copyfile(project.place.path, path)
    twin = Project(path)
    twin.ids, twin.channel_id, twin.kept = project.ids, project.channel_id, project.kept
    return twin


def repaired(twin: Project) -> dict[str, object]:
    done = call("log", "repair", str(twin.place.path), "--yes", "--json")
    report = dict(json.loads(done.out))
    assert done.code == (1 if report["damaged"] or report["damaged_files"] else 0), done
    return report


def check(twin: Project, report: dict[str, object]) -> None:
    """Every channel that is not reported is as it was, and the conversation ends."""
    lost = {*report["lost"], *report["damaged"], *(one["channel"] for one in report["channels"])}  # type: ignore[misc,attr-defined]
    after = asyncio.run(twin.place.kept())
    healthy = {name: rows for name, rows in twin.kept.items() if name not in lost and name != "_mark-seals"}
    assert {name: rows for name, rows in after.items() if name in healthy} == healthy
    found = asyncio.run(twin.verdict())
    assert {bad.channel_id for bad in found.bad} <= lost, (found.bad, lost)
    assert found.storage == []
    assert asyncio.run(count_files(twin)) + report["lost_files"] == FILES  # type: ignore[operator]
    if twin.channel_id not in lost:
        asyncio.run(twin.finish(damaged=lost))


async def count_files(twin: Project) -> int:
    """Return how many files of messages are there. Each is what it was, or says that it is damaged."""
    async with twin.place.log() as log:
        assert isinstance(log, Blobs)
        found = await log.blobs("long")
        for one in found:
            with suppress(CorruptRecord):
                content = b"".join([chunk async for chunk in read_blob(log, one)])
                assert sha256(content).hexdigest() == one.digest
    return len(found)


def test_a_log_with_files_is_good(project: Project) -> None:
    assert asyncio.run(project.verdict()).is_good


def test_a_zeroed_page_costs_what_was_on_it(project: Project, tmp_path: Path) -> None:
    content = project.place.path.read_bytes()
    pages = list(range(len(content) // PAGE))
    Random(5).shuffle(pages)
    for number in list(dict.fromkeys([0, *pages]))[:REPAIRED_PAGES]:
        twin = copy_of(project, tmp_path / f"zeroed-{number}")
        damaged = content[: number * PAGE] + bytes(PAGE) + content[(number + 1) * PAGE :]
        twin.place.path.write_bytes(damaged)

        report = repaired(twin)

        check(twin, report)
        if report["file"]["kept_as"]:  # type: ignore[index]
            assert Path(f"{twin.place.path}.damaged").read_bytes() == damaged


def test_a_flipped_bit_anywhere_in_the_file_leaves_the_other_channels_as_they_were(
    project: Project, tmp_path: Path
) -> None:
    content, random = project.place.path.read_bytes(), Random(9)
    for number in range(REPAIRED_PAGES):
        twin = copy_of(project, tmp_path / f"flipped-{number}")
        bit = random.randrange(len(content) * 8)
        twin.place.path.write_bytes(flip_byte(content, bit // 8, mask=1 << bit % 8))

        check(twin, repaired(twin))


@pytest.mark.parametrize("name", ["_directory", "_audit", "c07"])
@pytest.mark.parametrize("change", ["id = 'x' || id", "mark = mark + 1"])
def test_a_damaged_name_of_a_channel_is_found_again(
    project: Project, tmp_path: Path, name: str, change: str
) -> None:
    twin = copy_of(project, tmp_path / "name")
    with closing(sqlite3.connect(twin.place.path)) as connection, connection:
        connection.execute(f"UPDATE turnline_names SET {change} WHERE id = '{name}'")

    report = repaired(twin)

    assert (report["lost"], report["damaged"], report["channels"]) == ({}, {}, [])
    check(twin, report)


def test_a_changed_letter_in_the_schema_is_repaired(project: Project, tmp_path: Path) -> None:
    twin = copy_of(project, tmp_path / "schema")
    content = twin.place.path.read_bytes()
    twin.place.path.write_bytes(content.replace(b"row BLOB", b"rov BLOB"))

    report = repaired(twin)

    assert (report["lost"], report["damaged"], report["channels"]) == ({}, {}, [])
    check(twin, report)


@pytest.mark.parametrize("pages", [1, 2])
@pytest.mark.parametrize("odd", [0, 100])
def test_a_file_cut_at_the_end_is_salvaged(project: Project, tmp_path: Path, pages: int, odd: int) -> None:
    twin = copy_of(project, tmp_path / "cut")
    content = twin.place.path.read_bytes()
    twin.place.path.write_bytes(content[: len(content) - pages * PAGE + odd])

    report = repaired(twin)

    assert report["file"]["kept_as"]  # type: ignore[index]
    check(twin, report)


def test_a_file_cut_at_the_end_with_its_wal_is_salvaged(project: Project, tmp_path: Path) -> None:
    twin = copy_of(project, tmp_path / "wal")
    path = twin.place.path
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM lead").fetchone()  # Another connection keeps the -wal file.
        asyncio.run(append(path))
        wal, main = Path(f"{path}-wal").read_bytes(), path.read_bytes()
    (tmp_path / "again").mkdir()
    again = Project(tmp_path / "again" / "log.db")
    again.ids, again.channel_id, again.kept = twin.ids, twin.channel_id, twin.kept
    again.place.path.write_bytes(main[:-PAGE])
    Path(f"{again.place.path}-wal").write_bytes(wal)

    report = repaired(again)

    assert report["file"]["kept_as"]  # type: ignore[index]
    check(again, report)
    assert len(asyncio.run(again.place.kept())["late"]) == 4


async def append(path: Path) -> None:
    log = SqliteLog(path)
    await log.append("late", spoken("late", 4), after=0)
    await log.close()


def test_rows_of_the_project_are_copied(project: Project, tmp_path: Path) -> None:
    twin = copy_of(project, tmp_path / "rows")
    content = twin.place.path.read_bytes()
    twin.place.path.write_bytes(content[:-PAGE])

    repaired(twin)

    with closing(sqlite3.connect(twin.place.path)) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM lead").fetchone()
    assert rows >= 60


def test_without_yes_nothing_is_written(project: Project, tmp_path: Path) -> None:
    twin = copy_of(project, tmp_path / "plan")
    content = twin.place.path.read_bytes()[:-PAGE]
    twin.place.path.write_bytes(content)

    done = call("log", "repair", str(twin.place.path))

    assert (done.code, "the file is damaged" in done.out, "--yes" in done.err) == (1, True, True)
    assert twin.place.path.read_bytes() == content
    assert [one.name for one in twin.place.path.parent.iterdir() if "damaged" in one.name] == []


def test_a_healthy_log_is_left_alone(project: Project, tmp_path: Path) -> None:
    twin = copy_of(project, tmp_path / "healthy")
    content = twin.place.path.read_bytes()

    done = call("log", "repair", str(twin.place.path), "--yes")

    assert done == Called(0, "nothing to repair: every system channel is good\n", "")
    assert twin.place.path.read_bytes() == content


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"hello" * 5000)

    done = call("log", "repair", str(tmp_path / "log.db"), "--yes")

    assert (done.code, "nothing of a Turnline log" in done.err) == (2, True)
    with pytest.raises(LogUnavailable):
        read_damaged(tmp_path / "log.db")


def test_a_log_that_another_process_has_open_is_refused(project: Project, tmp_path: Path) -> None:
    twin = copy_of(project, tmp_path / "used")
    program = (
        "import sys; from turnline.log.sqlite import SqliteLog; log = SqliteLog(sys.argv[1]); "
        "print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(twin.place.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"

        done = turnline("log", "repair", str(twin.place.path), "--yes", cwd=tmp_path)

        other.kill()
    assert (done.code, "another process has it open" in done.err) == (2, True)


async def test_a_conversation_of_the_salvaged_file_has_the_same_participants(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with house(SqliteLog(path), "alice", "bob") as home:
        channel = await home.open(A_B_A)

    found = read_damaged(path)

    assert channel.channel_id in {one.channel_id for one in found.channels}
    assert all(not one.lost for one in found.channels)
