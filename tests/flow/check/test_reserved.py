"""F1, F2: keys that start with `_` are the engine's, wherever a document names one."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.study.finding import Path
from turnline.flow.check.reserved import reserved_keys

from .flows import Step, flow, told, wait

SCHEMA = {"schema": {"_last_error": "string", "fine": "string"}}
CALL = {"url": "https://example.com"}


@pytest.mark.parametrize(
    ("step", "spec", "where"),
    [
        ({}, {"context": {"defaults": {"_user_id": 1, "fine": 1}}}, ("context", "defaults", "_user_id")),
        (
            {},
            {"trigger": {"path": "/x", "input": {"_db": "any", "fine": "any"}}},
            ("trigger", "input", "_db"),
        ),
        ({"human": {"title": "?", "form": {"_x": "string", "fine": "any"}}}, {}, ("human", "form", "_x")),
        ({"response": {"mapping": {"_x": "a", "fine": "a"}}}, {}, ("response", "mapping", "_x")),
        ({"workflow": {"name": "w", "input": {"_x": 1, "fine": 1}}}, {}, ("workflow", "input", "_x")),
        (
            {"channel": {"agents": ["x"], "message": "m", "context": {"_x": 1, "fine": 1}}},
            {},
            ("channel", "context", "_x"),
        ),
        ({"agent": {"output": SCHEMA}}, {}, ("agent", "output", "schema", "_last_error")),
        ({"api_call": {**CALL, "output": SCHEMA}}, {}, ("api_call", "output", "schema", "_last_error")),
        (
            {"mcp": {"server": "s", "tool": "t", "output": SCHEMA}},
            {},
            ("mcp", "output", "schema", "_last_error"),
        ),
    ],
)
def test_f2_a_reserved_key_that_a_document_would_write_is_found(
    step: Step, spec: dict[str, Any], where: Path
) -> None:
    path = ("spec", *where) if spec else ("spec", "steps", 0, *where)
    found = list(reserved_keys(flow({"id": "s", **(step or {"wait": {"for": "1s"}})}, **spec)))

    assert told(found) == [("TL202", path)]
    assert (found[0].severity, found[0].of_key) == ("error", True)


def test_f2_a_reserved_key_that_would_be_shown_is_found() -> None:
    asked = {"id": "s", "human": {"title": "?", "show": ["name", "_user_id"]}}

    assert told(reserved_keys(flow(asked))) == [("TL203", ("spec", "steps", 0, "human", "show", 1))]


def test_f2_keys_inside_a_value_are_the_users_own() -> None:
    mapping = {"id": "s", "response": {"mapping": {"a": {"_links": "b"}}}}

    assert told(reserved_keys(flow(mapping, context={"defaults": {"a": {"_id": 1}}}))) == []


@pytest.mark.parametrize(
    "step",
    [
        {"agent": {"output": {"map": {"a": "_x"}}}},
        {"agent": {"output": {"key": "_x"}}},
        {"for_each": {"items": "xs", "as": "_x", "steps": [wait("i")]}},
        {"for_each": {"items": "xs", "index": "_x", "steps": [wait("i")]}},
        {"for_each": {"items": "xs", "into": "_x", "steps": [wait("i")]}},
        {"parallel": {"branches": {"b": [wait("i")]}, "into": "_x"}},
        {"workflow": {"name": "w", "into": "_x"}},
        {"wait": {"event": "e", "into": "_x"}},
        {"model_op": {"model": "Lead", "op": "get", "into": "_x"}},
        {"channel": {"agents": ["x"], "message": "m", "into": "_x"}},
        {"channel": {"agents": ["x"], "message": "m", "map": {"a": "_x"}}},
    ],
)
def test_f2_where_a_step_names_one_key_a_reserved_one_is_refused_when_the_flow_is_read(step: Step) -> None:
    with pytest.raises(ValueError, match="should match pattern"):
        flow({"id": "s", **step})
