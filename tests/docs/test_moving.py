"""Every command of the page on backup and moving is run, in its order, against each backend (Y10)."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks_of
from tests.log.backends import KEPT_KINDS, MakePlace, Place, make_place
from tests.nats_servers import nats_server
from tests.postgres import postgres, run as run_sql
from turnline.cli.new import run as new_project
from turnline.core.codec import Record
from turnline.log.base import MARK_PREFIX

__all__ = ["make_place", "nats_server", "postgres"]

PAGE = DOCS / "operations" / "moving.md"
COMMANDS = [text for block in blocks_of(PAGE, "sh") for text in block.text.splitlines()]
DATABASE, FLOW = (block.text for block in blocks_of(PAGE, "yaml"))
START, FINISH = (text for text in COMMANDS if text.startswith("turnline run"))
MOVE = [text for text in COMMANDS if "move.jsonl" in text or text == "turnline log verify $TARGET"]
WAITS = 3
OWN = "leads/.turnline/log.db"


def project(folder: Path) -> None:
    new_project(folder / "leads")
    (folder / "leads" / "workflows" / "approval.yaml").write_text(FLOW)


def typed(command: str, folder: Path, *, source: str = "", target: str = "") -> str:
    """Run a command as somebody types it, and return what it prints. `START` leaves a run that waits."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "SOURCE": source, "TARGET": target},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == (WAITS if command == START else 0), f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def move(folder: Path, source: str, target: str, *, database: str | None = None) -> None:
    """Move as the page says; `database` is what turnline.yaml says of it from the export on."""
    exporting, importing, verifying = MOVE
    settings = folder / "leads" / "turnline.yaml"
    typed(exporting, folder, source=source, target=target)
    if database is not None:
        settings.write_text(database)
    typed(importing, folder, source=source, target=target)
    typed(verifying, folder, source=source, target=target)


def tickets(place: str) -> list[tuple[object, ...]]:
    statement = "SELECT email, status FROM ticket"
    if place.startswith("postgres"):
        return run_sql(place, statement)
    with closing(sqlite3.connect(place)) as connection:
        return connection.execute(statement).fetchall()


def lines_of(place: Place) -> dict[str, list[Record]]:
    """Everything that is kept, byte by byte, except marks of trust: these stay with their log."""
    kept = asyncio.run(place.kept())
    return {name: records for name, records in kept.items() if not name.startswith(MARK_PREFIX)}


@pytest.mark.parametrize("kind", KEPT_KINDS)
def test_every_command_of_the_page_does_what_it_says(
    kind: str, tmp_path: Path, make_place: MakePlace
) -> None:
    project(tmp_path)
    source = Place("sqlite", f"sqlite:///{tmp_path / OWN}")
    target = make_place(kind)
    typed(START, tmp_path, source=source.address)

    # What does not depend on the target is run once.
    commands = [text for text in COMMANDS if text not in (START, FINISH)]
    commands = [text for text in commands if kind == "sqlite" or "$TARGET" in text or "$SOURCE" in text]
    assert len(commands) >= 5
    for command in commands:
        if "import move.jsonl" in command and kind == "nats":
            (tmp_path / "leads" / "turnline.yaml").write_text(DATABASE)
        typed(command, tmp_path, source=source.address, target=target.address)

    kept = lines_of(target)
    assert kept.pop("_doctor")
    assert kept == lines_of(source)
    if kind == "sqlite":
        restored = tmp_path / "restored.db"
        assert lines_of(Place("sqlite", f"sqlite:///{restored}")) == kept
        assert tickets(str(restored)) == tickets(str(tmp_path / OWN))


def test_a_run_that_waits_moves_to_postgres_and_back_with_its_rows_and_then_finishes(
    tmp_path: Path, make_place: MakePlace
) -> None:
    project(tmp_path)
    there, back = make_place("postgres").address, "sqlite:///back.db"
    typed(START, tmp_path, source=OWN)
    move(tmp_path, OWN, there)
    assert tickets(there) == [("ann@example.com", "open")]
    move(tmp_path, there, back)

    said = typed(FINISH, tmp_path, target=back)

    assert json.loads(said[said.index("{") :])["status"] == "urgent"
    assert tickets(str(tmp_path / "back.db")) == [("ann@example.com", "urgent")]
    assert tickets(there) == tickets(str(tmp_path / OWN)) == [("ann@example.com", "open")]


@pytest.mark.parametrize("comes_back", [False, True], ids=["stays", "comes back"])
def test_a_run_that_waits_moves_to_nats_with_a_database_for_its_rows_and_then_finishes(
    tmp_path: Path, make_place: MakePlace, comes_back: bool
) -> None:
    project(tmp_path)
    there, end = make_place("nats").address, "sqlite:///back.db"
    typed(START, tmp_path, source=OWN)
    move(tmp_path, OWN, there, database=DATABASE)
    assert tickets(str(tmp_path / "leads" / "data.db")) == [("ann@example.com", "open")]
    if comes_back:
        move(tmp_path, there, end, database="")

    said = typed(FINISH, tmp_path, target=end if comes_back else there)

    assert json.loads(said[said.index("{") :])["status"] == "urgent"
    rows = tmp_path / "back.db" if comes_back else tmp_path / "leads" / "data.db"
    assert tickets(str(rows)) == [("ann@example.com", "urgent")]


def test_an_import_on_nats_without_a_database_is_refused_and_nothing_is_written(
    tmp_path: Path, make_place: MakePlace
) -> None:
    project(tmp_path)
    target = make_place("nats")
    typed(START, tmp_path, source=OWN)
    exporting, importing, _ = MOVE
    typed(exporting, tmp_path, source=OWN)
    with pytest.raises(AssertionError, match=r"the log \(nats:\) has none of its own. Set `database:`"):
        typed(importing, tmp_path, target=target.address)

    assert asyncio.run(target.kept()) == {}
