"""Simulation: scripted turns on a graph, decided and folded by the channel's own rules.

    print(simulate(graph, [
        ("user", "A slogan, please."),
        ("drafter", "Bread worth getting up for."),
        ScriptTurn("reviewer", "That is the one.", context={"approved": True}),
    ]))

No model, no hub, no clock: each turn is a draft, `decide` says what it brings about, `fold`
what it adds up to. A turn that the channel would refuse raises what the channel would raise,
with a note that says which turn of the script it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from turnline.core import event_types as ev
from turnline.core.adapters import WorkflowAdapter
from turnline.core.channel import ChannelSpec, ChannelState, Participant
from turnline.core.envelope import Close, Decision, Draft, Envelope, JsonObject, Speak
from turnline.core.event_types import body_of
from turnline.core.graph import TransitionGraph
from turnline.core.routing import Finish, Handoff, ToolOutcome, packet
from turnline.core.state import LONG_AGO, WorkflowState
from turnline.core.step_targets import names_in, steps_of
from turnline.core.study.cast import OTHER, cast_of
from turnline.core.study.wording import turns_told
from turnline.errors import OutOfTurn, Refused

SIMULATED: Final = "simulation"


@dataclass(frozen=True, slots=True)
class ScriptTurn:
    """One turn of a script: who, and what happens in it."""

    speaker: str
    text: str = ""
    tools: Sequence[str] = field(default=(), kw_only=True)
    """The tools that it calls and that succeed, in order."""
    context: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Context variables that it sets."""
    delete: Sequence[str] = field(default=(), kw_only=True)
    """Context variables that it deletes."""
    handoff: str | None = field(default=None, kw_only=True)
    """To whom a tool of it hands the floor."""
    finish: str | None = field(default=None, kw_only=True)
    """The reason with which a tool of it closes the channel."""
    signal: str | None = field(default=None, kw_only=True)
    """What it ends with, if it is a step of a flow."""
    fails: bool = field(default=False, kw_only=True)
    """Whether it is given up."""


Script = Iterable[ScriptTurn | tuple[str, str] | str]
"""Turns; a pair is a speaker and a text, a text alone is a speaker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorChange:
    """A turn, and where the floor went after it."""

    turn: int
    speaker: str
    text: str
    next_speaker: str | None
    """None: the channel closed."""
    close_reason: str
    decision: Decision
    """With the rule that said so."""

    @property
    def why(self) -> str:
        """What the decision rests on, in a few words."""
        by = self.decision.by
        rule = by.kind if by.index is None else f"transitions[{by.index}]"
        facts = [one for one in (by.condition, by.target) if one]
        return f"{rule}: {' -> '.join(facts)}" if facts else rule

    def __str__(self) -> str:
        led = f"closed: {self.close_reason}" if self.next_speaker is None else self.next_speaker
        said = f"{self.turn:>3} {self.speaker}: {self.text}".rstrip()
        return f"{said}\n      -> {led}  ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """How a script went."""

    changes: tuple[FloorChange, ...]
    state: WorkflowState
    envelopes: tuple[Envelope, ...]
    speaker: str | None
    """Who has the floor at the end; None if the channel closed."""

    @property
    def status(self) -> ChannelState:
        return self.state.status

    @property
    def close_reason(self) -> str:
        """Empty if it is still open."""
        return self.state.pending_close_reason

    @property
    def context_vars(self) -> dict[str, Any]:
        return self.state.context_vars

    def __str__(self) -> str:
        end = f"(closed: {self.close_reason})" if self.speaker is None else f"(the floor is {self.speaker}'s)"
        return "\n".join([*map(str, self.changes), end])


def simulate(
    graph: TransitionGraph,
    script: Script,
    *,
    participants: Iterable[str | Participant] | None = None,
    opener: str | None = None,
    context_vars: Mapping[str, Any] | None = None,
) -> Simulation:
    """Play `script` on a channel with `graph`, and return every floor change with its reason.

    Without `participants`, those take part whom the graph or the script names. Without an
    `opener`, the initial speaker opens. Raises what the channel would: `OutOfTurn` for a turn of
    somebody who has not the floor, `BadTarget` for a handoff to nobody.
    """
    turns = [_turn(one) for one in script]
    play = _Play(_spec(graph, turns, participants, opener, context_vars))
    for number, turn in enumerate(turns):
        try:
            play.take(turn)
        except Refused as error:
            error.add_note(f"script[{number}]: {turn.speaker!r}; after {turns_told(len(play.changes))}.")
            raise
    return play.told()


class _Play:
    """A channel in the making."""

    def __init__(self, spec: ChannelSpec) -> None:
        self._adapter = WorkflowAdapter()
        self._spec = spec
        self._names = {one.agent_id: one.name for one in spec.participants}
        self.state = self._adapter.initial(spec)
        self.envelopes: list[Envelope] = []
        self.changes: list[FloorChange] = []
        self._accept(ev.HUB, ev.EV_CHANNEL_INVITE, {})

    def take(self, turn: ScriptTurn) -> None:
        speaker, floor = self._spec.resolve(turn.speaker), self.state.expected_next_speaker
        if floor not in (None, speaker):
            raise OutOfTurn(SIMULATED, sender=turn.speaker, speaker=self._names[str(floor)])
        if turn.fails:
            error = {"type": "Simulated", "message": turn.text}
            self._accept(ev.HUB, ev.EV_TURN_FAILED, {"agent_id": speaker, "error": error})
        else:
            self._accept(speaker, ev.EV_PACKET, self._packet(turn))

    def told(self) -> Simulation:
        speaker = self.state.expected_next_speaker
        return Simulation(
            changes=tuple(self.changes),
            state=self.state,
            envelopes=tuple(self.envelopes),
            speaker=None if speaker is None else self._names[speaker],
        )

    def _accept(self, sender: str, event_type: str, data: JsonObject) -> None:
        draft = Draft(
            envelope_id=f"{SIMULATED}-{len(self.envelopes) + 1}",
            sender_id=sender,
            event_type=event_type,
            event_data=data,
        )
        appended, self.state = self._adapter.decide(self.state, draft, LONG_AGO)
        self.envelopes += appended
        for one in appended:
            if one.decision is not None and one.decision.by.kind != "initial":
                self.changes.append(self._change(one, one.decision))

    def _change(self, envelope: Envelope, decision: Decision) -> FloorChange:
        data = envelope.event_data
        failed = envelope.event_type == ev.EV_TURN_FAILED
        speaker = data["agent_id"] if failed else envelope.sender_id
        return FloorChange(
            turn=len(self.changes) + 1,
            speaker=self._names[speaker],
            text=f"(failed) {data['error']['message']}" if failed else body_of(envelope.event_type, data),
            next_speaker=self._names[decision.agent_id] if isinstance(decision, Speak) else None,
            close_reason=decision.reason if isinstance(decision, Close) else "",
            decision=decision,
        )

    def _packet(self, turn: ScriptTurn) -> JsonObject:
        routing_tools = self._adapter.router(self.state).routing_tools
        data = packet(turn.text, _outcomes(turn), routing_tools=routing_tools)
        if turn.signal is not None:
            data["routing"] = {"kind": "signal", "signal": turn.signal}
        return {**data, "context_updates": dict(turn.context), "context_deletes": list(turn.delete)}


def _outcomes(turn: ScriptTurn) -> list[ToolOutcome]:
    called = [ToolOutcome(tool=name, succeeded=True) for name in turn.tools]
    if turn.handoff is not None:
        called.append(ToolOutcome(tool="handoff", succeeded=True, returned=Handoff(turn.handoff)))
    if turn.finish is not None:
        called.append(ToolOutcome(tool="finish", succeeded=True, returned=Finish(turn.finish)))
    return called


def _turn(one: ScriptTurn | tuple[str, str] | str) -> ScriptTurn:
    match one:
        case ScriptTurn():
            return one
        case str():
            return ScriptTurn(one)
        case (speaker, text):
            return ScriptTurn(speaker, text)


def _spec(
    graph: TransitionGraph,
    turns: Sequence[ScriptTurn],
    participants: Iterable[str | Participant] | None,
    opener: str | None,
    context_vars: Mapping[str, Any] | None,
) -> ChannelSpec:
    given = participants
    if given is None:
        steps = {name for step, target in steps_of(graph).items() for name in (step, target.step)}
        spoken = [name for turn in turns for name in (turn.speaker, turn.handoff) if name is not None]
        given = dict.fromkeys(name for name in (*names_in(graph), *spoken) if name not in steps)
    cast = cast_of(graph, participants=given, opener=opener or graph.initial_speaker)
    knobs = {"graph": graph.to_dict(), "context_vars": dict(context_vars or {})}
    return ChannelSpec(
        channel_id=SIMULATED,
        type=WorkflowAdapter.manifest.type,
        creator_id=cast.spec.creator_id,
        participants=_at_least_two(cast.spec.participants),
        knobs=knobs,
    )


def _at_least_two(members: Sequence[Participant]) -> list[Participant]:
    """A channel has two participants; a graph that names one has a listener here."""
    lonely = [Participant("listener", OTHER)] if len(members) == 1 else []
    return [*members, *lonely]
