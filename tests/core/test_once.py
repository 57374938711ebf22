"""N4: the results of `once` are lines of the turn, and survive what the turn survives."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.channel import Participant
from turnline.core.claims import MAX_ONCE_UNITS
from turnline.core.envelope import Draft
from turnline.core.graph import round_robin
from turnline.core.state import WorkflowState, metadata_of
from turnline.core.undo import ONCE_MARK
from turnline.errors import BadDraft, ClaimLost

from .scenes import Scene, claims, draft, fails, hub, live, packs, types, workflow, writes

KEY = "charge"


def begun(*members: str | Participant) -> Scene[WorkflowState]:
    names = members or ("alice", "bob")
    scene = workflow(round_robin(["alice", "bob"]), *names, knobs={"context_vars": {"n": 0}})
    scene.accept(claims("alice"))
    return scene


def records(scene: Scene[WorkflowState], key: Any = KEY, **more: Any) -> Draft:
    data = {"key": key, "result": 1, **more}
    return hub(ev.EV_TURN_ONCE, data, claim=live(scene), audience=[])


def inside(scene: Scene[WorkflowState], key: str, *, call: str = "", **parts: Any) -> Draft:
    """A context write in the function of a `once`."""
    tag = f"{call}{ONCE_MARK}{key}"
    return draft("alice", ev.EV_CONTEXT_SET, parts, audience=[], claim=live(scene), call=tag)


def pauses(scene: Scene[WorkflowState], reason: str) -> Draft:
    data = {"agent_id": "alice", "turn": 1, "reason": reason, "seconds": 0}
    return hub(ev.EV_TURN_PAUSED, data, claim=live(scene), audience=[])


def claim_again(scene: Scene[WorkflowState]) -> dict[str, Any]:
    replaces = {} if scene.state.claim is None else {"replaces": live(scene)}
    scene.accept(claims("alice", "w2", **replaces))
    return scene.state.context_vars


def fork(scene: Scene[WorkflowState]) -> None:
    scene.accept(hub(ev.EV_CHANNEL_FORKED, {"by": "operator", "forked_from": {"channel": "c0", "seq": 1}}))


# --- who may write it, and what ---


def test_a_result_of_once_is_recorded_under_the_live_claim_only() -> None:
    scene = begun()
    lost = records(scene)
    scene.accept(claims("alice", "w2", replaces=live(scene)))

    scene.refusal(lost, ClaimLost)
    scene.refusal(hub(ev.EV_TURN_ONCE, {"key": KEY, "result": 1}), ClaimLost)
    assert types(scene.accept(records(scene))) == [ev.EV_TURN_ONCE]


def test_only_the_participant_whose_claim_it_is_records_a_result() -> None:
    scene = begun()
    data = {"key": KEY, "result": 1}

    refused = scene.refusal(hub(ev.EV_TURN_ONCE, data, claim=live(scene), claimant="bob"), ClaimLost)

    assert refused.live is None
    scene.accept(hub(ev.EV_TURN_ONCE, data, claim=live(scene), claimant="alice"))


@pytest.mark.parametrize("key", ["", "x" * (ev.MAX_NAME_CHARACTERS + 1), "two\nlines", 7, None])
def test_a_key_is_printable_text_up_to_a_limit(key: object) -> None:
    scene = begun()

    assert scene.refusal(records(scene, key), BadDraft).field == "event_data.key"
    scene.accept(records(scene, "x" * ev.MAX_NAME_CHARACTERS))


def test_a_record_without_a_result_is_refused_and_null_is_a_result() -> None:
    scene = begun()

    missing = hub(ev.EV_TURN_ONCE, {"key": KEY}, claim=live(scene))
    assert scene.refusal(missing, BadDraft).field == "event_data.result"
    scene.accept(records(scene, result=None))


def test_a_turn_records_so_many_results_and_the_next_turn_as_many_again() -> None:
    scene = begun()
    for number in range(MAX_ONCE_UNITS):
        scene.accept(records(scene, f"k{number}"))

    assert str(MAX_ONCE_UNITS) in scene.refusal(records(scene, "more"), BadDraft).expected
    scene.accept(packs("alice", claim=live(scene)), claims("bob"))
    scene.accept(records(scene, "more"))
    assert scene.state.once_units == 1


# --- it is progress (N3) ---


def test_a_result_resets_the_count_of_unexplained_claims() -> None:
    scene = begun()
    for worker in ("w2", "w3", "w4"):
        scene.accept(claims("alice", worker, replaces=live(scene)))
    assert scene.state.unexplained > 1

    scene.accept(records(scene))

    assert scene.state.unexplained == 0
    assert scene.state.alive_seq == scene.state.seq


def test_a_result_moves_neither_the_floor_nor_the_turn_count() -> None:
    scene = begun()
    before = metadata_of(scene.state)

    scene.accept(records(scene))

    after = metadata_of(scene.state)
    assert (after.speaker_id, after.turn_count) == (before.speaker_id, before.turn_count)


# --- context variables (T3, T5) ---


def test_what_the_function_wrote_stays_and_what_the_turn_wrote_around_it_is_written_again() -> None:
    scene = begun()
    scene.accept(writes("alice", claim=live(scene), increment={"n": 100}))
    scene.accept(inside(scene, KEY, increment={"n": 1}), records(scene))
    scene.accept(writes("alice", claim=live(scene), increment={"n": 100}))

    assert scene.state.context_vars == {"n": 201}
    assert claim_again(scene) == {"n": 1}
    assert scene.replayed() == scene.state


def test_of_two_functions_at_once_the_one_without_a_result_is_undone() -> None:
    scene = begun()
    scene.accept(inside(scene, "slow", increment={"n": 10}), inside(scene, "fast", increment={"n": 1}))
    scene.accept(records(scene, "fast"))

    assert claim_again(scene) == {"n": 1}


def test_the_result_of_a_tool_keeps_what_a_function_without_a_result_wrote_in_its_call() -> None:
    """The function raised, the tool caught it and answered: neither runs again."""
    scene = begun()
    scene.accept(inside(scene, "1.1/charge", call="c1", increment={"n": 1}))
    scene.accept(hub(ev.EV_TURN_TOOL, {"entry": {"call_id": "c1"}}, claim=live(scene), audience=[]))

    assert claim_again(scene) == {"n": 1}


def test_a_failed_attempt_of_a_tool_keeps_what_was_written_with_a_result() -> None:
    scene = begun()
    scene.accept(inside(scene, "1.1/charge", call="c1", increment={"n": 1}))
    scene.accept(records(scene, "1.1/charge", call="c1"))
    scene.accept(
        draft("alice", ev.EV_CONTEXT_SET, {"increment": {"n": 10}}, audience=[], claim=live(scene), call="c1")
    )
    entry = {"call_id": "c1", "type": "attempt"}
    scene.accept(hub(ev.EV_TURN_TOOL, {"entry": entry}, claim=live(scene), audience=[]))

    assert scene.state.context_vars == {"n": 1}


def test_a_turn_that_is_given_up_leaves_nothing_of_its_functions() -> None:
    scene = begun()
    scene.accept(inside(scene, KEY, increment={"n": 1}), records(scene), writes("bob", increment={"n": 5}))
    scene.accept(fails("alice", claim=live(scene)))

    assert scene.state.context_vars == {"n": 5}
    assert scene.state.once_units == 0


@pytest.mark.parametrize("reason", ["retry", "time"])
def test_a_pause_keeps_what_was_written_with_a_result(reason: str) -> None:
    scene = begun()
    scene.accept(inside(scene, KEY, increment={"n": 1}), records(scene))
    scene.accept(writes("alice", claim=live(scene), increment={"n": 100}), pauses(scene, reason))

    assert scene.state.context_vars == {"n": 1}
    assert scene.state.once_units == 1
    scene.accept(hub(ev.EV_TIMER_FIRED, {"pause": scene.state.seq}))
    scene.accept(claims("alice"))
    scene.accept(fails("alice", claim=live(scene)))
    assert scene.state.context_vars == {"n": 0}


def test_a_retry_undoes_what_a_recorded_tool_wrote() -> None:
    scene = begun()
    scene.accept(writes("alice", claim=live(scene), increment={"n": 100}))
    scene.accept(hub(ev.EV_TURN_MODEL, {"entry": {}}, claim=live(scene), audience=[]))
    scene.accept(inside(scene, KEY, increment={"n": 1}), records(scene), pauses(scene, "retry"))

    assert scene.state.context_vars == {"n": 1}


# --- forks ---


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_fork_of_a_step_with_results_begins_where_the_turn_began(is_paused: bool) -> None:
    step = Participant("alice", "alice", played_by="player")
    scene = begun(Participant("player", "player"), step, "bob")
    began = scene.state.floor_seq
    scene.accept(inside(scene, KEY, increment={"n": 1}), records(scene))
    scene.accept(*([pauses(scene, "time")] if is_paused else []))

    fork(scene)

    assert (scene.state.floor_seq, scene.state.floor_line) == (began, scene.state.seq)
    assert (scene.state.claim, scene.state.pause, scene.state.once_units) == (None, None, 1)
    assert scene.state.context_vars == {"n": 1}


def test_a_fork_of_a_step_without_results_begins_with_the_fork() -> None:
    step = Participant("alice", "alice", played_by="player")
    scene = begun(Participant("player", "player"), step, "bob")

    fork(scene)

    assert scene.state.floor_seq == scene.state.seq


def test_a_fork_of_an_agents_turn_keeps_its_results() -> None:
    scene = begun()
    scene.accept(inside(scene, KEY, increment={"n": 1}), records(scene))

    fork(scene)

    assert scene.state.once_units == 1
    assert claim_again(scene) == {"n": 1}
