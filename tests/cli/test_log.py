"""`turnline log`: exit codes, pipes, what is printed, and an import that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from turnline.cli import app
from turnline.cli.new import run as new_project
from turnline.core.codec import Record
from turnline.errors import BadExport, ChannelPruned, LogUnavailable
from turnline.log.export_file import PART_BYTES
from turnline.log.records import open_records
from turnline.log.sqlite import SqliteLog
from turnline.testing import damage_sqlite
from turnline.testing.lines import closing_line, line
from turnline.testing.manual_clock import ManualClock

from ..hub.scenes import A_B, house
from .projects import call, turnline

CHANNELS = 12
LONG_PAST = datetime(2020, 6, 1, tzinfo=UTC)
ROWS = 600
LOOK_AGAIN_SECONDS = 0.05
SAFETY_SECONDS = 60.0


def a_log(path: Path) -> Path:
    """Small channels, and one that an import needs several appends for. The fold leaves `_` names alone."""
    asyncio.run(_fill(path))
    return path


async def _fill(path: Path) -> None:
    log = SqliteLog(path, durability="process")
    for number in range(CHANNELS):
        name = f"_c{number:02}"
        await log.append(name, [line(name, 1), line(name, 2), closing_line(name, 3)], after=0)
    for seq in range(1, 8):
        await log.append("_long", [line("_long", seq, data={"text": "x" * (PART_BYTES // 3)})], after=seq - 1)
    await log.close()


def kept(path: Path) -> dict[str, list[Record]]:
    return asyncio.run(_kept(path))


async def _kept(path: Path) -> dict[str, list[Record]]:
    records = await open_records(str(path))
    try:
        return {name: [one async for one in records.read(name)] async for name in records.channels()}
    finally:
        await records.close()


def test_a_good_log_is_exit_code_0(tmp_path: Path) -> None:
    told = call("log", "verify", str(a_log(tmp_path / "log.db")))

    assert told.code == 0
    assert "13 channels, 43 records" in told.out


def test_a_bad_record_is_exit_code_1_and_named(tmp_path: Path) -> None:
    path = a_log(tmp_path / "log.db")
    damage_sqlite(path, "_c03", 2)

    told = call("log", "verify", str(path))
    [bad] = json.loads(call("log", "verify", str(path), "--json").out)["bad"]

    assert told.code == 1
    assert "channel '_c03', seq 2: found its checksum does not match its bytes" in told.out
    assert (bad["channel_id"], bad["seq"]) == ("_c03", 2)


@pytest.mark.parametrize("verb", ["verify", "stats", "export"])
@pytest.mark.parametrize(
    "address", ["none.db", "sqlite:///none.db", "nowhere://user:hidden@host/db", "memory:"]
)
def test_a_log_that_cannot_be_looked_at_is_exit_code_2_and_is_not_made(
    verb: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    told = call("log", verb, address)

    assert (told.code, told.out) == (2, "")
    assert told.err
    assert "hidden" not in told.err
    assert list(tmp_path.iterdir()) == []


def test_stats_count_for_people_and_for_scripts(tmp_path: Path) -> None:
    path = a_log(tmp_path / "log.db")

    told = json.loads(call("log", "stats", str(path), "--json").out)

    assert (told["open"], told["closed"], told["records"]) == (1, CHANNELS, 43)
    assert told["largest"][0]["channel_id"] == "_long"
    assert "_long" in call("log", "stats", str(path)).out


def test_export_to_import_through_a_pipe(tmp_path: Path) -> None:
    path = a_log(tmp_path / "log.db")
    program = f"{sys.executable} -m turnline log"

    piped = f"{program} export log.db | {program} import - other.db"
    done = subprocess.run(
        piped, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert "43 records written" in done.stdout
    assert kept(tmp_path / "other.db") == kept(path)


def test_a_file_is_read_through_before_anything_is_written(tmp_path: Path) -> None:
    path, file, target = a_log(tmp_path / "log.db"), tmp_path / "log.jsonl", tmp_path / "new.db"
    call("log", "export", str(path), "-o", str(file))
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])

    with pytest.raises(BadExport) as told:
        call("log", "import", str(file), str(target))

    assert told.value.line == whole.count(b"\n")
    assert not target.exists()


def test_an_export_that_fails_leaves_no_file_and_an_earlier_one_as_it_was(tmp_path: Path) -> None:
    path, file = a_log(tmp_path / "log.db"), tmp_path / "log.jsonl"
    file.write_bytes(b"an earlier one")

    told = call("log", "export", str(path), "-o", str(file), "--channel", "_nobody")

    assert told.code != 0
    assert file.read_bytes() == b"an earlier one"
    assert [one.name for one in tmp_path.glob("*.part")] == []


def test_what_could_not_be_exported_and_what_differs_are_exit_code_1(tmp_path: Path) -> None:
    path, file = a_log(tmp_path / "log.db"), tmp_path / "log.jsonl"
    call("log", "export", str(path), "-o", str(file))
    asyncio.run(_other(tmp_path / "other.db"))
    damage_sqlite(path, "_c03", 2)

    export = call("log", "export", str(path), "-o", str(tmp_path / "less.jsonl"))
    differs = call("log", "import", str(file), str(tmp_path / "other.db"))

    assert (export.code, differs.code) == (1, 1)
    assert "'_c03'" in export.err
    assert "channel '_c01' is there already, and differs at seq 1" in differs.err


async def _other(path: Path) -> None:
    log = SqliteLog(path, durability="process")
    await log.append("_c01", [line("_c01", 1, envelope_id="mine")], after=0)
    await log.close()


def test_an_address_in_the_place_of_the_file_is_told_and_not_shown() -> None:
    told = call("log", "import", "postgresql://me:hidden@host/db", "export.jsonl")

    assert (told.code, told.out) == (2, "")
    assert "expected a file first, then the address" in told.err
    assert "hidden" not in told.err


def test_an_import_killed_in_the_middle_is_completed_by_the_next(tmp_path: Path) -> None:
    path, file, target = a_log(tmp_path / "log.db"), tmp_path / "log.jsonl", tmp_path / "new.db"
    call("log", "export", str(path), "-o", str(file))
    content = file.read_bytes()
    command = [sys.executable, "-m", "turnline", "log", "import", "-", str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as importing:
        assert importing.stdin is not None
        # Up to the last record but one of the long channel: the rest of it never comes.
        importing.stdin.write(content[: content.index(b'"channel":"_long","seq":6')])
        importing.stdin.flush()
        wait_for_records(target, "_long")
        os.kill(importing.pid, signal.SIGKILL)
    before = kept(target)

    told = call("log", "import", str(file), str(target))

    assert importing.returncode == -signal.SIGKILL
    assert 0 < len(before["_long"]) < 7
    assert told.code == 0
    assert kept(target) == kept(path)
    assert call("log", "verify", str(target)).code == 0


@pytest.mark.parametrize(
    ("cut", "rows_before"), [(b"ticket 400", 0), (b'"channel":"_long","seq":6', ROWS)], ids=["rows", "lines"]
)
def test_an_import_of_rows_killed_in_the_middle_is_completed_by_the_next(
    tmp_path: Path, cut: bytes, rows_before: int
) -> None:
    folder, file, target = tmp_path / "leads", tmp_path / "log.jsonl", tmp_path / "new.db"
    path = a_log_with_tickets(folder)
    call("log", "export", str(path), "--with-data", "--dir", str(folder), "-o", str(file))
    content = file.read_bytes()
    command = [sys.executable, "-m", "turnline", "log", "import", "-", str(target), "--dir", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as importing:
        assert importing.stdin is not None
        importing.stdin.write(content[: content.index(cut)])
        importing.stdin.flush()
        wait_until(lambda: "_long" in kept(target) if rows_before else tickets(target) is not None)
        os.kill(importing.pid, signal.SIGKILL)
    before = tickets(target)

    first, second = (call("log", "import", str(file), str(target), "--dir", str(folder)) for _ in range(2))

    assert before is not None
    assert len(before) == rows_before
    assert (first.code, second.code) == (0, 0)
    assert f"{ROWS - rows_before} rows written, {rows_before} there already" in first.out
    assert f"0 rows written, {ROWS} there already" in second.out
    assert kept(target) == kept(path)
    assert tickets(target) == tickets(path)


def a_log_with_tickets(folder: Path) -> Path:
    """Rows that an import needs several parts for."""
    new_project(folder)
    path = a_log(folder / ".turnline" / "log.db")
    call("db", "apply", str(folder))
    at, text = "2030-01-01 00:00:00.000000", "x" * 2_000
    rows = [(str(UUID(int=number)), at, at, f"ticket {number}", text, "open") for number in range(ROWS)]
    with closing(sqlite3.connect(path)) as connection, connection:
        names = "(id, created_at, updated_at, email, text, status)"
        connection.executemany(f"INSERT INTO ticket {names} VALUES (?, ?, ?, ?, ?, ?)", rows)
    return path


def tickets(path: Path) -> list[tuple[object, ...]] | None:
    """The rows; None if there is no table yet."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            return connection.execute("SELECT * FROM ticket ORDER BY id").fetchall()
        except sqlite3.OperationalError:
            return None


def wait_for_records(path: Path, channel_id: str) -> None:
    wait_until(lambda: bool(kept(path).get(channel_id)))


def wait_until(is_there: Callable[[], bool]) -> None:
    until = time.monotonic() + SAFETY_SECONDS
    while time.monotonic() < until:
        try:
            if is_there():
                return
        except LogUnavailable:
            pass  # It is not there yet.
        time.sleep(LOOK_AGAIN_SECONDS)
    raise AssertionError("the import has not written it")


def test_every_verb_shows_an_example() -> None:
    for verb in ("verify", "stats", "export", "import"):
        assert "Example: turnline log" in call("log", verb, "--help").out


def test_nothing_of_the_progress_goes_to_a_pipe(tmp_path: Path) -> None:
    a_log(tmp_path / "log.db")

    told = turnline("log", "verify", "log.db", cwd=tmp_path)

    assert (told.code, told.err) == (0, "")
    assert app.info.name == "turnline"


def test_y2_log_erase_removes_what_was_said_from_the_files(tmp_path: Path) -> None:
    path = asyncio.run(_talked(tmp_path / "log.db"))
    opened, closed = "open", "closed"

    refused = call("log", "erase", str(path), opened)
    done = call("log", "erase", str(path), closed, "--compact", "--json")
    again = call("log", "erase", str(path), closed)

    assert (refused.code, done.code, again.code) == (1, 0, 0)
    assert "is open" in refused.err
    assert json.loads(done.out)["channels"][closed] > 0
    assert "0 lines" in again.out
    assert not [one for one in tmp_path.iterdir() if b"I am Bob" in one.read_bytes()]
    assert call("log", "verify", str(path)).code == 0


@pytest.mark.parametrize("lines", ["x", "1-", "-1", "1;2", "1.5"])
def test_y2_log_erase_names_lines_by_numbers_and_ranges(tmp_path: Path, lines: str) -> None:
    assert call("log", "erase", str(a_log(tmp_path / "log.db")), "c", f"--lines={lines}").code == 2


async def _talked(path: Path) -> Path:
    async with house(SqliteLog(path), "alice", "bob") as home:
        for name in ("open", "closed"):
            channel = await home.open(A_B, channel_id=name)
            await channel.send("I am Bob" if name == "closed" else "hello")
        await channel.close()
    return path


async def _close_old(path: Path, *names: str) -> None:
    """Let channels close in the year 2020."""
    log = SqliteLog(path, durability="process")
    async with house(log, "alice", "bob", clock=ManualClock(LONG_PAST)) as home:
        for name in names:
            channel = await home.open(A_B, channel_id=name, labels={"team": name}, message="hello")
            await home.handle("bob", channel).send("good bye")


def _channels(path: Path) -> dict[str, list[Record]]:
    return {name: records for name, records in kept(path).items() if not name.startswith("_")}


def test_y3_prune_says_what_it_does_and_an_import_brings_it_back(tmp_path: Path) -> None:
    path, archive = tmp_path / "log.db", tmp_path / "old.jsonl"
    asyncio.run(_close_old(path, "one", "two"))
    before = _channels(path)
    words = ["log", "prune", str(path), "--closed-before", "2021-01-01"]

    assert call(*words, "--dry-run").out == "would prune 2 channels of 2 trees\n"
    asked = call(*words)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert _channels(path) == before

    assert "pruned 0 channels" in call(*words, "--label", "team=green", "--yes").out
    done = call(*words, "--yes", "--archive", str(archive), "--json")
    assert json.loads(done.out)["channels"] == 2
    assert _channels(path) == {}
    assert "2 pruned" in call("log", "verify", str(path)).out
    assert "pruned 0 channels" in call(*words, "--yes").out
    with pytest.raises(ChannelPruned):
        asyncio.run(_close_old(path, "one"))

    assert call("log", "import", str(archive), str(path)).code == 0
    assert _channels(path) == before
    refused = call(*words, "--yes", "--archive", str(archive))
    assert (refused.code, "is there already" in refused.err) == (1, True)
    assert _channels(path) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--closed-before", "90"], "such as 90d"),
        (["--closed-before", "0d"], "such as 90d"),
        (["--closed-before", "2999-01-01"], "in the future"),
        (["--closed-before", "90d", "--label", "red"], "KEY=VALUE"),
        (["--closed-before", "90d", "--archive", "nowhere/"], "no folder"),
    ],
)
def test_y3_prune_refuses_what_it_cannot_read(tmp_path: Path, words: list[str], said: str) -> None:
    asyncio.run(_close_old(tmp_path / "log.db", "one"))

    found = call("log", "prune", str(tmp_path / "log.db"), *words, "--yes")

    assert (found.code, said in found.err) == (2, True), found.err
    assert "one" in kept(tmp_path / "log.db")


def test_y3_a_log_that_was_not_used_for_long_is_pruned_by_date_only(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    asyncio.run(_close_old(path, "one"))

    found = call("log", "prune", str(path), "--closed-before", "90d", "--yes")

    assert ("pruned 0 channels" in found.out, "give a date" in found.err) == (True, True)
    found = call("log", "prune", str(path), "--closed-before", "2021-01-01", "--yes")
    assert "pruned 1 channel of 1 tree" in found.out
