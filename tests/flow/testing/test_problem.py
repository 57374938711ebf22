from __future__ import annotations

from typing import Any

import pytest

from turnline.flow.testing.problem import Problem, differing, is_same, lacking


def told(problems: Any) -> list[tuple[str, str, str]]:
    return [(one.what, one.found, one.expected) for one in problems]


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"b": 1.0, "c": 2}}),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}),
    ],
)
def test_objects_may_hold_more_at_every_level(expected: Any, found: Any) -> None:
    assert told(lacking(expected, found, "data")) == []


@pytest.mark.parametrize(
    ("expected", "found", "problem"),
    [
        ({"a": 1}, {"a": True}, ("data.a", "true", "1")),
        ({"a": 1}, {"a": "1"}, ("data.a", '"1"', "1")),
        ({"a": None}, {}, ("data.a", "nothing", "null")),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ("data.a.b", "2", "1")),
        ({"a": [1, 2]}, {"a": [1, 3]}, ("data.a[1]", "3", "2")),
        ({"a": [1, 2]}, {"a": [1]}, ("data.a", "[1]", "[1,2]")),
        ({"a": {}}, {"a": []}, ("data.a", "[]", "{}")),
    ],
)
def test_a_problem_says_where_and_what(expected: Any, found: Any, problem: tuple[str, str, str]) -> None:
    assert told(lacking(expected, found, "data")) == [problem]


def test_exactly_is_neither_less_nor_more() -> None:
    assert told(
        differing({"a": {"x": 1}, "b": [{"c": 1}]}, {"a": {"x": 1, "y": 2}, "b": [{"c": 1}]}, "data")
    ) == [("data.a.y", "2", "nothing")]
    [problem] = differing({"b": [{"c": 1}]}, {"b": [{"c": 1, "d": 2}]}, "data")
    assert (problem.found, problem.expected) == ('[{"c":1,"d":2}]', '[{"c":1}]')
    assert told(differing({"a": 1}, {"a": 1.0}, "data")) == []


def test_true_is_no_number_and_text_is_itself() -> None:
    assert is_same([1, {"a": None}], [1.0, {"a": None}])
    assert not is_same({"a": 1}, {"a": True})
    assert not is_same([1], [1, 2])


def test_a_long_value_is_cut() -> None:
    [problem] = lacking({"a": "x" * 1000}, {"a": "y"}, "data")

    assert len(problem.expected) == 400


def test_a_problem_reads_as_expected_found_do() -> None:
    text = str(Problem(what="path", found="[]", expected="[a]", fix="think"))

    assert text == "path\n    expected: [a]\n    found: []\n    do: think"
