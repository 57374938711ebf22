"""The rows of data models in an export of a log: out of a database, and into another one.

Rule 1: an export has the rows as of one moment, and of each row the fields that its model has.

Rule 2: an import adds rows and changes none. A row that is there is compared, field by field, and refused
if it differs.

Rule 3: an import writes all rows in one transaction, or none: killed and run again, it ends the same.

Rule 4: an error names a row by its model and its id, and fields by their names. It shows no other value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from turnline.core.envelope import JsonObject
from turnline.errors import ModelsRefused, RowsRefused
from turnline.flow.data.database import Database
from turnline.flow.data.definition import ID
from turnline.flow.data.field import DataField
from turnline.flow.data.mapped import MappedModel
from turnline.flow.data.migration import Plan
from turnline.flow.data.row import Row
from turnline.flow.data.values import Unfit, Value
from turnline.log.export_file import ModelHead, Rows

PAGE_ROWS: Final = 1_000
MOST_NAMED: Final = 20
"""Rows, or models, that one error names."""
_DO: Final = "Import with the models of the export, then run `turnline db apply`."


class RowReader:
    """See `turnline.log.transfer.RowSource`."""

    def __init__(self, database: Database, found: Plan) -> None:
        """Raises `ModelsRefused` unless the tables that are there are as the models say."""
        if len(found.changes) > len(found.new_tables):
            do = "Export with the models of the last server, or run `turnline db apply` first."
            raise ModelsRefused([f"their tables differ, and need: {', '.join(found.changes)}. {do}"])
        self._database = database
        self._models = database.schema.models.values()
        self._missing = found.new_tables

    @property
    def models(self) -> list[ModelHead]:
        return [_head(model) for model in self._models]

    async def rows(self) -> AsyncIterator[tuple[str, JsonObject]]:
        """Yield every row. Raises `DataUnavailable`."""
        async with self._database.transaction(writes=False) as connection:
            for model in self._models:
                table = model.table
                if table.name in self._missing:
                    continue
                page = select(table).order_by(table.c[ID]).limit(PAGE_ROWS)
                found = (await connection.execute(page)).mappings().all()
                while found:
                    for values in found:
                        yield model.name, model.row(dict(values))
                    after = page.where(table.c[ID] > found[-1][ID])
                    found = (await connection.execute(after)).mappings().all()


class RowWriter:
    """See `turnline.log.transfer.RowTarget`."""

    def __init__(self, database: Database, connection: AsyncConnection) -> None:
        self.written = self.known = 0
        self._models = database.schema.models
        self._connection = connection

    async def take(self, rows: Rows) -> None:
        for start in range(0, len(rows.rows), PAGE_ROWS):
            await self._take(self._models[rows.model], rows.rows[start : start + PAGE_ROWS])

    async def finish(self) -> None:
        await self._connection.commit()

    async def _take(self, model: MappedModel, rows: Sequence[JsonObject]) -> None:
        read = {values[ID]: values for values in _read(model, rows)}
        table = model.table
        found = await self._connection.execute(select(table).where(table.c[ID].in_(read)))
        there = {values[ID]: model.row(dict(values)) for values in found.mappings()}
        _refuse(
            f"{model.name} {row_id!r} is there already, and differs from the file in "
            f"{_differing(row, model.row(read[row_id]))}. Change one, or import into an empty database."
            for row_id, row in there.items()
            if row != model.row(read[row_id])
        )
        new = [values for row_id, values in read.items() if row_id not in there]
        if new:
            await self._connection.execute(insert(table), new)
        self.written += len(new)
        self.known += len(there)


@asynccontextmanager
async def write_rows(database: Database) -> AsyncIterator[RowWriter]:
    """A transaction for the rows of an export. Raises `RowsRefused` and `DataUnavailable`."""
    try:
        async with database.transaction(writes=True) as connection:
            yield RowWriter(database, connection)
    except RowsRefused:
        raise
    except ModelsRefused as error:
        raise RowsRefused(error.problems) from error


def check_heads(heads: Iterable[ModelHead], models: Iterable[MappedModel]) -> None:
    """Raise `RowsRefused` unless the project has these models, with the same fields."""
    known = {model.name: _head(model).columns for model in models}
    _refuse(text for head in heads for text in _misfits(head, known.get(head.name)))


def _misfits(head: ModelHead, columns: dict[str, str] | None) -> Iterator[str]:
    if columns is None:
        yield f"{head.name}: found its rows, expected a model of the project. Name its folder with --dir."
        return
    for name in dict.fromkeys([*head.columns, *columns]):
        found, expected = head.columns.get(name, "nothing"), columns.get(name, "nothing")
        if found != expected:
            yield f"{head.name}.{name}: found {found} in the file, expected {expected}. {_DO}"


def _head(model: MappedModel) -> ModelHead:
    columns = {name: str(field.type) for name, field in model.columns.items()}
    return ModelHead(name=model.name, version=model.definition.version, columns=columns)


def _read(model: MappedModel, rows: Sequence[JsonObject]) -> list[dict[str, Value]]:
    """Return rows as the database keeps them. Raises `RowsRefused` for what a field does not hold."""
    fields = {name: _lenient(field) for name, field in model.columns.items()}
    read, problems = list[dict[str, Value]](), list[str]()
    for row in rows:
        try:
            read.append({name: field.accept(row.get(name)) for name, field in fields.items()})
        except Unfit as error:
            problems.append(f"{model.name} {row.get(ID)!r}: expected {error}. Export the log again.")
        if row.keys() != fields.keys():
            problems.append(f"{model.name} {row.get(ID)!r} has other fields than its model. Export again.")
    counted = Counter(values[ID] for values in read if isinstance(values[ID], str | int))
    problems += [
        f"{model.name} {one!r} is in the file twice." for one, number in counted.items() if number > 1
    ]
    _refuse(problems)
    return read


def _lenient(field: DataField) -> DataField:
    """A row may be older than the field's rules: what the table takes, is taken."""
    return field.model_copy(update={"enum": None, "max_length": None, "nullable": True})


def _differing(one: Row, other: Row) -> str:
    return ", ".join(name for name in one if one[name] != other[name])


def _refuse(problems: Iterable[str]) -> None:
    found = list(problems)
    if len(found) > MOST_NAMED:
        found[MOST_NAMED:] = [f"and {len(found) - MOST_NAMED} more."]
    if found:
        raise RowsRefused(found)
