"""F15: graphs in documents and in `channel` steps are linted, and each finding has its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnline.core.graph import Transition, TransitionGraph, round_robin, sequence
from turnline.core.transitions import AgentTarget, ContextEquals, FromSpeaker, TerminateTarget, ToolCalled
from turnline.flow.check.graphs import conversations, traps_in
from turnline.flow.check.names import Known
from turnline.flow.yaml_document import YamlDocument, read_yaml

from .flows import Step, flow, told

STUCK = TransitionGraph(
    "ann",
    [
        Transition(ContextEquals("to", "ben"), AgentTarget("ben")),
        Transition(FromSpeaker("ann"), AgentTarget("ann")),
    ],
    TerminateTarget("over"),
    max_turns=9,
)
STAY = {"name": "stay", "args": {}}
PATH = ("spec", "steps", 0, "channel", "graph")


def document(text: str) -> YamlDocument:
    (read,) = read_yaml(text, file="graph.json").documents
    return read


def talk(graph: TransitionGraph | dict[str, Any], *agents: str) -> Step:
    data = graph.to_dict() if isinstance(graph, TransitionGraph) else graph
    return {"id": "talk", "channel": {"agents": list(agents), "message": "go", "graph": data}}


def test_f15_a_finding_has_the_line_of_its_transition() -> None:
    (found,) = traps_in(document(json.dumps(STUCK.to_dict(), indent=1)), {})

    assert (found.code, found.file, found.line, found.column) == ("G301", "graph.json", 4, 3)
    assert (found.severity, bool(found.fix)) == ("error", True)


def test_f15_a_graph_without_traps_has_no_findings() -> None:
    assert traps_in(document(json.dumps(sequence(["ann", "ben"]).to_dict())), {}) == []


@pytest.mark.parametrize(
    "spoilt",
    [
        {"default_target": {"name": "nobody_knows", "args": {}}},
        {"default_target": {"name": "agent", "args": {"agent_id": 5}}},
        {"max_turns": 0},
        {"transitions": [{"when": {"name": "expr", "args": {"expression": "1 +"}}, "then": {}}]},
        {"transitions": [{"when": {"name": "tool_called", "args": {"tool_name": []}}, "then": STAY}]},
        {"surplus": 1},
    ],
    ids=str,
)  # fmt: skip
def test_f15_what_cannot_be_a_graph_is_one_finding(spoilt: dict[str, Any]) -> None:
    found = traps_in(document(json.dumps(sequence(["ann", "ben"]).to_dict() | spoilt)), {})

    assert [one.code for one in found] == ["TL020"]


def test_f15_the_graph_of_a_channel_step_is_linted_among_its_agents() -> None:
    assert told(conversations(flow(talk(STUCK, "ann", "ben")), Known())) == [
        ("G301", (*PATH, "transitions", 0))
    ]
    assert told(conversations(flow(talk(sequence(["ann", "bne"]), "ann", "ben")), Known())) == [
        ("G101", (*PATH, "transitions", 0, "then", "args", "agent_id"))
    ]


def test_f15_a_channel_step_has_its_own_limit_of_turns() -> None:
    assert told(conversations(flow(talk(round_robin(["ann", "ben"]), "ann", "ben")), Known())) == []


def test_f15_a_channel_step_with_no_graph_in_its_graph() -> None:
    assert told(conversations(flow(talk({"initial_speaker": "ann"}, "ann", "ben")), Known())) == [
        ("TL020", PATH)
    ]


def test_f15_g102_a_tool_that_no_agent_of_the_conversation_has() -> None:
    waits = TransitionGraph(
        "ann", [Transition(ToolCalled("esclate"), AgentTarget("ben"))], TerminateTarget("over"), max_turns=9
    )
    known = Known(agent_tools={"ann": ["escalate"], "ben": [], "cat": ["esclate"]})

    (found,) = conversations(flow(talk(waits, "ann", "ben")), known)
    assert (found.code, found.path) == ("G102", (*PATH, "transitions", 0, "when"))
    assert found.fix == "did you mean 'escalate'?"
    assert told(conversations(flow(talk(waits, "ann", "ben", "cat")), known)) == []

    in_document = traps_in(document(json.dumps(waits.to_dict())), {"ann": ["escalate"], "ben": []})
    assert [one.code for one in in_document] == ["G102", "G205"]
    assert traps_in(document(json.dumps(waits.to_dict())), {"ann": ["escalate"]}) == []
