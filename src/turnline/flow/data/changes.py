"""What differs between the data models and the tables that are there, and what is in the way.

Only the tables of declared models are looked at; there may be others in the database.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

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

from turnline.flow.data.columns import JsonValue
from turnline.flow.data.tables import TABLE_PART

Place = tuple[str, str]
"""A table and a column."""


@dataclass(slots=True)
class Changes:
    """The differences, by what has to be done about them."""

    tables: list[Table] = field(default_factory=list)
    columns: list[Column[Any]] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    old_indexes: list[Index] = field(default_factory=list)
    relaxed: list[Place] = field(default_factory=list)
    """Columns that may be null from now on."""
    replaced: list[Column[Any]] = field(default_factory=list)
    """Columns whose type, or relation, is another one: what is in them does not fit."""
    leftover: list[Place] = field(default_factory=list)
    """Columns of fields that are gone."""

    def told(self, *, drop: bool) -> list[str]:
        """What is done, a line for each change."""
        done = [f"new table {table.name}" for table in self.tables]
        done += [f"new column {place(column)}" for column in self.columns]
        done += [f"column {table}.{name} may be null" for table, name in sorted(self.relaxed)]
        done += [f"new index {index.name}" for index in self.indexes]
        done += [f"index {index.name} dropped" for index in self.old_indexes]
        if drop:
            done += [f"column {place(column)} dropped and made anew" for column in self.replaced]
            done += [f"column {table}.{name} dropped" for table, name in sorted(self.leftover)]
        return done


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
    changes = Changes()
    for found in compare_metadata(context, metadata):
        for one in found if isinstance(found, list) else [found]:
            _sort(one, metadata, changes)
    # Foreign keys come with their columns, where these are new, and indexes with their tables.
    new = {place(column) for column in changes.columns}
    changes.replaced = [column for column in dict.fromkeys(changes.replaced) if place(column) not in new]
    changes.indexes = [index for index in changes.indexes if index.table not in changes.tables]
    return changes


def problems(connection: Connection, changes: Changes, *, drop: bool) -> Iterator[str]:
    """Say what cannot be done, and what to do about it."""
    if not drop:
        for column in changes.replaced:
            yield (
                f"{place(column)} has another type, or another relation, than its column. Give it a new "
                f"name, or migrate with `drop`, which loses what is in the column."
            )
    new = [*changes.columns, *(changes.replaced if drop else ())]
    for column in new:
        if not column.nullable and server_default(column) is None and _count(connection, column.table):
            yield f"{place(column)} is new and required, but there are rows without it. Give it a default."
    for index in changes.indexes:
        column = next(iter(index.columns))
        if index.unique and _has_twins(connection, column, new):
            yield f"{place(column)} is unique now, but some rows have the same value. Change them first."


def server_default(column: Column[Any]) -> ColumnElement[Any] | str | None:
    """What rows that are there already get in a new column."""
    default = column.default
    if default is None or not (default.is_scalar or default.is_callable):
        return None
    value = default.arg(None) if default.is_callable else default.arg  # type: ignore[attr-defined]
    return json.dumps(value) if isinstance(column.type, JsonValue) else literal(value, column.type)


def place(column: Column[Any]) -> str:
    return f"{column.table.name}.{column.name}"


def _sort(change: Sequence[Any], metadata: MetaData, changes: Changes) -> None:
    """Put one difference, as alembic tells it, where it belongs."""
    match change:
        case ("add_table", Table(name=name)):
            changes.tables.append(metadata.tables[name])
        case ("add_column", _, str(table), Column(name=name)):
            changes.columns.append(metadata.tables[table].c[name])
        case ("remove_column", _, str(table), Column() as column):
            changes.leftover.append((table, column.name))
            if not column.nullable:  # Rows to come have nothing to put there.
                changes.relaxed.append((table, column.name))
        case ("modify_type", _, str(table), str(name), *_):
            changes.replaced.append(metadata.tables[table].c[name])
        case ("modify_nullable", _, str(table), str(name), _, _, True):
            changes.relaxed.append((table, name))
        case ("add_fk", key):
            changes.replaced.append(metadata.tables[key.table.name].c[next(iter(key.columns)).name])
        case ("add_index", Index(name=name, table=Table(name=table))):
            changes.indexes += [one for one in metadata.tables[table].indexes if one.name == name]
        case ("remove_index", Index() as index) if _is_ours(index):
            changes.old_indexes.append(index)


def _is_ours(index: Index) -> bool:
    table = index.table.name if index.table is not None else ""
    beginnings = [f"{kind}_{part}_" for kind in ("ix", "uq") for part in (table, table[:TABLE_PART])]
    return str(index.name).startswith(tuple(beginnings))


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _has_twins(connection: Connection, column: Column[Any], new: Sequence[Column[Any]]) -> bool:
    if any(column is one for one in new):
        return server_default(column) is not None and _count(connection, column.table) > 1
    twins = select(column).where(column.is_not(None)).group_by(column).having(func.count() > 1).limit(1)
    return connection.execute(twins).first() is not None
