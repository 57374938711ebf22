"""Nothing that decides on an envelope or folds one imports `core.study`: the core can be read without it."""

from __future__ import annotations

import ast
from pathlib import Path

import turnline.core

CORE = Path(turnline.core.__path__[0])
STUDY = "turnline.core.study"


def test_the_core_imports_no_study_when_it_is_imported() -> None:
    importing = {
        path.name
        for path in CORE.rglob("*.py")
        if CORE / "study" not in path.parents
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(STUDY)
    }

    assert importing == set()
