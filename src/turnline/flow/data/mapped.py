"""A data model, its table and its class, and what holds for every row of it.

Rule 1: what goes into a row has passed its field, whichever way it comes: a repository, a
constructor or an attribute. So a wrong value is told at the line that sets it.

Rule 2: ids, times and defaults are set when a row is made, not when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncAttrs

from turnline.errors import BadField
from turnline.errors.base import hint
from turnline.flow.data.definition import CREATED_AT, ID, UPDATED_AT, ModelDefinition, foreign_key
from turnline.flow.data.field import DataField
from turnline.flow.data.row import Row
from turnline.flow.data.values import Unfit, Value, given


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where what nobody gives comes from."""

    now: Callable[[], datetime]
    new_id: Callable[[], str]


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
    sources: Sources

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
        return self.taken_as(self.field(name), name, value)

    def taken_as(self, field: DataField, name: str, value: object) -> Value:
        """The same, by another field than the model's own."""
        try:
            return field.accept(value)
        except Unfit as error:
            found = "null" if value is None else f"a {type(value).__name__}"
            raise BadField(self.name, name, found=found, expected=str(error)) from None

    def by_column(self, values: Mapping[str, object]) -> dict[str, object]:
        """`company: row` is `company_id: row["id"]`; everything else stays as it is."""
        outgoing = self.definition.spec.outgoing
        return {
            foreign_key(name) if name in outgoing else name: _id_of(value) if name in outgoing else value
            for name, value in values.items()
        }

    def completed(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return a new row's values with whatever was left out. Raises `BadField` for what does not fit."""
        for name in values:
            if name not in self.definition.spec.relations:
                self.field(name)
        made: dict[str, object] = {
            name: field.default for name, field in self.columns.items() if field.default is not None
        }
        if self.columns[ID].type == "uuid":
            made[ID] = self.sources.new_id()
        now = self.sources.now()
        made |= {name: now for name in (CREATED_AT, UPDATED_AT) if self._is_stamp(name)}
        complete = made | dict(values)
        relations = {foreign_key(name): name for name in self.definition.spec.outgoing}
        for name, field in self.columns.items():
            if name not in complete and relations.get(name) not in complete and field.required:
                raise BadField(self.name, name, found="missing", expected="a value, since it is required")
        return complete

    def stamped(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return a changed row's values with the time of the change."""
        return ({UPDATED_AT: self.sources.now()} if self._is_stamp(UPDATED_AT) else {}) | dict(values)

    def row(self, values: Mapping[str, Any]) -> Row:
        return Row({name: given(values[name]) for name in self.columns})

    def row_of(self, record: Record) -> Row:
        return self.row({name: getattr(record, name) for name in self.columns})

    def _is_stamp(self, name: str) -> bool:
        return name in self.columns and self.columns[name].type == "datetime"


def _id_of(value: object) -> object:
    if isinstance(value, Record):
        return getattr(value, ID)
    return value[ID] if isinstance(value, Mapping) and ID in value else value
