"""Why the floor moved: every rule in its order, what it looked at, and the one that decided.

    why(before, envelope, rules) -> Why

Rule 1: what the log recorded is the truth (W7). The rules are asked again only to show the values
they looked at; where today's answer is another one, that is said, and changes nothing.

Rule 2: an explanation never raises. A condition that nobody registered any more, or that raises, is
shown with its error. Of a line whose content was erased, only what the log still has is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.channel import ChannelSpec, ChannelState
from turnline.core.envelope import Basis, Close, Decision, Envelope, Rest, Speak
from turnline.core.fold import taken
from turnline.core.graph import TransitionGraph
from turnline.core.router import MAX_DECISION_STEPS, Ready, Router
from turnline.core.state import RETRY, STUCK, State
from turnline.core.study.looked import Part, look, shown
from turnline.core.transitions import routing_of, speaker_of
from turnline.expressions.functions import Steps

WHY_DECISIONS: Final = 10
"""An explanation may cost as much as so many decisions: it asks every rule, and the parts of each."""
_RESUME: Final = "resume"
"""The kind of a decision that gives a paused turn its floor again; an operator's is `retry`."""
_ERASED: Final = "What it was decided on was erased."
_TURNS: Final = (*sorted(ev.SUBSTANTIVE), ev.EV_TURN_FAILED)


class Rule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule, in the order in which rules are asked (W2, W3)."""

    kind: str
    """As in `Basis`: `finish`, `handoff`, `transition`, `default`, `turn_failed`, `max_turns`, ..."""
    text: str
    """The condition, as people read it."""
    target: str = ""
    index: int | None = None
    priority: int = 0
    held: bool | None = None
    """None: it cannot be told."""
    asked: bool = True
    """Whether the order came to it: after the first that holds, nobody asks."""
    decided: bool = False
    """Whether the log says that this one decided."""
    values: dict[str, Any] = {}
    """What it looked at."""
    parts: list[Part] = []
    """The conditions inside it."""
    error: str = ""


class Why(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why one line did to the floor what it did. `str()` of it is for people."""

    channel_id: str
    seq: int
    event_type: str
    speaker: str
    """Whose turn the line was, by name; else who wrote it."""
    turn: int | None = None
    """The number of the turn, if the line was one."""
    decision: Decision | None = None
    """As it is on the log."""
    summary: str
    rules: list[Rule] = []
    differs: str = ""
    """What the rules say today, where that is not what is on the log."""

    def __str__(self) -> str:
        lines = [f"{self.channel_id} {self.seq}: {self.summary}", *map(_told, self.rules)]
        return "\n".join([*lines, f"  Today: {self.differs}"] if self.differs else lines)


def why(before: State, envelope: Envelope, adapter: object = None) -> Why:
    """Explain what `envelope` did to the floor of a channel whose state before it was `before`.

    `adapter` has the channel's rules; without it, only what the log recorded is told.
    """
    spec = before.spec
    counts = is_turn(envelope)
    told = Why(
        channel_id=envelope.channel_id,
        seq=envelope.seq,
        event_type=envelope.event_type,
        speaker=spec.name_of(speaker_of(envelope)),
        turn=before.turn if counts else None,
        decision=envelope.decision,
        summary=_no_turn(before, envelope),
    )
    if not counts or envelope.decision is None:
        return replace(told, summary=f"{told.summary} {_ERASED}") if envelope.is_erased else told
    if envelope.is_erased or before.is_incomplete:
        # The rules cannot be asked again without what they looked at.
        return replace(told, summary=f"{_moved(told, envelope.decision, spec)} {_ERASED}")
    seen = taken(replace(before, seq=envelope.seq, last_at=envelope.created_at), envelope)
    rules, error = _rules(seen, envelope, adapter)
    return replace(
        told,
        summary=_moved(told, envelope.decision, spec),
        rules=[replace(rule, decided=_is_basis(rule, envelope.decision.by)) for rule in rules],
        differs=error or _differs(seen, envelope, adapter),
    )


def is_turn(envelope: Envelope) -> bool:
    """Whether the line was somebody's turn, taken or failed."""
    decision = envelope.decision
    return envelope.event_type in _TURNS and decision is not None and decision.by.kind != "initial"


def outcome(decision: Decision, spec: ChannelSpec) -> str:
    """What a decision says, in words."""
    if isinstance(decision, Close):
        return f"the channel closes with {decision.reason!r}"
    if isinstance(decision, Rest):
        return "the channel rests until a person or a program says something"
    return f"the floor goes to {spec.name_of(decision.agent_id)}"


# The rules of a workflow channel, in the order in which they are asked.


def _rules(seen: State, envelope: Envelope, adapter: object) -> tuple[list[Rule], str]:
    """The rules; and why they cannot be shown, where they cannot."""
    router = getattr(adapter, "router", None)
    by = envelope.decision.by if envelope.decision else Basis(kind="adapter")
    if router is None:
        return [Rule(kind=by.kind, text=by.condition or "the channel type", target=by.target, held=True)], ""
    try:
        ready: Router = router(seen)
        graph = TransitionGraph.loads(getattr(seen, "graph_data", {}))
    except Exception as error:  # A class that nobody registers any more; the log still says what it did.
        recorded = Rule(kind=by.kind, text=by.condition, target=by.target, index=by.index)
        return [recorded], f"the graph cannot be read any more: {error}"
    steps = Steps(WHY_DECISIONS * MAX_DECISION_STEPS)
    is_failure = envelope.event_type == ev.EV_TURN_FAILED
    first = [] if is_failure else _packet_rules(envelope)
    order = ready.on_failure if is_failure else ready.on_turn
    asked = [
        *first,
        *(_transition(one, graph, seen, envelope, steps) for one in order),
        _last(ready, is_failure),
    ]
    return [*_in_order(asked), *_limit(ready, seen)], ""


def _packet_rules(envelope: Envelope) -> list[Rule]:
    routing = routing_of(envelope)
    kind = routing.get("kind")
    values = {"routing": routing} if routing else {}
    finish = Rule(kind="finish", text="the packet finishes", held=kind == "finish", values=values)
    return [finish, Rule(kind="handoff", text="the packet hands off", held=kind == "handoff", values=values)]


def _transition(one: Ready, graph: TransitionGraph, seen: State, envelope: Envelope, steps: Steps) -> Rule:
    written = graph.transitions[one.index]
    part = look(one.when, written.when, seen, envelope, steps)
    return Rule(
        kind="transition",
        text=one.when_text,
        target=one.then_text,
        index=one.index,
        priority=written.priority,
        held=part.held,
        values=part.values,
        parts=part.parts,
        error=part.error,
    )


def _last(router: Router, is_failure: bool) -> Rule:
    if is_failure:
        return Rule(kind="turn_failed", text="no transition speaks of the failed turn", held=True)
    return Rule(kind="default", text="no transition held", target=router.default_text, held=True)


def _in_order(rules: Iterable[Rule]) -> Iterable[Rule]:
    """After the first that holds, nobody asks."""
    found = False
    for rule in rules:
        yield replace(rule, asked=not found)
        found = found or bool(rule.held)


def _limit(router: Router, seen: State) -> Iterable[Rule]:
    limits = [one for one in (router.max_turns, seen.spec.knobs.get("max_turns")) if one is not None]
    if limits:
        held = seen.turn_count >= min(limits)
        values = {"turn_count": seen.turn_count}
        text = f"max_turns={min(limits)} is reached and nothing closed the channel"
        yield Rule(kind="max_turns", text=text, held=held, values=values)


def _is_basis(rule: Rule, by: Basis) -> bool:
    return (rule.kind, rule.index) == (by.kind, by.index)


def _differs(seen: State, envelope: Envelope, adapter: object) -> str:
    route: Callable[[Any, Envelope], Decision] | None = getattr(adapter, "decision_after", None)
    recorded = envelope.decision
    if route is None or recorded is None:
        return ""
    try:
        today = route(seen, envelope)
    except Exception as error:  # A rule of the user's own may raise anything.
        return f"the rules cannot answer: {error}"
    if _same(today, recorded):
        return ""
    return f"{outcome(today, seen.spec)}, by {because(today.by)}. The log stands: it is what happened."


def _same(one: Decision, other: Decision) -> bool:
    return (type(one), _named(one), one.by.kind, one.by.index) == (
        type(other),
        _named(other),
        other.by.kind,
        other.by.index,
    )


def _named(decision: Decision) -> str:
    if isinstance(decision, Speak):
        return decision.agent_id
    return decision.reason if isinstance(decision, Close) else ""


# In words.

_BECAUSE: Final = {
    "default": "no transition held, so the default target answered",
    "max_turns": "max_turns was reached",
    "out_of_steps": "the conditions cost more steps than one decision has",
    "finish": "the packet finished",
    "turn_failed": "the turn failed and no rule takes it",
    "empty_reply": "the reply was empty",
    "agent_turns": "agents spoke without a message from a person or a program",
}


def _moved(told: Why, decision: Decision, spec: ChannelSpec) -> str:
    turn = f"after turn {told.turn}, by {told.speaker},"
    return f"{turn} {outcome(decision, spec)}: {because(decision.by)}."


def because(by: Basis) -> str:
    """What a decision rests on, in words."""
    if by.kind == "transition":
        return f"transition {by.index} held" + (f", {by.condition} -> {by.target}" if by.condition else "")
    if by.kind == "handoff":
        return f"the packet handed off to {by.target!r}"
    if by.kind == "adapter":
        return by.target or "so the channel type says"
    said = _BECAUSE.get(by.kind, by.kind)
    return f"{said} ({by.target})" if by.target else said


def _no_turn(before: State, envelope: Envelope) -> str:
    """What is said of a line that was not a turn."""
    decision, data = envelope.decision, envelope.event_data
    if envelope.event_type == ev.EV_CHANNEL_CLOSED:
        return _closing(before, data)
    if decision is not None and decision.by.kind in (_RESUME, RETRY):
        return _resuming(before, decision.by.kind)
    if decision is not None:
        return f"{outcome(decision, before.spec)}: nobody's turn was over, it {_begins(envelope)}."
    if envelope.event_type == ev.EV_TEXT:
        return "an interjection: it moves neither the floor nor the turn count."
    floor = before.expected_next_speaker
    if envelope.event_type == ev.EV_TURN_PAUSED and floor:
        return f"{_pausing(str(data.get('reason')), before.spec.name_of(floor))} It keeps the floor."
    has = f"; {before.spec.name_of(floor)} keeps the floor" if floor else ""
    return f"a {envelope.event_type!r} never moves the floor{has}."


def _pausing(reason: str, name: str) -> str:
    if reason == STUCK:
        return f"the turn of {name} is stuck: its process ended each time. It waits for an operator's retry."
    return f"the turn of {name} is paused: it waits ({reason}), and no worker has it."


def _resuming(before: State, kind: str) -> str:
    name = before.spec.name_of(before.expected_next_speaker or "")
    since = "" if before.pause is None else f", which was paused at line {before.pause.seq}"
    because = "an operator retries it" if kind == RETRY else "what it waited for is there"
    return f"the turn of {name}{since}, resumes: {because}."


def _begins(envelope: Envelope) -> str:
    return (
        "goes on in the fork" if envelope.event_type == ev.EV_CHANNEL_FORKED else "begins with whom it names"
    )


def _closing(before: State, data: dict[str, Any]) -> str:
    reason = f"the channel closed with {data.get('reason')!r}"
    if before.status is ChannelState.CLOSING:
        return f"{reason}, as line {before.spoken_seq} decided."
    if before.status is ChannelState.EXPIRED:
        return f"{reason}: its time was up."
    if data.get("by"):
        return f"{reason}: {before.spec.name_of(str(data['by']))} closed it."
    return f"{reason}; no rule of the graph was asked."


def _told(rule: Rule) -> str:
    mark = ">" if rule.decided else " "
    where = "" if rule.index is None else f" {rule.index}"
    priority = f" (priority {rule.priority})" if rule.priority else ""
    then = f" -> {rule.target}" if rule.target else ""
    looked = f"  [{shown(rule.values)}]" if rule.values else ""
    line = f"{mark} {rule.kind}{where}{priority}: {rule.text}{then}: {_verdict(rule)}{looked}"
    return "\n".join([line, *(f"      {part}" for one in rule.parts for part in one.told())])


def _verdict(rule: Rule) -> str:
    if rule.error:
        return f"cannot be evaluated: {rule.error}"
    if rule.decided:
        return "decided"
    if rule.held is None:
        return "unknown"
    if not rule.asked:
        return "not asked" + (
            ", though it would have held" if rule.held and rule.kind == "transition" else ""
        )
    return "held" if rule.held else "did not hold"
