"""W7: the rule behind every line, with what it looked at."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.customs import Both, Breaks, PlainCondition
from tests.core.scenes import Scene, claims, closes, fails, invited, live, packs, says, workflow, writes
from turnline.core.adapters import ConversationAdapter
from turnline.core.envelope import Basis, Close, Envelope, Speak
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.state import State
from turnline.core.study.why import Rule, Why, why
from turnline.core.transitions import (
    AgentTarget,
    Always,
    AtTurn,
    Condition,
    ContextEquals,
    ContextIn,
    ContextThreshold,
    Expr,
    FromSpeaker,
    Not,
    SignalIs,
    TerminateTarget,
    ToolCalled,
    TurnFailed,
)

PEOPLE = ("alice", "bob", "carol")
BOB, CAROL, OVER = AgentTarget("bob"), AgentTarget("carol"), TerminateTarget("over")


def scene(*transitions: Transition, max_turns: int | None = None, **given: Any) -> Scene[Any]:
    return workflow(TransitionGraph("alice", transitions, OVER, max_turns), *PEOPLE, **given)


def explained(stage: Scene[Any], seq: int | None = None, adapter: object = None) -> Why:
    """Why line `seq`, or the last one, did what it did."""
    seq = seq or stage.log[-1].seq
    initial: State = stage.adapter.initial(stage.spec)
    before = reduce(stage.adapter.fold, stage.log[: seq - 1], initial)
    return why(before, stage.log[seq - 1], adapter or stage.adapter)


def turn_of(
    stage: Scene[Any], find: Callable[[Envelope], bool] = lambda one: one.decision is not None
) -> int:
    return [one.seq for one in stage.log if find(one)][-1]


def decider(told: Why) -> Rule:
    (rule,) = (rule for rule in told.rules if rule.decided)
    return rule


def test_every_rule_is_told_in_its_order_with_what_it_looked_at_and_the_one_that_decided() -> None:
    stage = scene(
        Transition(ContextEquals("tier", "gold"), CAROL),
        Transition(FromSpeaker("alice"), BOB),
        Transition(Always(), CAROL),
        Transition(ToolCalled("refund"), CAROL, -1),
        knobs={"context_vars": {"tier": "silver"}},
    )
    stage.accept(packs("alice"))
    told = explained(stage)

    assert [(one.kind, one.index, one.asked, one.held, one.decided) for one in told.rules] == [
        ("finish", None, True, False, False),
        ("handoff", None, True, False, False),
        ("transition", 3, True, False, False),
        ("transition", 0, True, False, False),
        ("transition", 1, True, True, True),
        ("transition", 2, False, True, False),
        ("default", None, False, True, False),
    ]
    assert [one.values for one in told.rules if one.kind == "transition"] == [
        {"tool": None},
        {"tier": "silver"},
        {"speaker": "alice"},
        {},
    ]
    assert (told.turn, told.speaker, told.differs) == (1, "alice", "")
    assert str(told).splitlines() == [
        "c1 3: after turn 1, by alice, the floor goes to bob: transition 1 held, "
        "FromSpeaker(agent_id='alice') -> AgentTarget(agent_id='bob').",
        "  finish: the packet finishes: did not hold  [routing = {'kind': 'text'}]",
        "  handoff: the packet hands off: did not hold  [routing = {'kind': 'text'}]",
        "  transition 3 (priority -1): ToolCalled(tool_name='refund') -> AgentTarget(agent_id='carol'): "
        "did not hold  [tool = None]",
        "  transition 0: ContextEquals(key='tier', value='gold') -> AgentTarget(agent_id='carol'): "
        "did not hold  [tier = 'silver']",
        "> transition 1: FromSpeaker(agent_id='alice') -> AgentTarget(agent_id='bob'): decided"
        "  [speaker = 'alice']",
        "  transition 2: Always() -> AgentTarget(agent_id='carol'): not asked, though it would have held",
        "  default: no transition held -> TerminateTarget(reason='over'): not asked",
    ]


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        (ContextIn("n", [1, 2]), {"n": 7}),
        (ContextThreshold("n", 5), {"n": 7}),
        (Expr("n > missing and n < 9"), {"missing": None, "n": 7}),
        (AtTurn(1), {"turn": 1}),
        (SignalIs("retry"), {"signal": "again"}),
        (TurnFailed(), {"event_type": "packet", "speaker": "alice"}),
        (PlainCondition({"holds": True}), {}),
    ],
    ids=lambda given: type(given).__name__,
)
def test_each_kind_of_condition_shows_what_it_reads(condition: Condition, values: dict[str, Any]) -> None:
    stage = scene(Transition(condition, BOB), knobs={"context_vars": {"n": 7}})
    stage.accept(packs("alice", "signal", signal="again"))

    (rule,) = (one for one in explained(stage, turn_of(stage)).rules if one.kind == "transition")
    assert rule.values == values


def test_w2_a_condition_sees_the_packets_own_context_updates() -> None:
    stage = scene(Transition(ContextEquals("route", "bob"), BOB))
    stage.accept(packs("alice", updates={"route": "bob"}))

    assert decider(explained(stage)).values == {"route": "bob"}


def test_the_parts_of_a_combined_condition_are_told_one_by_one() -> None:
    inner = ContextEquals("a", 1)
    stage = scene(Transition((inner & FromSpeaker("alice")) | Not(Both([inner])), BOB))
    stage.accept(says("alice"))
    either, neither = decider(explained(stage)).parts

    assert (either.held, neither.held) == (False, True)
    assert [(part.held, part.values) for part in either.parts] == [
        (False, {"a": None}),
        (True, {"speaker": "alice"}),
    ]
    assert neither.parts[0].parts[0].values == {"a": None}
    assert "ContextEquals(key='a', value=1): did not hold  [a = None]" in str(explained(stage))


# --- W3: what goes before what ---


def test_w3_finish_goes_before_a_transition_that_holds() -> None:
    stage = scene(Transition(Always(), BOB))
    stage.accept(packs("alice", "finish", reason="done"))
    told = explained(stage, turn_of(stage))

    assert decider(told).kind == "finish"
    assert told.decision == Close("done", Basis(kind="finish"))
    assert [one.asked for one in told.rules] == [True, False, False, False]
    assert "the channel closes with 'done': the packet finished" in told.summary


def test_w3_a_handoff_goes_before_a_transition_that_holds() -> None:
    stage = scene(Transition(Always(), BOB))
    stage.accept(packs("alice", "handoff", target="carol"))
    told = explained(stage)

    assert decider(told).kind == "handoff"
    assert "the floor goes to carol: the packet handed off to 'carol'" in told.summary


def test_w3_the_default_answers_where_no_transition_holds() -> None:
    stage = scene(Transition(FromSpeaker("bob"), BOB))
    stage.accept(says("alice"))
    told = explained(stage, turn_of(stage))

    assert decider(told).kind == "default"
    assert "no transition held, so the default target answered" in told.summary


def test_w3_max_turns_overrules_the_transition_that_held() -> None:
    stage = scene(Transition(Always(), BOB), max_turns=1)
    stage.accept(says("alice"))
    told = explained(stage, turn_of(stage))

    assert decider(told).kind == "max_turns"
    assert decider(told).values == {"turn_count": 1}
    assert [one.held for one in told.rules if one.kind == "transition"] == [True]


def test_t5_a_failed_turn_asks_only_what_speaks_of_failure() -> None:
    stage = scene(Transition(Always(), BOB), Transition(TurnFailed("alice"), CAROL))
    stage.accept(claims("alice"))
    stage.accept(fails("alice", claim=live(stage)))
    told = explained(stage)

    assert [(one.kind, one.index) for one in told.rules] == [("transition", 1), ("turn_failed", None)]
    assert (decider(told).index, told.speaker) == (1, "alice")


# --- The log is the truth ---


def test_w7_what_is_on_the_log_decides_also_where_the_rules_say_something_else_today() -> None:
    stage = scene(Transition(FromSpeaker("alice"), BOB))
    stage.accept(says("alice"))
    old = Speak("carol", Basis(kind="transition", index=0, condition="as it was", target="then"))
    stage.log[-1] = replace(stage.log[-1], decision=old)
    told = explained(stage)

    assert told.decision == old
    assert decider(told).index == 0
    assert "carol" in told.summary
    assert "the floor goes to bob, by transition 0" in told.differs
    assert "Today: " in str(told)


def test_a_rule_that_raises_today_is_shown_with_its_error() -> None:
    stage = scene(Transition(FromSpeaker("alice"), BOB), Transition(Breaks(), CAROL))
    stage.accept(says("alice"))
    told = explained(stage)

    assert [one.error for one in told.rules if one.error] == ["LookupError: no such customer"]
    assert "cannot be evaluated" in str(told)


def test_e5_a_graph_that_cannot_be_read_any_more_leaves_what_the_log_says() -> None:
    stage = scene(Transition(FromSpeaker("alice"), BOB))
    stage.accept(says("alice"))
    lost = replace(stage.spec, knobs={"graph": {"initial_speaker": "alice"}})
    told = why(stage.adapter.initial(lost), stage.log[-1], stage.adapter)

    assert decider(told).text == "FromSpeaker(agent_id='alice')"
    assert "the graph cannot be read any more" in told.differs


def test_a_channel_type_without_a_graph_says_its_own_rule() -> None:
    stage = invited(ConversationAdapter(), "alice", "bob")
    stage.accept(says("alice"))
    told = explained(stage)

    assert decider(told).target == "the other participant"
    assert told.differs == ""


# --- Lines that are no turn ---


def test_lines_that_are_no_turn_say_that_the_floor_stays() -> None:
    stage = scene(Transition(Always(), BOB), message="go")
    opened = next(one.seq for one in stage.log if one.event_type == "channel.opened")
    stage.accept(writes("alice", set={"a": 1}))
    told = explained(stage)
    stage.accept(says("carol", interject=True))

    assert told.summary == "a 'context.set' never moves the floor; bob keeps the floor."
    assert (told.turn, told.rules, told.decision) == (None, [], None)
    assert "an interjection" in explained(stage).summary
    assert "the floor goes to alice: nobody's turn was over" in explained(stage, opened).summary
    assert explained(stage, 1).rules == []


def test_the_close_says_what_closed_the_channel() -> None:
    by_graph, by_hand = scene(), scene()
    by_graph.accept(says("alice"))
    by_hand.accept(closes("enough"))

    said = by_graph.log[-2].seq
    assert explained(by_graph).summary == f"the channel closed with 'over', as line {said} decided."
    assert explained(by_hand).summary == "the channel closed with 'enough': alice closed it."
