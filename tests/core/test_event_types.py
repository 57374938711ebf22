"""E3, E4: which event types there are, and who may write them."""

from __future__ import annotations

import pytest

from turnline.core import event_types as ev
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
