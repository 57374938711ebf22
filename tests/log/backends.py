"""Each kind of log, empty, with what a test needs to look at it and to damage it.

@pytest.mark.parametrize("kind", KINDS)
async def test_...(place: Place): ...        with `place` from this module
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path

import pytest

from turnline.core.codec import Record
from turnline.log.address import open_log
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.records import MemoryRecords, Records, open_records
from turnline.testing import Damage, damage_memory, damage_sqlite, flip_head

from ..nats_servers import NatsServer
from ..postgres import Postgres, run
from .nats_stage import damage_nats
from .postgres_stage import damage_postgres

KINDS = ("memory", "sqlite", "postgres", "nats")
KEPT_KINDS = KINDS[1:]
"""Those with an address that another process can open."""


class Place:
    """Where a log of one kind is, or will be once it is opened."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        self.address = address
        self._memory = MemoryLog()

    @asynccontextmanager
    async def log(self) -> AsyncIterator[Log]:
        log = self._memory if self.kind == "memory" else open_log(self.address)
        try:
            yield log
        finally:
            await log.close()

    @asynccontextmanager
    async def records(self) -> AsyncIterator[Records]:
        found = MemoryRecords(self._memory) if self.kind == "memory" else await open_records(self.address)
        try:
            yield found
        finally:
            await found.close()

    async def kept(self) -> dict[str, list[Record]]:
        """Everything that is kept, byte by byte."""
        async with self.records() as records:
            return {
                name: [record async for record in records.read(name)] async for name in records.channels()
            }

    def damage(self, channel_id: str, seq: int, damage: Damage = flip_head) -> None:
        """Change a record behind the log's back."""
        if self.kind == "memory":
            damage_memory(self._memory, channel_id, seq, damage)
        elif self.kind == "sqlite":
            damage_sqlite(self.path, channel_id, seq, damage)
        elif self.kind == "nats":
            damage_nats(self.address, channel_id, seq, damage)
        else:
            damage_postgres(self.address, channel_id, seq, damage)

    def sql(self, statement: str) -> None:
        """Change a table behind the log's back; tables are called as in SQLite, channels by their ids."""
        if self.kind == "postgres":
            run(
                self.address,
                re.sub(r"\b(records|heads|labels|members)\b", r"turnline_\1", statement),
            )
            return
        named = re.sub(
            r"channel = '(\w+)'", r"channel = (SELECT channel FROM turnline_names WHERE id = '\1')", statement
        )
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(named)

    @property
    def path(self) -> Path:
        return Path(self.address.removeprefix("sqlite:///"))


MakePlace = Callable[[str], Place]


@pytest.fixture
def make_place(tmp_path: Path, request: pytest.FixtureRequest) -> MakePlace:
    """Make a place of a kind; its server is started if it is the first."""

    numbers = count(1)

    def make(kind: str) -> Place:
        if kind == "postgres":
            postgres: Postgres = request.getfixturevalue("postgres")
            return Place(kind, postgres.fresh())
        if kind == "nats":
            server: NatsServer = request.getfixturevalue("nats_server")
            return Place(kind, server.fresh())
        if kind == "sqlite":
            return Place(kind, f"sqlite:///{tmp_path}/log{next(numbers)}.db")
        return Place(kind, "memory:")

    return make


@pytest.fixture
def place(make_place: MakePlace, kind: str) -> Place:
    return make_place(kind)
