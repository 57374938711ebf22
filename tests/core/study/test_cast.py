"""The cast of a graph: everybody is in it once."""

from __future__ import annotations

from turnline.core.channel import Participant
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.step_targets import FanOutTarget
from turnline.core.study.cast import cast_of
from turnline.core.transitions import FromSpeaker, TerminateTarget


def test_a_step_that_is_among_the_participants_already_is_not_added_again() -> None:
    """As on a channel that was opened: its steps are participants."""
    asks = Transition(FromSpeaker("ann"), FanOutTarget(["ben"], step="all"))
    graph = TransitionGraph("ann", [asks], TerminateTarget("over"))
    step = Participant("all", "all", "step", played_by="ann")

    assert cast_of(graph, participants=["ann", "ben"]).everyone == ("ann", "ben", "all")
    assert cast_of(graph, participants=["ann", step, "ben"]).everyone == ("ann", "all", "ben")
