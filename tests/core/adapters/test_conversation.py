"""`conversation`: two participants, free order."""

from __future__ import annotations

import pytest

from turnline.core.adapters import ConversationAdapter
from turnline.core.state import State
from turnline.errors import ClaimLost, NotYet

from ..scenes import Scene, claims, fails, invited, live, packs, says


def talk() -> Scene[State]:
    return invited(ConversationAdapter(), "alice", "bob")


def test_either_may_speak_first() -> None:
    for speaker in ("alice", "bob"):
        scene = talk()
        scene.accept(says(speaker))

        assert scene.state.turn_count == 1


def test_the_other_one_is_asked_after_each_turn() -> None:
    scene = talk()
    assert scene.state.expected_next_speaker == "alice"

    scene.accept(says("alice"))
    assert scene.state.expected_next_speaker == "bob"

    scene.accept(says("alice", "and another thing"))
    assert (scene.state.expected_next_speaker, scene.state.turn_count) == ("bob", 2)


def test_w9_while_the_other_works_on_its_turn_a_further_word_waits() -> None:
    scene = talk()
    scene.accept(says("alice"), claims("bob"))

    scene.refusal(says("alice", "one more thing"), NotYet)

    scene.accept(packs("bob", claim=live(scene)), says("alice", "one more thing"))
    assert scene.state.turn_count == 3


def test_t6_whoever_works_on_the_turn_delivers_under_its_claim() -> None:
    scene = talk()
    scene.accept(says("alice"), claims("bob"))

    scene.refusal(packs("bob"), ClaimLost)


def test_one_failed_turn_does_not_end_it() -> None:
    scene = talk()
    scene.accept(says("alice"), fails("bob"))
    assert (scene.state.status, scene.state.is_resting) == ("active", True)

    scene.accept(says("alice", "again"))
    assert scene.state.expected_next_speaker == "bob"


@pytest.mark.parametrize("turns", [2, 7])
def test_it_does_not_end_by_itself(turns: int) -> None:
    scene = talk()
    scene.accept(*(says(("alice", "bob")[n % 2]) for n in range(turns)))

    assert scene.state.status == "active"
    assert scene.due() == []
