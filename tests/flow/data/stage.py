"""Data models for tests, and databases that are closed in the end.

async with opened(log) as data:
    async with unit(data) as work:
        await work.db["Lead"].add(email="jane@example.com")
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from turnline.core.envelope import JsonObject
from turnline.flow.data.database import Database, open_data
from turnline.flow.data.definition import ModelDefinition, read_model
from turnline.flow.data.row import Row
from turnline.flow.data.unit_of_work import SqlUnitOfWork
from turnline.flow.definition.flow import ModelUse
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.testing.manual_clock import ManualClock


def model(
    name: str, fields: JsonObject | None = None, *, version: str = "v1", **spec: Any
) -> ModelDefinition:
    return read_model(
        {
            "kind": "ModelDefinition",
            "metadata": {"name": name, "version": version},
            "spec": {"fields": fields or {}, **spec},
        }
    )


COMPANY = model("Company", {"name": "string"}, relations={"leads": {"model": "Lead", "kind": "one_to_many"}})
LEAD = model(
    "Lead",
    {
        "email": {"type": "string", "required": True, "unique": True},
        "score": {"type": "integer", "default": 1},
        "status": {"type": "string", "enum": ["new", "won"], "default": "new"},
        "price": {"type": "decimal", "scale": 2},
        "seen_at": "datetime",
        "details": "json",
    },
    relations={"company": {"model": "Company"}},
)
MODELS = (LEAD, COMPANY)


def new_url() -> str | None:
    """Where the models go if no test says so. The fixture `everywhere` puts another one here."""
    return None


def uses(*names: str) -> list[ModelUse]:
    return [ModelUse(name=name) for name in names or ("Lead", "Company")]


def sqlite(folder: Path) -> SqliteLog:
    """A log on a file. What is tested here does not depend on the power staying on."""
    return SqliteLog(folder / "log.db", durability="process")


@asynccontextmanager
async def opened(
    log: Log | None = None, models: Iterable[ModelDefinition] = MODELS, **options: Any
) -> AsyncIterator[Database]:
    """The models, on a log that is closed with them."""
    if log is None:
        log = MemoryLog()
        options.setdefault("url", new_url())
    options.setdefault("clock", ManualClock())
    try:
        data = await open_data(models, log=log, **options)
        try:
            yield data
        finally:
            await data.close()
    finally:
        await log.close()


@asynccontextmanager
async def unit(data: Database, *names: str) -> AsyncIterator[SqlUnitOfWork]:
    """A step's unit of work, over all models or those named."""
    work = data.begin(uses(*(names or tuple(data.schema.models))), {})
    try:
        yield work
    finally:
        await work.close()


async def stored(data: Database, name: str = "Lead") -> Sequence[Row]:
    """The rows that have landed."""
    async with unit(data) as work:
        return await work.db[name].list()


async def emails(data: Database) -> list[str]:
    return sorted(row.email for row in await stored(data))


def can_write(path: Path) -> bool:
    """Whether somebody else could write to the file just now."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        other.execute("ROLLBACK")
        return True
