"""Repositories: `ctx["_db"]["Lead"]`, what a step does with the rows of a data model (F12).

    row = await db["Lead"].add(email="jane@example.com")
    await db["Lead"].list(where={"score": {"gt": 80}}, order_by="-score", limit=10)

Every method also takes a session, first or as `session=`: then that one is used. What is
given is checked before anything is staged, and what comes back is JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol, cast

from sqlalchemy import inspect, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.util import identity_key

from turnline.errors import BadField, ModelNotDeclared
from turnline.flow.data.definition import ID
from turnline.flow.data.hold import READS
from turnline.flow.data.mapped import MappedModel, Record
from turnline.flow.data.query import condition, ordering
from turnline.flow.data.row import Row
from turnline.flow.data.values import MAX_INTEGER, Value
from turnline.flow.once import rows_inside

MAX_ROWS: Final = 10_000
"""Of one `list`."""
_READS: Final = {READS: True}
Id = str | int
Given = AsyncSession | Id | Mapping[str, object]
Rows = list[Row]


class Unit(Protocol):
    """What a repository needs of a unit of work."""

    @property
    def session(self) -> AsyncSession: ...

    def working(self) -> AbstractAsyncContextManager[None]: ...


class Repositories:
    """`ctx["_db"]`: the repositories of the data models that the flow declares."""

    def __init__(self, models: Mapping[str, MappedModel], unit: Unit) -> None:
        self._models = models
        self._unit = unit

    def __getitem__(self, name: str) -> Repository:
        """Return a model's repository. Raises `ModelNotDeclared`, a `PermissionError`."""
        model = self._models.get(name)
        if model is None:
            raise ModelNotDeclared(name, self._models)
        return Repository(model, self._unit)

    def __contains__(self, name: object) -> bool:
        return name in self._models

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)


class Repository:
    """The rows of one data model, as one step sees them."""

    def __init__(self, model: MappedModel, unit: Unit) -> None:
        self.model = model.record
        """The mapped class, for use with the session."""
        self._model = model
        self._unit = unit

    async def add(self, *given: Given, **values: object) -> Row:
        """Stage a new row and return it; its id is known. Raises `BadField`."""
        asked = _Asked(given, values)
        record = self.model(**self._model.by_column(asked.values))
        async with self._session(asked) as session:
            session.add(record)
            return self._model.row_of(record)

    async def get(self, *given: Given, **named: object) -> Row | None:
        """Return the row with this id, or None. What the step itself has staged counts."""
        asked = _Asked(given, named)
        async with self._session(asked) as session:
            row_id = self._id(asked)
            if row_id is None:
                return None
            staged = _in_memory(session, self.model, row_id)
            if staged is not None:
                return None if staged in session.deleted else self._model.row_of(staged)
            columns = [getattr(self.model, name) for name in self._model.columns]
            query = select(*columns).where(getattr(self.model, ID) == row_id)
            row = (await session.execute(query, execution_options=_READS)).first()
            return None if row is None else self._model.row(row._asdict())

    async def list(
        self,
        *given: Given,
        where: Mapping[str, object] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
        offset: int = 0,
        session: AsyncSession | None = None,
    ) -> Rows:
        """Return the rows for which `where` holds (see `flow.data.query`), the oldest first.

        Without a `limit`, more than `MAX_ROWS` are refused: whoever asks for all gets all.
        """
        asked = _Asked(given, {"session": session, **(where or {})})
        most = self._limit(limit, offset)
        columns = [getattr(self.model, name) for name in self._model.columns]
        query = select(*columns).where(condition(self._model, asked.values))
        query = query.order_by(*ordering(self._model, order_by)).limit(most).offset(offset)
        async with self._session(asked) as used:
            found = await used.execute(query, execution_options=_READS)
            rows = [self._model.row(row._asdict()) for row in found]
        if limit is None and len(rows) > MAX_ROWS:
            raise BadField(self._model.name, "limit", found="not given", expected=f"one up to {MAX_ROWS}")
        return rows

    async def update(self, *given: Given, **values: object) -> Row:
        """Stage changes of a row and return it. Raises `BadField`, also for an id that no row has."""
        asked = _Asked(given, values)
        changes = {key: value for key, value in asked.values.items() if key != ID or asked.ids}
        async with self._session(asked) as session:
            checked = self._model.by_column(changes)
            checked = {name: self._model.taken(name, value) for name, value in checked.items()}
            record = await self._record(session, self._id(asked))
            if record is None:
                raise BadField(self._model.name, ID, found="of no row", expected="the id of one")
            if checked.get(ID, getattr(record, ID)) != getattr(record, ID):
                raise BadField(self._model.name, ID, found="another one", expected="the row's own")
            for name, value in self._model.stamped(checked).items():
                setattr(record, name, value)
            return self._model.row_of(record)

    async def remove(self, *given: Given, **named: object) -> bool:
        """Stage the removal of a row; whether there was one."""
        asked = _Asked(given, named)
        async with self._session(asked) as session:
            record = await self._record(session, self._id(asked))
            if record is None:
                return False
            if record in session.new:
                session.expunge(record)
            else:
                await session.delete(record)
            return True

    @asynccontextmanager
    async def _session(self, asked: _Asked) -> AsyncIterator[AsyncSession]:
        rows = rows_inside()
        unit: Unit = self._unit if rows is None else cast("Unit", rows.open_unit())
        if asked.session is None or asked.session is unit.session:
            async with unit.working():
                yield unit.session
        else:
            yield asked.session

    async def _record(self, session: AsyncSession, row_id: Value) -> Record | None:
        if row_id is None:
            return None
        record = _in_memory(session, self.model, row_id)
        if record is None:
            record = await session.get(self.model, row_id, execution_options=_READS)
        return None if record is None or record in session.deleted else record

    def _id(self, asked: _Asked) -> Value:
        """The id that was asked for; None if it cannot be one of this model's."""
        ids = asked.ids or [value for name, value in asked.values.items() if name == ID]
        if len(ids) != 1:
            raise BadField(self._model.name, ID, found=f"given {len(ids)} times", expected="one id")
        with suppress(BadField):
            return self._model.taken(ID, ids[0])
        return None

    def _limit(self, limit: int | None, offset: int) -> int:
        for name, value, most in (("limit", limit, MAX_ROWS), ("offset", offset, MAX_INTEGER)):
            if value is not None and (not isinstance(value, int) or not 0 <= value <= most):
                raise BadField(self._model.name, name, found="out of range", expected=f"0 to {most}")
        return MAX_ROWS + 1 if limit is None else limit


class _Asked:
    """What a method was called with: a session, ids and values, in any of the ways they may be given."""

    def __init__(self, given: Sequence[object], named: Mapping[str, object]) -> None:
        self.session: AsyncSession | None = None
        self.ids: list[object] = []
        self.values: dict[str, object] = {}
        for one in given:
            match one:
                case AsyncSession():
                    self.session = one
                case Mapping():
                    self.values.update(one)
                case _:
                    self.ids.append(one)
        for name, value in named.items():
            # A model may well have a field of that name.
            if name == "session" and (value is None or isinstance(value, AsyncSession)):
                self.session = value or self.session
            else:
                self.values[name] = value


def _in_memory(session: AsyncSession, model: type[Record], row_id: Value) -> Record | None:
    """The row as the step has it: staged, or read by the ORM before; None if the database has to be asked."""
    for one in session.new:
        if isinstance(one, model) and getattr(one, ID) == row_id:
            return one
    known = session.sync_session.identity_map.get(identity_key(model, row_id))
    return known if isinstance(known, model) and not inspect(known).expired else None
