"""Data models as tables and mapped classes, made at run time; nothing is shared between projects.

    schema = build(newest(models), now=..., new_id=...)
    schema.models["Lead"].record    the class: `db["Lead"].model`

Rule 1: what goes into a row has passed its field, whichever way it comes: a repository, a
constructor or an attribute. So a wrong value is told at the line that sets it.

Rule 2: ids, times and defaults are set when a row is made, not when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import Column, ForeignKey, Index, MetaData, Table, event
from sqlalchemy.ext.asyncio import AsyncAttrs
from sqlalchemy.orm import registry, relationship

from turnwise.errors import BadField
from turnwise.errors.base import hint
from turnwise.flow.data.columns import column_type
from turnwise.flow.data.definition import (
    CREATED_AT,
    ID,
    UPDATED_AT,
    ModelDefinition,
    columns_of,
    foreign_key,
)
from turnwise.flow.data.field import DataField
from turnwise.flow.data.row import Row
from turnwise.flow.data.values import Unfit, Value, given
from turnwise.flow.data.versions import way_back


class Record(AsyncAttrs):
    """A row as the ORM has it. Every data model has a class of its own below this one."""

    mapped: ClassVar[MappedModel]

    def __init__(self, **values: Any) -> None:
        for name, value in self.mapped.completed(values).items():
            setattr(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedModel:
    """A data model, its table and its class."""

    definition: ModelDefinition
    columns: Mapping[str, DataField]
    table: Table
    record: type[Record]
    now: Callable[[], datetime]
    new_id: Callable[[], str]

    @property
    def name(self) -> str:
        return self.definition.name

    def field(self, name: str) -> DataField:
        """Return the field behind a column. Raises `BadField` if there is none."""
        field = self.columns.get(name)
        if field is None:
            expected = f"one of {', '.join(self.columns)}.{hint(name, self.columns)}".removesuffix(".")
            raise BadField(self.name, name, found="no field", expected=expected)
        return field

    def taken(self, name: str, value: object) -> Value:
        """Return what the database keeps of `value`. Raises `BadField`."""
        try:
            return self.field(name).accept(value)
        except Unfit as error:
            found = "null" if value is None else f"a {type(value).__name__}"
            raise BadField(self.name, name, found=found, expected=str(error)) from None

    def by_column(self, values: Mapping[str, object]) -> dict[str, object]:
        """`company: row` is `company_id: row["id"]`; everything else stays as it is."""
        outgoing = self.definition.spec.outgoing
        return {
            foreign_key(name) if name in outgoing else name: value[ID]
            if name in outgoing and isinstance(value, Mapping) and ID in value
            else value
            for name, value in values.items()
        }

    def completed(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return a new row's values with whatever was left out. Raises `BadField` for what is missing."""
        made: dict[str, object] = {
            name: field.default for name, field in self.columns.items() if field.default is not None
        }
        if self.columns[ID].type == "uuid":
            made[ID] = self.new_id()
        now = self.now()
        made |= {name: now for name in (CREATED_AT, UPDATED_AT) if self._is_stamp(name)}
        complete = made | dict(values)
        relations = {foreign_key(name): name for name in self.definition.spec.outgoing}
        for name, field in self.columns.items():
            if name not in complete and relations.get(name) not in complete and field.required:
                raise BadField(self.name, name, found="missing", expected="a value, since it is required")
        return complete

    def stamped(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return a changed row's values with the time of the change."""
        return ({UPDATED_AT: self.now()} if self._is_stamp(UPDATED_AT) else {}) | dict(values)

    def row(self, values: Mapping[str, Any]) -> Row:
        return Row({name: given(values[name]) for name in self.columns})

    def row_of(self, record: Record) -> Row:
        return self.row({name: getattr(record, name) for name in self.columns})

    def _is_stamp(self, name: str) -> bool:
        return name in self.columns and self.columns[name].type == "datetime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The data models of a project."""

    metadata: MetaData
    models: Mapping[str, MappedModel]

    @property
    def definitions(self) -> dict[str, ModelDefinition]:
        return {name: one.definition for name, one in self.models.items()}


def build(
    models: Mapping[str, ModelDefinition], *, now: Callable[[], datetime], new_id: Callable[[], str]
) -> Schema:
    """Make the tables and classes of models that fit together (`versions.problems_of`)."""
    metadata, mapper = MetaData(), registry()
    mapped: dict[str, MappedModel] = {}
    for name, model in models.items():
        columns = columns_of(model, models)
        record: type[Record] = type(name, (Record,), {"__doc__": model.metadata.description})
        mapped[name] = record.mapped = MappedModel(
            definition=model,
            columns=columns,
            table=_table(model, columns, models, metadata, now),
            record=record,
            now=now,
            new_id=new_id,
        )
    for one in mapped.values():
        mapper.map_imperatively(one.record, one.table, properties=_relationships(one.definition, mapped))
    mapper.configure()
    for one in mapped.values():
        _check_assignments(one)
    return Schema(metadata=metadata, models=mapped)


def _table(
    model: ModelDefinition,
    columns: Mapping[str, DataField],
    models: Mapping[str, ModelDefinition],
    metadata: MetaData,
    now: Callable[[], datetime],
) -> Table:
    targets = {foreign_key(name): one for name, one in model.spec.outgoing.items()}
    made = []
    for name, field in columns.items():
        relation = targets.get(name)
        rules = {"restrict": "RESTRICT", "cascade": "CASCADE", "set_null": "SET NULL"}
        points = (
            [ForeignKey(f"{models[relation.model].table}.{ID}", ondelete=rules[relation.on_delete])]
            if relation
            else []
        )
        stamp = {"onupdate": now} if name == UPDATED_AT and field.type == "datetime" else {}
        made.append(
            Column(
                name,
                column_type(field),
                *points,
                primary_key=name == ID,
                nullable=field.is_nullable,
                **stamp,
            )
        )
    indexes = [
        Index(f"{'uq' if field.unique else 'ix'}_{model.table}_{name}", name, unique=field.unique)
        for name, field in columns.items()
        if (field.unique or field.index) and name != ID
    ]
    return Table(model.table, metadata, *made, *indexes)


def _relationships(model: ModelDefinition, mapped: Mapping[str, MappedModel]) -> dict[str, Any]:
    """Where a row leads, for the ORM. The database, not the ORM, does what `on_delete` says."""
    models = {name: one.definition for name, one in mapped.items()}
    found = {}
    for name, relation in model.spec.relations.items():
        other = mapped[relation.model]
        back = way_back(model, name, models) if relation.kind == "one_to_many" else None
        kept_in = mapped[model.name].table if back is None else other.table
        column = kept_in.c[foreign_key(back or name)]
        found[name] = relationship(
            other.record,
            foreign_keys=[column],
            remote_side=[other.table.c[ID]] if back is None else [column],
            back_populates=back or _way_here(model, name, models),
            passive_deletes="all" if back is not None else False,
        )
    return found


def _way_here(model: ModelDefinition, name: str, models: Mapping[str, ModelDefinition]) -> str | None:
    """The other model's one_to_many relation that is made of this one, if there is one."""
    other = models[model.spec.relations[name].model]
    ways = [
        one
        for one, relation in other.spec.relations.items()
        if relation.kind == "one_to_many"
        and relation.model == model.name
        and way_back(other, one, models) == name
    ]
    return ways[0] if len(ways) == 1 else None


def _check_assignments(model: MappedModel) -> None:
    for name in model.columns:

        def check(_: Record, value: object, __: object, ___: object, name: str = name) -> Value:
            return model.taken(name, value)

        event.listen(getattr(model.record, name), "set", check, retval=True)
