"""A fold applies what was decided and never raises (E2). A batch: ids, places and times of its envelopes."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.envelope import Basis, Close, Decision, JsonObject, Speak
from turnline.core.fold import fold
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.state import KEPT_SAID, State, WorkflowState
from turnline.core.transitions import AgentTarget, Always, StayTarget

from .customs import Breaks
from .scenes import NOON, Scene, claims, fails, line, live, packs, says, workflow, writes
from .strategies import json_values

EVENT_TYPES = [*sorted({value for name, value in vars(ev).items() if name.startswith("EV_")}), "acme.note"]
KEYS = [
    "agent_id", "append", "body", "context_deletes", "context_updates", "delete", "error", "expect",
    "expectation", "increment", "lease_seconds", "reason", "routing", "set", "since", "text", "turn",
    "worker",
]  # fmt: skip
DATA = st.dictionaries(
    st.sampled_from(KEYS) | st.text(max_size=3), json_values(st.floats() | st.just(10**400)), max_size=4
)
BY = Basis(kind="transition", index=0)
DECISIONS: st.SearchStrategy[Decision | None] = st.sampled_from(
    [None, Speak("bob", BY), Speak("zoe", Basis(kind="initial")), Close("over", BY)]
)


ODD: list[Any] = [
    None, True, -1, 10**400, float("nan"), "x", "5", [], [5], [[]], {}, {"n": "x"}, {"n": 10**400},
    {"tags": {}},
]  # fmt: skip


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_e2_fold_never_raises_whatever_one_value_is(event_type: str) -> None:
    state = State(participant_order=["alice", "bob"], context_vars={"n": 0.5, "tags": []})

    for key, value, decision in product(KEYS, ODD, (None, Speak("bob", BY))):
        assert fold(state, line("alice", event_type, {key: value}, decision=decision)).seq == 1


@given(st.lists(st.tuples(st.sampled_from(EVENT_TYPES), DATA, DECISIONS), max_size=4))
@settings(max_examples=50, deadline=None)
def test_e2_fold_never_raises_whatever_is_on_the_log(
    lines: list[tuple[str, JsonObject, Decision | None]],
) -> None:
    state = State(participant_order=["alice", "bob"], context_vars={"n": 1})

    for seq, (event_type, data, decision) in enumerate(lines, 1):
        state = fold(state, line("alice", event_type, data, seq=seq, decision=decision))

    assert state.seq == len(lines)


def test_a_fold_evaluates_no_condition() -> None:
    """A log written last year replays after its rules were rewritten, or broken."""
    scene = workflow(
        TransitionGraph("alice", [Transition(Always(), AgentTarget("bob"))], StayTarget()), "alice", "bob"
    )
    scene.accept(says("alice"))
    broken = TransitionGraph("alice", [Transition(Breaks(), AgentTarget("bob"))], StayTarget()).to_dict()
    scene.spec = replace(scene.spec, knobs={"graph": broken})

    assert scene.replayed().expected_next_speaker == "bob"


def test_e5_a_closed_channel_is_read_without_its_custom_classes() -> None:
    scene = workflow(sequence(["alice"]), "alice", "bob")
    scene.accept(says("alice"))
    unheard_of = {"when": {"name": "unregistered", "args": {}}, "then": {"name": "stay", "args": {}}}
    scene.spec = replace(scene.spec, knobs={"graph": scene.state.graph_data | {"transitions": [unheard_of]}})

    assert scene.replayed().pending_close_reason == "sequence_complete"


def test_a_line_with_a_decision_is_a_turn_without_one_it_is_not() -> None:
    state = State()

    assert fold(state, line("alice", decision=Speak("bob", BY))).turn_count == 1
    assert fold(state, line("alice")).turn_count == 0
    assert fold(state, line("alice", decision=Speak("bob", Basis(kind="initial")))).turn_count == 0


def test_a_turn_is_remembered_by_its_speaker_and_id() -> None:
    state = fold(State(), line("alice", decision=Speak("bob", BY), seq=7))

    assert (state.last_speaker_id, state.last_envelope_id, state.expected_next_speaker) == (
        "alice",
        "e7",
        "bob",
    )
    assert (state.floor_seq, state.spoken_seq) == (7, 7)


def test_an_interjection_is_remembered_as_said_only() -> None:
    state = fold(State(expected_next_speaker="bob", floor_seq=3, last_speaker_id="alice"), line("ned", seq=7))

    assert (state.spoken_seq, state.floor_seq) == (7, 3)
    assert (state.last_speaker_id, state.expected_next_speaker) == ("alice", "bob")


def test_c5_a_packets_context_updates_are_applied_with_the_turn() -> None:
    packet = line(
        "alice",
        ev.EV_PACKET,
        {"context_updates": {"n": 2, "gone": 5}, "context_deletes": ["gone", "old"]},
        decision=Speak("bob", BY),
    )

    state = fold(State(context_vars={"n": 1, "old": True, "gone": 1}), packet)

    assert state.context_vars == {"n": 2, "gone": 5}


@pytest.mark.parametrize("event_type", [ev.EV_TEXT, ev.EV_TURN_FAILED, "acme.note"])
def test_c5_only_a_packet_carries_context_updates(event_type: str) -> None:
    said = line("alice", event_type, {"context_updates": {"_n": 2}}, decision=Speak("bob", BY))

    assert fold(State(), said).context_vars == {}


def test_the_old_state_is_left_alone() -> None:
    scene = workflow(sequence(["alice", "bob"]), "alice", "bob", knobs={"context_vars": {"tags": ["new"]}})
    before = scene.state

    scene.accept(writes("bob", append={"tags": "eu"}, set={"n": 1}))

    assert before.context_vars == {"tags": ["new"]}


def test_a_states_size_does_not_follow_the_log() -> None:
    scene = workflow(TransitionGraph("alice", [], StayTarget()), "alice", "bob")
    scene.accept(*(says("alice") for _ in range(KEPT_SAID)))
    small = len(repr(scene.state))

    for _ in range(2 * KEPT_SAID):
        scene.accept(claims("alice"))
        scene.accept(packs("alice", claim=live(scene)))

    assert len(repr(scene.state)) < small + 3 * KEPT_SAID  # Only the numbers in it have grown longer.
    assert len(scene.state.said) == KEPT_SAID


def talk() -> Scene[WorkflowState]:
    return workflow(sequence(["alice", "bob"]), "alice", "bob")


def test_e1_the_drafts_own_line_has_the_drafts_id() -> None:
    assert talk().accept(says("alice", envelope_id="mine"))[0].envelope_id == "mine"


def test_e1_a_consequence_has_the_drafts_id_and_a_number() -> None:
    """Sending a draft again finds all of what it brought about."""
    appended = talk().accept(fails("alice"))

    first = appended[0].envelope_id
    assert [envelope.envelope_id for envelope in appended] == [first, f"{first}-1", f"{first}-2"]


def test_e1_seqs_are_gapless_from_one() -> None:
    scene = talk()
    scene.accept(says("alice"), says("bob"))

    assert [envelope.seq for envelope in scene.log] == [1, 2, 3, 4, 5]


def test_e1_what_the_sender_said_about_it_is_kept() -> None:
    said = talk().accept(
        says("alice", causation_id="cause", priority=-3, traceparent="00-ab-cd-01", audience=["bob"])
    )[0]

    assert (said.causation_id, said.priority, said.traceparent) == ("cause", -3, "00-ab-cd-01")
    assert said.audience == ["bob"]


def test_r7_created_at_is_when_it_was_accepted() -> None:
    scene = talk()
    scene.wait(5)

    assert scene.accept(says("alice"))[0].created_at == NOON + timedelta(seconds=5)


def test_r7_created_at_never_runs_backwards() -> None:
    """A clock that was set back must not make the log look out of order."""
    scene = talk()
    scene.wait(100)
    scene.accept(says("alice"))
    scene.wait(-3600)

    appended = scene.accept(says("bob"))

    assert {envelope.created_at for envelope in appended} == {NOON + timedelta(seconds=100)}
    assert scene.state.last_at == NOON + timedelta(seconds=100)


def test_deciding_changes_nothing() -> None:
    scene = talk()
    before = scene.state

    assert scene.decide(says("alice", envelope_id="same")) == scene.decide(says("alice", envelope_id="same"))
    assert scene.state is before
