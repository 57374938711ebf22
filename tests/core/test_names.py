"""L2: wherever an agent is named, its id or its name will do; names are looked up when the channel opens."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.channel import Participant
from turnline.core.envelope import Speak
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.transitions import (
    AgentTarget,
    AllOf,
    Always,
    Condition,
    FromSpeaker,
    Not,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    TransitionTarget,
    TurnFailed,
)
from turnline.errors import BadGraph, UnknownParticipant

from .customs import Both
from .scenes import basis, decided, packs, says, workflow

BOB, OVER = AgentTarget("bob"), TerminateTarget("over")


def graph(*transitions: Transition, default: TransitionTarget = OVER) -> TransitionGraph:
    return TransitionGraph("alice", transitions, default)


NAMED = (Participant("id-a", "alice"), Participant("id-b", "bob"), Participant("id-c", "carol"))


@pytest.mark.parametrize(
    ("when", "then", "speaker"),
    [
        (FromSpeaker("alice"), BOB, "id-b"),
        (AllOf(Not(FromSpeaker("bob")), FromSpeaker("alice")), BOB, "id-b"),
        (Both([FromSpeaker("alice"), Both([FromSpeaker("id-a")])]), BOB, "id-b"),
        (Always(), AgentTarget("id-c"), "id-c"),
        (Always(), RoundRobinTarget(["carol", "alice", "id-b"]), "id-b"),
        (Always(), RevertToInitiatorTarget(), "id-a"),
        (Always(), StayTarget(), "id-a"),
    ],
)
def test_l2_a_graph_written_with_names_works_on_ids(
    when: Condition, then: TransitionTarget, speaker: str
) -> None:
    talk = workflow(graph(Transition(when, then)), *NAMED)

    said = talk.accept(says("id-a"))

    assert decided(said) == Speak(speaker, basis(said))
    assert basis(said).kind == "transition"


def test_l2_the_initial_speaker_and_a_handoff_may_be_named() -> None:
    talk = workflow(graph(), *NAMED)

    talk.accept(packs("id-a", "handoff", target="carol"))

    assert talk.state.expected_next_speaker == "id-c"


@pytest.mark.parametrize(
    "written",
    [
        TransitionGraph("zoe", [], OVER),
        graph(Transition(FromSpeaker("zoe"), BOB)),
        graph(Transition(AllOf(Not(FromSpeaker("zoe"))), BOB)),
        graph(Transition(Both([FromSpeaker("zoe")]), BOB)),
        graph(Transition(TurnFailed("zoe"), BOB)),
        graph(Transition(Always(), AgentTarget("zoe"))),
        graph(Transition(Always(), RoundRobinTarget(["alice", "zoe"]))),
        graph(default=AgentTarget("zoe")),
    ],
)
def test_l2_an_unknown_name_anywhere_is_an_error_at_open(written: TransitionGraph) -> None:
    with pytest.raises(UnknownParticipant) as unknown:
        workflow(written, *NAMED)

    assert (unknown.value.name, unknown.value.known) == ("zoe", ("alice", "bob", "carol"))


@pytest.mark.parametrize("agent_id", [None, 5, {}, [5]])
def test_l2_what_is_no_name_is_an_error_at_open(agent_id: Any) -> None:
    """`AgentTarget(None)` would close the channel without a word."""
    with pytest.raises(BadGraph) as refused:
        workflow(graph(Transition(Always(), AgentTarget(agent_id))), *NAMED)

    assert refused.value.field == "AgentTarget.agent_id"
