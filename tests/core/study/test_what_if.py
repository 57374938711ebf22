from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.core.customs import Breaks
from tests.core.scenes import Scene, packs, says, workflow
from turnline.core.envelope import Close, Envelope, Speak
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.state import State
from turnline.core.study.what_if import WhatIf, what_if
from turnline.core.transitions import AgentTarget, Always, ContextEquals, FromSpeaker, TerminateTarget
from turnline.errors import UnknownParticipant

PEOPLE = ("alice", "bob", "carol")
YESTERDAY = sequence(["alice", "bob", "carol"])


def past(stage: Scene[Any]) -> Iterator[tuple[Envelope, State]]:
    state = stage.adapter.initial(stage.spec)
    for line in stage.log:
        state = stage.adapter.fold(state, line)
        yield line, state


def spoken() -> Scene[Any]:
    stage = workflow(YESTERDAY, *PEOPLE)
    stage.accept(says("alice"))
    stage.accept(packs("bob", updates={"urgent": True}))
    stage.accept(says("carol"))
    return stage


def judged(*transitions: Transition, first: str = "alice") -> WhatIf:
    return what_if(past(spoken()), TransitionGraph(first, transitions, TerminateTarget("done")))


def test_the_graph_it_had_moves_the_floor_the_same_way() -> None:
    told = what_if(past(spoken()), YESTERDAY)

    assert (told.differs, told.turns, told.channel_id) == ([], 3, "c1")
    assert "the same way in all 3 turns" in str(told)


def test_every_turn_that_would_have_led_elsewhere_is_told_as_it_happened() -> None:
    told = judged(
        Transition(ContextEquals("urgent", True), AgentTarget("alice")),
        Transition(FromSpeaker("alice"), AgentTarget("bob")),
    )

    assert [(one.turn, one.speaker) for one in told.differs] == [(2, "bob"), (3, "carol")]
    assert isinstance(told.differs[0].recorded, Speak)
    assert isinstance(told.differs[0].instead, Speak)
    assert told.differs[0].instead.agent_id == "alice"
    assert isinstance(told.differs[1].recorded, Close)
    assert "on the log, the floor goes to carol" in str(told)


def test_another_first_speaker_is_told() -> None:
    assert [one.turn for one in judged(Transition(Always(), AgentTarget("bob")), first="bob").differs] == [
        0,
        2,
        3,
    ]


def test_a_graph_that_has_no_answer_says_so() -> None:
    told = judged(Transition(Breaks(), AgentTarget("bob")))

    assert [one.instead for one in told.differs] == [None, None, None]
    assert "no such customer" in told.differs[0].text


def test_a_graph_for_others_does_not_fit() -> None:
    with pytest.raises(UnknownParticipant):
        judged(Transition(Always(), AgentTarget("dora")))
