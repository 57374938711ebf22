"""The measures of the house: layers, sizes, names. A newcomer's afternoon stays an afternoon."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "turnline").rglob("*.py"))
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 70
AN_AFTERNOON = 4_000
NAMELESS = {"utils", "helpers", "manager", "common"}


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def blank(path: Path) -> int:
    return sum(not line.strip() for line in path.read_text().splitlines())


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.walk(ast.parse(path.read_text()))
    return [node for node in tree if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_file_is_one_idea_of_readable_size_and_says_what_it_is(path: Path) -> None:
    long = [f.name for f in functions(path) if (f.end_lineno or 0) - f.lineno >= MOST_LINES_OF_A_FUNCTION]

    assert lines(path) <= MOST_LINES
    assert long == []
    assert path.stem not in NAMELESS
    assert ast.get_docstring(ast.parse(path.read_text())), "a module opens with what it is"


def test_errors_core_and_hub_are_an_afternoons_reading() -> None:
    house = ROOT / "src" / "turnline"
    rooms = (house / "errors", house / "core")
    # `core/study` reads graphs before anybody speaks; nothing that decides or folds imports it.
    study = house / "core" / "study"
    files = (path for room in rooms for path in room.rglob("*.py") if study not in path.parents)
    reading = [house / "hub" / "hub.py", *files]

    # The names that `errors` hands on are a table of contents; nobody reads it.
    names = (house / "errors" / "__init__.py").read_text()
    handed_on = len(re.findall(r"^    (\w+) as \1,$", names, re.MULTILINE))
    total = sum(len(path.read_text().splitlines()) - blank(path) for path in reading)
    assert total - handed_on <= AN_AFTERNOON


def test_imports_point_down_only() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


def test_importing_turnline_is_cheap_and_reads_no_provider() -> None:
    heavy = "{'pydantic_ai', 'openai', 'anthropic', 'sqlalchemy', 'fastapi', 'psycopg', 'nats', 'websockets'}"
    code = f"import sys, turnline.network; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
