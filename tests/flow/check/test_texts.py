"""F9, F10: texts that cannot be read are found before they have to be."""

from __future__ import annotations

import pytest

from turnline.core.study.finding import Path
from turnline.flow.check.texts import bad_texts

from .flows import Step, flow, told

STEPS = ("spec", "steps", 0)


def call(**parts: object) -> Step:
    return {"id": "s", "api_call": {"url": "https://example.com", **parts}}


@pytest.mark.parametrize(
    ("step", "where"),
    [
        (call(json={"a": ["{{ x"]}), ("api_call", "json", "a", 0)),
        (call(query={"a": "{{ ''.__class__ }}"}), ("api_call", "query", "a")),
        (call(headers={"A": "{{ secret }}"}), ("api_call", "headers", "A")),
        ({"id": "s", "response": {"mapping": {"a": "it's here"}}}, ("response", "mapping", "a")),
        ({"id": "s", "response": {"mapping": {"a": "_session"}}}, ("response", "mapping", "a")),
        ({"id": "s", "response": {"mapping": {"a": "{{ _user_id }}"}}}, ("response", "mapping", "a")),
        (
            {"id": "s", "workflow": {"name": "w", "input": {"a": "{% set x = 1 %}"}}},
            ("workflow", "input", "a"),
        ),
    ],
)
def test_f9_a_text_that_cannot_be_read_is_found(step: Step, where: Path) -> None:
    assert told(bad_texts(flow(step))) == [("TL204", (*STEPS, *where))]


@pytest.mark.parametrize(
    ("step", "where"),
    [
        (call(json={"a": "{{ secret.KEY }}"}), ("api_call", "json", "a")),
        (call(url="https://example.com/{{ secret.KEY }}"), ("api_call", "url")),
        ({"id": "s", "agent": {"prompt": "{{ secret.KEY }}"}}, ("agent", "prompt")),
        ({"id": "s", "response": {"mapping": {"a": "secret.KEY"}}}, ("response", "mapping", "a")),
        ({"id": "s", "response": {"mapping": {"a": "{{ secret.KEY }}!"}}}, ("response", "mapping", "a")),
    ],
)
def test_f9_a_secret_anywhere_but_in_a_header_is_found(step: Step, where: Path) -> None:
    assert told(bad_texts(flow(step))) == [("TL205", (*STEPS, *where))]


@pytest.mark.parametrize(
    "step",
    [
        call(headers={"Authorization": "Bearer {{ secret.KEY }}"}, json={"a": "it's {{ name }}", "b": "50%"}),
        {"id": "s", "response": {"mapping": {"a": "score > 1", "b": "{{ name }}!", "c": 5, "d": "'text'"}}},
        {"id": "s", "human": {"title": "?", "show": ["a-b"]}},
    ],
)
def test_f9_a_text_that_can_be_read_is_not(step: Step) -> None:
    assert told(bad_texts(flow(step))) == []


def test_f10_a_condition_that_reads_a_reserved_key_is_refused_when_the_flow_is_read() -> None:
    with pytest.raises(ValueError, match="names that start with _ belong to the engine"):
        flow({"id": "s", "router": {"conditions": [{"if": "_user_id == 1", "signal": "x"}]}})


def test_the_text_itself_is_not_told_because_a_header_may_have_a_key_in_it() -> None:
    [found] = bad_texts(flow(call(headers={"A": "sk-live-0123456789 {{ x"})))

    assert "sk-live" not in f"{found.message}{found.found}{found.expected}{found.fix}"
