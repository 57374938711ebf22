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
    FanOutTarget,
    FromSpeaker,
    NestedTarget,
    TerminateTarget,
    Transition,
    TransitionGraph,
    TransitionTarget,
    TurnFailed,
    round_robin,
    sequence,
)

OTHER: Final = "other"
"""Stands for a person of another process."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One kind of conversation."""

    graph: Callable[[str, str], TransitionGraph]
    """Given the person that opens it, and a person of another process."""
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


def _routed(user: str, other: str) -> TransitionGraph:
    left = FromSpeaker("bob") & ContextEquals(ROUTE, "left")
    turns = [Transition(left, AgentTarget("cyd")), Transition(FromSpeaker("cyd"), AgentTarget("ada"))]
    return TransitionGraph("bob", turns, TerminateTarget("routed"))


def _failing(user: str, other: str) -> TransitionGraph:
    turns = [Transition(TurnFailed(), AgentTarget("ada")), Transition(FromSpeaker("ada"), AgentTarget("bob"))]
    return TransitionGraph("dan", turns, TerminateTarget("mended"))


def _then_bob(first: str, step: TransitionTarget, name: str) -> TransitionGraph:
    """Return a graph of `first`, a step, and bob."""
    turns = [Transition(FromSpeaker(first), step), Transition(FromSpeaker(name), AgentTarget("bob"))]
    return TransitionGraph(first, turns, TerminateTarget("told"))


PLOTS: Final = (
    Plot(
        graph=lambda user, other: sequence([user, "ada", "bob", "ada"]),
        agents=("ada", "bob"),
        reason="sequence_complete",
        speakers="uaba",
    ),
    Plot(
        graph=lambda user, other: round_robin(["ada", "bob", "cyd"], max_turns=5),
        agents=("ada", "bob", "cyd"),
        reason="max_turns",
        speakers="abcab",
    ),
    Plot(graph=_routed, agents=("ada", "bob", "cyd"), reason="routed", speakers="bca"),
    Plot(
        graph=lambda user, other: sequence([user, "ada", user, "cyd", user]),
        agents=("ada", "cyd"),
        reason="sequence_complete",
        speakers="uaucu",
        message=None,
    ),
    Plot(
        graph=lambda user, other: sequence(["ada", "bob", "cyd"]),
        agents=("ada", "bob", "cyd"),
        reason="sequence_complete",
        speakers="abc",
        message=None,
    ),
    Plot(graph=_failing, agents=("dan", "ada", "bob"), reason="mended", speakers="dab"),
    Plot(
        graph=lambda user, other: sequence(["ada", user, "ada"]),
        agents=("ada",),
        reason="ttl_expired",
        speakers="a",
        ttl=25.0,
        lasts_seconds=25.0,
        answers=False,
    ),
    Plot(
        graph=lambda user, other: sequence(["cyd", user, "cyd"]),
        agents=("cyd",),
        reason="expectation_violated:turn_within",
        speakers="c",
        expectations=(turn_within(15.0), turn_within(30.0, "auto_close")),
        lasts_seconds=30.0,
        answers=False,
    ),
)

PAUSING: Final = (
    Plot(
        graph=lambda user, other: sequence([user, "eve", "ada", "eve"]),
        agents=("eve", "ada"),
        reason="sequence_complete",
        speakers="ueae",
    ),
    Plot(
        graph=lambda user, other: sequence([user, "fay", "eve", "fay"]),
        agents=("eve", "fay", "ada"),
        reason="sequence_complete",
        speakers="ufef",
    ),
    Plot(
        graph=lambda user, other: _then_bob(
            "ada", FanOutTarget(["eve", "cyd", other], step="poll", into="answers"), "poll"
        ),
        agents=("ada", "bob", "cyd", "eve", OTHER),
        reason="told",
        speakers="apb",
    ),
    Plot(
        graph=lambda user, other: _then_bob(
            "ada", FanOutTarget(["sly", "ada"], step="poll", timeout_seconds=6.0), "poll"
        ),
        agents=("ada", "bob", "sly"),
        reason="told",
        speakers="apb",
    ),
    Plot(
        graph=lambda user, other: _then_bob(
            "eve", NestedTarget(sequence(["eve", "cyd", "ada"]), step="nested", into="result"), "nested"
        ),
        agents=("eve", "bob", "cyd", "ada"),
        reason="told",
        speakers="enb",
    ),
)
"""Some of their turns wait: for a time, for children, for a person."""

ASKING: Final = (
    Plot(
        graph=lambda user, other: sequence([user, "gil", "ada"]),
        agents=("gil", "ada"),
        reason="sequence_complete",
        speakers="uga",
    ),
    Plot(
        graph=lambda user, other: sequence([user, "hal", "gil"]),
        agents=("hal", "gil"),
        reason="sequence_complete",
        speakers="uhg",
    ),
    Plot(
        graph=lambda user, other: sequence([user, "ivy"]),
        agents=("ivy", "hal", "gil", OTHER),
        reason="sequence_complete",
        speakers="ui",
    ),
)
"""Some of their tools need the approval of a person, also two channels further down."""

LINKED: Final = (
    Plot(
        graph=lambda user, other: sequence([user, "roy", "joy"]),
        agents=("roy", "joy"),
        reason="sequence_complete",
        speakers="urj",
    ),
    Plot(
        graph=lambda user, other: sequence([user, "rae", "ada", "rob", "rae"]),
        agents=("rae", "ada", "rob"),
        reason="sequence_complete",
        speakers="urarr",
    ),
    Plot(
        graph=lambda user, other: _then_bob("rob", FanOutTarget(["rae", "ada"], step="poll"), "poll"),
        agents=("rae", "ada", "rob", "bob"),
        reason="told",
        speakers="rpb",
    ),
    Plot(
        graph=lambda user, other: sequence([user, "rae", user, "rob"]),
        agents=("rae", "rob"),
        reason="sequence_complete",
        speakers="urur",
    ),
)
"""Some of their agents are linked from another process."""

INNOCENT: Final = Plot(
    graph=lambda user, other: sequence([user, "lou", "lou"]),
    agents=("lou",),
    reason="sequence_complete",
    speakers="ull",
)
"""Its turns die with the processes that kim kills."""

SUSPECT: Final = (
    Plot(
        graph=lambda user, other: TransitionGraph(
            "kim", [Transition(TurnFailed(), AgentTarget("ada"))], TerminateTarget("rescued")
        ),
        agents=("kim", "ada"),
        reason="rescued",
        speakers="ka",
    ),
    Plot(
        graph=lambda user, other: sequence([user, "kim", "ada"]),
        agents=("kim", "ada"),
        reason="sequence_complete",
        speakers="uka",
    ),
)
"""Kim kills its process. A rule for failed turns takes the turn; without one an operator retries it."""
