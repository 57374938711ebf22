"""Changes of data models, brought to tables that have rows in them.

    compare -> problems: refuse, and touch nothing
            -> otherwise all changes in one transaction

What happens by itself loses nothing: new tables, new columns that are optional or have a
default, indexes, a column that may now be null. A field that is gone leaves its column in
place. What loses data, a column dropped or made anew with another type, happens only when
it is asked for (`drop`).

A field that has become required is so for rows to come: its column stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection, MetaData, Table
from sqlalchemy.schema import CreateColumn

from turnline.errors import ModelsRefused
from turnline.flow.data.changes import Changes, Place, compare, problems, server_default


def migrate(connection: Connection, metadata: MetaData, *, drop: bool) -> list[str]:
    """Bring the tables up to the models, inside the caller's transaction; return what was done.

    Raises `ModelsRefused`, before anything is touched, with all that cannot be done.
    """
    changes = compare(connection, metadata)
    found = list(problems(connection, changes, drop=drop))
    if found:
        raise ModelsRefused(found)
    _apply(connection, metadata, changes, drop=drop)
    return changes.told(drop=drop)


def _apply(connection: Connection, metadata: MetaData, changes: Changes, *, drop: bool) -> None:
    dropped = [(column.table.name, column.name) for column in changes.replaced] + changes.leftover
    for index in changes.old_indexes:
        index.drop(connection)
    _rebuild(connection, changes.relaxed, dropped if drop else [])
    metadata.create_all(connection, tables=changes.tables)
    for column in (*changes.columns, *(changes.replaced if drop else ())):
        _add(connection, column)
        _relate(connection, column)
    for table in metadata.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)


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
