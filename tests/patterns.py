"""The graphs of the transcripts, by file name: the eight patterns of seed 004, and a few of our own.

Names stand where ids will be: a graph is data, written before anyone has registered (L2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from turnline.core.envelope import JsonObject
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.transitions import (
    AgentTarget,
    ContextEquals,
    FromSpeaker,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TurnFailed,
)


@dataclass(frozen=True)
class Pattern:
    """A graph, and the context variables its channel begins with."""

    graph: TransitionGraph
    context_vars: JsonObject = field(default_factory=dict)


PATTERNS: Final[dict[str, Pattern]] = {
    "pipeline": Pattern(TransitionGraph.sequence(["researcher", "writer", "editor"])),
    "hierarchical": Pattern(
        TransitionGraph(
            initial_speaker="coordinator",
            transitions=[
                Transition(FromSpeaker("coder") | FromSpeaker("tester"), RevertToInitiatorTarget()),
                Transition(ToolCalled("conclude"), TerminateTarget("complete")),
            ],
            default_target=StayTarget(),
            max_turns=20,
        )
    ),
    "star": Pattern(
        TransitionGraph(
            initial_speaker="planner",
            transitions=[
                Transition(ToolCalled("synthesise"), TerminateTarget("synthesised")),
                Transition(ToolCalled("ask_weather"), AgentTarget("weather")),
                Transition(ToolCalled("ask_events"), AgentTarget("events")),
            ],
            default_target=RevertToInitiatorTarget(),
            max_turns=20,
        )
    ),
    "escalation": Pattern(
        TransitionGraph(
            initial_speaker="customer",
            transitions=[
                Transition(ToolCalled("resolve"), TerminateTarget("resolved")),
                Transition(FromSpeaker("customer"), AgentTarget("tier1")),
            ],
            default_target=AgentTarget("customer"),
            max_turns=12,
        )
    ),
    "redundant": Pattern(TransitionGraph.sequence(["user", "bold", "cautious", "odd", "evaluator"])),
    "feedback_loop": Pattern(
        TransitionGraph(
            initial_speaker="user",
            transitions=[
                Transition(ContextEquals("done", value=True), TerminateTarget("approved")),
                Transition(FromSpeaker("user"), AgentTarget("drafter")),
                Transition(FromSpeaker("drafter"), AgentTarget("reviewer")),
                Transition(FromSpeaker("reviewer"), AgentTarget("drafter")),
            ],
            default_target=TerminateTarget("max_iterations"),
            max_turns=10,
        )
    ),
    "context_aware_routing": Pattern(
        TransitionGraph(
            initial_speaker="triage",
            transitions=[
                Transition(FromSpeaker("security") | FromSpeaker("billing"), TerminateTarget("answered")),
                Transition(ContextEquals("category", "security"), AgentTarget("security")),
                Transition(ContextEquals("category", "billing"), AgentTarget("billing")),
                Transition(ContextEquals("category"), StayTarget()),
            ],
            default_target=TerminateTarget("nobody_for_it"),
            max_turns=6,
        )
    ),
    "triage_with_tasks": Pattern(
        TransitionGraph.sequence(["triage", "research", "write", "triage"]),
        context_vars={"tasks": [], "finished": 0},
    ),
    "sequence_with_a_repeated_speaker": Pattern(TransitionGraph.sequence(["alice", "bob", "alice"])),
    "interjection_and_claims": Pattern(TransitionGraph.round_robin(["alice", "bob"], max_turns=4)),
    "failed_turn": Pattern(
        TransitionGraph(
            initial_speaker="alice",
            transitions=[
                Transition(TurnFailed("alice"), AgentTarget("bob")),
                Transition(FromSpeaker("alice"), AgentTarget("bob")),
            ],
            default_target=AgentTarget("alice"),
        ),
        context_vars={"price": 10},
    ),
    "deadlines": Pattern(TransitionGraph("alice", [], RoundRobinTarget())),
}
