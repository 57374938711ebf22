"""T1, T2, T5, T6: who works on the current turn, and what is left when nobody does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.adapters import WorkflowAdapter
from turnline.core.channel import ChannelState, Participant
from turnline.core.claims import MAX_CLAIMS
from turnline.core.envelope import Basis, Draft, Speak
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.state import WorkflowState
from turnline.core.transitions import AgentTarget, StayTarget, TerminateTarget, TurnFailed
from turnline.errors import BadDraft, ClaimLost, NotDue, OutOfTurn, TurnTaken

from .scenes import (
    NOON,
    Scene,
    claims,
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

TURNS = sequence(["alice", "bob"])
RETRIES = TransitionGraph("alice", [Transition(TurnFailed(), AgentTarget("bob"))], TerminateTarget("over"))


def claimed(graph: TransitionGraph = TURNS, **variables: Any) -> Scene[WorkflowState]:
    """A channel on which worker w1 works on alice's turn."""
    scene = workflow(graph, "alice", "bob", knobs={"context_vars": variables})
    scene.accept(claims("alice", "w1"))
    return scene


def releases(scene: Scene[WorkflowState]) -> Draft:
    return hub(ev.EV_TURN_RELEASED, {"agent_id": "alice"}, claim=live(scene))


# --- T1: one claim wins ---


@pytest.mark.parametrize(
    "event_type", [ev.EV_TURN_MODEL, ev.EV_TURN_TOOL, ev.EV_TURN_RELEASED, ev.EV_TURN_RENEWED]
)
def test_t1_a_participant_writes_nothing_under_the_claim_of_another(event_type: str) -> None:
    scene = claimed()

    assert scene.refusal(hub(event_type, claim=live(scene), claimant="bob"), ClaimLost).live is None
    scene.accept(hub(event_type, claim=live(scene), claimant="alice"))


def test_t1_a_member_does_not_write_context_under_the_claim_of_another() -> None:
    scene = claimed()

    scene.refusal(writes("bob", set={"a": 1}, claim=live(scene)), ClaimLost)
    scene.accept(writes("bob", set={"a": 1}), writes("alice", set={"b": 1}, claim=live(scene)))


def test_t2_a_participant_records_no_summary_for_another() -> None:
    scene = claimed()
    planted = hub(ev.EV_TURN_MODEL, {"summary": {"agent_id": "bob", "text": "pay"}}, claim=live(scene))

    assert "summary" in scene.refusal(planted, BadDraft).field
    scene.accept(hub(ev.EV_TURN_MODEL, {"summary": {"agent_id": "alice"}}, claim=live(scene)))


def test_t1_a_claim_is_a_line_that_names_its_worker() -> None:
    scene = claimed()

    assert scene.log[-1].event_type == ev.EV_TURN_CLAIMED
    assert scene.state.claim is not None
    assert (scene.state.claim.worker, scene.state.claim.agent_id, scene.state.claim.lease_seconds) == (
        "w1",
        "alice",
        30,
    )
    assert scene.state.claim.seq == scene.log[-1].seq


def test_t1_a_claim_moves_neither_the_floor_nor_the_count() -> None:
    state = claimed().state

    assert (state.expected_next_speaker, state.turn_count) == ("alice", 0)


def test_t1_a_second_claim_is_refused_and_told_who_has_it() -> None:
    refused = claimed().refusal(claims("alice", "w2"), TurnTaken)

    assert (refused.worker, refused.turn) == ("w1", 1)


def test_t1_only_the_speakers_turn_can_be_claimed() -> None:
    assert workflow(TURNS, "alice", "bob").refusal(claims("bob"), OutOfTurn).speaker == "alice"


def test_t1_a_claim_for_a_turn_that_is_over_is_refused() -> None:
    """A worker that was told of turn 1 and slept must not claim turn 2 of the same speaker."""
    scene = workflow(TransitionGraph("alice", [], StayTarget()), "alice", "bob")
    scene.accept(says("alice"))

    scene.refusal(claims("alice", turn=1), OutOfTurn)
    scene.accept(claims("alice", turn=2))


def test_t1_whoever_takes_over_says_which_claim_it_replaces() -> None:
    scene = claimed()
    first = live(scene)

    scene.accept(claims("alice", "w2", replaces=first))

    assert scene.state.claim is not None
    assert scene.state.claim.worker == "w2"
    scene.refusal(claims("alice", "w3", replaces=first), TurnTaken)


def renews(scene: Scene[WorkflowState], claim: int | None = None) -> Draft:
    return hub(ev.EV_TURN_RENEWED, audience=[], claim=claim or live(scene))


def test_t1_a_worker_that_has_been_heard_of_since_is_not_replaced() -> None:
    scene = claimed()
    first, heard = live(scene), scene.state.alive_seq

    scene.accept(renews(scene))

    scene.refusal(claims("alice", "w2", replaces=first, heard=heard), TurnTaken)
    scene.accept(claims("alice", "w2", replaces=first, heard=scene.state.alive_seq))
    scene.refusal(renews(scene, first), ClaimLost)


def test_t1_whatever_is_made_under_the_claim_is_a_sign_of_life_and_nothing_else_is() -> None:
    scene = claimed(n=1)
    for sign in (renews(scene), records(scene), writes("alice", claim=live(scene), set={"n": 2})):
        scene.accept(sign)
        assert scene.state.alive_seq == scene.state.seq

    for other in (writes("bob", set={"n": 3}), writes("alice", set={"n": 4}), draft("bob", "acme.note")):
        scene.accept(other)
        assert scene.state.alive_seq == scene.state.seq - 1
        scene.accept(renews(scene))


def test_t1_a_released_turn_is_anybodys_again() -> None:
    scene = claimed()

    scene.accept(releases(scene))

    assert scene.state.claim is None
    scene.accept(claims("alice", "w2"))


def test_t1_the_packet_ends_the_claim() -> None:
    scene = claimed()

    scene.accept(packs("alice", claim=live(scene)))

    assert (scene.state.claim, scene.state.claims) == (None, 0)


# --- T6: exactly one packet ---


def test_t6_while_a_claim_lives_only_its_packet_is_accepted() -> None:
    scene = claimed()

    refused = scene.refusal(packs("alice"), ClaimLost)

    assert (refused.claim, refused.live) == (None, live(scene))
    assert scene.accept(packs("alice", claim=live(scene)))


def test_t6_a_packet_that_names_a_lost_claim_is_refused() -> None:
    scene = claimed()
    lost = live(scene)
    scene.accept(claims("alice", "w2", replaces=lost))

    refused = scene.refusal(packs("alice", claim=lost), ClaimLost)

    assert (refused.claim, refused.live) == (lost, live(scene))


def test_t6_a_packet_for_a_turn_that_is_over_is_refused() -> None:
    scene = workflow(TransitionGraph("alice", [], StayTarget()), "alice", "bob")
    scene.accept(claims("alice", "w1"))
    slept = live(scene)
    scene.accept(claims("alice", "w2", replaces=slept))
    scene.accept(packs("alice", claim=live(scene)))

    assert scene.refusal(packs("alice", claim=slept), ClaimLost).live is None


def test_t6_what_a_replaced_worker_writes_is_refused() -> None:
    scene = claimed()
    lost = live(scene)
    scene.accept(claims("alice", "w2", replaces=lost))

    scene.refusal(writes("alice", claim=lost, set={"n": 1}), ClaimLost)
    scene.refusal(hub(ev.EV_TURN_TOOL, {"tool": "look_up"}, claim=lost), ClaimLost)
    scene.refusal(fails("alice", claim=lost), ClaimLost)
    scene.refusal(hub(ev.EV_TURN_RELEASED, claim=lost), ClaimLost)


# --- T2: the round is on the log ---


@pytest.mark.parametrize("event_type", [ev.EV_TURN_MODEL, ev.EV_TURN_TOOL])
def test_t2_what_a_round_records_changes_nothing_but_the_log(event_type: str) -> None:
    scene = claimed()
    before = scene.state

    appended = scene.accept(hub(event_type, {"call": 1}, audience=[], claim=live(scene)))

    assert types(appended) == [event_type]
    assert appended[0].audience == []
    assert scene.state.claim == before.claim
    assert (scene.state.turn_count, scene.state.context_vars) == (0, {})


def test_t2_a_record_is_made_under_a_claim() -> None:
    workflow(TURNS, "alice", "bob").refusal(hub(ev.EV_TURN_MODEL, {"call": 1}), ClaimLost)


def records(scene: Scene[WorkflowState]) -> Draft:
    return hub(ev.EV_TURN_TOOL, {"call": 1}, audience=[], claim=live(scene))


def test_t3_whoever_claims_anew_goes_on_after_the_last_recorded_entry() -> None:
    """What was written up to there stays; what came later is undone, for it will be written again."""
    scene = claimed(n=1)
    scene.accept(writes("alice", claim=live(scene), increment={"n": 1}))
    scene.accept(records(scene))
    scene.accept(writes("alice", claim=live(scene), increment={"n": 10}))

    scene.accept(claims("alice", "w2", replaces=live(scene)))

    assert scene.state.context_vars == {"n": 2}


def test_t3_a_released_turn_is_taken_up_at_the_same_place() -> None:
    scene = claimed(n=1)
    scene.accept(records(scene))
    scene.accept(writes("alice", claim=live(scene), increment={"n": 10}))
    scene.accept(releases(scene))

    scene.accept(claims("alice", "w2"))

    assert scene.state.context_vars == {"n": 1}


def test_t3_what_an_observer_wrote_stays_when_a_turn_is_taken_up() -> None:
    scene = claimed(n=1)
    scene.accept(writes("alice", claim=live(scene), increment={"n": 10}))
    scene.accept(writes("bob", increment={"n": 100}))

    scene.accept(claims("alice", "w2", replaces=live(scene)))

    assert scene.state.context_vars == {"n": 101}


def test_t5_giving_up_undoes_what_was_recorded_too() -> None:
    scene = claimed(n=1)
    scene.accept(writes("alice", claim=live(scene), increment={"n": 1}))
    scene.accept(records(scene))

    scene.accept(fails("alice", claim=live(scene)))

    assert scene.state.context_vars == {"n": 1}


# --- T5: a turn that is given up ---


def test_c3_a_write_made_in_a_turn_is_tagged_with_its_claim() -> None:
    scene = claimed()

    written = scene.accept(writes("alice", claim=live(scene), set={"n": 1}))

    assert scene.state.claim is not None
    assert written[0].causation_id == scene.state.claim.envelope_id


def test_c3_a_turns_writes_land_at_once_and_two_increments_make_two() -> None:
    scene = claimed(n=1)
    for expected in (2, 3):
        scene.accept(writes("alice", claim=live(scene), increment={"n": 1}))

        assert scene.state.context_vars == {"n": expected}


def test_t5_giving_up_undoes_exactly_what_was_written_under_the_claim() -> None:
    scene = claimed(n=1, kept="old")
    scene.accept(writes("alice", claim=live(scene), set={"mine": True, "kept": "new"}, delete=["n"]))
    scene.accept(writes("bob", set={"observed": True}))
    assert scene.state.context_vars == {"mine": True, "kept": "new", "observed": True}

    scene.accept(fails("alice", claim=live(scene)))

    assert scene.state.context_vars == {"n": 1, "kept": "old", "observed": True}


def test_t5_an_observers_increment_stays_and_the_turns_is_undone() -> None:
    scene = claimed(RETRIES, n=10)
    scene.accept(writes("alice", claim=live(scene), increment={"n": 5}))
    scene.accept(writes("bob", increment={"n": 1}))
    scene.accept(writes("alice", claim=live(scene), increment={"n": 5}))
    assert scene.state.context_vars == {"n": 21}

    scene.accept(fails("alice", claim=live(scene)))

    assert scene.state.context_vars == {"n": 11}


def test_t5_it_undoes_over_a_takeover_and_a_release() -> None:
    scene = claimed(n=1)
    scene.accept(writes("alice", claim=live(scene), set={"first": 1}))
    scene.accept(claims("alice", "w2", replaces=live(scene)))
    scene.accept(writes("alice", claim=live(scene), set={"second": 2}))
    scene.accept(releases(scene))
    scene.accept(writes("bob", set={"observed": True}))

    scene.accept(fails("alice"))

    assert scene.state.context_vars == {"n": 1, "observed": True}


def test_t5_it_undoes_a_write_that_names_a_cause_of_its_own() -> None:
    scene = claimed()
    scene.accept(
        draft(
            "alice", ev.EV_CONTEXT_SET, {"set": {"n": 1}}, claim=live(scene), causation_id="a-customers-call"
        )
    )

    scene.accept(fails("alice", claim=live(scene)))

    assert scene.state.context_vars == {}


def test_t5_the_packet_settles_what_was_written() -> None:
    """A later turn's failure does not reach back over the packet."""
    scene = claimed(RETRIES)
    scene.accept(writes("alice", claim=live(scene), set={"n": 1}))
    scene.accept(packs("alice", "handoff", claim=live(scene), target="bob", updates={"m": 2}))

    scene.accept(fails("bob"))

    assert scene.state.context_vars == {"n": 1, "m": 2}


def test_t5_failing_is_one_append_and_carries_the_error() -> None:
    scene = claimed(RETRIES)

    appended = scene.accept(fails("alice", claim=live(scene)))

    assert types(appended) == [ev.EV_TURN_ABANDONED, ev.EV_TURN_FAILED]
    assert appended[1].event_data == {
        "agent_id": "alice",
        "turn": 1,
        "error": {"type": "ModelError", "message": "overloaded"},
        "claims": 1,
    }
    assert scene.state.expected_next_speaker == "bob"
    assert (scene.state.last_speaker_id, scene.state.turn_count) == ("alice", 1)


def test_t5_without_a_rule_the_failure_and_the_close_are_one_append() -> None:
    scene = claimed()

    appended = scene.accept(fails("alice", claim=live(scene)))

    assert types(appended) == [ev.EV_TURN_ABANDONED, ev.EV_TURN_FAILED, ev.EV_CHANNEL_CLOSED]
    assert scene.state.pending_close_reason == "turn_failed"


def test_t5_only_the_speakers_turn_can_fail() -> None:
    workflow(TURNS, "alice", "bob").refusal(fails("bob"), OutOfTurn)


# --- N3: giving up counts only what the turn itself did ---


def die(scene: Scene[WorkflowState], times: int, **more: Any) -> None:
    """Let the worker of the live claim die, `times` times."""
    for number in range(times):
        scene.accept(claims("alice", f"again-{number}", replaces=live(scene), **more))


def suspect(graph: TransitionGraph = TURNS, **context: Any) -> Scene[WorkflowState]:
    """A turn whose live claim is the last that counts: the next one gives it up."""
    scene = claimed(graph, **context)
    die(scene, SUSPECT_CLAIMS - 1)
    die(scene, MAX_CLAIMS - SUSPECT_CLAIMS, alone=True)
    return scene


def test_n3_a_rule_for_failed_turns_takes_a_turn_that_killed_its_process_five_times() -> None:
    scene = claimed(RETRIES, n=1)
    scene.accept(writes("alice", claim=live(scene), set={"n": 2}))
    die(scene, SUSPECT_CLAIMS - 1)
    die(scene, MAX_CLAIMS - SUSPECT_CLAIMS, alone=True)

    appended = scene.accept(claims("alice", "sixth", replaces=live(scene)))

    assert types(appended) == [ev.EV_TURN_ABANDONED, ev.EV_TURN_FAILED]
    assert appended[1].event_data["error"]["type"] == "TooManyClaims"
    assert scene.state.context_vars == {"n": 1}
    assert (scene.state.expected_next_speaker, scene.state.claims) == ("bob", 0)


def test_n3_without_a_rule_the_turn_is_stuck_and_the_channel_stays_open() -> None:
    scene = suspect()

    appended = scene.accept(claims("alice", "sixth", replaces=live(scene)))

    assert types(appended) == [ev.EV_TURN_PAUSED]
    assert scene.state.is_stuck
    assert scene.state.status is ChannelState.ACTIVE
    assert scene.state.expected_next_speaker == "alice"
    assert scene.replayed() == scene.state


def test_n3_a_stuck_turn_is_claimed_by_nobody_and_ended_by_no_timer_or_answer() -> None:
    scene = suspect()
    scene.accept(claims("alice", "sixth", replaces=live(scene)))
    pause = {"pause": scene.state.seq}

    scene.refusal(claims("alice", "seventh"), NotDue)
    scene.refusal(hub(ev.EV_TIMER_FIRED, pause), NotDue)
    scene.refusal(hub(ev.EV_HUMAN_ANSWERED, pause), NotDue)


def test_n3_a_retry_gives_the_floor_again_and_forgets_the_deaths() -> None:
    scene = suspect()
    scene.accept(claims("alice", "sixth", replaces=live(scene)))

    [resumed] = scene.accept(hub(ev.EV_TURN_RESUMED, {"pause": scene.state.seq, "by": "operator"}))

    assert resumed.decision == Speak("alice", Basis(kind="retry"))
    assert (scene.state.pause, scene.state.unexplained) == (None, 0)
    scene.accept(claims("alice", "eighth"))
    scene.accept(packs("alice", claim=live(scene)))
    assert scene.state.expected_next_speaker == "bob"
    assert scene.replayed() == scene.state


def test_n3_a_stuck_turn_keeps_what_its_recorded_units_wrote() -> None:
    scene = claimed(n=0)
    scene.accept(writes("alice", claim=live(scene), set={"n": 1}), records(scene))
    scene.accept(writes("alice", claim=live(scene), set={"n": 2}))
    die(scene, SUSPECT_CLAIMS)
    die(scene, MAX_CLAIMS - SUSPECT_CLAIMS, alone=True)

    scene.accept(claims("alice", "last", replaces=live(scene)))

    assert scene.state.is_stuck
    assert scene.state.context_vars == {"n": 1}


def test_n3_claims_beside_other_turns_make_a_suspect_and_never_more() -> None:
    scene = claimed()

    die(scene, 100)

    assert scene.state.unexplained == SUSPECT_CLAIMS
    assert scene.state.claim is not None


def test_n3_a_claim_made_alone_counts_however_long_its_process_lived() -> None:
    """Otherwise a turn that kills its process after two minutes would kill every process, for ever."""
    scene = claimed()
    die(scene, SUSPECT_CLAIMS - 1)
    for _ in range(MAX_CLAIMS - SUSPECT_CLAIMS):
        die(scene, 1, alone=True)
        scene.wait(600)

    scene.accept(claims("alice", "last", replaces=live(scene)))

    assert scene.state.is_stuck


def test_n3_a_question_resets_the_count_and_no_claim_counts_while_it_is_open() -> None:
    person = Participant("ann", "ann", "human")
    scene = workflow(TURNS, person, "alice", "bob", expectations=[])
    scene.accept(claims("alice"))
    die(scene, 1)
    asked = {"request_id": "0" * 32, "question": "sure?", "turn": 1, "call": "1.1", "position": 1}
    scene.accept(draft("alice", ev.EV_HUMAN_REQUESTED, asked, audience=["ann"], claim=live(scene)))
    die(scene, 2 * MAX_CLAIMS)
    die(scene, 2 * MAX_CLAIMS, alone=True)
    assert (scene.state.unexplained, scene.state.is_stuck) == (0, False)

    scene.accept(draft("ann", ev.EV_HUMAN_ANSWERED, {"request_id": "0" * 32, "answer": "yes"}))
    die(scene, 2)

    assert scene.state.unexplained == 2
    assert scene.replayed() == scene.state


def test_n3_the_fifth_claim_may_still_deliver() -> None:
    scene = suspect()

    scene.accept(packs("alice", claim=live(scene)))

    assert scene.state.expected_next_speaker == "bob"


@pytest.mark.parametrize(
    "progress",
    [
        releases,
        records,
        lambda scene: hub(ev.EV_TURN_PAUSED, {"agent_id": "alice", "reason": "time"}, claim=live(scene)),
    ],
    ids=["release", "recorded unit", "pause"],
)
def test_n3_progress_resets_the_count(progress: Callable[[Scene[WorkflowState]], Draft]) -> None:
    scene = suspect()

    scene.accept(progress(scene))

    assert scene.state.unexplained == 0


def test_n3_released_claims_never_count() -> None:
    scene = claimed()
    for _ in range(100):
        scene.accept(releases(scene), claims("alice"))

    assert scene.state.unexplained == 1


def test_n3_no_expectation_closes_a_stuck_turn() -> None:
    scene = suspect()
    scene.accept(claims("alice", "sixth", replaces=live(scene)))

    due = WorkflowAdapter().due(scene.state, NOON)

    assert [one.event_type for one in due] == []
