"""F15: all lints together, on flows that have one problem each and on flows that have none."""

from __future__ import annotations

import re

import pytest

from turnline.flow import check
from turnline.flow.check import Known, check_flow
from turnline.flow.data.definition import read_model
from turnline.flow.definition.flow import Flow, read

from .flows import flow, node, router, wait

CHILD = {
    "trigger": {"path": "/child", "input": {"email": {"type": "email", "required": True}}},
    "steps": [{"id": "a", "wait": {"for": 1}}],
}
KNOWN = Known(
    runners={"save_lead", "flag_for_review"},
    agents=set(),
    tools={"pay"},
    asking_tools={"pay"},
    flows={"child"},
    definitions={"child": read(CHILD, name="child")},
    servers=set(),
    models={"Lead": read_model({"metadata": {"name": "Lead", "version": "v2"}})},
)
TRIGGER = {"path": "/x", "input": {"name": "string"}}
ONE_KEY = {"id": "i", "human": {"title": "?", "form": {"a": "string"}}}
ONE_OF_EACH: dict[str, Flow] = {
    "TL101": flow(wait("a", default="END"), wait("b")),
    "TL102": flow(wait("a", default="a")),
    "TL103": flow(wait("a", default="a", error="END")),
    "TL104": flow(router("a", "x"), wait("b")),
    "TL105": flow(wait("a", done="END")),
    "TL106": flow({"id": "a", "human": {"title": "?"}}),
    "TL107": flow({"id": "a", "human": {"title": "?", "form": {"ok": "any"}, "signal_from": "x"}}),
    "TL108": flow({**wait("a"), "retry": {"statuses": [503]}}),
    "TL109": flow({"id": "a", "agent": {"prompt": "x", "tools": ["pay"]}}),
    "TL201": flow({"id": "a", "wait": {"until": "{{ lost }}"}}, trigger=TRIGGER),
    "TL202": flow(wait("a"), context={"defaults": {"_db": 1}}),
    "TL203": flow({"id": "a", "human": {"title": "?", "form": {"ok": "any"}, "show": ["_db"]}}),
    "TL204": flow({"id": "a", "response": {"mapping": {"a": "not an expression"}}}),
    "TL205": flow({"id": "a", "wait": {"until": "{{ secret.KEY }}"}}),
    "TL206": flow({"id": "a", "workflow": {"name": "child", "input": {}}}),
    "TL301": flow(node("lost")),
    "TL302": flow({"id": "a", "agent": {"name": "lost"}}),
    "TL303": flow({"id": "a", "agent": {"prompt": "x", "tools": ["lost"]}}),
    "TL304": flow(wait("a"), context={"models": [{"name": "Lost"}]}),
    "TL305": flow({"id": "a", "workflow": {"name": "lost"}}),
    "TL306": flow({"id": "a", "mcp": {"server": "lost", "tool": "t"}}),
    "TL307": flow({"id": "a", "model_op": {"model": "Lead", "op": "list"}}),
    "TL308": flow(wait("a"), context={"models": [{"name": "Lead", "version": "v1"}]}),
    "TL501": flow({"id": "a", "parallel": {"branches": {"l": [ONE_KEY], "r": [ONE_KEY]}}}),
}
OF_DOCUMENTS = {"TL309", "TL310", "TL401"}
OF_SEVERAL_FLOWS = {"TL601", "TL602", "TL603"}


@pytest.mark.parametrize(("code", "given"), ONE_OF_EACH.items())
def test_f15_each_problem_is_found_and_no_other(code: str, given: Flow) -> None:
    assert [problem.code for problem in check_flow(given, KNOWN)] == [code]


def test_f15_every_code_is_listed_and_has_a_flow_here() -> None:
    listed = set(re.findall(r"TL\d{3}", check.__doc__ or ""))

    assert listed == ONE_OF_EACH.keys() | OF_DOCUMENTS | OF_SEVERAL_FLOWS


LEADS = flow(
    node("save_lead"),
    {
        "id": "classify",
        "kind": "agent",
        "agent": {
            "prompt": "Customer: {{ name }}",
            "output": {"map": {"potential": "lead_potential", "score": "lead_score"}},
        },
        "routes": {"error": "flag_for_review"},
    },
    {
        "id": "route",
        "kind": "router",
        "router": {
            "conditions": [
                {"if": "priority == 'urgent'", "signal": "escalate"},
                {"if": "lead_score > 80", "signal": "high_value"},
                {"else": True, "signal": "normal"},
            ]
        },
        "routes": {"escalate": "approve", "high_value": "respond", "normal": "respond"},
    },
    {
        "id": "approve",
        "human": {"title": "{{ name }}?", "show": ["name", "lead_score"], "form": {"approved": "boolean"}},
    },
    {"id": "respond", "response": {"mapping": {"id": "id", "score": "lead_score"}}},
    node("flag_for_review"),
    trigger={"path": "/api/leads", "input": {"email": "string", "name": "string", "company": "string"}},
    context={"models": [{"name": "Lead", "version": "v2"}], "defaults": {"priority": "normal"}},
    limits={"max_steps": 200, "timeout": "1h"},
)
SEED = read(
    [
        {"id": "save_lead", "runner": "save_lead"},
        {"id": "classify", "kind": "agent"},
        {"id": "route", "kind": "router"},
    ],
    name="lead_processing",
)


@pytest.mark.parametrize("given", [LEADS, SEED], ids=["the design's", "the seed's"])
def test_f15_a_flow_without_problems_has_none(given: Flow) -> None:
    assert check_flow(given, KNOWN) == []


def test_f15_without_a_project_names_are_not_looked_for() -> None:
    assert check_flow(ONE_OF_EACH["TL301"]) == []
