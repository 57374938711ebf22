"""What is given key by key: texts, unless a field or `:=` says otherwise."""

from __future__ import annotations

import pytest

from turnline.cli.given import object_of, types_of, value_of

TYPES = {"n": "integer", "sure": "boolean", "name": "string", "tags": "array", "some": "any"}


@pytest.mark.parametrize(
    ("said", "type_", "value"),
    [
        ("yes", "boolean", True),
        ("N", "boolean", False),
        ("perhaps", "boolean", "perhaps"),
        ("3", "integer", 3),
        ("19.9", "number", 19.9),
        ("three", "number", "three"),
        ("3", "string", "3"),
        ("2026-12-24", "date", "2026-12-24"),
        ("[1]", "array", [1]),
        ("x", "any", "x"),
    ],
)
def test_what_is_typed_is_read_as_the_field_takes_it(said: str, type_: str, value: object) -> None:
    assert value_of(said, type_) == value


def test_a_pair_is_read_as_its_field_and_json_whatever_the_field() -> None:
    given = object_of(["n=3", "sure=no", "name=3", "tags=[1]", "some=3", "other=3"], option="-i", types=TYPES)

    assert given == {"n": 3, "sure": False, "name": "3", "tags": [1], "some": "3", "other": "3"}
    assert object_of(["name:=3", "other:=3"], option="-i", types=TYPES) == {"name": 3, "other": 3}


def test_where_nobody_says_what_fields_are_a_pair_is_a_text() -> None:
    assert object_of(["n=3", "n=4"], option="-i") == {"n": "4"}


def test_a_field_of_a_form_that_says_no_type_is_anything() -> None:
    assert types_of({"n": {"type": "integer"}, "x": {}}) == {"n": "integer", "x": "any"}
