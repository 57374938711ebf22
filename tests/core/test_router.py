"""W2, W3, W7, W8, L2: where the floor goes after a turn, and the rule that said so."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from types import FrameType

import pytest

from turnline.core.adapters import WorkflowAdapter
from turnline.core.channel import Participant
from turnline.core.envelope import Basis, Close, Draft, JsonObject, Speak
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.router import MAX_DECISION_STEPS, compile_graph
from turnline.core.state import WorkflowState
from turnline.core.transitions import (
    AgentTarget,
    AllOf,
    Always,
    AnyOf,
    AtTurn,
    Condition,
    ContextEquals,
    Expr,
    FromSpeaker,
    Not,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TransitionTarget,
    TurnFailed,
)
from turnline.errors import BadTarget, RoutingFailed

from .customs import AnswersNonsense, Both, Breaks, HighestRankedReviewer, PlainCondition, PlainTarget
from .scenes import (
    Scene,
    basis,
    claims,
    decided,
    fails,
    invited,
    live,
    packs,
    says,
    spec_of,
    workflow,
    writes,
)

PEOPLE = ("alice", "bob", "carol")
BOB, CAROL, OVER = AgentTarget("bob"), AgentTarget("carol"), TerminateTarget("over")


def graph(
    *transitions: Transition, default: TransitionTarget = OVER, max_turns: int | None = None
) -> TransitionGraph:
    return TransitionGraph("alice", transitions, default, max_turns)


def scene(
    *transitions: Transition,
    default: TransitionTarget = OVER,
    max_turns: int | None = None,
    names: Sequence[str | Participant] = PEOPLE,
    knobs: JsonObject | None = None,
) -> Scene[WorkflowState]:
    return workflow(graph(*transitions, default=default, max_turns=max_turns), *names, knobs=knobs)


# --- W2: the order of the transitions ---


def test_w2_ties_are_tried_in_list_order() -> None:
    said = scene(Transition(Always(), BOB), Transition(Always(), CAROL)).accept(says("alice"))

    assert basis(said).index == 0


@pytest.mark.parametrize(("first", "second"), [(100, 0), (1, -1), (0, -5)])
def test_w2_lower_priority_is_tried_first(first: int, second: int) -> None:
    said = scene(Transition(Always(), BOB, first), Transition(Always(), CAROL, second)).accept(says("alice"))

    assert decided(said) == Speak("carol", basis(said))
    assert basis(said).index == 1


def test_w2_the_first_match_wins_not_the_first_listed() -> None:
    said = scene(Transition(FromSpeaker("bob"), BOB), Transition(FromSpeaker("alice"), CAROL)).accept(
        says("alice")
    )

    assert basis(said).index == 1


def test_w2_without_a_match_the_default_answers() -> None:
    said = scene(Transition(FromSpeaker("bob"), BOB), default=CAROL).accept(says("alice"))

    assert decided(said) == Speak("carol", Basis(kind="default", target="AgentTarget(agent_id='carol')"))


def test_w2_a_condition_sees_the_turn_counted_and_its_sender() -> None:
    """The turn that is decided on is part of the state: it is turn 1, by alice."""
    seen = Both([AtTurn(1), FromSpeaker("alice")])

    assert basis(scene(Transition(seen, BOB)).accept(says("alice"))).kind == "transition"


def test_w2_a_condition_sees_the_packets_context_updates() -> None:
    routes = scene(Transition(ContextEquals("route", "security"), BOB))

    said = routes.accept(packs("alice", updates={"route": "security"}))

    assert decided(said) == Speak("bob", basis(said))


def test_c2_a_condition_sees_what_the_same_turns_tools_wrote() -> None:
    routes = scene(Transition(ContextEquals("route", "security"), BOB))
    routes.accept(claims("alice"))
    routes.accept(writes("alice", claim=live(routes), set={"route": "security"}))

    routes.accept(packs("alice", claim=live(routes)))

    assert routes.state.expected_next_speaker == "bob"


# --- W3: precedence ---

CALLED = Transition(ToolCalled("escalate"), BOB)


def test_w3_finish_closes_whatever_the_graph_says() -> None:
    closing = scene(Transition(Always(), BOB)).accept(
        packs("alice", "finish", reason="solved", tool="escalate")
    )

    assert decided(closing) == Close("solved", Basis(kind="finish"))


def test_w3_finish_without_a_reason_has_one() -> None:
    assert decided(scene().accept(packs("alice", "finish"))) == Close("finished", Basis(kind="finish"))


def test_w3_a_typed_handoff_goes_before_the_transitions() -> None:
    said = scene(CALLED).accept(packs("alice", "handoff", target="carol", tool="escalate"))

    assert decided(said) == Speak("carol", Basis(kind="handoff", condition="escalate", target="carol"))


def test_w3_transitions_go_before_the_default() -> None:
    assert basis(scene(CALLED).accept(packs("alice", tool="escalate"))).kind == "transition"
    assert basis(scene(CALLED).accept(packs("alice", tool="resolve"))).kind == "default"


def test_t4_a_text_never_routes_whatever_it_carries() -> None:
    """Only a packet speaks of the floor: a person may paste anything."""
    talk = says("alice")
    talk.event_data["routing"] = {"kind": "finish", "reason": "pwned"}
    talk.event_data["context_updates"] = {"_secret": 1, "route": "security"}
    routes = scene(Transition(FromSpeaker("alice"), BOB))

    said = routes.accept(talk)

    assert basis(said).kind == "transition"
    assert routes.state.context_vars == {}


def test_w3_max_turns_closes_after_that_many() -> None:
    talk = scene(Transition(Always(), RoundRobinTarget()), max_turns=2)

    assert isinstance(decided(talk.accept(says("alice"))), Speak)
    assert decided(talk.accept(says("bob"))) == Close(
        "max_turns", Basis(kind="max_turns", target="max_turns=2")
    )


def test_w3_max_turns_of_one_is_one_turn() -> None:
    assert decided(scene(default=BOB, max_turns=1).accept(says("alice"))).by.kind == "max_turns"


def test_w3_max_turns_does_not_consult_the_default() -> None:
    """`default_target` only answers for a turn that no transition matched."""
    said = scene(Transition(Always(), BOB), default=TerminateTarget("unreached"), max_turns=1).accept(
        says("alice")
    )

    assert isinstance(decided(said), Close)
    assert basis(said).kind == "max_turns"


@pytest.mark.parametrize("last", [says("alice"), packs("alice", "finish", reason="over")])
def test_w3_a_turn_that_closes_the_channel_anyway_says_its_own_reason(last: Draft) -> None:
    assert decided(scene(default=OVER, max_turns=1).accept(last)).by.kind != "max_turns"


def test_w3_a_handoff_does_not_outlive_max_turns() -> None:
    said = scene(max_turns=1).accept(packs("alice", "handoff", target="bob"))

    assert basis(said).kind == "max_turns"


# --- W7: the reason is on the log ---


def test_w7_a_transitions_index_condition_and_target_are_on_the_envelope() -> None:
    said = scene(Transition(FromSpeaker("bob"), CAROL), Transition(FromSpeaker("alice"), BOB)).accept(
        says("alice")
    )

    assert basis(said) == Basis(
        kind="transition",
        index=1,
        condition="FromSpeaker(agent_id='alice')",
        target="AgentTarget(agent_id='bob')",
    )


def test_w7_the_opening_says_that_it_is_the_initial_speaker() -> None:
    assert scene().log[-1].decision == Speak("alice", Basis(kind="initial"))


def test_w7_a_huge_condition_is_written_short() -> None:
    said = scene(
        Transition(ContextEquals("k", "x" * 5000), BOB),
        Transition(Not(ContextEquals("k", "x" * 5000)), CAROL),
    )

    assert len(basis(said.accept(says("alice"))).condition) == 200


# --- W8: nobody is sent nowhere ---


def test_w8_a_handoff_to_a_stranger_is_refused_and_told_who_is_there() -> None:
    refused = scene().refusal(packs("alice", "handoff", target="zoe"), BadTarget)

    assert refused.named == "zoe"
    assert refused.participants == PEOPLE


def test_w8_a_custom_target_that_leads_nowhere_is_refused() -> None:
    lost = scene(Transition(Always(), HighestRankedReviewer(["zoe"])))

    assert lost.refusal(says("alice"), BadTarget).named == "zoe"


def test_w8_the_channel_lives_on_after_the_refusal() -> None:
    lost = scene(Transition(ContextEquals("lost", True), HighestRankedReviewer(["zoe"])), default=BOB)
    lost.accept(writes("bob", set={"lost": True}))
    lost.refusal(says("alice"), BadTarget)

    lost.accept(writes("bob", delete=["lost"]), says("alice"))

    assert lost.state.expected_next_speaker == "bob"


def test_w8_a_custom_target_may_answer_with_a_name() -> None:
    names = (Participant("id-a", "alice"), Participant("id-b", "bob"))
    said = scene(Transition(Always(), HighestRankedReviewer(["bob"])), names=names).accept(says("id-a"))

    assert decided(said) == Speak("id-b", basis(said))


def test_w8_a_custom_target_may_close() -> None:
    assert decided(scene(default=PlainTarget("by hand")).accept(says("alice"))).by.kind == "default"


@pytest.mark.parametrize(
    ("broken", "index"),
    [
        (Transition(Breaks(), BOB), 0),
        (Transition(Always(), Breaks()), 0),
        (Transition(Not(Breaks()), BOB), 0),
    ],
)
def test_w8_a_custom_class_that_raises_refuses_the_turn(broken: Transition, index: int) -> None:
    refused = scene(broken).refusal(says("alice"), RoutingFailed)

    assert refused.index == index
    assert "LookupError: no such customer" in str(refused)


def test_w8_a_default_target_that_raises_refuses_the_turn() -> None:
    assert scene(default=Breaks()).refusal(says("alice"), RoutingFailed).index is None


@pytest.mark.parametrize(
    "answer", ["bob", None, {"next_speaker": 5}, {"next_speaker": ["bob"]}, {"close_reason": 5}]
)
def test_w8_a_target_that_answers_nonsense_refuses_the_turn(answer: object) -> None:
    refused = scene(default=AnswersNonsense(answer)).refusal(says("alice"), RoutingFailed)

    assert "expected a TransitionDecision" in str(refused)


# --- T4, T5 ---


def test_t4_the_router_knows_the_tools_some_transition_waits_for() -> None:
    whens: list[Condition] = [CALLED.when, Not(ToolCalled("resolve")), Both([ToolCalled("deep")]), Expr("x")]
    talk = scene(*(Transition(when, BOB) for when in whens))

    router = compile_graph(talk.state.graph_data, talk.spec)

    assert router.routing_tools == {"escalate", "resolve", "deep"}


def test_t5_only_transitions_about_failure_are_tried_after_one() -> None:
    """`FromSpeaker(alice) -> bob` means that alice spoke; a turn that failed said nothing."""
    talk = scene(Transition(FromSpeaker("alice"), BOB), Transition(TurnFailed("alice"), CAROL))

    failed = talk.accept(fails("alice"))

    assert talk.state.expected_next_speaker == "carol"
    assert failed[-1].decision == Speak(
        "carol",
        Basis(
            kind="transition",
            index=1,
            condition="TurnFailed(agent_id='alice')",
            target="AgentTarget(agent_id='carol')",
        ),
    )


def test_t5_without_a_rule_the_channel_closes_with_turn_failed() -> None:
    talk = scene(Transition(Always(), BOB), Transition(TurnFailed("bob"), CAROL), default=BOB)

    talk.accept(fails("alice"))

    assert talk.state.pending_close_reason == "turn_failed"


def test_t5_a_rule_may_combine_failure_with_anything() -> None:
    talk = scene(
        Transition(TurnFailed() & ContextEquals("retry", True), StayTarget()),
        knobs={"context_vars": {"retry": True}},
    )

    talk.accept(fails("alice"))

    assert talk.state.expected_next_speaker == "alice"


def test_w1_a_graph_is_compiled_once() -> None:
    """Never per envelope, and not per channel either: the next turn and the next channel find it ready."""
    adapter = WorkflowAdapter()
    knobs = {"graph": sequence(["alice", "bob"]).to_dict()}
    talk = invited(adapter, "alice", "bob", knobs=knobs)
    compiled = adapter.router(talk.state)

    talk.accept(says("alice"))

    assert adapter.router(talk.state) is compiled
    assert adapter.router(invited(adapter, "alice", "bob", knobs=knobs, channel_id="c2").state) is compiled


def test_a_users_condition_that_says_no_is_passed_over() -> None:
    assert (
        basis(scene(Transition(PlainCondition({"holds": False}), BOB)).accept(says("alice"))).kind
        == "default"
    )


# --- what a decision may cost ---

BIG = {"big": [0] * 3_000}
COSTLY = Expr("9 in big")
"""Looks at all of `big`: a step for each item, and a few for itself."""
COSTLY_STEPS = 3_000 + 3 + 1


def test_all_conditions_of_one_decision_share_one_budget_of_steps() -> None:
    many = scene(*[Transition(COSTLY, BOB) for _ in range(100)], knobs={"context_vars": BIG})
    said = many.accept(says("alice"))

    assert decided(said) == Close(
        "out_of_steps",
        Basis(kind="out_of_steps", index=MAX_DECISION_STEPS // COSTLY_STEPS, condition=repr(COSTLY)),
    )


@pytest.mark.parametrize(
    "when", [AllOf(~COSTLY, ~COSTLY, *[~COSTLY] * 18), AnyOf(*[COSTLY] * 20), Not(AnyOf(*[COSTLY] * 20))]
)
def test_the_conditions_inside_a_condition_share_the_budget_too(when: Condition) -> None:
    said = scene(Transition(when, BOB), knobs={"context_vars": BIG}).accept(says("alice"))

    assert decided(said).by.kind == "out_of_steps"


def test_a_turn_whose_decision_costs_too_much_is_on_the_log_and_the_channel_says_why_it_closed() -> None:
    costly = scene(*[Transition(COSTLY, BOB) for _ in range(100)], knobs={"context_vars": BIG})
    said = costly.accept(says("alice", "my words"))

    assert [one.event_type for one in said] == ["text", "channel.closed"]
    assert said[0].event_data == {"text": "my words"}
    assert (costly.state.is_over, costly.state.pending_close_reason) == (True, "out_of_steps")


def test_a_decision_within_its_steps_is_made_as_before() -> None:
    rules = [Transition(COSTLY, CAROL) for _ in range(MAX_DECISION_STEPS // COSTLY_STEPS - 1)]
    said = scene(*rules, Transition(Expr("0 in big"), BOB), knobs={"context_vars": BIG}).accept(says("alice"))

    assert basis(said).index == len(rules)


def test_names_are_looked_up_once_for_a_graph_not_once_for_each_mention() -> None:
    """With 1,000 participants and 2,000 transitions the difference is a second."""
    many = [f"p{number}" for number in range(1_000)]
    rules = [Transition(FromSpeaker(name), AgentTarget(name)) for name in many]
    spec = spec_of(WorkflowAdapter(), *many)
    made = TransitionGraph("p0", rules, OVER).to_dict()
    calls = Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        calls[frame.f_code.co_name] += event == "call"

    sys.setprofile(count)
    try:
        compile_graph(made, spec)
    finally:
        sys.setprofile(None)

    assert calls["names"] == 1
