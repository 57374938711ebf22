"""What a turn has written, and what of it stays (T3, T5), also when calls run at once."""

from __future__ import annotations

from typing import Any

from turnline.core import event_types as ev
from turnline.core.envelope import Draft
from turnline.core.graph import round_robin
from turnline.core.state import WorkflowState

from .scenes import Scene, claims, draft, fails, hub, live, packs, workflow, writes


def in_call(scene: Scene[WorkflowState], call: str, **parts: Any) -> Draft:
    """A context write that alice makes in one tool call of her turn."""
    return draft("alice", ev.EV_CONTEXT_SET, parts, audience=[], claim=live(scene), call=call)


def answers(scene: Scene[WorkflowState], call: str) -> Draft:
    """The result of a tool call is on the log."""
    return hub(ev.EV_TURN_TOOL, {"entry": {"call_id": call}}, claim=live(scene), audience=[])


def begun() -> Scene[WorkflowState]:
    scene = workflow(round_robin(["alice", "bob"]), "alice", "bob", knobs={"context_vars": {"n": 0}})
    scene.accept(claims("alice"))
    return scene


def claimed_anew(scene: Scene[WorkflowState]) -> dict[str, Any]:
    scene.accept(claims("alice", "w2", replaces=live(scene)))
    return scene.state.context_vars


def test_t3_a_recorded_call_keeps_its_writes_and_one_in_flight_does_not() -> None:
    """Both ran at once; the one in flight will run again, and write again."""
    scene = begun()
    scene.accept(in_call(scene, "slow", increment={"n": 1}), in_call(scene, "fast", increment={"n": 10}))
    scene.accept(answers(scene, "fast"))

    assert scene.state.context_vars == {"n": 11}
    assert claimed_anew(scene) == {"n": 10}


def test_t3_what_others_wrote_stays_in_its_place_among_the_turns_own() -> None:
    scene = begun()
    scene.accept(
        in_call(scene, "c1", set={"x": 1}), writes("bob", set={"x": 2}), in_call(scene, "c2", set={"y": 1})
    )
    scene.accept(answers(scene, "c1"))

    assert claimed_anew(scene) == {"n": 0, "x": 2}


def test_t3_a_call_that_runs_again_counts_once() -> None:
    scene = begun()
    scene.accept(in_call(scene, "c1", increment={"n": 1}))
    scene.accept(claims("alice", "w2", replaces=live(scene)))
    scene.accept(
        in_call(scene, "c1", increment={"n": 1}), answers(scene, "c1"), packs("alice", claim=live(scene))
    )

    assert scene.state.context_vars == {"n": 1}


def test_t5_a_turn_that_is_given_up_leaves_only_what_others_wrote() -> None:
    scene = begun()
    scene.accept(in_call(scene, "c1", increment={"n": 1}), writes("bob", increment={"n": 5}))
    scene.accept(answers(scene, "c1"), fails("alice", claim=live(scene)))

    assert scene.state.context_vars == {"n": 5}


def test_a_model_reply_on_the_log_keeps_everything_that_came_before_it() -> None:
    scene = begun()
    scene.accept(in_call(scene, "c1", set={"x": 1}))
    scene.accept(hub(ev.EV_TURN_MODEL, {"entry": {}}, claim=live(scene), audience=[]))

    assert claimed_anew(scene) == {"n": 0, "x": 1}


def test_writes_of_others_alone_are_not_kept_one_by_one() -> None:
    """However many there are: a state's size must not follow the log."""
    scene = begun()
    scene.accept(*(writes("bob", increment={"n": 1}) for _ in range(50)))

    assert scene.state.turn_writes == []
    assert claimed_anew(scene) == {"n": 50}


def test_what_was_undone_reads_back_the_same() -> None:
    scene = begun()
    scene.accept(in_call(scene, "c1", increment={"n": 1}), in_call(scene, "c2", increment={"n": 2}))
    scene.accept(answers(scene, "c2"), claims("alice", "w2", replaces=live(scene)))

    assert scene.replayed() == scene.state


def test_t5_an_observer_cannot_have_its_write_undone_by_naming_the_claim() -> None:
    """The tag that makes a write part of a turn is ours, whatever the sender says."""
    scene = begun()
    claim = scene.state.claim
    assert claim is not None
    for cause in (claim.envelope_id, f"{claim.envelope_id}/c1"):
        update = {"increment": {"n": 1}}
        scene.accept(draft("bob", ev.EV_CONTEXT_SET, update, audience=[], causation_id=cause))
    scene.accept(fails("alice", claim=live(scene)))

    assert scene.state.context_vars == {"n": 2}
