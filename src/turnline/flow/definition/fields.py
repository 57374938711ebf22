"""Fields: what a request body, a form or an agent's answer holds.

    email: {type: string, required: true, pattern: ".+@.+"}
    name: string                 # short for {type: string}: optional

One definition gives the check (`validated`), and the JSON Schema for OpenAPI, forms and models.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError, SchemaError, SchemaValidator, core_schema

from turnline.flow.definition.base import AUTHORED, Json, Part

FieldType = Literal[
    "string", "integer", "number", "boolean", "object", "array", "any", "date", "datetime", "uuid", "email"
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
    """Of a number; of a text or a list, its length."""
    max: float | None = None
    nullable: bool = False
    """Whether it may be null."""
    items: FieldLike | None = None
    """Of an array: what each of its items is."""
    properties: dict[str, FieldLike] | None = None
    """Of an object: its fields. Without it, anything."""


def _spelled_out(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


FieldLike = Annotated[FieldSpec, BeforeValidator(_spelled_out, json_schema_input_type=FieldSpec | FieldType)]
Fields = dict[str, FieldLike]

FieldSpec.model_rebuild()
