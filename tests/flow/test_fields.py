"""Fields: what a body, a form or an answer has to be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pydantic import TypeAdapter

from turnline.core.envelope import JsonObject
from turnline.core.parts import FilePart
from turnline.errors import BadExpression
from turnline.flow.definition.fields import Fields
from turnline.flow.fields import MOST_DEFAULTS, MOST_PROBLEMS, Problem, check, json_schema


def fields(**spec: Any) -> Fields:
    return TypeAdapter(Fields).validate_python(spec)


def problems(spec: JsonObject | str, value: object) -> list[str]:
    return [str(one) for one in check(fields(it=spec), {"it": value}, extra=False)[1]]


LEAD = fields(
    email={"type": "email", "required": True},
    name="string",
    age={"type": "integer", "min": 0, "max": 150},
    tags={"type": "array", "items": "string", "max": 2},
    address={"type": "object", "properties": {"city": {"type": "string", "required": True}, "zip": "string"}},
    priority={"type": "string", "enum": ["low", "high"], "default": "low"},
)


def test_a_body_that_is_right_is_returned_with_its_defaults() -> None:
    body = {"email": "a@b.ch", "age": 5, "tags": ["x"], "address": {"city": "Bern"}}

    assert check(LEAD, body, extra=False) == ({**body, "priority": "low"}, [])


def test_every_problem_is_told_with_its_place() -> None:
    body = {"name": 5, "age": -1, "tags": ["x", 1, "z"], "address": {"zip": None}, "priority": "urgent"}

    _, found = check(LEAD, body, extra=True)

    assert [one.location for one in found] == [
        ("email",),
        ("name",),
        ("age",),
        ("tags", 1),
        ("tags",),
        ("address", "city"),
        ("address", "zip"),
        ("priority",),
    ]
    assert str(found[0]) == "email: it is missing; expected an e-mail address"
    assert str(found[3]) == "tags.1: expected text, found a number"
    assert str(found[4]) == "tags: expected at most 2 items"


@pytest.mark.parametrize("data", [None, [], "x", 5])
def test_what_is_no_object_has_one_problem(data: object) -> None:
    clean, found = check(LEAD, data, extra=True)

    assert clean == {}
    assert [one.location for one in found] == [()]
    assert str(found[0]).startswith("expected an object, found ")


def test_keys_that_no_field_names_are_kept_or_are_problems_at_every_level() -> None:
    body = {"email": "a@b.ch", "more": 1, "address": {"city": "Bern", "street": "x"}}

    assert check(LEAD, body, extra=True) == ({**body, "priority": "low"}, [])
    assert check(LEAD, body, extra=False)[1] == [
        Problem(("more",), "no such field"),
        Problem(("address", "street"), "no such field"),
    ]


def test_an_optional_field_stays_absent_and_a_default_is_nobody_elses() -> None:
    spec = fields(a="string", b={"type": "array", "default": []}, c={"default": None})
    first, _ = check(spec, {}, extra=False)
    first["b"].append(1)

    assert check(spec, {}, extra=False)[0] == {"b": [], "c": None}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("string", ""),
        ("integer", 3),
        ("integer", -(2**70)),
        ("number", 3),
        ("number", 0.5),
        ("boolean", False),
        ("object", {"_x": 1}),
        ("array", []),
        ("any", None),
        ("any", [1, {"a": None}]),
        ("date", "2026-12-24"),
        ("datetime", "2026-12-24T18:00:00Z"),
        ("datetime", "2026-12-24T18:00:00.5+01:00"),
        ("datetime", "2026-12-24 18:00"),
        ("uuid", "0190a3a0-7c1e-7000-8000-00000000abcd"),
        ("uuid", "0190A3A0-7C1E-7000-8000-00000000ABCD"),
        ("email", "jane.doe+x@mail.example.com"),
    ],
)
def test_what_a_type_takes_stays_as_it_is(type_: str, value: object) -> None:
    clean, found = check(fields(it=type_), {"it": value}, extra=False)

    assert found == []
    assert clean == {"it": value}
    assert type(clean["it"]) is type(value)


def test_a_number_without_a_fraction_is_an_integer() -> None:
    clean, found = check(fields(it="integer"), {"it": 5.0}, extra=False)

    assert (found, clean["it"], type(clean["it"])) == ([], 5, int)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("string", 5),
        ("string", None),
        ("integer", "5"),
        ("integer", 5.5),
        ("integer", True),
        ("integer", float("inf")),
        ("number", "0.5"),
        ("number", True),
        ("number", float("nan")),
        ("boolean", 1),
        ("boolean", "true"),
        ("object", []),
        ("array", {}),
        ("array", "x"),
        ("date", "2026-02-30"),
        ("date", "20261224"),
        ("date", "2026-W01-1"),
        ("datetime", "2026-12-24"),
        ("datetime", "2026-12-24T25:00:00"),
        ("datetime", "now"),
        ("uuid", "0190a3a07c1e70008000 0000000abcd"),
        ("uuid", "{0190a3a0-7c1e-7000-8000-00000000abcd}"),
        ("uuid", "urn:uuid:0190a3a0-7c1e-7000-8000-00000000abcd"),
        ("email", "jane"),
        ("email", "jane@localhost"),
        ("email", "a b@c.de"),
        ("email", "a@b@c.de"),
        ("email", "a@" + "b" * 400 + ".de"),
    ],
)
def test_what_a_type_does_not_take(type_: str, value: object) -> None:
    (told,) = problems(type_, value)

    assert told.startswith("it: expected ")


@pytest.mark.parametrize(
    ("spec", "right", "wrong"),
    [
        ({"type": "string", "min": 2}, "ab", "a"),
        ({"type": "string", "max": 2}, "ab", "abc"),
        ({"type": "array", "min": 1}, [1], []),
        ({"type": "number", "min": 0.5}, 0.5, 0.4),
        ({"type": "integer", "max": 9}, 9, 10),
        ({"type": "string", "pattern": "^a+$"}, "aa", "ab"),
        ({"type": "string", "pattern": "b"}, "abc", "xyz"),
        ({"enum": [1, "x", None]}, 1, True),
        ({"enum": [1, "x"]}, 1.0, 2),
        ({"type": "object", "nullable": True}, None, 1),
    ],
)
def test_what_else_holds_for_a_field(spec: JsonObject, right: object, wrong: object) -> None:
    assert problems(spec, right) == []
    assert len(problems(spec, wrong)) == 1


def test_a_problem_never_shows_the_value() -> None:
    spec = {"type": "string", "max": 3, "enum": ["a"], "pattern": "^b"}

    assert "canary" not in "".join(problems(spec, "canary-0123456789") + problems("integer", "canary"))


def test_a_pattern_takes_linear_time_whoever_wrote_it() -> None:
    assert len(problems({"type": "string", "pattern": "^(a+)+$"}, "a" * 100_000 + "!")) == 1


def test_a_pattern_that_is_none_is_an_error() -> None:
    with pytest.raises(BadExpression, match="no regular expression"):
        problems({"type": "string", "pattern": "(?=a)b["}, "x")


def test_of_many_problems_the_first_are_told() -> None:
    assert len(problems({"type": "array", "items": "integer"}, ["x"] * 10_000)) == MOST_PROBLEMS


def test_the_same_as_json_schema() -> None:
    assert json_schema(LEAD) == {
        "type": "object",
        "properties": {
            "email": {"type": "string", "format": "email"},
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "address": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
                "required": ["city"],
            },
            "priority": {"type": "string", "enum": ["low", "high"], "default": "low"},
        },
        "required": ["email"],
    }


def test_json_schema_of_closed_nullable_and_described_fields() -> None:
    spec = fields(
        a={"type": "string", "nullable": True, "enum": ["x"], "pattern": "x", "description": "one letter"},
        b={"type": "object", "properties": {"c": "any"}},
        d={"type": "number", "min": 0.5},
        e="datetime",
    )

    assert json_schema(spec, extra=False) == {
        "type": "object",
        "properties": {
            "a": {
                "type": ["string", "null"],
                "enum": ["x", None],
                "pattern": "x",
                "description": "one letter",
            },
            "b": {"type": "object", "properties": {"c": {}}, "additionalProperties": False},
            "d": {"type": "number", "minimum": 0.5},
            "e": {"type": "string", "format": "date-time"},
        },
        "additionalProperties": False,
    }


def test_a_check_ends_after_the_most_problems() -> None:
    looked_at = Counter[str]()

    class Item(dict[str, object]):
        def __contains__(self, key: object) -> bool:
            looked_at["items"] += 1
            return super().__contains__(key)

    item = {"type": "object", "properties": {"n": {"type": "integer", "required": True}}}
    bad = [Item() for _ in range(10_000)]
    _, found = check(fields(a={"type": "array", "items": item}), {"a": bad}, extra=False)

    assert len(found) == MOST_PROBLEMS
    assert looked_at["items"] <= MOST_PROBLEMS


def test_defaults_are_filled_in_only_so_often() -> None:
    item = {"type": "object", "properties": {"x": {"type": "any", "default": [1]}}}
    spec = fields(a={"type": "array", "items": item})
    clean, none = check(spec, {"a": [{}] * MOST_DEFAULTS}, extra=False)
    _, found = check(spec, {"a": [{}] * (MOST_DEFAULTS + 1)}, extra=False)

    assert not none
    assert clean["a"][-1] == {"x": [1]}
    assert "defaults" in found[0].message


FILE = FilePart(media_type="image/png", name="a.png", size=7, digest="0" * 64)


def test_only_an_uploaded_file_is_a_file_and_it_comes_out_as_json() -> None:
    spec = fields(a="file", b={"type": "array", "items": "file"})
    as_json = {"type": "file", "media_type": "image/png", "name": "a.png", "size": 7, "digest": "0" * 64}
    clean, none = check(spec, {"a": FILE, "b": [FILE]}, extra=False)
    _, found = check(spec, {"a": as_json, "b": ["a.png"]}, extra=False)

    assert not none
    assert clean == {"a": as_json, "b": [as_json]}
    assert [one.message for one in found] == [
        "expected a file, found an object",
        "expected a file, found text",
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"min": 8}, "expected at least 8 bytes"),
        ({"max": 6}, "expected at most 6 bytes"),
        ({"media_types": ["image/jpeg", "text/*"]}, "expected a file of type image/jpeg or text/*"),
        ({"min": 7, "max": 7, "media_types": ["image/*"]}, ""),
        ({"media_types": ["image/png"]}, ""),
    ],
)
def test_a_file_has_a_size_and_a_media_type(more: dict[str, object], said: str) -> None:
    _, found = check(fields(a={"type": "file", **more}), {"a": FILE}, extra=False)

    assert "".join(one.message for one in found) == said
