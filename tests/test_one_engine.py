"""There is one engine: claiming, renewing, opening a child and asking a person have one call site each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnline

SOURCE = Path(turnline.__file__).parent


def calls_of(name: str) -> list[str]:
    """Return the files of the source that call a function or method of this name."""
    found = list[str]()
    for file in sorted(SOURCE.rglob("*.py")):
        count = sum(one == name for one in _called_names(ast.parse(file.read_text())))
        found += [file.relative_to(SOURCE).as_posix()] * count
    return found


def _called_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name


@pytest.mark.parametrize(
    ("name", "files"),
    [
        # The second is the server's end of the wire: it passes on what a remote engine asks.
        ("claim_turn", ["server/ws_requests.py", "turns/engine.py"]),
        ("_beat", ["turns/engine.py"]),
        ("_take_turn", ["turns/engine.py"]),
    ],
)
def test_one_place_claims_turns_and_renews_claims(name: str, files: list[str]) -> None:
    own = {"core/adapters.py", "flow/data/sqlite_hold.py"}  # Other things of the same name.

    assert [one for one in calls_of(name) if one not in own] == files


def test_one_place_opens_the_children_of_a_turn() -> None:
    # These look for the children of a recording, and open none.
    reads = {"client/recorded_tools.py", "flow/testing/fixture.py", "flow/testing/paths.py"}

    assert [one for one in calls_of("child_id") if one not in reads] == ["turns/children.py"]


def test_one_place_asks_people() -> None:
    writers = [
        file.relative_to(SOURCE).as_posix()
        for file in sorted(SOURCE.rglob("*.py"))
        if "write(ev.EV_HUMAN_REQUESTED" in file.read_text()
    ]

    assert writers == ["turns/people.py"]
