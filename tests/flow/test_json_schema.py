"""The schema that editors read: as strict as the definitions, and as generous."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from turnline.flow.definition.steps import KINDS
from turnline.flow.document import read_file
from turnline.flow.json_schema import workflow_schema
from turnline.flow.yaml_document import read_yaml

from .lead import LEAD

SCHEMA = workflow_schema()


def is_valid(text: str) -> bool:
    (document,) = read_yaml(text, file="f.yaml").documents
    return bool(Draft202012Validator(SCHEMA).is_valid(document.data))


def is_read(text: str) -> bool:
    return read_file(text, file="f.yaml", environment={}).findings == []


def test_it_is_a_schema_of_draft_2020_12_and_json() -> None:
    Draft202012Validator.check_schema(SCHEMA)

    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_every_reference_leads_somewhere() -> None:
    def references(part: Any) -> set[str]:
        if isinstance(part, dict):
            own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
            return own.union(*map(references, part.values()))
        return set().union(*map(references, part)) if isinstance(part, list) else set()

    assert references(SCHEMA) <= {f"#/$defs/{name}" for name in SCHEMA["$defs"]}


GOOD = [
    LEAD,
    "- {id: a, runner: x}",
    "steps: [{id: a, runner: x}]",
    "steps: [{id: a, runner: x}]\nname: f\nlimits: {timeout: 500ms}",
    "steps: [{id: a, runner: x}]\nmetadata: {name: f}\nkind: workflow",
    "kind: Workflow\nspec: {steps: [{id: a, runner: x}]}",
    "- {id: a, kind: agent}",
    "- {id: a, kind: Router}",
    "- {id: a, kind: Api-Call, api_call: {url: x}, timeout: 1.5}",
    "- {id: a, for_each: {items: x, as: y, steps: [{id: b, agent: {output: {schema: {n: integer}}}}]}}",
    "- {id: a, parallel: {branches: {l: [{id: b, runner: x}], r: [{id: b, wait: {for: 3s}}]}}}",
    "- {id: a, human: {title: t, form: {f: {type: array, items: string}, g: {properties: {h: number}}}}}",
]
BAD = [
    LEAD.replace("backoff", "back_off"),
    LEAD.replace("timeout: 60s", "timeout: soon"),
    LEAD.replace("approved: boolean", "approved: bool"),
    LEAD.replace("kind: router", "kind: rooter"),
    "- {id: a}",
    "- {id: a, kind: agent, router: {}}",
    "- {id: 3, runner: x}",
    "- {runner: x}",
    "[]",
    "steps: []",
    "steps: [{id: a, runner: x}]\nname: f\nmetadata: {name: f}",
    "kind: Workflow\nmetadata: {name: f}",
    "- {id: a, for_each: {items: x, as_: y, steps: [{id: b, kind: agent}]}}",
    "- {id: a, human: {title: t, form: {f: {typ: string}}}}",
]


@pytest.mark.parametrize("text", GOOD)
def test_what_the_definitions_allow_it_allows(text: str) -> None:
    assert (is_valid(text), is_read(text)) == (True, True)


@pytest.mark.parametrize("text", BAD)
def test_what_the_definitions_refuse_it_refuses(text: str) -> None:
    assert (is_valid(text), is_read(text)) == (False, False)


def test_it_explains_parts_and_keys() -> None:
    parts = SCHEMA["$defs"]

    assert parts["RouterCondition"]["description"].startswith("When `if` holds")
    assert "default" in parts["AgentStep"]["properties"]["when"]["description"]
    assert "30s" in json.dumps(parts["WaitBlock"]["properties"]["for"])


def test_an_editor_is_offered_the_plain_kinds() -> None:
    choices = [one["$ref"].rpartition("/")[2] for one in SCHEMA["$defs"]["Step"]["oneOf"]]
    plain = [SCHEMA["$defs"][name]["properties"]["kind"]["anyOf"][0]["const"] for name in choices]

    assert tuple(plain) == KINDS
