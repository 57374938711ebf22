"""W4: where each target leads."""

from __future__ import annotations

import pytest

from turnline.core import event_types as ev
from turnline.core.envelope import Envelope
from turnline.core.state import State
from turnline.core.targets import (
    AgentTarget,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    TransitionDecision,
    TransitionTarget,
)

from .scenes import line

STATE = State(participant_order=["alice", "bob", "carol"], creator_id="carol")


def leads(target: TransitionTarget, envelope: Envelope) -> str | None:
    return target.resolve(STATE, envelope).next_speaker


def test_w4_agent_target_leads_to_its_agent() -> None:
    assert leads(AgentTarget("bob"), line("alice")) == "bob"


def test_w4_stay_leads_to_the_same_speaker() -> None:
    assert leads(StayTarget(), line("bob")) == "bob"


def test_w4_stay_after_a_failed_turn_leads_to_whoever_failed() -> None:
    assert leads(StayTarget(), line(ev.HUB, ev.EV_TURN_FAILED, {"agent_id": "bob"})) == "bob"


def test_w4_revert_leads_to_whoever_opened_the_channel() -> None:
    assert leads(RevertToInitiatorTarget(), line("alice")) == "carol"


def test_w4_terminate_closes_with_its_reason() -> None:
    assert TerminateTarget("done").resolve(STATE, line("alice")) == TransitionDecision(close_reason="done")
    assert TerminateTarget().resolve(STATE, line("alice")).close_reason == "terminated"


@pytest.mark.parametrize(("speaker", "following"), [("alice", "bob"), ("bob", "carol"), ("carol", "alice")])
def test_w4_round_robin_follows_the_participants(speaker: str, following: str) -> None:
    assert leads(RoundRobinTarget(), line(speaker)) == following


@pytest.mark.parametrize(("speaker", "following"), [("carol", "alice"), ("alice", "carol")])
def test_w4_round_robin_follows_its_own_list_if_given(speaker: str, following: str) -> None:
    assert leads(RoundRobinTarget(["carol", "alice"]), line(speaker)) == following


def test_w4_round_robin_after_somebody_outside_the_list_begins_at_its_head() -> None:
    assert leads(RoundRobinTarget(["carol", "alice"]), line("bob")) == "carol"
