"""F15: questions to a person that cannot be answered as they are meant."""

from __future__ import annotations

import pytest

from turnline.flow.check.names import Known
from turnline.flow.check.people import questions, unasked_people

from .flows import Step, flow, told

PATH = ("spec", "steps", 0, "human")


@pytest.mark.parametrize(
    ("human", "expected"),
    [
        ({"form": {"approved": "boolean"}}, []),
        ({"form": {"approved": "boolean"}, "signal_from": "approved"}, []),
        ({}, [("TL106", PATH)]),
        ({"signal_from": "approved"}, [("TL107", (*PATH, "signal_from"))]),
        ({"form": {"approved": "boolean"}, "signal_from": "aproved"}, [("TL107", (*PATH, "signal_from"))]),
    ],
)
def test_f15_a_question_without_a_form_and_a_signal_without_a_field(human: Step, expected: object) -> None:
    assert told(questions(flow({"id": "ask", "human": {"title": "?", **human}}))) == expected


def test_a_question_without_a_form_is_a_warning_and_a_signal_without_a_field_an_error() -> None:
    [empty] = questions(flow({"id": "ask", "human": {"title": "?"}}))
    [wrong] = questions(
        flow({"id": "ask", "human": {"title": "?", "form": {"ok": "any"}, "signal_from": "okay"}})
    )

    assert (empty.severity, wrong.severity) == ("warning", "error")
    assert wrong.fix == "did you mean 'ok'?"


KNOWN = Known(asking_tools=["pay"], asking_agents={"buyer": ["order"], "hooked": None, "reader": []})
AGENT = ("spec", "steps", 0, "agent")


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ({"tools": ["pay"]}, [("TL109", AGENT)]),
        ({"tools": ["pay"], "ask": {"group": "ops"}}, []),
        ({"tools": ["look"]}, []),
        ({"name": "buyer"}, [("TL109", AGENT)]),
        ({"name": "buyer", "ask": {"group": "ops"}}, []),
        ({"name": "reader"}, []),
        ({"name": "reader", "tools": ["pay"]}, [("TL109", AGENT)]),
        ({"name": "hooked", "tools": ["pay"]}, []),
    ],
)
def test_a_step_whose_tool_asks_a_person_names_the_group(agent: Step, expected: object) -> None:
    assert told(unasked_people(flow({"id": "ask", "agent": agent}), KNOWN)) == expected


@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        ({"agents": ["reader", "buyer"]}, [("TL109", ("spec", "steps", 0, "channel"))]),
        ({"agents": ["reader", "buyer"], "ask": {"group": "ops"}}, []),
        ({"agents": ["reader", "hooked"]}, []),
    ],
)
def test_a_conversation_whose_agents_ask_a_person_names_the_group(channel: Step, expected: object) -> None:
    talk = {"id": "talk", "channel": {"message": "go", **channel}}

    assert told(unasked_people(flow(talk), KNOWN)) == expected


def test_a_step_without_a_block_is_checked_as_the_agent_of_its_name() -> None:
    [found] = unasked_people(flow({"id": "buyer", "kind": "agent"}), KNOWN)

    assert found.message == "tool 'order' asks a person, and step 'buyer' does not say whom"
