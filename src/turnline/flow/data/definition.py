"""What a data model's document may say (F12).

    kind: ModelDefinition
    metadata: {name: Lead, version: v2}
    spec:
      fields: {email: {type: string, required: true, unique: true}, score: integer}
      relations: {company: {model: Company}}

Every model has an `id`, a UUID that is known before the row is written, and unless
`timestamps: false` says otherwise, `created_at` and `updated_at`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from turnline.flow.data.field import DataField, DataFieldLike, FieldName
from turnline.flow.definition.base import Part
from turnline.flow.finding import Finding
from turnline.flow.mistake import parsed
from turnline.flow.yaml_document import YamlDocument

ID: Final = "id"
CREATED_AT: Final = "created_at"
UPDATED_AT: Final = "updated_at"
_ID: Final = DataField(type="uuid", required=True)
_TIME: Final = DataField(type="datetime", required=True)
_TAKEN_NAMES: Final = frozenset({"awaitable_attrs"})
"""What every row of the ORM is asked for already."""

ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=60)]
TableName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)]
Version = Annotated[
    str,
    BeforeValidator(lambda v: str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v),
    StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=60),
]


class Relation(Part):
    """How rows of two models belong together."""

    model: ModelName
    kind: Literal["many_to_one", "one_to_many"] = "many_to_one"
    required: bool = False
    """Of many_to_one: every row belongs to one of the others."""
    on_delete: Literal["restrict", "cascade", "set_null"] = "restrict"
    """Of many_to_one: what becomes of the row when the other one is removed."""
    via: FieldName | None = None
    """Of one_to_many: the other model's relation that leads back, where it has several."""
    renamed_from: FieldName | None = None
    """Of many_to_one: what the relation was called before; `turnline db apply` renames its column."""

    @model_validator(mode="after")
    def _checked(self) -> Relation:
        if self.kind == "one_to_many" and (
            self.required or self.renamed_from or self.on_delete != "restrict"
        ):
            raise ValueError(
                "`required`, `on_delete` and `renamed_from` belong to the relation that leads back"
            )
        if self.kind == "many_to_one" and self.via is not None:
            raise ValueError("`via` belongs to a one_to_many relation")
        if self.required and self.on_delete == "set_null":
            raise ValueError("a required relation cannot be set to null")
        return self


class ModelMetadata(Part):
    """What a model is called, and which version of it this is."""

    name: ModelName
    version: Version = "v1"
    description: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class ModelSpec(Part):
    """What a model's rows hold."""

    table: TableName | None = None
    """Without it: the model's name, as `sales_lead` for `SalesLead`."""
    fields: dict[FieldName, DataFieldLike] = Field(default_factory=dict)
    relations: dict[FieldName, Relation] = Field(default_factory=dict)
    timestamps: bool = True

    @model_validator(mode="after")
    def _checked(self) -> ModelSpec:
        columns = [*built_in(self.timestamps) | self.fields, *map(foreign_key, self.outgoing)]
        names = [*columns, *self.relations]
        if self.fields.get(ID, _ID).type not in ("uuid", "string", "integer"):
            raise ValueError("an id is a uuid, a string or an integer")
        for name in names:
            if name in _TAKEN_NAMES:
                raise ValueError(f"no field can be called {name!r}; choose another name")
            if [other.lower() for other in names].count(name.lower()) > 1:
                raise ValueError(f"two fields or relations would be called {name!r}")
        before = [one.renamed_from for one in self.fields.values()]
        before += [one.renamed_from for one in self.relations.values()]
        for old in filter(None, before):
            if old in names or before.count(old) > 1:
                raise ValueError(
                    f"`renamed_from: {old}` needs a name that only this one had, and none has now"
                )
        return self

    @property
    def outgoing(self) -> dict[str, Relation]:
        """The relations that are kept in this model's own rows."""
        return {name: one for name, one in self.relations.items() if one.kind == "many_to_one"}


class ModelDefinition(Part):
    """A whole document."""

    api_version: str | None = Field(default=None, alias="apiVersion")
    kind: Literal["ModelDefinition"] = "ModelDefinition"
    metadata: ModelMetadata
    spec: ModelSpec = Field(default_factory=ModelSpec)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def version(self) -> str:
        return self.metadata.version

    @property
    def table(self) -> str:
        return self.spec.table or _snake(self.name)

    @property
    def fields(self) -> dict[str, DataField]:
        """Every field with a value of its own; not what leads to other rows."""
        fields = built_in(self.spec.timestamps) | self.spec.fields
        return fields | {ID: fields[ID].model_copy(update={"required": True, "nullable": False})}


def read_model(data: Any) -> ModelDefinition:
    """Return the model that a document describes."""
    return ModelDefinition.model_validate(data)


def read_models(documents: Iterable[YamlDocument]) -> tuple[list[ModelDefinition], list[Finding]]:
    """Return the models of a project's documents, and what is wrong with the others."""
    read = [parsed(ModelDefinition, document) for document in documents]
    models = [model for model, _ in read if model is not None]
    return models, [finding for _, findings in read for finding in findings]


def foreign_key(relation: str) -> str:
    """The column that a relation is kept in."""
    return f"{relation}_id"


def built_in(timestamps: bool) -> dict[str, DataField]:
    return {ID: _ID} | ({CREATED_AT: _TIME, UPDATED_AT: _TIME} if timestamps else {})


def columns_of(model: ModelDefinition, models: Mapping[str, ModelDefinition]) -> dict[str, DataField]:
    """Every column of the model's table, in order: its fields, and what leads to other rows."""
    return model.fields | {
        foreign_key(name): DataField(
            type=models[one.model].fields[ID].type,
            required=one.required,
            index=True,
            renamed_from=foreign_key(one.renamed_from) if one.renamed_from else None,
        )
        for name, one in model.spec.outgoing.items()
    }


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
