"""F12, F15: names that nobody has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from turnline.core.study.finding import Path
from turnline.flow.check.names import Known, missing_names, models_used
from turnline.flow.data.definition import read_model

from .flows import Step, flow, told, wait

STEP = ("spec", "steps", 0)
MODELS = ("spec", "context", "models", 0)
LEAD = read_model({"metadata": {"name": "Lead", "version": "v2"}, "spec": {"fields": {"score": "integer"}}})
KNOWN = Known(
    runners={"save_lead"},
    agents={"classifier"},
    tools={"look_up"},
    models={"Lead": LEAD},
    flows={"onboarding"},
    servers={"github"},
)


@pytest.mark.parametrize(
    ("good", "bad", "code", "where"),
    [
        ({"runner": "save_lead"}, {"runner": "save_laed"}, "TL301", ("runner",)),
        ({"agent": {"name": "classifier"}}, {"agent": {"name": "clasifier"}}, "TL302", ("agent", "name")),
        (
            {"channel": {"agents": ["classifier"], "message": "m"}},
            {"channel": {"agents": ["classifier", "clasifier"], "message": "m"}},
            "TL302",
            ("channel", "agents", 1),
        ),
        (
            {"agent": {"prompt": "x", "tools": ["look_up"]}},
            {"agent": {"prompt": "x", "tools": ["look_up", "lookup"]}},
            "TL303",
            ("agent", "tools", 1),
        ),
        (
            {"workflow": {"name": "onboarding"}},
            {"workflow": {"name": "onbording"}},
            "TL305",
            ("workflow", "name"),
        ),
        (
            {"mcp": {"server": "github", "tool": "t"}},
            {"mcp": {"server": "gihtub", "tool": "t"}},
            "TL306",
            ("mcp", "server"),
        ),
    ],
)
def test_f15_a_name_that_the_project_does_not_have_is_found_with_the_nearest_one(
    good: Step, bad: Step, code: str, where: Path
) -> None:
    [found] = missing_names(flow({"id": "s", **bad}), KNOWN)

    assert told([found]) == [(code, (*STEP, *where))]
    assert found.fix == f"did you mean {found.expected!r}?"
    assert told(missing_names(flow({"id": "s", **good}), KNOWN)) == []
    assert told(missing_names(flow({"id": "s", **bad}), Known())) == []  # Nothing is known, nothing is said.


def test_f15_a_name_that_is_like_no_other_is_told_how_to_come_by_it() -> None:
    [found] = missing_names(flow({"id": "s", "runner": "xyz"}), KNOWN)

    assert found.fix == 'write a function with @node("xyz") in nodes/'


def test_f15_an_agent_without_a_name_and_a_server_by_its_address_need_nobody() -> None:
    server = {"id": "t", "mcp": {"server": "https://mcp.example.com", "tool": "t"}}

    assert told(missing_names(flow({"id": "s", "kind": "agent"}, server), KNOWN)) == []


def test_f15_names_inside_inner_steps_are_looked_at_too() -> None:
    each = {"id": "e", "for_each": {"items": "xs", "steps": [{"id": "i", "runner": "xyz"}]}}

    assert told(missing_names(flow(each), KNOWN)) == [("TL301", (*STEP, "for_each", "steps", 0, "runner"))]


def using(*models: Any, touched: Iterable[str] = ()) -> object:
    steps = [{"id": f"m-{name}", "model_op": {"model": name, "op": "list"}} for name in touched]
    return told(models_used(flow(*(steps or [wait("w")]), context={"models": list(models)}), KNOWN))


@pytest.mark.parametrize(
    ("models", "touched", "expected"),
    [
        ([{"name": "Lead", "version": "v2"}], ["Lead"], []),
        ([{"name": "Lead"}], ["Lead"], []),
        ([{"name": "Leda"}], [], [("TL304", (*MODELS, "name"))]),
        ([{"name": "Lead", "version": "v1"}], [], [("TL308", (*MODELS, "version"))]),
        ([], ["Lead"], [("TL307", (*STEP, "model_op", "model"))]),
    ],
)
def test_f12_a_data_model_is_known_declared_and_of_the_version_the_flow_was_written_for(
    models: list[Step], touched: list[str], expected: object
) -> None:
    assert using(*models, touched=touched) == expected
