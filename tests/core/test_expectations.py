"""W11, L1, L4: what falls due on a channel, when, and what happens then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.channel import Expectation, Participant
from turnline.core.envelope import Draft
from turnline.core.expectations import (
    Deadline,
    acks_within,
    max_silence,
    reply_within,
    turn_within,
)
from turnline.core.graph import round_robin
from turnline.core.state import WorkflowState
from turnline.errors import BadSpec, NotDue, UnknownName

from .scenes import NOON, Scene, acks, claims, closes, draft, hub, live, says, types, workflow, writes

TALK = round_robin(["alice", "bob"])


def talk(*expectations: Expectation, **given: Any) -> Scene[WorkflowState]:
    return workflow(TALK, "alice", "bob", expectations=list(expectations), **given)


def by_default() -> Scene[WorkflowState]:
    return workflow(TALK, "alice", "bob")


def seconds(due: Sequence[Deadline]) -> list[float]:
    """How long after noon each falls due."""
    return [(deadline.at - NOON).total_seconds() for deadline in due]


def told(deadline: Deadline) -> tuple[str, str, float]:
    data = deadline.event_data
    return data["name"], data["handler"], data["seconds"]


# --- the defaults ---


def test_w11_a_workflow_warns_after_two_minutes_and_closes_after_ten() -> None:
    due = by_default().due()

    assert [told(one) for one in due] == [("turn_within", "warn", 120), ("turn_within", "auto_close", 600)]
    assert seconds(due) == [120, 600]


def test_w11_a_warning_is_one_line_and_the_channel_goes_on() -> None:
    scene = by_default()
    scene.wait(120)

    appended = scene.fire(scene.due()[0])

    assert types(appended) == [ev.EV_EXPECTATION_VIOLATED]
    assert scene.state.expected_next_speaker == "alice"
    assert scene.accept(says("alice"))


def test_w11_a_warning_is_told_once_per_floor() -> None:
    scene = by_default()
    warning, closing = scene.due()

    scene.fire(warning)

    assert scene.due() == [closing]
    scene.refusal(hub(warning.event_type, warning.event_data), NotDue)


def test_w11_auto_close_closes_with_the_name_of_the_expectation_in_one_append() -> None:
    scene = by_default()
    warning, closing = scene.due()
    scene.fire(warning)

    appended = scene.fire(closing)

    assert types(appended) == [ev.EV_EXPECTATION_VIOLATED, ev.EV_CHANNEL_CLOSED]
    assert appended[-1].event_data["reason"] == "expectation_violated:turn_within"
    assert scene.state.pending_close_reason == "expectation_violated:turn_within"
    assert scene.due() == []


def test_w11_the_deadline_starts_anew_when_the_floor_moves() -> None:
    scene = by_default()
    scene.fire(scene.due()[0])
    scene.wait(100)

    scene.accept(says("alice"))

    assert seconds(scene.due()) == [220, 700]


def test_w11_the_same_speaker_asked_again_has_a_deadline_of_its_own() -> None:
    scene = workflow(round_robin(["alice"]), "alice", "bob")
    first = scene.due()[0]
    scene.wait(50)

    scene.accept(says("alice"))

    assert seconds(scene.due()) == [170, 650]
    scene.refusal(hub(first.event_type, first.event_data), NotDue)


@pytest.mark.parametrize("draft", [writes("bob", set={"n": 1}), says("bob", interject=True), claims("alice")])
def test_w11_nothing_but_a_turn_moves_the_deadline(draft: Any) -> None:
    """Measured from the moment the floor was given: neither a context write nor a claim buys time."""
    scene = by_default()
    scene.wait(60)

    scene.accept(draft)

    assert seconds(scene.due()) == [120, 600]


def test_w11_a_timer_of_a_floor_that_has_moved_is_refused() -> None:
    scene = by_default()
    stale = scene.due()[1]
    scene.accept(says("alice"))

    refused = scene.refusal(hub(stale.event_type, stale.event_data), NotDue)

    assert refused.timer == "turn_within"


@pytest.mark.parametrize(
    "data", [{}, {"name": "unheard of", "since": 2}, {"name": "turn_within", "since": "x"}]
)
def test_w11_a_timer_that_speaks_of_nothing_is_refused(data: dict[str, Any]) -> None:
    by_default().refusal(hub(ev.EV_EXPECTATION_VIOLATED, data), NotDue)


def test_w11_an_empty_list_expects_nothing() -> None:
    assert talk().due() == []


def test_w11_two_expectations_of_one_name_are_told_apart() -> None:
    scene = talk(turn_within(10), turn_within(20))

    scene.fire(scene.due()[0])

    assert [one.event_data["seconds"] for one in scene.due()] == [20]


# --- the other expectations ---


def test_w11_reply_within_expects_nothing_before_the_first_turn() -> None:
    scene = talk(reply_within(30))
    assert scene.due() == []
    scene.wait(10)

    scene.accept(says("alice"))

    assert seconds(scene.due()) == [40]


def test_w11_max_silence_is_broken_by_anything_said() -> None:
    scene = talk(max_silence(30))
    assert seconds(scene.due()) == [30]
    scene.wait(10)

    scene.accept(says("bob", interject=True))
    assert seconds(scene.due()) == [40]

    scene.wait(10)
    scene.accept(writes("bob", set={"n": 1}))
    assert seconds(scene.due()) == [40]


def test_w11_acks_within_is_about_invitations() -> None:
    scene = talk(acks_within(5, "auto_close"), invited=["bob"])
    assert seconds(scene.due())[0] == 5

    appended = scene.fire(scene.due()[0])

    assert appended[-1].event_data["reason"] == "expectation_violated:acks_within"


def test_w11_acks_within_is_over_once_the_channel_is_open() -> None:
    scene = talk(acks_within(5), invited=["bob"])
    stale = scene.due()[0]

    scene.accept(acks("bob"))

    assert scene.due() == []
    scene.refusal(hub(stale.event_type, stale.event_data), NotDue)


def test_w11_turn_within_waits_for_the_channel_to_open() -> None:
    scene = talk(turn_within(5), invited=["bob"])
    assert [one.event_type for one in scene.due()] == [ev.EV_CHANNEL_CLOSED]
    scene.wait(20)

    scene.accept(acks("bob"))

    assert seconds(scene.due()) == [25]


# --- errors at open ---


@pytest.mark.parametrize(
    ("expectation", "known"),
    [
        (Expectation("turn_wihtin", 5), ("acks_within", "max_silence", "reply_within", "turn_within")),
        (Expectation("turn_within", 5, "explode"), ("auto_close", "warn")),
    ],
)
def test_w11_an_unknown_name_is_an_error_at_open_that_lists_the_known(
    expectation: Expectation, known: tuple[str, ...]
) -> None:
    with pytest.raises(UnknownName) as unknown:
        talk(expectation)

    assert unknown.value.known == known


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e12, "5", None, True])
def test_w11_an_impossible_time_is_an_error_at_open(value: Any) -> None:
    """A time that no deadline can be computed from would stop every timer of the hub."""
    with pytest.raises(BadSpec, match=r"turn_within\.seconds"):
        talk(turn_within(value))
    with pytest.raises(BadSpec, match="ack_timeout"):
        talk(ack_timeout_seconds=value)
    if value is not None:
        with pytest.raises(BadSpec, match="ttl"):
            talk(ttl_seconds=value)


# --- outages ---


def test_r8_after_an_outage_deadlines_start_anew() -> None:
    """Nothing expires because of the outage: measured from when the hub began to serve."""
    awake_since = NOON + timedelta(hours=3)

    assert seconds(by_default().due(awake_since)) == [3 * 3600 + 120, 3 * 3600 + 600]


def test_r8_a_floor_given_since_then_is_measured_from_itself() -> None:
    scene = by_default()
    scene.wait(500)
    scene.accept(says("alice"))

    assert seconds(scene.due(NOON + timedelta(seconds=400))) == [620, 1100]


def test_l4_a_ttl_is_measured_from_the_opening() -> None:
    scene = talk(ttl_seconds=90)
    scene.wait(30)
    scene.accept(says("alice"))

    assert seconds(scene.due()) == [90]


@pytest.mark.parametrize(
    ("awake_after", "expected"),
    [(10, 600), (539, 600), (541, 601), (600, 660), (7200, 7260)],
)
def test_r8_no_ttl_fires_before_its_participants_had_a_minute(awake_after: float, expected: float) -> None:
    scene = talk(ttl_seconds=600)

    assert seconds(scene.due(NOON + timedelta(seconds=awake_after))) == [expected]


def test_r8_a_short_ttl_is_not_prolonged_without_an_outage() -> None:
    assert seconds(talk(ttl_seconds=5).due()) == [5]


def test_l4_a_ttl_closes_with_ttl_expired_in_one_append() -> None:
    scene = talk(ttl_seconds=5)

    appended = scene.fire(scene.due()[0])

    assert types(appended) == [ev.EV_CHANNEL_EXPIRED, ev.EV_CHANNEL_CLOSED]
    assert scene.state.status == "expired"
    assert scene.state.pending_close_reason == "ttl_expired"


# --- invitations ---


def test_l1_the_ack_timeout_is_thirty_seconds() -> None:
    scene = talk(invited=["bob"])

    assert seconds(scene.due()) == [30]
    assert seconds(scene.due(NOON + timedelta(hours=1))) == [3630]


def test_l1_the_ack_timeout_closes_and_says_who_was_awaited() -> None:
    scene = talk(invited=["bob"], ack_timeout_seconds=7)
    assert seconds(scene.due()) == [7]

    appended = scene.fire(scene.due()[0])

    assert types(appended) == [ev.EV_CHANNEL_CLOSED]
    assert appended[0].event_data == {"reason": "invite_timeout", "awaiting": ["bob"]}


def test_l1_an_ack_timeout_after_the_last_ack_is_refused() -> None:
    scene = talk(invited=["bob"])
    late = scene.due()[0]
    scene.accept(acks("bob"))

    assert scene.refusal(hub(late.event_type, late.event_data), NotDue).timer == "invite_timeout"


def test_what_falls_due_is_listed_soonest_first() -> None:
    scene = talk(turn_within(50), max_silence(20), ttl_seconds=30)

    assert seconds(scene.due()) == [20, 30, 50]


def test_nothing_falls_due_on_a_channel_that_is_over() -> None:
    scene = talk(turn_within(50), ttl_seconds=30)
    scene.accept(closes())

    assert scene.due() == []


def test_nothing_falls_due_before_the_first_line() -> None:
    scene = talk(turn_within(50), ttl_seconds=30)

    assert scene.adapter.due(scene.adapter.initial(scene.spec), NOON) == []


# --- N1a: the defaults rest while people are waited for ---

ANN = Participant("ann", "ann", "human")
REQUEST = {"request_id": "a" * 32, "question": "sure?", "turn": 1, "call": "1.1", "position": 1}


def with_a_person(*expectations: Expectation) -> Scene[WorkflowState]:
    given: dict[str, Any] = {"expectations": list(expectations)} if expectations else {}
    return workflow(round_robin(["bob", "ann"]), "bob", ANN, **given)


def asked(*expectations: Expectation) -> Scene[WorkflowState]:
    """Bob's turn has asked ann something."""
    scene = with_a_person(*expectations)
    scene.accept(claims("bob"))
    question = draft("bob", ev.EV_HUMAN_REQUESTED, REQUEST, audience=["ann"], claim=live(scene))
    scene.accept(question)
    return scene


def answer() -> Draft:
    return draft("ann", ev.EV_HUMAN_ANSWERED, {"request_id": "a" * 32, "answer": "yes"})


def test_n1a_the_defaults_rest_while_a_person_has_the_floor() -> None:
    scene = with_a_person()
    assert len(scene.due()) == 2
    scene.accept(says("bob"))

    assert scene.due() == []


def test_n1a_the_defaults_rest_while_a_person_is_asked() -> None:
    scene = asked()

    assert scene.due() == []


def test_n1a_a_default_that_fell_due_before_the_question_closes_nothing_after_it() -> None:
    scene = with_a_person()
    closing = scene.due()[-1]
    scene.accept(claims("bob"))
    scene.accept(draft("bob", ev.EV_HUMAN_REQUESTED, REQUEST, audience=["ann"], claim=live(scene)))

    scene.refusal(hub(closing.event_type, closing.event_data), NotDue)


def test_n1a_after_the_answer_the_defaults_are_measured_from_it() -> None:
    scene = asked()
    scene.wait(3600)
    scene.accept(answer())

    assert seconds(scene.due()) == [3720, 4200]
    assert {one.line for one in scene.due()} == {scene.state.seq}


def test_n1a_expectations_that_the_user_wrote_run_on() -> None:
    waiting, of_ann = asked(turn_within(60)), with_a_person(turn_within(60))
    of_ann.accept(says("bob"))

    assert seconds(waiting.due()) == seconds(of_ann.due()) == [60]
    waiting.wait(30)
    waiting.accept(answer())
    assert seconds(waiting.due()) == [60]
