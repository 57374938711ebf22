"""L1, L3, L4, W6: a channel is invited, opened, closed; each step is one append."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.channel import ChannelState
from turnline.core.envelope import Basis, Close, Draft, Speak
from turnline.core.graph import TransitionGraph, sequence
from turnline.core.state import WorkflowState
from turnline.core.transitions import TerminateTarget
from turnline.errors import ChannelClosed, ChannelPending, NotDue, NotParticipant, OutOfTurn

from .scenes import (
    Scene,
    acks,
    claims,
    closes,
    decided,
    draft,
    fails,
    hub,
    live,
    packs,
    says,
    types,
    workflow,
    writes,
)

PEOPLE = ("alice", "bob", "carol")
TURNS = sequence(PEOPLE)


def pending(**given: Any) -> Scene[WorkflowState]:
    return workflow(TURNS, *PEOPLE, invited=["bob", "carol"], **given)


def rejects(agent_id: str) -> Draft:
    return hub(ev.EV_CHANNEL_INVITE_REJECT, {"agent_id": agent_id, "because": "busy"})


# --- L1: invitations ---


def test_l1_the_invitation_is_the_first_line() -> None:
    scene = pending()

    assert types(scene.log) == [ev.EV_CHANNEL_INVITE]
    assert scene.state.status is ChannelState.PENDING
    assert scene.state.awaiting == ["bob", "carol"]


def test_l1_the_channel_stays_pending_until_everybody_accepted() -> None:
    scene = pending()

    assert types(scene.accept(acks("carol"))) == [ev.EV_CHANNEL_INVITE_ACK]
    assert scene.state.awaiting == ["bob"]
    assert scene.state.status is ChannelState.PENDING


def test_l1_the_last_ack_and_opened_are_one_append() -> None:
    scene = pending()
    scene.accept(acks("carol"))

    appended = scene.accept(acks("bob"))

    assert types(appended) == [ev.EV_CHANNEL_INVITE_ACK, ev.EV_CHANNEL_OPENED]
    assert [envelope.seq for envelope in appended] == [3, 4]
    assert scene.state.status is ChannelState.ACTIVE
    assert scene.state.expected_next_speaker == "alice"


def test_l1_with_nobody_to_ask_it_opens_with_the_invitation() -> None:
    assert types(workflow(TURNS, *PEOPLE).log) == [ev.EV_CHANNEL_INVITE, ev.EV_CHANNEL_OPENED]


def test_l1_a_reject_closes_in_the_same_append() -> None:
    scene = pending()
    scene.accept(acks("carol"))

    appended = scene.accept(rejects("bob"))

    assert types(appended) == [ev.EV_CHANNEL_INVITE_REJECT, ev.EV_CHANNEL_CLOSED]
    assert scene.state.pending_close_reason == "invite_rejected"


@pytest.mark.parametrize("answer", [acks, rejects])
def test_l1_only_those_invited_answer_and_only_once(answer: Any) -> None:
    scene = pending()
    scene.accept(acks("carol"))

    scene.refusal(answer("alice"), NotParticipant)
    scene.refusal(answer("zoe"), NotParticipant)
    scene.refusal(answer("carol"), NotDue)


def test_l1_an_invitation_is_sent_once() -> None:
    """A second one would wait for answers that were given, or give the floor away."""
    scene = workflow(TURNS, *PEOPLE)
    scene.accept(says("alice"))

    scene.refusal(hub(ev.EV_CHANNEL_INVITE), NotDue)


@pytest.mark.parametrize("said", [says("alice"), writes("alice", set={"n": 1}), draft("bob", "acme.note")])
def test_l1_nobody_speaks_before_everybody_accepted(said: Draft) -> None:
    assert pending().refusal(said, ChannelPending).awaiting == ("bob", "carol")


def test_l1_nobody_claims_before_everybody_accepted() -> None:
    pending().refusal(claims("alice"), OutOfTurn)


# --- W6: kick-off ---


def test_w6_a_message_of_the_initial_speaker_is_turn_one() -> None:
    scene = workflow(TURNS, *PEOPLE, message="three facts")

    assert types(scene.log) == [ev.EV_CHANNEL_INVITE, ev.EV_CHANNEL_OPENED, ev.EV_TEXT]
    assert scene.log[-1].sender_id == "alice"
    assert scene.log[-1].event_data == {"text": "three facts"}
    assert (scene.state.turn_count, scene.state.expected_next_speaker) == (1, "bob")


def test_w6_a_message_of_somebody_else_is_recorded_and_the_initial_speaker_asked_at_once() -> None:
    scene = workflow(sequence(["bob", "carol"]), *PEOPLE, message="three facts")

    assert types(scene.log) == [ev.EV_CHANNEL_INVITE, ev.EV_CHANNEL_OPENED, ev.EV_TEXT]
    assert scene.log[-1].decision == Speak("bob", Basis(kind="initial"))
    assert (scene.state.turn_count, scene.state.expected_next_speaker) == (0, "bob")
    assert scene.state.floor_seq == 3


def test_w6_exactly_one_line_gives_the_first_floor() -> None:
    """Whoever is told twice would answer twice."""
    for message, initial in [(None, "alice"), ("hi", "alice"), ("hi", "bob")]:
        scene = workflow(sequence([initial, "carol"]), *PEOPLE, message=message)

        assert [e.decision for e in scene.log].count(Speak(initial, Basis(kind="initial"))) == 1


def test_w6_the_message_waits_for_the_last_ack_and_lands_with_it() -> None:
    scene = pending(message="three facts")
    scene.accept(acks("bob"))

    appended = scene.accept(acks("carol"))

    assert types(appended) == [ev.EV_CHANNEL_INVITE_ACK, ev.EV_CHANNEL_OPENED, ev.EV_TEXT]


def test_w6_without_a_message_the_openers_first_send_is_turn_one() -> None:
    scene = workflow(TURNS, *PEOPLE)

    scene.accept(says("alice"))

    assert scene.state.turn_count == 1


def test_w6_a_message_may_end_the_channel_at_once() -> None:
    graph = TransitionGraph("alice", [], TerminateTarget("over"))

    scene = workflow(graph, *PEOPLE, message="never mind")

    assert types(scene.log)[-2:] == [ev.EV_TEXT, ev.EV_CHANNEL_CLOSED]
    assert scene.state.pending_close_reason == "over"


# --- L3: the last word ---


def test_l3_the_turn_that_ends_a_channel_and_the_close_are_one_tuple() -> None:
    """A crash between them would leave a finished channel open."""
    scene = workflow(TURNS, *PEOPLE)
    scene.accept(says("alice"), says("bob"))

    appended = scene.accept(says("carol"))

    assert types(appended) == [ev.EV_TEXT, ev.EV_CHANNEL_CLOSED]
    assert [envelope.seq for envelope in appended] == [5, 6]
    assert isinstance(decided(appended), Close)
    assert appended[-1].event_data == {"reason": "sequence_complete"}


def test_l3_closing_is_passed_through_and_closed_is_where_it_ends() -> None:
    scene = workflow(sequence(["alice"]), *PEOPLE)
    last, close = scene.decide(says("alice"))

    closing = scene.adapter.fold(scene.state, last)

    assert (closing.status, closing.expected_next_speaker) == (ChannelState.CLOSING, None)
    assert scene.adapter.fold(closing, close).status is ChannelState.CLOSED


AFTERWARDS = [
    says("alice"),
    says("alice", interject=True),
    packs("bob"),
    writes("alice", set={"n": 1}),
    draft("alice", "acme.note"),
    closes(),
    acks("bob"),
    rejects("bob"),
    claims("alice"),
    fails("alice"),
    hub(ev.EV_CHANNEL_EXPIRED),
    hub(ev.EV_CHANNEL_INVITE),
    hub(ev.EV_EXPECTATION_VIOLATED, {"name": "turn_within", "since": 2}),
    hub(ev.EV_TURN_RELEASED),
    hub(ev.EV_TURN_RENEWED),
]


@pytest.mark.parametrize("late", AFTERWARDS, ids=lambda one: one.event_type)
@pytest.mark.parametrize("ending", [closes("enough"), hub(ev.EV_CHANNEL_EXPIRED)], ids=["closed", "expired"])
def test_l3_nothing_is_accepted_after_the_close(late: Draft, ending: Draft) -> None:
    scene = workflow(TURNS, *PEOPLE)
    scene.accept(ending)

    assert scene.refusal(late, ChannelClosed).reason in ("enough", "ttl_expired")


# --- L4: ways to close ---


def test_l4_somebody_closes_it() -> None:
    scene = workflow(TURNS, *PEOPLE)

    appended = scene.accept(closes("enough"))

    assert types(appended) == [ev.EV_CHANNEL_CLOSED]
    assert appended[0].event_data == {"reason": "enough", "by": "alice"}
    assert scene.state.status is ChannelState.CLOSED
    assert scene.state.closed_at == scene.now


def test_l4_a_close_without_a_reason_has_one() -> None:
    assert workflow(TURNS, *PEOPLE).accept(hub(ev.EV_CHANNEL_CLOSED))[0].event_data == {"reason": "closed"}


def test_l4_a_pending_channel_can_be_closed() -> None:
    scene = pending()

    scene.accept(closes("never mind"))

    assert scene.state.pending_close_reason == "never mind"


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (packs("alice", "finish", reason="solved"), "solved"),
        (fails("alice"), "turn_failed"),
        (closes("enough"), "enough"),
        (hub(ev.EV_CHANNEL_EXPIRED, {"reason": "ttl_expired"}), "ttl_expired"),
    ],
)
def test_l4_the_reason_is_on_channel_closed_and_in_the_state(last: Draft, reason: str) -> None:
    scene = workflow(TURNS, *PEOPLE)

    appended = scene.accept(last)

    assert appended[-1].event_type == ev.EV_CHANNEL_CLOSED
    assert appended[-1].event_data["reason"] == reason
    assert scene.state.pending_close_reason == reason


def test_l3_a_turn_in_flight_is_abandoned_with_the_channel() -> None:
    """What it wrote never counted, so the last state is that of the last packet."""
    scene = workflow(TURNS, *PEOPLE, knobs={"context_vars": {"n": 1}})
    scene.accept(claims("alice"))
    scene.accept(writes("alice", claim=live(scene), set={"n": 2}))

    appended = scene.accept(closes())

    assert types(appended) == [ev.EV_TURN_ABANDONED, ev.EV_CHANNEL_CLOSED]
    assert scene.state.context_vars == {"n": 1}
    assert scene.state.claim is None


def test_l3_a_turn_somebody_laid_down_is_abandoned_with_the_channel_too() -> None:
    scene = workflow(TURNS, *PEOPLE)
    scene.accept(claims("alice"))
    scene.accept(writes("alice", claim=live(scene), set={"n": 2}))
    scene.accept(hub(ev.EV_TURN_RELEASED, claim=live(scene)))

    scene.accept(closes())

    assert scene.state.context_vars == {}
