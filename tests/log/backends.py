"""Each kind of log, empty, with what a test needs to look at it and to damage it.

@pytest.mark.parametrize("kind", KINDS)
async def test_...(place: Place): ...        with `place` from this module
"""

from __future__ import annotations

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
from turnline.testing import flip_memory, flip_sqlite
from turnline.testing.damage import flip_byte

from ..nats_servers import NatsServer
from ..postgres import Postgres, run
from .nats_stage import flip_nats

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

    def flip(self, channel_id: str, seq: int) -> None:
        """Turn over a bit of a record."""
        if self.kind == "memory":
            flip_memory(self._memory, channel_id, seq)
        elif self.kind == "sqlite":
            flip_sqlite(self.path, channel_id, seq)
        elif self.kind == "nats":
            flip_nats(self.address, channel_id, seq)
        else:
            where = f"WHERE channel = '{channel_id}' AND seq = {seq}"
            ((body,),) = run(self.address, f"SELECT body FROM turnline_records {where}")
            flipped = flip_byte(body, len(body) // 2).hex()
            run(self.address, f"UPDATE turnline_records SET body = decode('{flipped}', 'hex') {where}")

    def sql(self, statement: str) -> None:
        """Change a table behind the log's back; the tables are called as in SQLite."""
        if self.kind == "postgres":
            run(
                self.address,
                statement.replace("records", "turnline_records").replace("heads", "turnline_heads"),
            )
            return
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(statement)

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
