"""CONTRIBUTING.md: what it tells a newcomer to type and to open is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
COMMANDS = [
    line.split("#")[0].split()
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]
PLACES = sorted(set(re.findall(r"`((?:src|tests|docs|examples)/[\w./]*|[A-Z]+\.md|[\w.]+\.txt)`", TEXT)))
VERBS = set(re.findall(r"^\./run (\w+)", (ROOT / "run").read_text(), re.MULTILINE))


@pytest.mark.parametrize("place", PLACES)
def test_a_file_or_folder_it_names_is_there(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_it_gives_exists(words: list[str]) -> None:
    program, *arguments = words

    if program == "./run":
        assert arguments[0] in VERBS
    else:
        assert (program, arguments[0]) in {(".venv/bin/python", "-m"), (".tools/bin/uv", "build")}
    for one in arguments:
        if one.startswith("tests/"):
            assert (ROOT / one).exists(), one


def test_verbs_it_speaks_of_are_verbs_of_run() -> None:
    assert set(re.findall(r"`\./run (\w+)", TEXT)) <= VERBS
    assert {"test", "check", "fix", "docs", "bench", "soak"} <= VERBS


def test_a_room_of_the_house_is_in_its_table() -> None:
    rooms = {one.name for one in (ROOT / "src/turnline").iterdir() if (one / "__init__.py").exists()}
    told = set(re.findall(r"^\| `src/turnline/(\w+)` \|", TEXT, re.MULTILINE))

    assert rooms - told == {"expressions", "network", "testing"}


def test_the_policy_for_names_that_leave_is_where_it_says() -> None:
    assert (
        "A name that is to go is kept for one minor version"
        in (ROOT / "docs/operations/upgrade.md").read_text()
    )
