"""Examples of input: they pass the check of their own flow."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.flow.definition.flow import Flow, read
from turnline.flow.example import example_input


def a_flow(path: str = "/x", *, extra: bool = False, **fields: Any) -> Flow:
    trigger = {"path": path, "input": fields, "extra": extra}
    return read({"trigger": trigger, "steps": [{"id": "a", "wait": {"for": 1}}]}, name="main")


@pytest.mark.parametrize(
    "field",
    [
        *({"type": one} for one in ("string", "integer", "number", "boolean", "object", "array", "any")),
        *({"type": one} for one in ("date", "datetime", "uuid", "email")),
        {"type": "string", "min": 10},
        {"type": "string", "max": 2},
        {"type": "string", "enum": ["b", "a"]},
        {"type": "string", "pattern": "^ORD-[0-9]{6}$"},
        {"type": "string", "pattern": r"^(?:\+49|0)\d{3,}[a-f]?$"},
        {"type": "string", "pattern": "[^a-z]"},
        {"type": "integer", "min": 18},
        {"type": "integer", "min": 17.2, "max": 18.9},
        {"type": "integer", "max": -3},
        {"type": "number", "min": 100, "max": 100.2},
        {"type": "array", "min": 2, "items": {"type": "integer", "min": 5}},
        {"type": "object", "properties": {"a": {"type": "email", "required": True}, "b": "string"}},
    ],
)
def test_an_example_passes_the_check_of_its_own_flow(field: Any) -> None:
    found = example_input(a_flow(it={**field, "required": True}, other="string"))

    assert found is not None
    assert list(found) == ["it"]


def test_what_stands_in_the_path_is_in_the_example() -> None:
    assert example_input(a_flow("/leads/{lead}", lead={"type": "integer"})) == {"lead": 1}
    assert example_input(a_flow("/leads/{lead}", extra=True)) == {"lead": "text"}


def test_where_no_example_is_known_there_is_none() -> None:
    assert example_input(a_flow(it={"type": "string", "pattern": r"^\p{Greek}+$", "required": True})) is None
