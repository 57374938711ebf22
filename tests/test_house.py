"""The measures of the house: layers, sizes, names. A newcomer's afternoon stays an afternoon."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "turnline").rglob("*.py"))
MOST_LINES = 700
MOST_LINES_OF_A_FUNCTION = 80
MOST_LINES_OF_THE_RULES = 14_100
NAMELESS = {"utils", "helpers", "manager", "common"}


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


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


def test_errors_core_and_hub_stay_readable() -> None:
    house = ROOT / "src" / "turnline"
    study = house / "core" / "study"  # Reads graphs before a channel opens; no rule imports it.
    files = [path for room in ("errors", "core", "hub") for path in (house / room).rglob("*.py")]

    assert sum(lines(path) for path in files if study not in path.parents) <= MOST_LINES_OF_THE_RULES


def test_imports_point_down_only() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


def test_importing_turnline_is_cheap_and_reads_no_provider() -> None:
    heavy = "{'pydantic_ai', 'openai', 'anthropic', 'sqlalchemy', 'fastapi', 'psycopg', 'nats', 'websockets'}"
    code = f"import sys, turnline.network; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
