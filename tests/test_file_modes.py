"""Logs, rows, exports and keys are readable by their owner only, also with umask 000 (Y11)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.projects import call, project
from tests.flow.data.stage import model, opened, unit
from turnline.cli.new import run as new_project
from turnline.flow.key_file import create_key_file
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line

FLOW = (
    "steps: [{id: hello, response: {mapping: {text: text}}}]\ntrigger: {path: /hi, input: {text: string}}\n"
)


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


async def fill(path: Path) -> SqliteLog:
    log = SqliteLog(path)
    await log.append("talk", [line("talk", 1)], after=0)
    return log


async def test_a_log_its_wal_and_its_folders_are_their_owners_only(tmp_path: Path) -> None:
    log = await fill(tmp_path / "leads" / ".turnline" / "log.db")

    found = {path.name: mode(path) for path in log.path.parent.iterdir()}
    await log.close()
    assert found == {"log.db": "0o600", "log.db-wal": "0o600", "log.db-shm": "0o600"}
    assert mode(log.path.parent) == mode(log.path.parent.parent) == "0o700"


async def test_a_file_of_data_models_and_its_wal_are_their_owners_only(tmp_path: Path) -> None:
    file = tmp_path / "rows" / "data.db"
    url = f"sqlite:///{file}"
    async with opened(MemoryLog(), url=url, models=[model("Lead", {})]) as data, unit(data) as work:
        await work.db["Lead"].add()
        await work.commit_alone()
        found = {path.name: mode(path) for path in file.parent.iterdir()}

    assert found == {"data.db": "0o600", "data.db-wal": "0o600", "data.db-shm": "0o600"}
    assert mode(file.parent) == "0o700"


async def test_a_log_that_is_there_keeps_the_mode_that_its_owner_gave_it(tmp_path: Path) -> None:
    log = await fill(tmp_path / "log.db")
    await log.close()
    log.path.chmod(0o640)
    await SqliteLog(log.path).close()

    assert mode(log.path) == "0o640"


@pytest.mark.parametrize("name", ["backup.jsonl", "backup.jsonl.part"])
def test_an_export_is_its_owners_only_also_in_the_place_of_another_file(tmp_path: Path, name: str) -> None:
    new_project(tmp_path / "leads")
    (tmp_path / name).write_text("what an earlier export left")
    flow, log = tmp_path / "leads" / "workflows" / "ticket.yaml", tmp_path / "log.db"
    call("run", str(flow), "-i", "email=ann@example.com", "-i", "text=Hello", "--log", str(log))

    assert call("log", "export", str(log), "-o", str(tmp_path / "backup.jsonl")).code == 0
    assert mode(tmp_path / "backup.jsonl") == "0o600"


def test_exports_of_runs_and_recordings_are_their_owners_only(tmp_path: Path) -> None:
    folder = project(tmp_path / "it", workflows__main_yaml=FLOW)
    log, record = f"sqlite:///{tmp_path}/log.db", tmp_path / "recorded.json"
    done = call("run", str(folder), "-i", "text=hi", "--log", log, "--run", "one", "--record", str(record))
    call("runs", "export", "one", "--log", log, "-o", str(tmp_path / "run.json"))

    assert done.code == 0, done.err
    assert {mode(tmp_path / name) for name in ("recorded.json", "run.json")} == {"0o600"}


def test_a_folder_that_a_key_makes_is_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / ".turnline" / "auth.key"
    create_key_file(path, do="")

    assert (mode(path), mode(path.parent)) == ("0o600", "0o700")
