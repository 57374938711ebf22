"""Context variables that decide who is next: branches, and rules that hold for ever (W2, W4, C1, C2)."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.graph import Transition, TransitionGraph
from turnline.core.state import WorkflowState
from turnline.core.transitions import AgentTarget, ContextEquals, FromSpeaker, TerminateTarget

from .scenes import Scene, claims, live, packs, says, workflow, writes

TRIAGE, SECURITY, BILLING, GENERAL = "triage", "security", "billing", "general"
TO_SECURITY = Transition(ContextEquals("route", SECURITY), AgentTarget(SECURITY))
FALLBACK = Transition(FromSpeaker(TRIAGE), AgentTarget(GENERAL))


def channel(*rules: Transition, max_turns: int | None = 9, **variables: Any) -> Scene[WorkflowState]:
    graph = TransitionGraph(TRIAGE, rules, TerminateTarget("over"), max_turns)
    knobs: dict[str, Any] = {"context_vars": variables}
    return workflow(graph, TRIAGE, SECURITY, BILLING, GENERAL, knobs=knobs)


@pytest.mark.parametrize(("route", "follows"), [(SECURITY, SECURITY), (BILLING, BILLING), (None, GENERAL)])
def test_w2_one_rule_for_each_value_and_the_general_one_behind_them(route: str | None, follows: str) -> None:
    to_billing = Transition(ContextEquals("route", BILLING), AgentTarget(BILLING))
    scene = channel(TO_SECURITY, to_billing, FALLBACK)
    scene.accept(claims(TRIAGE))
    if route is not None:
        scene.accept(writes(TRIAGE, claim=live(scene), set={"route": route}))

    scene.accept(packs(TRIAGE, claim=live(scene)))

    assert scene.state.expected_next_speaker == follows


def test_w2_a_rule_about_a_variable_holds_after_every_turn_as_long_as_it_is_set() -> None:
    scene = channel(TO_SECURITY, FALLBACK, max_turns=4, route=SECURITY)
    scene.accept(says(TRIAGE))
    for _ in range(2):
        scene.accept(says(SECURITY))
        assert scene.state.expected_next_speaker == SECURITY

    scene.accept(says(SECURITY))

    assert scene.state.pending_close_reason == "max_turns"


def test_w2_a_rule_about_the_speaker_before_it_ends_the_loop() -> None:
    answered = Transition(FromSpeaker(SECURITY), TerminateTarget("answered"))
    scene = channel(answered, TO_SECURITY, FALLBACK, route=SECURITY)
    scene.accept(says(TRIAGE), says(SECURITY))

    assert scene.state.pending_close_reason == "answered"


def test_c1_deleting_the_variable_ends_the_loop() -> None:
    scene = channel(TO_SECURITY, FALLBACK, route=SECURITY)
    scene.accept(says(TRIAGE), claims(SECURITY))
    scene.accept(writes(SECURITY, claim=live(scene), delete=["route"]))

    scene.accept(packs(SECURITY, claim=live(scene)))

    assert scene.state.pending_close_reason == "over"


def test_w4_a_variable_that_was_deleted_is_none() -> None:
    unset = Transition(ContextEquals("route", None), AgentTarget(BILLING))
    scene = channel(unset, FALLBACK, route=SECURITY)
    scene.accept(writes(GENERAL, delete=["route"]), says(TRIAGE))

    assert scene.state.expected_next_speaker == BILLING


@pytest.mark.parametrize("works", [True, False])
def test_c2_a_condition_sees_what_an_observer_wrote_before_the_packet(works: bool) -> None:
    """Whether or not the speaker was at work already: the order of the log decides."""
    scene = channel(TO_SECURITY, FALLBACK)
    if works:
        scene.accept(claims(TRIAGE))
    scene.accept(writes(GENERAL, set={"route": SECURITY}))

    scene.accept(packs(TRIAGE, claim=live(scene)) if works else says(TRIAGE))

    assert scene.state.expected_next_speaker == SECURITY


def test_c2_what_is_written_behind_the_packet_is_for_the_next_one() -> None:
    scene = channel(TO_SECURITY, FALLBACK)
    scene.accept(says(TRIAGE), writes(TRIAGE, set={"route": SECURITY}))
    assert scene.state.expected_next_speaker == GENERAL

    scene.accept(says(GENERAL))

    assert scene.state.expected_next_speaker == SECURITY
