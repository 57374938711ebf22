"""`discussion`: everybody in turn, in the order of the participants."""

from __future__ import annotations

import pytest

from turnline.core.adapters import DiscussionAdapter
from turnline.core.state import State
from turnline.errors import BadSpec, OutOfTurn

from ..scenes import Scene, closes, fails, invited, says


def talk() -> Scene[State]:
    return invited(DiscussionAdapter(), "alice", "bob", "carol")


def test_everybody_speaks_in_turn_the_opener_first() -> None:
    scene = talk()
    order = []
    for _ in range(5):
        speaker = str(scene.state.expected_next_speaker)
        scene.accept(says(speaker))
        order.append(speaker)

    assert order == ["alice", "bob", "carol", "alice", "bob"]


def test_out_of_turn_is_refused() -> None:
    assert talk().refusal(says("carol"), OutOfTurn).speaker == "alice"


def test_it_ends_when_somebody_closes_it() -> None:
    scene = talk()
    scene.accept(says("alice"), closes("agreed"))

    assert scene.state.pending_close_reason == "agreed"


def test_one_failed_turn_does_not_end_it() -> None:
    scene = talk()
    scene.accept(says("alice"), fails("bob"))
    assert (scene.state.status, scene.state.is_resting) == ("active", True)

    scene.accept(says("alice", "again"))
    assert scene.state.expected_next_speaker == "bob"


def test_an_ordering_is_round_robin_or_an_error_at_open() -> None:
    invited(DiscussionAdapter(), "alice", "bob", knobs={"ordering": "round_robin"})
    with pytest.raises(BadSpec, match="round_robin"):
        invited(DiscussionAdapter(), "alice", "bob", knobs={"ordering": "loudest first"})
