"""F15: steps that start a flow with input that it does not take."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.flow.check import Known, check_flow
from turnline.flow.check.problem import Problem
from turnline.flow.definition.flow import Flow, read

FIELDS = {
    "email": {"type": "email", "required": True},
    "seats": "integer",
    "plan": {"type": "string", "default": "a"},
}


def child(*, extra: bool = True) -> Flow:
    trigger = {"path": "/child", "input": FIELDS, "extra": extra}
    return read({"trigger": trigger, "steps": [{"id": "a", "wait": {"for": 1}}]}, name="child")


def found(given: Any, *, extra: bool = True, **main: Any) -> list[Problem]:
    block = {"name": "child", "into": "got"} | ({} if given is None else {"input": given})
    flow = read({**main, "steps": [{"id": "sub", "workflow": block}]}, name="main")
    known = Known(definitions={"child": child(extra=extra)})
    return [one for one in check_flow(flow, known) if one.code == "TL206"]


@pytest.mark.parametrize(
    ("given", "path", "said"),
    [
        ({"seats": 1}, "email", "email: it is missing"),
        ({"email": "a@example.com", "seats": "two"}, "seats", "seats: expected an integer"),
        ({"email": 5}, "email", "email: expected"),
    ],
)
def test_f15_input_that_the_flow_refuses_is_found(given: Any, path: str, said: str) -> None:
    [problem] = found(given)

    assert problem.severity == "error"
    assert problem.path == ("spec", "steps", 0, "workflow", "input", path)
    assert f"the flow 'child' does not take this input: {said}" in problem.message


def test_f15_a_field_that_the_flow_does_not_know_is_found_where_it_takes_no_other() -> None:
    given = {"email": "a@example.com", "sets": 1}

    assert [one.path[-1] for one in found(given, extra=False)] == ["sets"]
    assert found(given) == []


@pytest.mark.parametrize("given", [{"email": "{{ to }}", "seats": "{{ n }}"}, {"email": "a@example.com"}])
def test_f15_templates_and_good_input_are_no_problem(given: Any) -> None:
    assert found(given) == []


def test_f15_without_input_the_context_has_to_have_what_the_flow_needs() -> None:
    trigger = {"path": "/main", "input": {"name": "string"}}
    [problem] = found(None, trigger=trigger)

    assert (problem.severity, problem.path) == ("warning", ("spec", "steps", 0, "workflow"))
    assert "needs 'email', and no path to this step produces it" in problem.message
    assert found(None, trigger={"path": "/main", "input": {"email": "string"}}) == []
    assert found(None) == []
