"""`consulting`: one question, one answer, closed."""

from __future__ import annotations

from turnline.core.adapters import ConsultingAdapter
from turnline.core.state import State
from turnline.errors import OutOfTurn

from ..scenes import Scene, claims, fails, invited, live, packs, says, types, writes


def consulted() -> Scene[State]:
    scene = invited(ConsultingAdapter(), "alice", "bob")
    scene.accept(says("alice", "how does HTTPS work?"))
    return scene


def test_the_opener_asks_and_the_other_is_asked() -> None:
    scene = invited(ConsultingAdapter(), "alice", "bob")
    scene.refusal(says("bob"), OutOfTurn)

    scene.accept(says("alice"))

    assert scene.state.expected_next_speaker == "bob"


def test_l3_the_answer_and_the_close_are_one_append() -> None:
    appended = consulted().accept(packs("bob"))

    assert types(appended) == ["packet", "channel.closed"]
    assert appended[-1].event_data["reason"] == "consulting_complete"


def test_the_opener_asks_once() -> None:
    consulted().refusal(says("alice", "and another thing"), OutOfTurn)


def test_a_context_write_is_neither_question_nor_answer() -> None:
    scene = consulted()

    scene.accept(writes("bob", set={"n": 1}))

    assert scene.state.status == "active"


def test_t5_an_answer_that_failed_is_not_an_answer() -> None:
    scene = consulted()
    scene.accept(claims("bob"))

    scene.accept(fails("bob", claim=live(scene)))

    assert scene.state.is_resting


def test_a_question_whose_answer_failed_can_be_asked_again() -> None:
    scene = consulted()
    scene.accept(fails("bob"), says("alice", "how does HTTPS work?"), packs("bob"))

    assert scene.state.pending_close_reason == "consulting_complete"


def test_w6_a_message_is_the_question() -> None:
    scene = invited(ConsultingAdapter(), "alice", "bob", message="how does HTTPS work?")

    assert (scene.state.turn_count, scene.state.expected_next_speaker) == (1, "bob")
