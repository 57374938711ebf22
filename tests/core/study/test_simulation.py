"""Simulation: scripted turns, the channel's own rules, every floor change with its reason."""

from __future__ import annotations

import pytest

from turnline.core.channel import ChannelState, Participant
from turnline.core.graph import Transition, TransitionGraph, round_robin, sequence
from turnline.core.step_targets import FanOutTarget
from turnline.core.study.simulation import ScriptTurn, simulate
from turnline.core.transitions import (
    AgentTarget,
    ContextEquals,
    FromSpeaker,
    RevertToInitiatorTarget,
    SignalIs,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TurnFailed,
)
from turnline.errors import BadTarget, ChannelClosed, OutOfTurn, UnknownParticipant

REVIEW = TransitionGraph(
    "user",
    [
        Transition(ContextEquals("approved", True), TerminateTarget("approved")),
        Transition(FromSpeaker("drafter"), AgentTarget("reviewer")),
    ],
    AgentTarget("drafter"),
    max_turns=5,
)


def test_w7_every_floor_change_has_the_rule_that_made_it() -> None:
    went = REVIEW.simulate(["user", "drafter", ScriptTurn("reviewer", "Yes.", context={"approved": True})])

    assert [(one.speaker, one.next_speaker, one.decision.by.index) for one in went.changes] == [
        ("user", "drafter", None),
        ("drafter", "reviewer", 1),
        ("reviewer", None, 0),
    ]
    assert (went.status, went.close_reason, went.speaker) == (ChannelState.CLOSED, "approved", None)
    assert went.context_vars == {"approved": True}


def test_a_script_may_end_before_the_channel_does() -> None:
    went = REVIEW.simulate([("user", "A slogan, please.")])

    assert (went.status, went.close_reason, went.speaker) == (ChannelState.ACTIVE, "", "drafter")


def test_it_reads_like_a_conversation() -> None:
    went = sequence(["ann", "ben"]).simulate([("ann", "Hello."), ScriptTurn("ben", "overloaded", fails=True)])

    assert str(went).splitlines() == [
        "  1 ann: Hello.",
        "      -> ben  (transitions[0]: FromSpeaker(agent_id='ann') -> AgentTarget(agent_id='ben'))",
        "  2 ben: (failed) overloaded",
        "      -> closed: turn_failed  (turn_failed)",
        "(closed: turn_failed)",
    ]


def test_a_turn_of_somebody_without_the_floor_says_whose_it_is_and_which_turn_of_the_script() -> None:
    with pytest.raises(OutOfTurn, match=r"'reviewer' spoke .* the floor belongs to 'drafter'") as refused:
        REVIEW.simulate(["user", "reviewer"])

    assert refused.value.__notes__ == ["script[1]: 'reviewer'; after 1 turn."]


def test_a_person_without_the_floor_is_refused_like_anybody() -> None:
    people = [Participant("u1", "user", "human"), "drafter", "reviewer"]
    with pytest.raises(OutOfTurn, match="the floor belongs to 'drafter'"):
        REVIEW.simulate(["user", "user"], participants=people, opener="user")


def test_l3_nobody_speaks_after_the_last_word() -> None:
    with pytest.raises(ChannelClosed) as refused:
        sequence(["ann", "ben"]).simulate(["ann", "ben", "ann"])

    assert refused.value.__notes__ == ["script[2]: 'ann'; after 2 turns."]


def test_t4_the_first_tool_that_routes_wins() -> None:
    graph = TransitionGraph(
        "ann",
        [
            Transition(ToolCalled("ask_ben"), AgentTarget("ben")),
            Transition(ToolCalled("ask_cat"), StayTarget()),
        ],
        TerminateTarget("over"),
    )

    def after(*tools: str) -> str | None:
        return graph.simulate([ScriptTurn("ann", tools=tools)]).speaker

    assert (after("search", "ask_ben", "ask_cat"), after("ask_cat", "ask_ben"), after("search")) == (
        "ben",
        "ann",
        None,
    )


def test_w3_finish_and_handoff_go_before_the_rules() -> None:
    to_cat = simulate(REVIEW, [ScriptTurn("user", handoff="cat"), "cat"])
    finished = simulate(REVIEW, [ScriptTurn("user", finish="nothing to do")])

    assert to_cat.changes[0].why == "handoff: handoff -> cat"
    assert (to_cat.speaker, finished.close_reason) == ("drafter", "nothing to do")


def test_w8_a_handoff_to_nobody_is_refused() -> None:
    with pytest.raises(BadTarget):
        REVIEW.simulate([ScriptTurn("user", handoff="cat")], participants=["user", "drafter", "reviewer"])


def test_w3_max_turns_closes() -> None:
    assert round_robin(["ann", "ben"], 3).simulate(["ann", "ben", "ann"]).close_reason == "max_turns"


def test_context_variables_are_given_set_and_deleted() -> None:
    graph = TransitionGraph(
        "ann", [Transition(ContextEquals("route"), StayTarget())], TerminateTarget("over")
    )

    stays = graph.simulate([ScriptTurn("ann", delete=["route"])], context_vars={"route": "x", "n": 1})
    assert (stays.speaker, stays.context_vars) == ("ann", {"n": 1})


def test_a_failed_turn_a_signal_and_a_step_are_turns_too() -> None:
    graph = TransitionGraph(
        "ann",
        [
            Transition(TurnFailed("ann"), FanOutTarget(["ben"], step="opinions")),
            Transition(FromSpeaker("opinions") & SignalIs("ok"), RevertToInitiatorTarget()),
        ],
        TerminateTarget("over"),
    )
    went = graph.simulate([ScriptTurn("ann", fails=True), ScriptTurn("opinions", signal="ok"), "ann"])

    assert [one.next_speaker for one in went.changes] == ["opinions", "ann", None]


def test_a_name_that_nobody_has_is_an_error() -> None:
    with pytest.raises(UnknownParticipant):
        REVIEW.simulate(["uesr"], participants=["user", "drafter", "reviewer"])


def test_one_speaker_alone_is_enough() -> None:
    graph = TransitionGraph("ann", [], StayTarget(), max_turns=3)

    assert graph.simulate(["ann", "ann", "ann"]).close_reason == "max_turns"
