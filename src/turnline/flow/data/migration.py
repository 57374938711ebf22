"""Changes of data models, brought to tables that have rows in them.

    compare -> refuse, and touch nothing
            -> otherwise all changes in one transaction

How far a migration goes:

    additive    at the start of a server: new tables, new columns that are optional or have a default,
                indexes, a column that may now be null. A server of the version before goes on beside it
    lossless    `turnline db apply`: also columns with another name or another type
    lossy       `turnline db apply --allow-loss`: also what loses values, and columns that no field has

A field that has become required is so for rows to come: its column stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection, MetaData, Table, bindparam, inspect, update
from sqlalchemy.schema import CreateColumn

from turnline.errors import ModelsRefused
from turnline.flow.data.changes import (
    Changes,
    Conversion,
    Place,
    Rename,
    compare,
    converted_pages,
    losses,
    obstacles,
    server_default,
    unused,
    waiting,
)
from turnline.flow.data.definition import ID
from turnline.flow.data.tables import rule_name

Extent = Literal["additive", "lossless", "lossy"]
_ALLOW: Final = "`turnline db apply --allow-loss` does it."
_OLD: Final = "_turnline_old"
"""The name of a column while its values are converted. No field can have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a migration would do."""

    changes: tuple[str, ...]
    new_tables: frozenset[str]
    losses: tuple[str, ...]
    """What it loses, and therefore does only when it is allowed to."""
    unused: tuple[str, ...]
    """Columns that no field has. They stay, unless it may lose data."""
    obstacles: tuple[str, ...]
    """What it cannot do."""


def plan(connection: Connection, metadata: MetaData) -> Plan:
    """Return what `migrate` would do. Reads only."""
    changes = compare(connection, metadata)
    return Plan(
        changes=tuple(changes.describe(drops=False)),
        new_tables=frozenset(table.name for table in changes.tables),
        losses=tuple(losses(connection, changes)),
        unused=tuple(unused(changes)),
        obstacles=tuple(obstacles(connection, changes)),
    )


def migrate(connection: Connection, metadata: MetaData, *, extent: Extent) -> list[str]:
    """Bring the tables up to the models, inside the caller's transaction; return what was done.

    Raises `ModelsRefused`, before anything is touched, with all that cannot be done.
    """
    changes = compare(connection, metadata)
    found = list(obstacles(connection, changes))
    if extent == "additive":
        found += waiting(changes)
    elif extent == "lossless":
        found += [f"{loss} {_ALLOW}" for loss in losses(connection, changes)]
    if found:
        raise ModelsRefused(found)
    drops = extent == "lossy"
    _apply(connection, metadata, changes, drops=drops)
    return changes.describe(drops=drops)


def _apply(connection: Connection, metadata: MetaData, changes: Changes, *, drops: bool) -> None:
    for index in changes.old_indexes:
        index.drop(connection)
    for rename in changes.renamed:
        _rename(connection, rename)
    dropped = [(column.table.name, column.name) for column in changes.replaced]
    _rebuild(connection, changes.relaxed, [*dropped, *(changes.leftover if drops else ())])
    metadata.create_all(connection, tables=changes.tables)
    for column in (*changes.columns, *changes.replaced):
        _add(connection, column)
        _relate(connection, column)
    for conversion in changes.converted:
        _convert(connection, conversion)
    for table in metadata.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def _rename(connection: Connection, change: Rename) -> None:
    """Rename a column, and the rule of where it leads: the next column may have the name it had."""
    table = change.column.table.name
    _rename_column(connection, table, change.old, change.column.name)
    rule = rule_name("fk", table, change.old)
    if rule in [key["name"] for key in inspect(connection).get_foreign_keys(table)]:
        with Operations(MigrationContext.configure(connection)).batch_alter_table(table) as batch:
            batch.drop_constraint(rule, type_="foreignkey")
        _relate(connection, change.column)


def _rename_column(connection: Connection, table: str, old: str, new: str) -> None:
    quoted = connection.dialect.identifier_preparer.quote
    text = f"ALTER TABLE {quoted(table)} RENAME COLUMN {quoted(old)} TO {quoted(new)}"
    connection.exec_driver_sql(text)


def _convert(connection: Connection, change: Conversion) -> None:
    """Fill a new column from the old one, row by row, and drop that."""
    column = change.column
    for index in column.table.indexes:
        if column.name in index.columns:
            index.drop(connection, checkfirst=True)
    _rename_column(connection, column.table.name, column.name, _OLD)
    _add(connection, column)
    # Not the model's own table: nobody updates the rows, so their `updated_at` stays.
    key: Column[Any] = Column(ID, column.table.c[ID].type, primary_key=True)
    bare = Table(column.table.name, MetaData(), key, Column(column.name, column.type))
    statement = update(bare).where(bare.c[ID] == bindparam("row_id")).values({column.name: bindparam("new")})
    for page in converted_pages(connection, change, _OLD):
        # A value that does not fit leaves the default where the column must not be null.
        kept = [row for row in page if row.value is not None or column.nullable]
        if kept:
            connection.execute(statement, [{"row_id": row.row_id, "new": row.value} for row in kept])
    _rebuild(connection, [], [(column.table.name, _OLD)])


def _rebuild(connection: Connection, relaxed: Sequence[Place], dropped: Sequence[Place]) -> None:
    """Change columns that are there: by ALTER, or where SQLite cannot, by copying the table."""
    operations = Operations(MigrationContext.configure(connection))
    for table in sorted({table for table, _ in (*relaxed, *dropped)}):
        with operations.batch_alter_table(table) as batch:
            for where, name in relaxed:
                if where == table and (where, name) not in dropped:
                    batch.alter_column(name, nullable=True)
            for where, name in dropped:
                if where == table:
                    batch.drop_column(name)


def _add(connection: Connection, column: Column[Any]) -> None:
    quoted = connection.dialect.identifier_preparer.quote
    default = server_default(column)
    # Without a default SQLite takes no column that is never null; the field sees to it.
    copy: Column[Any] = Column(
        column.name, column.type, nullable=column.nullable or default is None, server_default=default
    )
    Table(column.table.name, MetaData(), copy)
    text = f"ALTER TABLE {quoted(column.table.name)} ADD COLUMN "
    text += str(CreateColumn(copy).compile(dialect=connection.dialect))
    connection.exec_driver_sql(text)


def _relate(connection: Connection, column: Column[Any]) -> None:
    """Let a new column lead to another table. Written with the column, SQLite would not tell it the same."""
    operations = Operations(MigrationContext.configure(connection))
    for key in column.foreign_keys:
        with operations.batch_alter_table(column.table.name) as batch:
            batch.create_foreign_key(
                str(key.name),
                key.column.table.name,
                [column.name],
                [key.column.name],
                ondelete=key.ondelete,
                deferrable=key.deferrable,
                initially=key.initially,
            )
