"""What one draft brings about: ids, places and times of its envelopes."""

from __future__ import annotations

from datetime import timedelta

from turnline.core.graph import sequence
from turnline.core.state import WorkflowState

from .scenes import NOON, Scene, fails, says, workflow


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


def test_f7_created_at_is_when_it_was_accepted() -> None:
    scene = talk()
    scene.wait(5)

    assert scene.accept(says("alice"))[0].created_at == NOON + timedelta(seconds=5)


def test_f7_created_at_never_runs_backwards() -> None:
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
