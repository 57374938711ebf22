"""Fields: what a request body, a form or an agent's answer holds.

    email: {type: string, required: true, pattern: ".+@.+"}
    name: string                 # short for {type: string}: optional
    scan: {type: file, media_types: [application/pdf, "image/*"], max: 5000000}

One definition gives the check (`validated`), and the JSON Schema for OpenAPI, forms and models.

Rule: only the input of a flow has files, as a field of its own or as the items of a list: a run begins with
them. An answer of a person or a model is JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError, SchemaError, SchemaValidator, core_schema

from turnline.flow.definition.base import AUTHORED, Json, Part

FieldType = Literal[
    "string",
    "integer",
    "number",
    "boolean",
    "object",
    "array",
    "any",
    "date",
    "datetime",
    "uuid",
    "email",
    "file",
]


def _checked_pattern(pattern: str, info: ValidationInfo) -> str:
    if info.context is not AUTHORED:  # A pinned copy is taken as it is: its author is not here.
        return pattern
    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        expected = "a regular expression, without look-around and back references"
        raise PydanticCustomError("bad_pattern", expected) from None
    return pattern


MediaType = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/([a-z0-9][a-z0-9!#$&^_.+-]{0,126}|\*)$")
]
_NOT_OF_A_FILE: Final = frozenset({"default", "enum", "pattern", "items", "properties"})


class FieldSpec(Part):
    """One field: its type and what else holds for it."""

    type: FieldType = "any"
    required: bool = False
    default: Json = None
    """What stands for a field that is not given."""
    description: str = ""
    enum: list[Json] | None = None
    """The values it may have."""
    pattern: Annotated[str, Field(max_length=500), AfterValidator(_checked_pattern)] | None = None
    """A regular expression that some part of a text matches; without look-around and back references."""
    min: float | None = None
    """Of a number; of a text or a list, its length; of a file, its bytes."""
    max: float | None = None
    nullable: bool = False
    """Whether it may be null."""
    items: FieldLike | None = None
    """Of an array: what each of its items is."""
    properties: dict[str, FieldLike] | None = None
    """Of an object: its fields. Without it, anything."""
    media_types: list[MediaType] | None = Field(default=None, min_length=1)
    """Of a file: what it may be, such as `application/pdf` or `image/*`. The sender says what it is."""

    @model_validator(mode="after")
    def _check_file(self) -> FieldSpec:
        if self.type == "file" and not self.model_fields_set.isdisjoint(_NOT_OF_A_FILE):
            raise ValueError(f"a file has no {', '.join(sorted(self.model_fields_set & _NOT_OF_A_FILE))}")
        if self.type != "file" and self.media_types is not None:
            raise ValueError("only a field of type file has media_types")
        return self

    @property
    def is_file(self) -> bool:
        """Whether it is a file, or a list of files."""
        return self.type == "file" or (
            self.type == "array" and self.items is not None and self.items.type == "file"
        )

    @property
    def holds_file(self) -> bool:
        """Whether it is a file, or has one at any depth."""
        inside = [*(self.properties or {}).values(), *([self.items] if self.items is not None else [])]
        return self.type == "file" or any(one.holds_file for one in inside)


def _spelled_out(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


FieldLike = Annotated[FieldSpec, BeforeValidator(_spelled_out, json_schema_input_type=FieldSpec | FieldType)]
Fields = dict[str, FieldLike]


def _without_files(fields: Fields) -> Fields:
    for name, spec in fields.items():
        if spec.holds_file:
            raise ValueError(f"{name!r} is a file; only trigger.input has files")
    return fields


def _with_files(fields: Fields) -> Fields:
    for name, spec in fields.items():
        if spec.holds_file and not spec.is_file:
            raise ValueError(
                f"{name!r} has a file inside; a file is a field of its own, or the items of a list"
            )
    return fields


AnswerFields = Annotated[Fields, AfterValidator(_without_files)]
"""What a person or a model answers."""
InputFields = Annotated[Fields, AfterValidator(_with_files)]
"""What a flow begins with."""

FieldSpec.model_rebuild()
