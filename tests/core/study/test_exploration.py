"""Exploration: what is reachable, how it may close, how long it may run, and when the bound was hit."""

from __future__ import annotations

from turnline.core.graph import Transition, TransitionGraph, round_robin, sequence
from turnline.core.step_targets import FanOutTarget
from turnline.core.transitions import (
    AgentTarget,
    AtTurn,
    ContextEquals,
    Expr,
    FromSpeaker,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    TerminateTarget,
    ToolCalled,
    TurnFailed,
)

from ..customs import HighestRankedReviewer, LongText

LOOP = [
    Transition(FromSpeaker("ann"), AgentTarget("ben")),
    Transition(FromSpeaker("ben"), AgentTarget("ann")),
]
DONE = Transition(ContextEquals("done", True), TerminateTarget("approved"))


def graph(*rules: Transition, default: str = "over", max_turns: int | None = None) -> TransitionGraph:
    return TransitionGraph("ann", rules, TerminateTarget(default), max_turns)


def test_a_sequence_has_one_way() -> None:
    found = sequence(["ann", "ben", "ann", "cat"]).explore()

    assert found.reachable == ("ann", "ben", "cat")
    assert found.close_reasons == ("turn_failed", "sequence_complete")
    assert (found.longest_run, found.cycle, found.bound_hit) == (4, (), False)


def test_a_cycle_has_no_end_unless_max_turns_ends_it() -> None:
    endless, ended = graph(DONE, *LOOP).explore(), graph(DONE, *LOOP, max_turns=9).explore()

    assert (endless.longest_run, set(endless.cycle)) == (None, {"ann", "ben"})
    assert (ended.longest_run, ended.cycle) == (9, ())
    assert set(ended.close_reasons) == {"approved", "turn_failed", "max_turns"}
    assert "max_turns" not in endless.close_reasons


def test_max_turns_is_no_reason_where_no_run_is_that_long() -> None:
    found = sequence(["ann", "ben"])
    limited = TransitionGraph(found.initial_speaker, found.transitions, found.default_target, max_turns=3)
    tight = TransitionGraph(found.initial_speaker, found.transitions, found.default_target, max_turns=1)

    assert "max_turns" not in limited.explore().close_reasons
    assert tight.explore().close_reasons == ("max_turns", "turn_failed")
    assert tight.explore().unreachable == ("ben",)


def test_w2_a_priority_decides_who_is_reached() -> None:
    late = Transition(FromSpeaker("ann"), AgentTarget("cat"), priority=5)
    early = Transition(FromSpeaker("ann"), AgentTarget("cat"), priority=-5)

    assert graph(LOOP[0], late).explore().unreachable == ("cat",)
    assert graph(LOOP[0], early).explore().unreachable == ("ben",)


def test_tools_that_nobody_has_lead_nowhere() -> None:
    asks = graph(Transition(ToolCalled("ask_ben"), AgentTarget("ben")))

    assert asks.explore().reachable == ("ann", "ben")
    assert asks.explore(tools=["ask_cat"]).reachable == ("ann",)
    assert asks.explore(tools={"ann": ["ask_ben"], "ben": []}).longest_run == 2


def test_handoffs_reach_everybody_who_is_known() -> None:
    alone = graph(Transition(FromSpeaker("ben"), AgentTarget("ann")))

    assert alone.explore().reachable == ("ann",)
    assert alone.explore(handoffs=True, participants=["ann", "ben", "cat"]).reachable == ("ann", "ben", "cat")


def test_t5_a_failed_turn_follows_its_own_rules() -> None:
    found = graph(Transition(TurnFailed("ann"), AgentTarget("ben")), default="said").explore()

    assert found.reachable == ("ann", "ben")
    assert set(found.close_reasons) == {"said", "turn_failed"}


def test_a_target_that_may_lead_to_an_outsider_says_so() -> None:
    back = TransitionGraph("ann", [Transition(AtTurn(1), RevertToInitiatorTarget())], TerminateTarget("over"))
    rounds = TransitionGraph("ann", [], RoundRobinTarget(), max_turns=3)

    assert back.explore().reachable == ("ann", "somebody else")
    assert back.explore(opener="ann").reachable == ("ann",)
    assert rounds.explore(participants=["ann", "ben"], opener="ann").reachable == ("ann", "ben")


def test_an_expression_and_a_class_of_ones_own_may_answer_either_way() -> None:
    found = graph(
        Transition(Expr("score > 80"), AgentTarget("ben")),
        Transition(LongText(), HighestRankedReviewer(["cat"])),
    ).explore()

    assert set(found.reachable) == {"ann", "ben", "somebody else"}
    assert {"over", "whatever it says"} <= set(found.close_reasons)


def test_a_step_is_reached_by_its_name() -> None:
    asked = Transition(FromSpeaker("ann"), FanOutTarget(["ben", "cat"], step="opinions"))

    assert graph(asked).explore().reachable == ("ann", "opinions")


def test_a_bound_that_was_hit_is_told() -> None:
    large = round_robin(["ann", "ben", "cat"])

    assert large.explore(bound=2).bound_hit
    assert large.explore(max_turns=1).bound_hit
    assert not large.explore().bound_hit
    assert not sequence(["ann", "ben"]).explore(max_turns=2).bound_hit


def test_a_turn_nobody_will_live_to_see_hits_the_bound() -> None:
    assert graph(Transition(AtTurn(10**9), AgentTarget("ben")), *LOOP).explore().bound_hit


def test_it_reads_like_a_report() -> None:
    assert str(round_robin(["ann", "ben"]).explore()).splitlines() == [
        "reachable: ann, ben",
        "unreachable: nobody",
        "may close with: turn_failed",
        "longest run: no end",
        "cycle: ann -> ben -> ann",
    ]
