"""What the conversations are like, and how each of them ends if all goes well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.faults.simulation.cast import ROUTE
from turnline.core.channel import Expectation
from turnline.core.expectations import turn_within
from turnline.network import (
    AgentTarget,
    ContextEquals,
    FromSpeaker,
    TerminateTarget,
    Transition,
    TransitionGraph,
    TurnFailed,
    round_robin,
    sequence,
)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One kind of conversation."""

    graph: Callable[[str], TransitionGraph]
    """Given the person that opens it."""
    agents: tuple[str, ...]
    reason: str
    speakers: str
    """Who takes each turn, by the first letter of its name: `u` is the person. Without one who is silent."""
    message: str | None = "go"
    ttl: float | None = None
    expectations: tuple[Expectation, ...] = field(default=())
    lasts_seconds: float = 0.0
    """It does not end earlier."""
    answers: bool = True
    """Whether the person takes its turns."""


def _routed(user: str) -> TransitionGraph:
    left = FromSpeaker("bob") & ContextEquals(ROUTE, "left")
    turns = [Transition(left, AgentTarget("cyd")), Transition(FromSpeaker("cyd"), AgentTarget("ada"))]
    return TransitionGraph("bob", turns, TerminateTarget("routed"))


def _failing(user: str) -> TransitionGraph:
    turns = [Transition(TurnFailed(), AgentTarget("ada")), Transition(FromSpeaker("ada"), AgentTarget("bob"))]
    return TransitionGraph("dan", turns, TerminateTarget("mended"))


PLOTS: Final = (
    Plot(
        graph=lambda user: sequence([user, "ada", "bob", "ada"]),
        agents=("ada", "bob"),
        reason="sequence_complete",
        speakers="uaba",
    ),
    Plot(
        graph=lambda user: round_robin(["ada", "bob", "cyd"], max_turns=5),
        agents=("ada", "bob", "cyd"),
        reason="max_turns",
        speakers="abcab",
    ),
    Plot(graph=_routed, agents=("ada", "bob", "cyd"), reason="routed", speakers="bca"),
    Plot(
        graph=lambda user: sequence([user, "ada", user, "cyd", user]),
        agents=("ada", "cyd"),
        reason="sequence_complete",
        speakers="uaucu",
        message=None,
    ),
    Plot(
        graph=lambda user: sequence(["ada", "bob", "cyd"]),
        agents=("ada", "bob", "cyd"),
        reason="sequence_complete",
        speakers="abc",
        message=None,
    ),
    Plot(graph=_failing, agents=("dan", "ada", "bob"), reason="mended", speakers="dab"),
    Plot(
        graph=lambda user: sequence(["ada", user, "ada"]),
        agents=("ada",),
        reason="ttl_expired",
        speakers="a",
        ttl=25.0,
        lasts_seconds=25.0,
        answers=False,
    ),
    Plot(
        graph=lambda user: sequence(["cyd", user, "cyd"]),
        agents=("cyd",),
        reason="expectation_violated:turn_within",
        speakers="c",
        expectations=(turn_within(15.0), turn_within(30.0, "auto_close")),
        lasts_seconds=30.0,
        answers=False,
    ),
)
