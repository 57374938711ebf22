"""What differs between the data models and the tables that are there, and what is in the way.

Only the tables of declared models are looked at; there may be others in the database.
Nothing here changes a table: `migration` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Index,
    MetaData,
    Table,
    func,
    inspect,
    literal,
    select,
)

from turnline.flow.data.columns import JsonValue, column_type
from turnline.flow.data.conversion import convert, keeps, kind_of
from turnline.flow.data.definition import ID
from turnline.flow.data.field import DataField
from turnline.flow.data.tables import FIELD, TABLE_PART
from turnline.flow.data.values import DataType, Unfit, Value

PAGE_ROWS: Final = 1_000
"""Rows that are read at a time, of a column whose type changes."""

Place = tuple[str, str]
"""A table and a column."""


class Rename(NamedTuple):
    """A column that gets the name its field has now."""

    column: Column[Any]
    old: str


class Conversion(NamedTuple):
    """A column whose field has another type now."""

    column: Column[Any]
    name: str
    """What the column is called in the table today."""
    found: DataType
    wanted: DataType


class Converted(NamedTuple):
    """A row's value, before and after; `is_kept` says whether nothing of it is lost."""

    row_id: object
    value: Value
    is_kept: bool


@dataclass(slots=True)
class Changes:
    """The differences, by what has to be done about them."""

    tables: list[Table] = field(default_factory=list)
    columns: list[Column[Any]] = field(default_factory=list)
    renamed: list[Rename] = field(default_factory=list)
    converted: list[Conversion] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    old_indexes: list[Index] = field(default_factory=list)
    relaxed: list[Place] = field(default_factory=list)
    """Columns that may be null from now on."""
    replaced: list[Column[Any]] = field(default_factory=list)
    """Columns that lead to other rows than before, or hold what no field does: nothing in them fits."""
    leftover: list[Place] = field(default_factory=list)
    """Columns of fields that are gone."""

    def describe(self, *, drops: bool) -> list[str]:
        """Return a line for each change; `drops`: columns that no field has any more go, too."""
        lines = [f"new table {table.name}" for table in self.tables]
        lines += [f"new column {place(column)}" for column in self.columns]
        lines += [
            f"column {one.column.table.name}.{one.old} renamed to {one.column.name}" for one in self.renamed
        ]
        lines += [f"column {table}.{name} may be null" for table, name in sorted(self.relaxed)]
        lines += [
            f"column {place(one.column)} converted from {one.found} to {one.wanted}" for one in self.converted
        ]
        lines += [f"new index {index.name}" for index in self.indexes]
        lines += [f"index {index.name} dropped" for index in self.old_indexes]
        lines += [f"column {place(column)} dropped and created again" for column in self.replaced]
        if drops:
            lines += [f"column {table}.{name} dropped" for table, name in sorted(self.leftover)]
        return lines

    def name_today(self, column: Column[Any]) -> str:
        """Return what a column of the models is called in its table today."""
        return next((one.old for one in self.renamed if one.column is column), column.name)


def compare(connection: Connection, metadata: MetaData) -> Changes:
    """Return what differs. Reads the database's catalogue, of our tables only."""
    if metadata.tables.keys().isdisjoint(inspect(connection).get_table_names()):
        return Changes(tables=list(metadata.tables.values()))  # Of no tables alembic would compare all.
    context = MigrationContext.configure(
        connection,
        opts={
            "include_name": lambda name, kind, _: kind != "table" or name in metadata.tables,
            "compare_type": True,
        },
    )
    changes, gone = Changes(), dict[Place, Column[Any]]()
    for found in compare_metadata(context, metadata):
        for one in found if isinstance(found, list) else [found]:
            _sort(one, metadata, changes, gone)
    for column in list(changes.columns):
        old = gone.get((column.table.name, column.info[FIELD].renamed_from or ""))
        if old is not None:
            _rename(column, old, changes, differs=context.impl.compare_type(old, column))
    # Foreign keys come with their columns, where these are new, and indexes with their tables.
    new = {place(column) for column in changes.columns}
    changes.replaced = [column for column in dict.fromkeys(changes.replaced) if place(column) not in new]
    changes.indexes = [index for index in changes.indexes if index.table not in changes.tables]
    made = [
        (one.table.name, one.name) for one in (*(two.column for two in changes.converted), *changes.replaced)
    ]
    changes.relaxed = [one for one in changes.relaxed if one not in made]
    return changes


def waiting(changes: Changes) -> Iterator[str]:
    """Say what a server of the version before could not go on with, so that no server does it by itself."""
    do = "Look at `turnline db plan`, stop the servers, and run `turnline db apply`."
    for one in changes.renamed:
        yield f"{place(one.column)}: found a column {one.old}, expected {one.column.name}. {do}"
    for two in changes.converted:
        yield f"{place(two.column)} has another type: found {two.found}, expected {two.wanted}. {do}"
    for column in changes.replaced:
        yield f"{place(column)} has another type, or another relation, than its column. {do}"


def losses(connection: Connection, changes: Changes) -> Iterator[str]:
    """Say which values the changes would lose."""
    for one in changes.converted:
        pages = converted_pages(connection, one, one.name)
        lost = sum(not row.is_kept for page in pages for row in page)
        if lost:
            total = _count(connection, one.column.table)
            yield (
                f"{place(one.column)}: {lost} of {total} rows hold what is not {one.wanted}; each is cut to "
                f"what fits, or null."
            )
    for column in changes.replaced:
        if _count(connection, column.table):
            yield f"{place(column)} is dropped and created again, and what is in it is lost."


def unused(changes: Changes) -> list[str]:
    """Say which columns stay, though no field has them any more."""
    return [f"{table}.{name}" for table, name in sorted(changes.leftover)]


def obstacles(connection: Connection, changes: Changes) -> Iterator[str]:
    """Say what cannot be done at all, and what to do about it."""
    for column in changes.replaced:
        if column.primary_key:
            yield f"{place(column)} is the key of its table, and has another type. Make a new model instead."
    for column in (*changes.columns, *changes.replaced):
        if not column.nullable and server_default(column) is None and _count(connection, column.table):
            yield f"{place(column)} is new and required, but there are rows without it. Give it a default."
    for one in changes.converted:
        if not one.column.nullable and server_default(one.column) is None:
            pages = converted_pages(connection, one, one.name)
            missing = sum(row.value is None and not row.is_kept for page in pages for row in page)
            if missing:
                yield (
                    f"{place(one.column)} is required, and {missing} rows hold nothing that is {one.wanted}. "
                    f"Change them first, or give the field a default."
                )
    for index in changes.indexes:
        column = next(iter(index.columns))
        if index.unique and _has_twins(connection, column, changes):
            yield f"{place(column)} is unique now, but some rows have the same value. Change them first."


def converted_pages(connection: Connection, change: Conversion, name: str) -> Iterator[list[Converted]]:
    """Yield every row's value as the field has it now, read from the column `name`, in pages."""
    key = change.column.table.c[ID]
    bare = Table(
        change.column.table.name,
        MetaData(),
        Column(ID, key.type, primary_key=True),
        Column(name, column_type(DataField(type=change.found))),
    )
    page = select(bare.c[ID], bare.c[name]).order_by(bare.c[ID]).limit(PAGE_ROWS)
    found = connection.execute(page).all()
    while found:
        yield [_converted(change, row_id, value) for row_id, value in found]
        found = connection.execute(page.where(bare.c[ID] > found[-1][0])).all()


def server_default(column: Column[Any]) -> ColumnElement[Any] | str | None:
    """What rows that are there already get in a new column."""
    default = column.default
    if default is None or not (default.is_scalar or default.is_callable):
        return None
    value = default.arg(None) if default.is_callable else default.arg  # type: ignore[attr-defined]
    return json.dumps(value) if isinstance(column.type, JsonValue) else literal(value, column.type)


def place(column: Column[Any]) -> str:
    return f"{column.table.name}.{column.name}"


def _converted(change: Conversion, row_id: object, value: Value) -> Converted:
    try:
        new = convert(value, change.wanted)
    except Unfit:
        return Converted(row_id, None, is_kept=False)
    return Converted(row_id, new, is_kept=keeps(value, new, change.found))


def _sort(
    change: Sequence[Any], metadata: MetaData, changes: Changes, gone: dict[Place, Column[Any]]
) -> None:
    """Put one difference, as alembic has it, where it belongs."""
    match change:
        case ("add_table", Table(name=name)):
            changes.tables.append(metadata.tables[name])
        case ("add_column", _, str(table), Column(name=name)):
            changes.columns.append(metadata.tables[table].c[name])
        case ("remove_column", _, str(table), Column() as column):
            gone[table, column.name] = column
            changes.leftover.append((table, column.name))
            if not column.nullable:  # Rows to come have nothing to put there.
                changes.relaxed.append((table, column.name))
        case ("modify_type", _, str(table), str(name), _, found, _):
            _retype(metadata.tables[table].c[name], name, found, changes)
        case ("modify_nullable", _, str(table), str(name), _, _, True):
            changes.relaxed.append((table, name))
        case ("add_fk", key):
            changes.replaced.append(metadata.tables[key.table.name].c[next(iter(key.columns)).name])
        case ("add_index", Index(name=name, table=Table(name=table))):
            changes.indexes += [one for one in metadata.tables[table].indexes if one.name == name]
        case ("remove_index", Index() as index) if _is_ours(index):
            changes.old_indexes.append(index)


def _rename(column: Column[Any], old: Column[Any], changes: Changes, *, differs: bool) -> None:
    """Make one change of two: a column that is gone, and a new one that has its rows."""
    table = column.table.name
    changes.renamed.append(Rename(column, old.name))
    changes.columns = [one for one in changes.columns if one is not column]
    changes.leftover.remove((table, old.name))
    changes.relaxed = [one for one in changes.relaxed if one != (table, old.name)]
    if column.nullable and not old.nullable:
        changes.relaxed.append((table, column.name))
    if _leads_to(column) == _leads_to(old):
        changes.replaced = [one for one in changes.replaced if one is not column]
    if differs:
        _retype(column, old.name, old.type, changes)


def _retype(column: Column[Any], name: str, found: Any, changes: Changes) -> None:
    kind = kind_of(found)
    if kind is None or column.primary_key or column.foreign_keys:
        changes.replaced.append(column)
        return
    changes.converted.append(Conversion(column, name, kind, column.info[FIELD].type))


def _leads_to(column: Column[Any]) -> set[tuple[str, str]]:
    return {(one.target_fullname.split(".")[-2], (one.ondelete or "").upper()) for one in column.foreign_keys}


def _is_ours(index: Index) -> bool:
    table = index.table.name if index.table is not None else ""
    beginnings = [f"{kind}_{part}_" for kind in ("ix", "uq") for part in (table, table[:TABLE_PART])]
    return str(index.name).startswith(tuple(beginnings))


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _has_twins(connection: Connection, column: Column[Any], changes: Changes) -> bool:
    if any(column is one for one in (*changes.columns, *changes.replaced)):
        return server_default(column) is not None and _count(connection, column.table) > 1
    bare = Table(column.table.name, MetaData(), Column(changes.name_today(column), column.type))
    (value,) = bare.c
    twins = select(value).where(value.is_not(None)).group_by(value).having(func.count() > 1).limit(1)
    return connection.execute(twins).first() is not None
