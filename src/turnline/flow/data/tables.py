"""Data models as tables and mapped classes, made at run time; nothing is shared between projects.

schema = build(newest(models), Sources(now=..., new_id=...))
schema.models["Lead"].record    the class: `db["Lead"].model`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Column, ForeignKey, Index, MetaData, Table, event
from sqlalchemy.orm import registry, relationship

from turnline.flow.data.columns import column_type
from turnline.flow.data.definition import (
    CREATED_AT,
    ID,
    UPDATED_AT,
    ModelDefinition,
    Relation,
    columns_of,
    foreign_key,
)
from turnline.flow.data.field import DataField
from turnline.flow.data.mapped import MappedModel, Record, Sources
from turnline.flow.data.values import Value
from turnline.flow.data.versions import way_back

MAX_NAME: Final = 63
"""Of an index or a foreign key, in characters."""
TABLE_PART: Final = 43
"""How much of a table's name stands in a name that would be too long."""
FIELD: Final = "field"
"""In a column's `info`: the field it is made of."""
_ON_DELETE: Final = {"restrict": "RESTRICT", "cascade": "CASCADE", "set_null": "SET NULL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The data models of a project."""

    metadata: MetaData
    models: Mapping[str, MappedModel]

    @property
    def definitions(self) -> dict[str, ModelDefinition]:
        return {name: one.definition for name, one in self.models.items()}


def build(models: Mapping[str, ModelDefinition], sources: Sources) -> Schema:
    """Make the tables and classes of models that fit together (`versions.problems_of`)."""
    metadata, mapper = MetaData(), registry()
    mapped: dict[str, MappedModel] = {}
    for name, model in models.items():
        columns = columns_of(model, models)
        record: type[Record] = type(name, (Record,), {"__doc__": model.metadata.description})
        table = Table(model.table, metadata, *_columns(model, models, sources), *_indexes(model, columns))
        mapped[name] = record.mapped = MappedModel(
            definition=model, columns=columns, table=table, record=record, sources=sources
        )
    for one in mapped.values():
        mapper.map_imperatively(one.record, one.table, properties=_relationships(one.definition, mapped))
    mapper.configure()
    for one in mapped.values():
        _check_assignments(one)
    return Schema(metadata=metadata, models=mapped)


def _columns(
    model: ModelDefinition, models: Mapping[str, ModelDefinition], sources: Sources
) -> list[Column[Any]]:
    relations = {foreign_key(name): one for name, one in model.spec.outgoing.items()}
    made = []
    for name, field in columns_of(model, models).items():
        relation = relations.get(name)
        leads_to = [_foreign_key(model, name, relation, models)] if relation else []
        made.append(
            Column(
                name,
                column_type(field),
                *leads_to,
                primary_key=name == ID,
                autoincrement=False,
                nullable=field.is_nullable,
                default=_default(name, field, sources),
                info={FIELD: field},
                onupdate=sources.now if name == UPDATED_AT and field.type == "datetime" else None,
            )
        )
    return made


def rule_name(kind: str, table: str, column: str) -> str:
    """What an index or a foreign key is called: `uq_lead_email`. PostgreSQL cuts off what is too long."""
    name = f"{kind}_{table}_{column}"
    if len(name) <= MAX_NAME:
        return name
    return f"{kind}_{table[:TABLE_PART]}_{sha256(name.encode()).hexdigest()[:16]}"


def _foreign_key(
    model: ModelDefinition, column: str, relation: Relation, models: Mapping[str, ModelDefinition]
) -> ForeignKey:
    return ForeignKey(
        f"{models[relation.model].table}.{ID}",
        name=rule_name("fk", model.table, column),
        ondelete=_ON_DELETE[relation.on_delete],
        use_alter=True,  # Models may lead to each other in a circle.
        deferrable=True,
        initially="DEFERRED",  # Rows of one step may lead to each other, in whatever order they are sent.
    )


def _default(name: str, field: DataField, sources: Sources) -> object:
    """For rows that no class makes: those of an `insert` statement."""
    if name == ID and field.type == "uuid":
        return sources.new_id
    if name in (CREATED_AT, UPDATED_AT) and field.type == "datetime":
        return sources.now
    return field.accept(field.default) if field.default is not None else None


def _indexes(model: ModelDefinition, columns: Mapping[str, DataField]) -> list[Index]:
    return [
        Index(rule_name("uq" if field.unique else "ix", model.table, name), name, unique=field.unique)
        for name, field in columns.items()
        if (field.unique or field.index) and name != ID
    ]


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
