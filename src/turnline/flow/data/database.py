"""The data models of a project, open: their tables, and a unit of work for each step.

Rule 1: nothing is opened that does not fit: models that contradict each other, a table that
is the log's, a change that would lose data. It is all told at once, and nothing is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from uuid import uuid4

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from turnline.errors import DataUnavailable, ModelsRefused
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.data.home import Home, find_home
from turnline.flow.data.mapped import Sources
from turnline.flow.data.migration import migrate
from turnline.flow.data.tables import Schema, build
from turnline.flow.data.unit_of_work import SqlUnitOfWork, driver_error
from turnline.flow.data.versions import newest, problem_with, problems_of
from turnline.flow.definition.flow import ModelUse
from turnline.hub.clock import Clock, SystemClock
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

    async def open(self, *, drop: bool = False) -> None:
        """Connect, and `migrate`."""
        try:
            if self.address == MEMORY:  # It lasts as long as somebody is connected.
                self._anchor = await self.engine.connect()
            self.changes = await self.migrate(drop=drop)
        except BaseException:
            await self.close()
            raise

    async def migrate(self, *, drop: bool = False) -> list[str]:
        """Bring the tables up to the models and return what was done; nothing, the second time.

        With `drop`, columns of fields that are gone are dropped, and those of another type made
        anew, with what is in them. Raises `ModelsRefused` and `DataUnavailable`.
        """
        change = partial(migrate, metadata=self.schema.metadata, drop=drop)
        raised: tuple[type[Exception], ...] = (DBAPIError, *self._home.errors)
        try:
            return await self._home.changed_alone(self.engine, change)
        except raised as error:
            because = self._home.reason(driver_error(error))
            raise DataUnavailable(self.address, because=because) from error

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
    drop: bool = False,
    clock: Clock | None = None,
    new_id: Callable[[], str] = lambda: str(uuid4()),
) -> Database:
    """Open the models of a project (see `home` for where), their tables brought up to date.

    Raises `NoDatabase`, `ModelsRefused`, `DataUnavailable`, `UnknownName` for an address nobody knows, and
    `MissingExtra` for one of PostgreSQL where its driver is not installed.
    """
    models, clock = list(models), clock or SystemClock()
    home = find_home(log, url)
    found = problems_of(models, reserved=home.reserved)
    if found:
        raise ModelsRefused(found)
    database = Database(home, build(newest(models), Sources(now=clock.now, new_id=new_id)), clock)
    await database.open(drop=drop)
    return database
