"""The data models of a project, open: their tables, and a unit of work for each step.

Rule 1: nothing is opened that does not fit: models that contradict each other, a table that
is the log's, a change that would lose data. It is all told at once, and nothing is touched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from uuid import uuid4

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from turnline.errors import DataUnavailable, ModelsRefused
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.data.home import Home, find_home
from turnline.flow.data.mapped import Sources
from turnline.flow.data.migration import Extent, Plan, migrate, plan
from turnline.flow.data.tables import Schema, build
from turnline.flow.data.unit_of_work import SqlUnitOfWork, driver_error
from turnline.flow.data.versions import newest, problem_with, problems_of
from turnline.flow.definition.flow import ModelUse
from turnline.hub.timers import Clock, SystemClock
from turnline.log.address import MEMORY
from turnline.log.base import Log


class Database:
    """See `turnline.flow.work.Data`. Open one with `open_data`."""

    def __init__(self, home: Home, schema: Schema, clock: Clock) -> None:
        self.address = home.address
        self.shares_log = home.shares_log
        self.is_open = True
        self.schema = schema
        self.changes: list[str] = []
        """What was done to the tables when it was opened, a line each, for whoever logs it."""
        self.engine = home.open_engine()
        self._home = home
        self._clock = clock
        self._anchor: AsyncConnection | None = None

    def begin(self, declared: Sequence[ModelUse], versions: Mapping[str, str]) -> SqlUnitOfWork:
        """Return a step's unit of work. Raises `VersionMismatch` and `UnknownName`; touches nothing."""
        for use in declared:
            problem = problem_with(use, self.schema.definitions, versions.get(use.name))
            if problem is not None:
                raise problem
        models = {use.name: self.schema.models[use.name] for use in declared}
        return SqlUnitOfWork(self.engine, models, self._home.new_hold(self._clock), self._home)

    async def open(self, *, extent: Extent = "additive") -> None:
        """Connect, and `migrate`."""
        try:
            if self.address == MEMORY:  # It lasts as long as somebody is connected.
                self._anchor = await self.engine.connect()
            self.changes = await self.migrate(extent=extent)
        except BaseException:
            await self.close()
            raise

    async def migrate(self, *, extent: Extent = "additive") -> list[str]:
        """Bring the tables up to the models and return what was done; nothing, the second time.

        Processes that do so at once do it one after the other: the second one finds nothing to do.
        Raises `ModelsRefused` and `DataUnavailable`.
        """
        change = partial(migrate, metadata=self.schema.metadata, extent=extent)
        with self._refusing():
            return await self._home.changed_alone(self.engine, change)

    async def plan(self) -> Plan:
        """Return what `migrate` would do. Reads only, and holds nobody up. Raises `DataUnavailable`."""
        with self._refusing():
            async with self.engine.connect() as connection:
                return await connection.run_sync(partial(plan, metadata=self.schema.metadata))

    @asynccontextmanager
    async def transaction(self, *, writes: bool) -> AsyncIterator[AsyncConnection]:
        """A transaction over all tables: as of one moment, or the only one that `writes`. Commit it.

        Raises `ModelsRefused` for what breaks a rule of the tables, and `DataUnavailable`.
        """
        with self._refusing():
            async with self.engine.connect() as connection:
                begin = self._home.begin_writing if writes else self._home.begin_reading
                await connection.exec_driver_sql(begin)
                yield connection

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raise what the driver raises as `ModelsRefused`, or `DataUnavailable`."""
        raised: tuple[type[Exception], ...] = (DBAPIError, *self._home.errors)
        try:
            yield
        except raised as error:
            found = driver_error(error)
            if refusal := self._home.refusal(found):
                raise ModelsRefused([f"{refusal}. Change the rows first."]) from error
            raise DataUnavailable(self.address, because=self._home.reason(found)) from error

    async def close(self) -> None:
        """Let go of the database; before the log is closed, if that is in the same file."""
        anchor, self._anchor = self._anchor, None
        if anchor is not None:
            await anchor.close()
        await self.engine.dispose()


async def open_data(
    models: Iterable[ModelDefinition],
    *,
    log: Log,
    url: str | None = None,
    extent: Extent = "additive",
    clock: Clock | None = None,
    new_id: Callable[[], str] = lambda: str(uuid4()),
) -> Database:
    """Open the models of a project (see `find_data`), their tables brought up to date.

    Raises what `find_data` and `Database.migrate` raise.
    """
    database = find_data(models, log=log, url=url, clock=clock, new_id=new_id)
    await database.open(extent=extent)
    return database


def find_data(
    models: Iterable[ModelDefinition],
    *,
    log: Log,
    url: str | None = None,
    clock: Clock | None = None,
    new_id: Callable[[], str] = lambda: str(uuid4()),
) -> Database:
    """Return the models of a project (see `home` for where), not opened: their tables are as they are.

    Raises `NoDatabase`, `ModelsRefused`, `UnknownName` for an unknown address, and `MissingExtra` for one
    of PostgreSQL where its driver is not installed.
    """
    models, clock = list(models), clock or SystemClock()
    home = find_home(log, url)
    found = problems_of(models, reserved=home.reserved)
    if found:
        raise ModelsRefused(found)
    return Database(home, build(newest(models), Sources(now=clock.now, new_id=new_id)), clock)
