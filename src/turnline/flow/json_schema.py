"""The JSON Schema of a workflow, for editors: from the same definitions that read it.

It allows every shape a workflow may have: the whole document, `steps:` alone, and a bare
list. What only the data can tell (a route to nowhere, two steps of one id, a template that
does not parse) a schema cannot; `turnline check` does.
"""

from __future__ import annotations

from typing import Final

from pydantic.json_schema import GenerateJsonSchema

from turnline.core.envelope import JsonObject
from turnline.flow.definition.base import Json
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import KINDS

_STEP: Final = {"$ref": "#/$defs/Step"}
_OUTSIDE: Final = ("kind", "apiVersion", "metadata")
_WORKFLOW: Final = "Workflow"


def workflow_schema() -> JsonObject:
    """Return the schema, in draft 2020-12."""
    whole = Flow.model_json_schema(by_alias=True)
    parts = whole.pop("$defs")
    steps = parts["FlowSpec"]["properties"]["steps"]
    parts["Step"] = {"description": "One step.", **steps["items"]}
    parts = {name: _with_named_steps(part) if name != "Step" else part for name, part in parts.items()}
    for part in parts.values():
        _loosen_kind(part)
    _loosen_kind(whole)
    whole["required"] = ["spec"]  # Without a name of its own it has that of its file.
    parts |= {_WORKFLOW: whole, "ShortWorkflow": _short(whole, parts["FlowSpec"]), "Steps": _bare(steps)}
    shapes = [{"$ref": f"#/$defs/{name}"} for name in (_WORKFLOW, "ShortWorkflow", "Steps")]
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "A Turnline workflow",
        "anyOf": shapes,
        "$defs": dict(sorted(parts.items())),
    }


def _short(whole: JsonObject, spec: JsonObject) -> JsonObject:
    """`steps:` alone, and whatever else stands in `spec`, without it."""
    outside = {key: whole["properties"][key] for key in _OUTSIDE}
    name = {"type": "string", "description": "What it is called; without it, as its file."}
    return {
        **spec,
        "title": "ShortWorkflow",
        "description": "A workflow without `spec`.",
        "properties": {**outside, "name": name, **spec["properties"]},
        "not": {"required": ["name", "metadata"]},
    }


def _bare(steps: JsonObject) -> JsonObject:
    return {"type": "array", "items": _STEP, "minItems": steps["minItems"], "description": "Steps alone."}


def _with_named_steps(schema: Json) -> Json:
    """The schema with a reference wherever it spells out what a step may be."""
    match schema:
        case {"oneOf": [*choices]} if len(choices) == len(KINDS):
            return _STEP
        case dict():
            return {key: _with_named_steps(value) for key, value in schema.items()}
        case list():
            return [_with_named_steps(item) for item in schema]
    return schema


def _loosen_kind(part: JsonObject) -> None:
    """Kinds are compared without case, `_` and `-`; the editor proposes the plain one."""
    kind = part.get("properties", {}).get("kind", {})
    if "const" in kind:
        plain = kind.pop("const")
        kind.pop("type", None)
        kind["anyOf"] = [{"const": plain}, {"type": "string", "pattern": _spellings(plain)}]


def _spellings(kind: str) -> str:
    letters = kind.replace("_", "")
    return "^[_-]*" + "".join(f"[{letter.upper()}{letter.lower()}][_-]*" for letter in letters) + "$"
