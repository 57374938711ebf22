"""E3, E4, T4: which event types there are, who may write them, and what a packet may hold."""

from __future__ import annotations

import pytest

from turnline.core import event_types as ev
from turnline.core.envelope import JsonObject
from turnline.core.event_types import body_of, check_packet, check_text
from turnline.core.graph import sequence
from turnline.errors import BadDraft, ReservedEventType

from .scenes import draft, types, workflow

EVENT_TYPES = {value for name, value in vars(ev).items() if name.startswith("EV_")}
SAID_BY_PARTICIPANTS = {"text", "packet", "context.set"} | {
    one for one in EVENT_TYPES if one.startswith(("task.", "human."))
}
WRITTEN_BY_THE_HUB = EVENT_TYPES - SAID_BY_PARTICIPANTS


def test_e3_the_families_are_those_of_the_rule() -> None:
    families = {one.partition(".")[0] for one in EVENT_TYPES}

    assert families == {
        "text",
        "packet",
        "context",
        "channel",
        "turn",
        "expectation",
        "payload",
        "log",
        "task",
        "human",
        "timer",
    }
    assert {"channel.invite", "channel.ack", "channel.reject", "channel.opened"} <= EVENT_TYPES
    assert {"turn.claimed", "turn.model", "turn.tool", "turn.failed", "turn.abandoned"} <= EVENT_TYPES


@pytest.mark.parametrize("event_type", sorted(SAID_BY_PARTICIPANTS))
def test_e3_participants_write_what_they_say_and_do(event_type: str) -> None:
    ev.check_event_type(event_type, "alice")


@pytest.mark.parametrize("event_type", [*sorted(WRITTEN_BY_THE_HUB), "channel.mine", "turn.x", "timer.y"])
def test_e4_only_the_hub_writes_its_families(event_type: str) -> None:
    ev.check_event_type(event_type, ev.HUB)
    with pytest.raises(ReservedEventType) as refused:
        ev.check_event_type(event_type, "alice")

    assert (refused.value.event_type, refused.value.sender) == (event_type, "alice")


@pytest.mark.parametrize("event_type", sorted(WRITTEN_BY_THE_HUB))
def test_e4_a_participant_that_tries_is_refused_by_the_channel(event_type: str) -> None:
    scene = workflow(sequence(["alice", "bob"]), "alice", "bob")

    scene.refusal(draft("alice", event_type, {"agent_id": "alice", "reason": "mine"}), ReservedEventType)


@pytest.mark.parametrize(
    "event_type", ["note", "", ".", "acme.", ".note", "context.get", "task.dreamt", "human.x"]
)
def test_e3_a_custom_type_needs_an_application_prefix(event_type: str) -> None:
    with pytest.raises(BadDraft) as refused:
        ev.check_event_type(event_type, "alice")

    assert refused.value.field == "event_type"


@pytest.mark.parametrize("event_type", ["acme.\ud800", "acme.\n", "acme." + "x" * 300, 5, None])
def test_e2_an_event_type_that_would_not_read_back_is_refused(event_type: str) -> None:
    with pytest.raises(BadDraft):
        ev.check_event_type(event_type, "alice")


def test_e3_a_misspelt_type_is_told_the_near_one() -> None:
    with pytest.raises(BadDraft, match=r"did you mean 'context\.set'"):
        ev.check_event_type("context.sett", "alice")


def test_e3_a_custom_type_is_kept_and_never_folds() -> None:
    scene = workflow(sequence(["alice", "bob"]), "alice", "bob")
    before = scene.state

    appended = scene.accept(
        draft("bob", "acme.note", {"set": {"route": "x"}, "text": "psst"}, audience=["alice"])
    )

    assert types(appended) == ["acme.note"]
    assert appended[0].audience == ["alice"]
    assert scene.state.context_vars == {}
    assert (scene.state.turn_count, scene.state.expected_next_speaker) == (0, "alice")
    assert scene.state.seq == before.seq + 1


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
