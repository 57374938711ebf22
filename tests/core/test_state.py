"""What can be said of a channel without its conversation."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from turnline.core.channel import user_key_of
from turnline.core.graph import sequence
from turnline.core.state import USER_KEY, Pause, Question, WorkflowState, metadata_of, row_of

from .scenes import NOON, closes, says, workflow


def test_the_state_has_the_fields_the_seeds_name() -> None:
    assert {
        "participant_order", "expected_next_speaker", "last_speaker_id", "last_envelope_id", "turn_count",
        "pending_close_reason", "creator_id", "graph_data", "context_vars",
    } <= set(WorkflowState.__struct_fields__)  # fmt: skip


def test_l4_the_metadata_of_an_open_channel() -> None:
    scene = workflow(sequence(["alice", "bob"]), "alice", "bob", labels={"team": "red"}, ttl_seconds=60)
    scene.accept(says("alice"))

    found = metadata_of(scene.state)

    assert (found.channel_id, found.type, found.status) == ("c1", "workflow", "active")
    assert (found.seq, found.turn_count, found.speaker_id) == (3, 1, "bob")
    assert (found.creator_id, found.labels, found.ttl_seconds) == ("alice", {"team": "red"}, 60)
    assert (found.created_at, found.closed_at, found.close_reason) == (NOON, None, None)


def test_l4_the_metadata_of_a_closed_channel_has_the_reason() -> None:
    scene = workflow(sequence(["alice", "bob"]), "alice", "bob")
    scene.wait(9)
    scene.accept(closes("enough"))

    found = metadata_of(scene.state)

    assert (found.status, found.close_reason, found.speaker_id) == ("closed", "enough", None)
    assert found.closed_at == scene.now


@pytest.mark.parametrize(
    ("pause", "is_asking", "expected"),
    [
        ("", False, ""),
        ("", True, "person"),
        ("time", False, "time"),
        ("children", True, "person"),
        ("stuck", True, "stuck"),
    ],
)
def test_the_row_of_the_index_says_what_a_turn_waits_for(pause: str, is_asking: bool, expected: str) -> None:
    scene = workflow(sequence(["alice", "bob"]), "alice", "bob")
    scene.accept(says("alice"))
    state = replace(
        scene.state,
        pause=Pause(seq=3, reason=pause, at=NOON) if pause else None,
        questions={"q": Question(seq=3, asked_by="bob", people=["alice"])} if is_asking else {},
        private_vars={USER_KEY: "ann@example.com"},
    )

    row = row_of(state, None, [])

    assert row.waiting_for == expected
    assert (row.turn_count, row.speaker_id, row.last_speaker_id) == (1, "bob", "alice")
    assert row.user_key == user_key_of("ann@example.com")
    assert "ann@" not in str(row)


def test_the_turn_in_progress_is_one_more_than_those_taken() -> None:
    scene = workflow(sequence(["alice", "bob"]), "alice", "bob")
    assert scene.state.turn == 1

    scene.accept(says("alice"))

    assert scene.state.turn == 2
