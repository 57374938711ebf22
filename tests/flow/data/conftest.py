"""The databases that data models are tested on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...postgres import Postgres
from . import stage
from .place import Place, PostgresPlace, SqlitePlace


@pytest.fixture(params=["sqlite", "postgres"])
def everywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Data models without an address of their own are kept here; each time in a new place."""
    kind = str(request.param)
    if kind == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        monkeypatch.setattr(stage, "new_url", server.fresh)
    return kind


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return SqlitePlace(tmp_path)
    server: Postgres = request.getfixturevalue("postgres")
    return PostgresPlace(server.fresh())
