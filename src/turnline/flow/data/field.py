"""A field of a data model: its type and what else holds for it.

email: {type: string, required: true, unique: true}
score: integer                 # short for {type: integer}: optional
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from turnline.flow.data.values import MAX_DIGITS, DataType, Unfit, Value, is_short, scaled, taken
from turnline.flow.definition.base import Json, Part

FieldName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=60)]


class DataField(Part):
    """One field."""

    type: DataType = "string"
    required: bool = False
    """It has to be given, unless there is a default, and is never null, unless `nullable` says so."""
    nullable: bool | None = None
    """Without it: whatever is not required."""
    unique: bool = False
    index: bool = False
    default: Json = None
    enum: list[Json] | None = Field(default=None, min_length=1)
    max_length: int | None = Field(default=None, ge=1)
    """Of a text, in characters."""
    scale: int | None = Field(default=None, ge=0, le=MAX_DIGITS)
    """Of a decimal: its digits behind the point."""
    renamed_from: FieldName | None = None
    """What the field was called before; `turnline db apply` renames its column."""
    description: str = ""

    @property
    def is_nullable(self) -> bool:
        return not self.required if self.nullable is None else self.nullable

    @model_validator(mode="after")
    def _checked(self) -> DataField:
        if self.type == "json" and (self.unique or self.index):
            raise ValueError("a field of type json is neither unique nor an index")
        if self.max_length is not None and self.type not in ("string", "text"):
            raise ValueError("only a string or a text has a `max_length`")
        if self.scale is not None and self.type != "decimal":
            raise ValueError("only a decimal has a `scale`")
        for one in [self.default, *(self.enum or ())]:
            if one is not None:
                self._check_example(one)
        return self

    def _check_example(self, value: object) -> None:
        try:
            self.accept(value)
        except Unfit as error:
            raise ValueError(f"a default and an enum hold {error}, as the field does") from None

    def accept(self, value: object) -> Value:
        """Return `value` as the database keeps it, or raise `Unfit` with what was expected."""
        if value is None:
            if not self.is_nullable:
                raise Unfit("a value, since the field is required")
            return None
        found = taken(self.type, value)
        if self.enum is not None and found not in [taken(self.type, one) for one in self.enum]:
            raise Unfit("one of " + ", ".join(map(repr, self.enum)))
        if self.max_length is not None and isinstance(found, str) and len(found) > self.max_length:
            raise Unfit(f"at most {self.max_length} characters")
        if self.scale is not None and isinstance(found, Decimal):
            if found != (exact := scaled(found, self.scale)) or not is_short(exact):
                raise Unfit(f"at most {self.scale} digits behind the point, and {MAX_DIGITS} in all")
            return exact
        return found


def _spelled_out(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


DataFieldLike = Annotated[
    DataField, BeforeValidator(_spelled_out, json_schema_input_type=DataField | DataType)
]
