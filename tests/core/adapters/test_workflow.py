"""W4, W5, W9, W11 and the knobs: the rules of a `workflow` channel, one per test. Nothing here awaits."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.adapters import WorkflowAdapter
from turnline.core.channel import Participant
from turnline.core.envelope import Speak
from turnline.core.graph import Transition, TransitionGraph, cost_of, round_robin, sequence
from turnline.core.state import WorkflowState
from turnline.core.transitions import (
    AgentTarget,
    ContextThreshold,
    FromSpeaker,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
)
from turnline.errors import BadDraft, BadGraph, BadSpec, NotYet, OutOfTurn

from ..scenes import Scene, claims, decided, hub, invited, live, packs, says, spec_of, types, workflow, writes

NED = Participant("ned", "ned", "human")


def spoken(scene: Scene[WorkflowState], most: int = 10) -> list[str]:
    """Let whoever has the floor speak until the channel closes; who spoke."""
    speakers: list[str] = []
    while (speaker := scene.state.expected_next_speaker) is not None and len(speakers) < most:
        scene.accept(says(speaker))
        speakers.append(speaker)
    return speakers


# --- W5: the factories ---


@pytest.mark.parametrize(
    "steps", [["alice", "bob", "carol"], ["alice", "bob", "alice"], ["bob", "bob"], ["alice"]]
)
def test_w5_a_sequence_visits_its_steps_and_ends_sequence_complete(steps: list[str]) -> None:
    scene = workflow(sequence(steps), "alice", "bob", "carol")

    assert spoken(scene) == steps
    assert scene.state.pending_close_reason == "sequence_complete"


def test_w5_a_round_robin_follows_its_own_order_until_max_turns() -> None:
    """Not the participants' order: the opener is first there, and may be anywhere here."""
    scene = workflow(
        round_robin(participants=["carol", "alice", "bob"], max_turns=5), "alice", "bob", "carol"
    )

    assert spoken(scene) == ["carol", "alice", "bob", "carol", "alice"]
    assert scene.state.pending_close_reason == "max_turns"


def test_w5_a_round_robin_may_leave_participants_out() -> None:
    scene = workflow(round_robin(["alice", "bob"], 4), "alice", "bob", "ned")

    assert spoken(scene) == ["alice", "bob", "alice", "bob"]


# --- W4: targets, on a channel ---


def test_w4_stay_gives_the_floor_to_the_same_speaker_again() -> None:
    """A floor of its own: a new line says so, hence whoever is told by lines is asked again."""
    scene = workflow(TransitionGraph("alice", [], StayTarget()), "alice", "bob")
    before = scene.state.floor_seq

    said = scene.accept(says("alice"))

    assert isinstance(decided(said), Speak)
    assert scene.state.expected_next_speaker == "alice"
    assert scene.state.floor_seq > before
    assert scene.state.turn_count == 1


def test_w4_revert_returns_to_the_opener_not_to_the_initial_speaker() -> None:
    graph = TransitionGraph(
        "bob", [Transition(FromSpeaker("bob"), RevertToInitiatorTarget())], TerminateTarget()
    )

    assert spoken(workflow(graph, "alice", "bob")) == ["bob", "alice"]


def test_w4_round_robin_without_a_list_follows_the_participants() -> None:
    graph = TransitionGraph("bob", [], RoundRobinTarget(), max_turns=4)

    assert spoken(workflow(graph, "alice", "bob", "carol")) == ["bob", "carol", "alice", "bob"]


def test_a_loop_ends_when_a_threshold_is_reached() -> None:
    graph = TransitionGraph(
        "alice", [Transition(ContextThreshold("score", 2), TerminateTarget("good enough"))], StayTarget()
    )
    scene = workflow(graph, "alice", "bob")

    for score in (0, 1, 2):
        scene.accept(packs("alice", updates={"score": score}))

    assert scene.state.pending_close_reason == "good enough"


def test_t4_an_empty_round_still_commits_and_the_graph_moves_on() -> None:
    scene = workflow(sequence(["alice", "bob"]), "alice", "bob")

    scene.accept(packs("alice", body=""))

    assert scene.state.expected_next_speaker == "bob"


# --- W9: out of turn ---


def talk() -> Scene[WorkflowState]:
    return workflow(round_robin(["alice", "bob"]), "alice", "bob", NED)


@pytest.mark.parametrize("draft", [says("bob"), packs("bob")])
def test_w9_an_agent_out_of_turn_is_refused_and_told_whose_turn_it_is(draft: Any) -> None:
    refused = talk().refusal(draft, OutOfTurn)

    assert (refused.sender, refused.speaker) == ("bob", "alice")


@pytest.mark.parametrize("kind", ["agent", "remote_agent", "step"])
def test_w9_only_a_person_interjects_without_saying_so(kind: str) -> None:
    scene = workflow(round_robin(["alice", "bob"]), "alice", "bob", Participant("ned", "ned", kind))

    scene.refusal(says("ned"), OutOfTurn)


@pytest.mark.parametrize("draft", [says("ned", "wait"), says("bob", "wait", interject=True)])
def test_w9_an_interjection_moves_neither_the_floor_nor_the_turn_count(draft: Any) -> None:
    scene = talk()
    before = scene.state

    said = scene.accept(draft)

    assert types(said) == [ev.EV_TEXT]
    assert said[0].decision is None
    assert scene.state.expected_next_speaker == "alice"
    assert (scene.state.turn_count, scene.state.floor_seq) == (0, before.floor_seq)
    assert scene.state.last_speaker_id is None


def test_w9_an_interjection_waits_while_a_claim_is_live() -> None:
    scene = talk()
    scene.accept(claims("alice"))

    for draft in (says("ned"), says("bob", interject=True)):
        assert scene.refusal(draft, NotYet).speaker == "alice"


def test_w9_it_is_accepted_after_the_packet_and_lands_behind_it() -> None:
    scene = talk()
    scene.accept(claims("alice"))
    scene.refusal(says("ned"), NotYet)
    scene.accept(packs("alice", claim=live(scene)))

    scene.accept(says("ned"))

    assert types(scene.log)[-2:] == [ev.EV_PACKET, ev.EV_TEXT]
    assert (scene.state.turn_count, scene.state.expected_next_speaker) == (1, "bob")


def test_w9_only_a_text_can_be_an_interjection() -> None:
    """A packet routes and writes; without the floor it would silently do neither."""
    scene = workflow(sequence(["alice", "bob"]), "alice", "bob", Participant("ned", "ned", "human"))

    assert scene.refusal(packs("ned"), BadDraft).field == "event_type"
    assert scene.refusal(replace(packs("bob"), interject=True), BadDraft).field == "event_type"


def test_w9_an_interjection_is_seen_by_those_it_addresses() -> None:
    assert talk().accept(says("ned", audience=["bob"]))[0].audience == ["bob"]


def test_w9_a_person_whose_turn_it_is_takes_the_turn() -> None:
    scene = workflow(sequence(["ned", "alice"]), NED, "alice")

    scene.accept(says("ned"))

    assert (scene.state.turn_count, scene.state.expected_next_speaker) == (1, "alice")


def test_w9_the_speaker_itself_may_interject() -> None:
    scene = talk()

    scene.accept(says("alice", "one moment", interject=True))

    assert (scene.state.turn_count, scene.state.expected_next_speaker) == (0, "alice")


def test_w9_context_is_written_out_of_turn_and_during_a_claim() -> None:
    scene = talk()
    scene.accept(claims("alice"), writes("bob", set={"n": 1}), writes("ned", set={"m": 2}))

    assert scene.state.context_vars == {"n": 1, "m": 2}


# --- errors at open ---

GRAPH = sequence(["alice", "bob"]).to_dict()


def opening(*names: str, **knobs: Any) -> None:
    invited(WorkflowAdapter(), *(names or ("alice", "bob")), knobs=knobs)


def test_an_unknown_knob_is_an_error_at_open_that_lists_the_known() -> None:
    with pytest.raises(BadSpec, match="grahp") as refused:
        opening(graph=GRAPH, grahp=GRAPH)

    assert str(refused.value) == (
        "knobs is an object with the unknown key grahp; expected only context_vars, flow, graph, max_turns, "
        "on_failure, view, views. The channel was not opened."
    )


def test_a_workflow_needs_a_graph() -> None:
    with pytest.raises(BadSpec, match="without"):
        opening()
    with pytest.raises(BadGraph):
        opening(graph={})
    with pytest.raises(BadGraph):
        opening(graph=None)


def test_a_workflow_needs_two_participants() -> None:
    with pytest.raises(BadSpec, match="1 participants"):
        opening("alice", graph=GRAPH)


def test_nothing_is_written_when_opening_fails() -> None:
    """The invitation itself is refused: there is no channel to clean up."""
    adapter = WorkflowAdapter()
    scene = Scene(adapter, spec_of(adapter, "alice", "bob"))

    scene.refusal(hub(ev.EV_CHANNEL_INVITE), BadSpec)


def test_the_graph_is_kept_as_it_was_given() -> None:
    scene = workflow(
        TransitionGraph("alice", [], AgentTarget("bob")),
        Participant("id-a", "alice"),
        Participant("id-b", "bob"),
    )

    assert scene.state.graph_data["default_target"]["args"] == {"agent_id": "bob"}


def test_opening_a_channel_reads_its_graph_once() -> None:
    """A large graph is read on the event loop: reading it twice doubles what other clients wait."""
    readings = Counter[str]()

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code is cost_of.__code__:
            readings.update(["graph"])

    graph = TransitionGraph("alice", [], AgentTarget("bob"), max_turns=4711)
    sys.setprofile(note)
    try:
        workflow(graph, "alice", "bob")
    finally:
        sys.setprofile(None)

    assert readings["graph"] == 1
