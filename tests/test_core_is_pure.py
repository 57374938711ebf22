"""`turnline.core` and `turnline.expressions` compute; they do not do. This test is what keeps it so."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import turnline.core
import turnline.expressions

ROOT = Path(turnline.core.__path__[0]).parent
CORE = sorted(
    path for room in (turnline.core, turnline.expressions) for path in Path(room.__path__[0]).rglob("*.py")
)
DOES_IO = {
    "asyncio", "concurrent", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib",
    "uuid",
}  # fmt: skip
PRINTS = {"breakpoint", "eval", "exec", "input", "open", "print"}


def impurities(source: str) -> list[str]:
    return [found for node in ast.walk(ast.parse(source)) if (found := _impurity(node))]


def _impurity(node: ast.AST) -> str:
    match node:
        case ast.Import(names=names):
            return ", ".join(sorted(DOES_IO & {name.name.split(".")[0] for name in names}))
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in DOES_IO:
            return module
        case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
            return f"line {node.lineno} is asynchronous"
        case ast.Attribute(attr="now" | "utcnow" | "today"):
            return f"line {node.lineno} reads the clock"
        case ast.Call(func=ast.Name(id=name)) if name in PRINTS:
            return f"line {node.lineno} calls {name}"
        case _:
            return ""


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_core_neither_imports_io_nor_awaits(path: Path) -> None:
    assert impurities(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from asyncio import sleep",
        "async def wait(): ...",
        "datetime.now()",
        "print('hello')",
    ],
)
def test_the_test_itself_finds_what_it_looks_for(source: str) -> None:
    assert len(impurities(source)) == 1
