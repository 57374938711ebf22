"""What every part of a definition has in common."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from turnline.errors import BadExpression
from turnline.expressions import compile_expression
from turnline.expressions.template import compile_template

MAX_DURATION_SECONDS: Final = 10 * 365 * 86_400
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
NAME: Final = r"^[A-Za-z][A-Za-z0-9_-]{0,58}$"
"""The name of a flow, a step or an agent. On the log it is an id."""
KEY: Final = r"^[^_\W]\w*$"
"""What a context key is called that a document names to be written: never a reserved one."""
BAD_DURATION: Final = "bad_duration"
BAD_EXPRESSION: Final = "bad_expression"
BAD_TEMPLATE: Final = "bad_template"
BAD_STEPS: Final = "bad_steps"
"""What pydantic's errors of these parts are known by; `flow.mistake` tells them to people."""
AUTHORED: Final = object()
"""The context in which pydantic reads a document for its author, who can still mend it."""


class Part(BaseModel):
    """A part of a definition: nothing in it is guessed, and it never changes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )


def seconds(value: object) -> object:
    """`90`, `"90s"`, `"1.5m"`, `"2d"` -> seconds; anything else is left for the error to name."""
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise PydanticCustomError(BAD_DURATION, "expected a duration such as 30s, 5m, 2h or 1d")
        return float(found[1]) * _UNITS[found[2]]
    return value


def _expression(text: str) -> str:
    try:
        compile_expression(text)
    except BadExpression as error:
        raise PydanticCustomError(BAD_EXPRESSION, "{because}", {"because": error.because}) from None
    return text


def _template(text: str) -> str:
    try:
        compile_template(text)
    except BadExpression as error:
        raise PydanticCustomError(BAD_TEMPLATE, "{because}", {"because": error.because}) from None
    return text


Duration = Annotated[
    float,
    BeforeValidator(seconds),
    Field(gt=0, le=MAX_DURATION_SECONDS),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|m|h|d|w)$"},
            ],
            "description": "Seconds, or a number with a unit: 500ms, 30s, 5m, 2h, 1d, 1w.",
        }
    ),
]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Key = Annotated[str, StringConstraints(pattern=KEY, max_length=256)]
Expression = Annotated[
    str, Field(min_length=1), BeforeValidator(lambda v: _expression(v) if isinstance(v, str) else v)
]
"""Text in the language of conditions (F10)."""
Template = Annotated[str, BeforeValidator(lambda v: _template(v) if isinstance(v, str) else v)]
"""Text with `{{ expressions }}` in it (F9)."""
Json = Any
"""JSON of the user's own; texts in it are templates where the field says so."""
