"""A tool's arguments: their JSON Schema, and what the model sent, validated (K1).

Only the model's parameters are known here; injected ones were taken out before.
What the model did not send is left to the function's own defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from turnline.agent.inject import REQUIRED
from turnline.agent.parameters import Parameter
from turnline.core.envelope import JsonObject
from turnline.errors import BadTool
from turnline.errors.base import short

MAX_TOLD_ERRORS: Final = 5
"""Of one call. A model mends what it is told first; the rest is seen with the next call."""
MAX_MESSAGE_CHARACTERS: Final = 300

_CONFIG: Final = ConfigDict(extra="forbid", protected_namespaces=())
_EXPECTED: Final = "Input should be "


class Arguments:
    """The arguments of one tool."""

    def __init__(self, tool: str, parameters: tuple[Parameter, ...], descriptions: Mapping[str, str]) -> None:
        # A field's own name is never seen: a parameter may be called `json` or `_id`, a field may not.
        self._names = {f"field_{index}": parameter.name for index, parameter in enumerate(parameters)}
        self._model = _model(tool, parameters)
        self.schema = _schema(tool, self._model, parameters)
        for name, described in self.schema["properties"].items():
            if name in descriptions:
                described.setdefault("description", descriptions[name])

    def validated(self, sent: JsonObject) -> dict[str, Any]:
        """Return what to call the function with. Raises pydantic's `ValidationError`; see `told`."""
        read = self._model.model_validate(sent)
        values, names = read.__dict__, self._names
        return {names[field]: values[field] for field in read.model_fields_set}

    def told(self, error: ValidationError) -> str:
        """Return `field is found, expected ...` for what `error` is about: one line the model can act on."""
        problems = error.errors(include_url=False, include_context=False)
        lines = [_told(problem, self.schema["properties"]) for problem in problems[:MAX_TOLD_ERRORS]]
        if len(problems) > MAX_TOLD_ERRORS:
            lines.append(f"and {len(problems) - MAX_TOLD_ERRORS} more")
        return " ".join("; ".join(lines).split())


def _told(problem: ErrorDetails, properties: Mapping[str, JsonObject]) -> str:
    field, message = _path(problem["loc"]), problem["msg"][:MAX_MESSAGE_CHARACTERS]
    match problem["type"]:
        case "missing":
            return f"{field} is missing, expected {_kind(properties.get(field, {}))}"
        case "extra_forbidden" if len(problem["loc"]) == 1:
            return f"{field} is no argument of it, expected only {', '.join(properties) or 'none'}"
        case "extra_forbidden":
            return f"{field} is not known, expected nothing by that name"
    found = f"{field} is {short(problem['input'])}"
    if message.startswith(_EXPECTED):
        return f"{found}, expected {message.removeprefix(_EXPECTED)}"
    return f"{found}, refused: {message}"


def _kind(described: JsonObject) -> str:
    kind = described.get("type")
    return kind if isinstance(kind, str) else "a value"


def _path(location: tuple[int | str, ...]) -> str:
    """`items[2].price`; names are the model's, and cut."""
    steps = (
        f"[{step}]" if isinstance(step, int) else f".{step[:MAX_MESSAGE_CHARACTERS]}" for step in location
    )
    return "".join(steps).removeprefix(".") or "the arguments"


def _model(tool: str, parameters: tuple[Parameter, ...]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        f"field_{index}": (parameter.hint, _field(parameter)) for index, parameter in enumerate(parameters)
    }
    try:
        return create_model(f"{tool}_arguments", __config__=_CONFIG, **fields)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        raise _no_json(tool, parameters) from None


def _field(parameter: Parameter) -> Any:
    # The value of the default is for the schema only; `validated` leaves defaults to the function.
    default = ... if parameter.default is REQUIRED else parameter.default
    return Field(default=default, alias=parameter.name)


def _schema(tool: str, model: type[BaseModel], parameters: tuple[Parameter, ...]) -> JsonObject:
    try:
        schema: JsonObject = model.model_json_schema(schema_generator=_PlainSchema)
    except PydanticUserError:
        raise _no_json(tool, parameters) from None
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


class _PlainSchema(GenerateJsonSchema):
    """Without titles made of the names, and without warnings about defaults that are not JSON."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # As pydantic has it.

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def _no_json(tool: str, parameters: tuple[Parameter, ...]) -> BadTool:
    """The refusal of the first parameter that has no JSON form."""
    name = next(_without_json(parameters), "")
    return BadTool(
        tool,
        because=f"the type of its parameter {name!r} has no JSON form, so no model can send it; "
        f"mark it with Inject(), Variable() or Depends(...) if it is not the model's",
    )


def _without_json(parameters: tuple[Parameter, ...]) -> Iterator[str]:
    for parameter in parameters:
        try:
            TypeAdapter(parameter.hint).json_schema()
        except (PydanticUserError, PydanticUndefinedAnnotation):
            yield parameter.name
