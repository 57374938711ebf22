"""What if: today's graph over yesterday's log, turn by turn.

    what_if(spec, lines, states, graph) -> WhatIf

Rule: every turn is judged as it happened. After a turn that would have led elsewhere, the next one is
still the one on the log: what somebody else would have said, nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.envelope import Basis, Decision, Envelope, Speak
from turnline.core.fold import taken
from turnline.core.graph import TransitionGraph
from turnline.core.router import Router
from turnline.core.state import State
from turnline.core.study.why import because, is_turn, outcome
from turnline.core.transitions import speaker_of
from turnline.errors import TurnlineError


class Instead(Struct, frozen=True, kw_only=True):
    """A turn after which the floor would have gone elsewhere."""

    seq: int
    turn: int
    speaker: str
    recorded: Decision
    instead: Decision | None
    """None: the graph has no answer; `text` says why."""
    text: str

    def __str__(self) -> str:
        return f"{self.seq} (turn {self.turn}, by {self.speaker}): {self.text}"


class WhatIf(Struct, frozen=True, kw_only=True):
    """Where a graph would have moved the floor differently. `str()` of it is for people."""

    channel_id: str
    turns: int
    """How many were judged."""
    differs: list[Instead]

    def __str__(self) -> str:
        if not self.differs:
            return f"{self.channel_id}: the floor would have gone the same way in all {self.turns} turns."
        told = f"{self.channel_id}: {len(self.differs)} of {self.turns} turns would have led elsewhere:"
        return "\n".join([told, *(f"  {one}" for one in self.differs)])


def what_if(past: Iterable[tuple[Envelope, State]], graph: TransitionGraph) -> WhatIf:
    """Judge the turns of a channel by another graph. `past` is every line with the state after it.

    Raises `BadGraph` or `UnknownParticipant` if the graph does not fit the channel's participants.
    """
    before: State | None = None
    router: Router | None = None
    differs, turns = list[Instead](), 0
    for line, state in past:
        router = Router(graph, state.spec) if router is None else router
        if line.decision is not None and line.decision.by.kind == "initial":
            differs += _beginning(line, state, router)
        elif before is not None and line.decision is not None and is_turn(line):
            turns += 1
            differs += _judged(before, line, line.decision, router)
        before = state
    channel_id = "" if before is None else before.channel_id
    return WhatIf(channel_id=channel_id, turns=turns, differs=differs)


def _beginning(line: Envelope, state: State, router: Router) -> Iterable[Instead]:
    recorded = line.decision
    if line.event_type == ev.EV_CHANNEL_FORKED or not isinstance(recorded, Speak):
        return
    if recorded.agent_id != router.initial_speaker:
        instead = Speak(router.initial_speaker, Basis(kind="initial"))
        text = f"{outcome(instead, state.spec)} first, not to {state.spec.name_of(recorded.agent_id)}"
        yield Instead(seq=line.seq, turn=0, speaker="hub", recorded=recorded, instead=instead, text=text)


def _judged(before: State, line: Envelope, recorded: Decision, router: Router) -> Iterable[Instead]:
    seen = taken(replace(before, seq=line.seq, last_at=line.created_at), line)
    told = Instead(
        seq=line.seq,
        turn=before.turn,
        speaker=before.spec.name_of(speaker_of(line)),
        recorded=recorded,
        instead=None,
        text="",
    )
    try:
        instead = router.route(seen, line)
    except TurnlineError as error:
        yield replace(told, text=f"the graph has no answer: {error}")
        return
    if outcome(instead, before.spec) != outcome(recorded, before.spec):
        was = outcome(recorded, before.spec)
        text = f"{outcome(instead, before.spec)}, because {because(instead.by)}; on the log, {was}"
        yield replace(told, instead=instead, text=text)
