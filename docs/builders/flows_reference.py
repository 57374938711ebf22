"""docs/flows-reference.md: every key of every document of a project, from the schemas that read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from docs.builders.step_examples import EXAMPLES
from docs.builders.tables import table
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.definition.steps import KINDS
from turnline.flow.json_schema import workflow_schema
from turnline.flow.settings import Settings
from turnline.flow.testing.definition import Case

Schema = dict[str, Any]

_TOP: Final = """\
# Flows: reference

Every key of every document. [Flows](flows.md) is the guide; `turnline schema` prints the first part of this page as a JSON Schema
for editors, and `turnline check` finds what a schema cannot.

- An unknown key is an error, with file, line, column and the nearest known name.
- A *duration* is a number of seconds, or a number with a unit: `500ms`, `30s`, `5m`, `2h`, `1d`, `1w`.
- A *key* is a context key that is written: letters, digits and `_`, not beginning with `_`, at most 256 characters.
- A *name* begins with a letter and has at most 59 letters, digits, `_` and `-`.
- An *expression* is text in the language of conditions, a *template* is text with `{{ expressions }}` in it
  ([Flows](flows.md#conditions-and-templates)).

"""
_DURATION: Final = r"(ms|s|m|h|d|w)$"
_DURATION_SAID: Final = "Seconds, or a number with a unit: 500ms, 30s, 5m, 2h, 1d, 1w."
_KEY: Final = r"^[^_\W]\w*$"
_NAME: Final = r"^[A-Za-z][A-Za-z0-9_-]{0,58}$"
_TITLES: Final = {
    "Workflow": "A workflow",
    "FlowSpec": "spec",
    "Metadata": "metadata",
    "Trigger": "trigger",
    "FieldSpec": "A field",
    "FlowContext": "context",
    "ModelUse": "context.models",
    "Limits": "limits",
    "Retry": "retry",
    "Output": "output",
    "AskBlock": "ask",
    "RouterCondition": "conditions",
}
"""Part -> its heading; a kind of step is headed by the kind."""


def page() -> str:
    """The page."""
    parts = workflow_schema()["$defs"]
    return "\n".join([_TOP + "\n".join(_workflow(parts)), *_steps(parts), *_documents()])


def _workflow(parts: dict[str, Schema]) -> Iterator[str]:
    yield "## A workflow\n"
    yield (
        "A document with `kind: Workflow`. Written short, it is `steps:` alone, with whatever else stands in `spec` beside it, or "
        "a bare list of steps; it is named after its file then.\n"
    )
    yield _table(parts["Workflow"])
    for name in ("Metadata", "FlowSpec", "Trigger", "FlowContext", "ModelUse", "Limits", "FieldSpec"):
        yield _part(name, parts[name], "###")


def _steps(parts: dict[str, Schema]) -> Iterator[str]:
    yield "## Steps\n"
    yield (
        "Kinds are compared without case, `_` and `-`. A step without `kind` is of the kind whose block it has; one with neither "
        "is `functional`. These keys every step has:\n"
    )
    shared = parts["FunctionalStep"]
    own = {"kind", "runner"}
    yield _table({**shared, "properties": {k: v for k, v in shared["properties"].items() if k not in own}})
    yield _part("Retry", parts["Retry"], "###")
    yield _part("Output", parts["Output"], "###")
    yield _part("AskBlock", parts["AskBlock"], "###")
    for kind in KINDS:
        yield _kind(kind, parts)


def _kind(kind: str, parts: dict[str, Schema]) -> str:
    name = "".join(word.capitalize() for word in kind.split("_"))
    step, block = parts[f"{name}Step"], parts.get(f"{name}Block")
    said = " ".join(one["description"] for one in (step, block) if one is not None)
    lines = [f"### {kind}\n", _plain(said) + "\n", f"```yaml\n{EXAMPLES[kind].strip()}\n```\n"]
    if block is None:
        lines.append(_table({**step, "properties": {"runner": step["properties"]["runner"]}}))
    else:
        lines.append(_table(block, under=kind))
    if kind == "functional":
        lines.append(_ONCE)
    if kind == "router":
        lines.append(_part("RouterCondition", parts["RouterCondition"], "####"))
    return "\n".join(lines)


_ONCE: Final = """\
#### @node(pure=True)

A pure function only computes: its answer depends on `ctx` alone, and it changes nothing elsewhere. It gets neither `_db` nor `_session` nor `_once`
(`NodeNotPure`). In a flow with `durability: end` pure steps are recorded together, and a crash repeats them; `router` and `response` count as pure.

#### ctx["_once"]

A step that is killed is performed again from its start. `_once` protects what must not happen again: it runs a function,
records its result as a line of the turn and returns it. After a crash, in the next attempt (`retry`) and in a fork the
recorded result is returned, and the function does not run.

```python
from turnline import node


def charge_card(card: str, amount: int) -> dict:  # Calls the bank. A sync function runs in a thread.
    return {"id": "ch-1", "amount": amount}


@node("settle")
async def settle(ctx):
    charge = await ctx["_once"]("charge", lambda: charge_card(ctx["card"], ctx["amount"]))

    async def book():
        await ctx["_db"]["Payment"].add(charge=charge["id"])

    await ctx["_once"]("book", book)
```

- The function is sync or async, takes no parameters and returns JSON of at most 1 MiB. A sync node leaves out `await`.
- A key belongs to the step's turn. A second use of it in one attempt is an error (`OnceKeyReused`).
- A function that raises is not recorded, and runs again in the next attempt.
- Rows that the function writes with `_db` or `_session` commit together with the record. That needs data models in the log's own
  database: with another `database:`, or with a log in memory, a function that uses them is refused.
- Take `_session` from `ctx` inside of the function. Do not flush rows of the step itself before a `_once`: on SQLite they lock
  the database, and the call is refused.
- The process may die after the effect and before the record. Then the function runs again.
"""


def _documents() -> Iterator[str]:
    yield "## A data model\n\nA document with `kind: ModelDefinition`.\n"
    model = ModelDefinition.model_json_schema(by_alias=True)
    yield _table(model)
    for name, title in (
        ("ModelMetadata", "metadata of a data model"),
        ("ModelSpec", "spec of a data model"),
        ("DataField", "A field of a data model"),
        ("Relation", "relations"),
    ):
        yield _part(title, model["$defs"][name], "###")
    yield "## A test\n\nA document with `kind: Test`, or one of a list of cases (`name`, and what stands in `spec`).\n"
    case = Case.model_json_schema(by_alias=True)
    yield _table(case)
    for name, title in (
        ("CaseSpec", "spec of a test"),
        ("Expected", "expect"),
        ("ExpectedError", "expect.error"),
    ):
        yield _part(title, case["$defs"][name], "###")
    yield "### stub\n\nWhat a step gives instead of being performed: one of these.\n"
    yield table(("stub", "what happens"), _stubs(case["$defs"]))
    yield "## turnline.yaml\n\n`${NAME}` is filled in from the environment. Everything is optional.\n"
    settings = Settings.model_json_schema(by_alias=True)
    yield _table(settings)
    yield _part("limits of a project", settings["$defs"]["ProjectLimits"], "###")
    yield _part("mcp_servers", settings["$defs"]["McpServer"], "###")


def _stubs(parts: dict[str, Schema]) -> Iterator[tuple[str, str]]:
    for name in ("Gives", "Raises", "DoesNotParse", "TakesTooLong", "Answers", "Expires", "Happens"):
        keys = ", ".join(f"`{key}`" for key in parts[name]["properties"])
        yield keys, _plain(parts[name]["description"])


def _part(name: str, schema: Schema, level: str) -> str:
    said = _plain(schema.get("description", ""))
    return f"{level} {_TITLES.get(name, name)}\n\n{said}\n\n{_table(schema)}"


def _table(schema: Schema, under: str = "") -> str:
    required = set(schema.get("required", ()))
    rows = [
        (
            f"`{under + '.' if under else ''}{key}`",
            _type(value) + (", required" if key in required else ""),
            _default(value) if key not in required else "",
            _plain(_said(value)),
        )
        for key, value in schema["properties"].items()
    ]
    return table(("key", "what it is", "without it", "meaning"), rows)


def _said(value: Schema) -> str:
    said = str(value.get("description", ""))
    return "" if said == _DURATION_SAID else said


def _plain(text: str) -> str:
    """The text, as prose of one paragraph: rules of the design are not numbered on this page."""
    for number in range(1, 16):
        text = text.replace(f" (F{number})", "")
    return " ".join(text.split())


def _default(value: Schema) -> str:
    default = value.get("default")
    if default in (None, "", {}, []) or "$ref" in value:
        return ""
    return f"`{json.dumps(default)}`"


def _type(value: Schema) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return "a step" if name == "Step" else _link(name)
    if "anyOf" in value:
        return _choice(value["anyOf"])
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return "one of " + ", ".join(f"`{one}`" for one in value["enum"])
    return _simple(value)


def _choice(choices: list[Schema]) -> str:
    if any(str(one.get("pattern", "")).endswith(_DURATION) for one in choices):
        return "duration"
    if consts := [one for one in choices if "const" in one]:
        return _type(consts[0])
    if any(one.get("$ref", "").endswith(("FieldSpec", "DataField")) for one in choices):
        return "a field, or its type"
    return " or ".join(dict.fromkeys(_type(one) for one in choices if one.get("type") != "null"))


def _simple(value: Schema) -> str:
    match value.get("type"):
        case "array":
            return f"list of {_type(value['items'])}" if value.get("items") else "list"
        case "object":
            inner = value.get("additionalProperties") or next(
                iter(value.get("patternProperties", {}).values()), None
            )
            return f"mapping to {_type(inner)}" if isinstance(inner, dict) and inner else "mapping"
        case "string":
            return {_KEY: "key", _NAME: "name"}.get(value.get("pattern", ""), "text")
        case "integer" | "number" as kind:
            low, high = value.get("minimum"), value.get("maximum")
            least = f", at least {low}" if low is not None else ""
            return f"{kind}, {low} to {high}" if low is not None and high is not None else f"{kind}{least}"
        case "boolean":
            return "`true` or `false`"
    return "any JSON"


def _link(name: str) -> str:
    known = {
        "CaseMetadata": "its `name`",
        "CaseSpec": "[spec of a test](#spec-of-a-test)",
        "Expected": "[expect](#expect)",
        "ExpectedError": "[expect.error](#expecterror)",
        "ModelMetadata": "[metadata of a data model](#metadata-of-a-data-model)",
        "ModelSpec": "[spec of a data model](#spec-of-a-data-model)",
        "Relation": "[relations](#relations)",
        "ProjectLimits": "[limits of a project](#limits-of-a-project)",
        "McpServer": "[mcp_servers](#mcp_servers)",
        "ModelUse": "[context.models](#contextmodels)",
        "RouterCondition": "[conditions](#conditions)",
        "FieldSpec": "[a field](#a-field)",
    }
    title = _TITLES.get(name, name)
    return known.get(name, f"[{title}](#{title.lower().replace(' ', '-')})")
