"""F7: a turn that waits without anybody working on it, and what ends the wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.channel import Participant
from turnline.core.claims import MAX_PAUSES
from turnline.core.envelope import Draft
from turnline.core.graph import TransitionGraph
from turnline.core.json import moment_of, seconds_of
from turnline.core.state import WorkflowState
from turnline.core.transitions import TerminateTarget
from turnline.errors import BadDraft, ClaimLost, NotDue, TooManyPauses, UnknownQuestion

from .scenes import NOON, Scene, claims, draft, hub, live, packs, types, workflow, writes

SAVE = Participant("save", "save", "step", played_by="flows")
ONE_STEP = TransitionGraph("save", [], TerminateTarget("completed"))


def claimed(**given: Any) -> Scene[WorkflowState]:
    """A run whose step somebody works on."""
    scene = workflow(ONE_STEP, "flows", SAVE, expectations=[], **given)
    scene.accept(claims("save"))
    return scene


def pauses(scene: Scene[WorkflowState], reason: str = "time", **more: Any) -> Draft:
    return hub(ev.EV_TURN_PAUSED, {"agent_id": "save", "reason": reason, **more}, claim=live(scene))


def paused(reason: str = "time", *, seconds: float | None = 60, **more: Any) -> Scene[WorkflowState]:
    scene = claimed(**more)
    scene.accept(pauses(scene, reason, **({} if seconds is None else {"seconds": seconds})))
    return scene


def pause_of(scene: Scene[WorkflowState]) -> int:
    assert scene.state.pause is not None
    return scene.state.pause.seq


def ends(scene: Scene[WorkflowState], event_type: str = ev.EV_TURN_RESUMED, **more: Any) -> Draft:
    return hub(event_type, {"pause": pause_of(scene), **more})


def test_f7_a_pause_lets_go_of_the_claim_and_counts_the_attempts_anew() -> None:
    state = paused().state

    assert (state.claim, state.claims) == (None, 0)
    assert (state.expected_next_speaker, state.turn_count) == ("save", 0)


def test_f7_only_whoever_works_on_the_turn_can_pause_it() -> None:
    scene = workflow(ONE_STEP, "flows", SAVE)

    scene.refusal(hub(ev.EV_TURN_PAUSED, {"reason": "time"}), ClaimLost)
    scene.accept(claims("save"))
    scene.refusal(hub(ev.EV_TURN_PAUSED, {"reason": "time"}, claim=1), ClaimLost)


@pytest.mark.parametrize("until", ["tomorrow", "2030-01-01T12:00:00", 12, ["x"]])
def test_f7_a_pause_ends_at_a_time_with_its_offset_or_not_by_itself(until: object) -> None:
    scene = claimed()

    assert scene.refusal(pauses(scene, until=until), BadDraft).field == "event_data.until"
    assert moment_of(until) is None


def test_f7_nobody_works_on_a_turn_that_waits() -> None:
    scene = paused()

    scene.refusal(claims("save"), NotDue)
    scene.refusal(packs("save", "signal", signal="default"), NotDue)


@pytest.mark.parametrize("seconds", ["60", True, -1, 1e12, [60]])
def test_a_pause_lasts_a_number_of_seconds_or_does_not_end_by_itself(seconds: object) -> None:
    scene = claimed()

    assert scene.refusal(pauses(scene, seconds=seconds), BadDraft).field == "event_data.seconds"
    assert seconds_of(seconds) is None


def test_a_pause_of_some_seconds_is_counted_from_its_line_and_the_hub_says_when_they_have_passed() -> None:
    """Its clock may have been set meanwhile."""
    scene = paused(seconds=60)
    [deadline] = [one for one in scene.due() if one.event_type == ev.EV_TIMER_FIRED]

    assert (deadline.at, deadline.follows_wall) == (NOON + timedelta(seconds=60), False)
    assert deadline.line == pause_of(scene)
    scene.fire(deadline)
    assert scene.state.pause is None


def test_f7_a_pause_until_a_time_of_day_falls_due_then_and_not_before() -> None:
    scene = claimed()
    scene.accept(pauses(scene, until=(NOON + timedelta(seconds=60)).isoformat()))
    [deadline] = [one for one in scene.due() if one.event_type == ev.EV_TIMER_FIRED]

    assert (deadline.at, deadline.follows_wall) == (NOON + timedelta(seconds=60), True)
    scene.refusal(hub(deadline.event_type, deadline.event_data), NotDue)
    scene.wait(60)
    scene.fire(deadline)
    assert scene.state.pause is None
    assert scene.due() == []


def test_f7_a_pause_without_a_time_never_ends_by_itself() -> None:
    scene = paused("person", seconds=None)
    scene.wait(10**6)

    assert scene.due() == []
    scene.refusal(ends(scene, ev.EV_TIMER_FIRED), NotDue)


@pytest.mark.parametrize("event_type", [ev.EV_TURN_RESUMED, ev.EV_HUMAN_ANSWERED])
def test_f7_what_ends_a_pause_ends_it_once(event_type: str) -> None:
    scene = paused("person")
    answer = ends(scene, event_type, answer={"approved": True})

    scene.accept(answer)

    assert scene.state.pause is None
    scene.refusal(draft(ev.HUB, event_type, answer.event_data), NotDue)


def test_f7_an_answer_to_an_earlier_pause_does_not_end_a_later_one() -> None:
    scene = paused("person")
    late = ends(scene, ev.EV_HUMAN_ANSWERED, answer={})
    scene.accept(ends(scene), claims("save"))
    scene.accept(pauses(scene, "person"))

    scene.refusal(draft(ev.HUB, late.event_type, late.event_data), NotDue)


def test_f7_a_timer_that_comes_after_the_answer_is_refused() -> None:
    scene = paused("person", seconds=60)
    timer = ends(scene, ev.EV_TIMER_FIRED)
    scene.accept(ends(scene, ev.EV_HUMAN_ANSWERED, answer={}))
    scene.wait(60)

    scene.refusal(timer, NotDue)


def test_f7_an_answer_to_another_question_resumes_nothing() -> None:
    scene = paused("person")

    answer = {"request_id": "a" * 32, "answer": "yes", "by": "ann", "for": "ann"}
    scene.refusal(hub(ev.EV_HUMAN_ANSWERED, answer), UnknownQuestion)


def test_f7_after_a_pause_the_turn_is_anybodys_and_its_packet_moves_the_floor() -> None:
    scene = paused()
    scene.accept(ends(scene), claims("save", "w2"))
    scene.accept(packs("save", "signal", signal="default", claim=live(scene)))

    assert types(scene.log)[-2:] == [ev.EV_PACKET, ev.EV_CHANNEL_CLOSED]
    assert scene.replayed() == scene.state


def test_f7_what_a_paused_turn_wrote_into_the_context_is_undone() -> None:
    scene = claimed(knobs={"context_vars": {"kept": 1}})
    scene.accept(writes("save", set={"kept": 2}, claim=live(scene)), pauses(scene))

    assert scene.state.context_vars == {"kept": 1}


def test_f7_a_ttl_counts_the_time_a_run_works_not_the_time_it_waits() -> None:
    scene = paused("person", seconds=None, ttl_seconds=100)
    assert scene.due() == []

    scene.wait(1000)
    scene.accept(ends(scene))

    assert [one.at for one in scene.due()] == [NOON + timedelta(seconds=1100)]


def test_f7_whom_a_turn_waits_for_has_a_minute_after_an_outage() -> None:
    back = NOON + timedelta(days=2)

    assert paused("person", seconds=60).due(back)[0].at == back + timedelta(seconds=60)
    assert paused("retry", seconds=60).due(back)[0].at == NOON + timedelta(seconds=60)


def test_f2_a_step_keeps_private_keys_for_the_run_and_nobody_else_can() -> None:
    private = {"private_updates": {"_token": "t"}, "private_deletes": ["_old"]}
    scene = claimed(knobs={"flow": {"private": {"_old": 1, "_user_id": "ann"}}})

    scene.accept(draft("save", ev.EV_PACKET, private, claim=live(scene)))

    assert scene.state.private_vars == {"_token": "t", "_user_id": "ann"}
    assert scene.state.context_vars == {}
    assert scene.replayed() == scene.state

    other = workflow(TransitionGraph("flows", [], TerminateTarget("completed")), "flows", SAVE)
    assert "private_updates" in other.refusal(draft("flows", ev.EV_PACKET, private), BadDraft).found


@pytest.mark.parametrize(
    "data", [{"private_updates": {"open": 1}}, {"private_updates": ["_a"]}, {"private_deletes": ["a"]}]
)
def test_f2_a_private_key_has_an_underscore(data: dict[str, Any]) -> None:
    scene = claimed()

    assert "_" in scene.refusal(draft("save", ev.EV_PACKET, data, claim=live(scene)), BadDraft).expected


def test_a_turn_waits_for_no_more_children_than_were_opened_below_its_channel() -> None:
    """The hub looks at each of them: ten thousand invented ids would cost ten thousand reads."""
    scene = claimed()

    assert (
        scene.refusal(pauses(scene, "children", children=["c--1-0"]), BadDraft).field == "event_data.children"
    )


def test_a_worker_gives_only_the_reasons_of_a_turn_that_waits() -> None:
    """`stuck` is the hub's own: it lists the turn for an operator."""
    scene = claimed()

    assert scene.refusal(pauses(scene, "stuck"), BadDraft).field == "event_data.reason"


# --- pauses in a row ---


def pause_once(scene: Scene[WorkflowState]) -> None:
    scene.accept(pauses(scene, seconds=0))
    scene.accept(ends(scene, ev.EV_TIMER_FIRED))
    scene.accept(claims("save"))


def only_pausing() -> Scene[WorkflowState]:
    """A turn that has paused as often as it may, and has done nothing else."""
    scene = claimed()
    for _ in range(MAX_PAUSES):
        pause_once(scene)
    return scene


def test_a_turn_that_only_pauses_is_refused_one_pause_more() -> None:
    scene = only_pausing()

    assert "Pause for longer" in str(scene.refusal(pauses(scene, seconds=0), TooManyPauses))
    assert scene.replayed() == scene.state


def test_a_recorded_unit_and_each_channel_below_allow_further_pauses() -> None:
    scene = only_pausing()
    child = f"{scene.state.channel_id}--1-a"
    scene.accept(hub(ev.EV_CHANNEL_CHILD, {"child": child, "by": "flows"}))
    pause_once(scene)
    scene.refusal(pauses(scene, seconds=0), TooManyPauses)

    scene.accept(hub(ev.EV_TURN_ONCE, {"key": "poll", "result": 1}, claim=live(scene)))

    pause_once(scene)
    assert scene.state.pauses == 1
