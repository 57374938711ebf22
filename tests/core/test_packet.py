"""T4: the shape of a packet, and of a text."""

from __future__ import annotations

import pytest

from turnline.core.envelope import JsonObject
from turnline.core.packet import body_of, check_packet, check_text
from turnline.errors import BadDraft


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"body": "", "routing": {"kind": "text"}},
        {"body": "hi", "routing": {"kind": "text", "tool": "escalate", "reason": "fraud"}},
        {"routing": {"kind": "handoff", "target": "bob", "tool": "escalate", "reason": "fraud"}},
        {"routing": {"kind": "finish"}},
        {"routing": {"kind": "finish", "reason": "done", "summary": "all of it", "tool": "stop"}},
        {"routing": {"kind": "signal", "signal": "approved", "reason": "ok"}},
        {"context_updates": {"n": 1}, "context_deletes": ["m"]},
    ],
)
def test_t4_these_are_packets(data: JsonObject) -> None:
    check_packet(data)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"text": "hi"}, "event_data"),
        ({"body": 5}, "event_data.body"),
        ({"routing": "bob"}, "event_data.routing"),
        ({"routing": {}}, "event_data.routing"),
        ({"routing": {"kind": "teleport"}}, "event_data.routing"),
        ({"routing": {"kind": "text", "target": "bob"}}, "event_data.routing"),
        ({"routing": {"kind": "handoff"}}, "event_data.routing.target"),
        ({"routing": {"kind": "handoff", "target": ""}}, "event_data.routing.target"),
        ({"routing": {"kind": "handoff", "target": 5}}, "event_data.routing.target"),
        ({"routing": {"kind": "signal"}}, "event_data.routing.signal"),
        ({"context_updates": []}, "event_data.context_updates"),
        ({"context_updates": {"_n": 1}}, "event_data.context_updates._n"),
        ({"context_deletes": "n"}, "event_data.context_deletes"),
        ({"context_deletes": [1]}, "event_data.context_deletes"),
        ({"context_deletes": ["_n"]}, "event_data.context_deletes._n"),
    ],
)
def test_t4_these_are_not_and_the_field_is_named(data: JsonObject, field: str) -> None:
    with pytest.raises(BadDraft) as refused:
        check_packet(data)

    assert refused.value.field == field


@pytest.mark.parametrize("data", [{}, {"text": None}, {"text": 5}, {"body": "hi"}])
def test_a_text_has_a_text(data: JsonObject) -> None:
    with pytest.raises(BadDraft) as refused:
        check_text(data)

    assert refused.value.field == "event_data.text"


def test_what_was_said_is_the_body_of_a_packet_and_the_text_of_a_text() -> None:
    assert body_of("packet", {"body": "one", "text": "two"}) == "one"
    assert body_of("text", {"body": "one", "text": "two"}) == "two"
    assert body_of("packet", {}) == ""
