"""Every command of the page on backup and moving is run, in its order, against each backend."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks_of
from tests.log.backends import KEPT_KINDS, MakePlace, Place, make_place
from tests.nats_servers import nats_server
from tests.postgres import postgres
from turnline.cli.new import run as new_project
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line

__all__ = ["make_place", "nats_server", "postgres"]

PAGE = DOCS / "operations" / "moving.md"
COMMANDS = [text for block in blocks_of(PAGE, "sh") for text in block.text.splitlines()]


async def _fill(path: Path) -> None:
    log = SqliteLog(path, durability="process")
    await log.append("_talk", [line("_talk", 1), line("_talk", 2)], after=0)
    await log.close()


@pytest.mark.parametrize("kind", KEPT_KINDS)
def test_every_command_of_the_page_does_what_it_says(
    kind: str, tmp_path: Path, make_place: MakePlace
) -> None:
    new_project(tmp_path / "leads")
    source = Place("sqlite", f"sqlite:///{tmp_path / 'leads' / '.turnline' / 'log.db'}")
    asyncio.run(_fill(source.path))
    target = make_place(kind)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    # What does not depend on the target is run once.
    commands = [text for text in COMMANDS if kind == "sqlite" or "$TARGET" in text]
    assert len(commands) >= 4
    for command in commands:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.replace("$TARGET", f"'{target.address}'")],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    kept = asyncio.run(target.kept())
    assert kept.pop("_doctor")
    assert kept == asyncio.run(source.kept())
    if kind == "sqlite":
        assert asyncio.run(Place("sqlite", f"sqlite:///{tmp_path / 'restored.db'}").kept()) == kept
