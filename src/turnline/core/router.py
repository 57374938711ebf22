"""A graph made ready for one set of participants: compiled once, asked every turn.

    compile_graph(data, spec) -> Router
    Router.route(state, envelope) -> Speak or Close, with what it rests on

Rule: for a turn, `Finish` goes before `Handoff`, before the transitions, before
the default; `max_turns` closes unless the turn closed the channel anyway (W3).
All conditions of one decision share `MAX_DECISION_STEPS`. Where they cost more, the
turn stands and the channel closes with `out_of_steps`: nothing is retried or lost.
For a turn that was given up, only transitions that speak of `TurnFailed` are
tried; without one the channel closes with `turn_failed` (T5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from turnline.core.channel import ChannelSpec, Names
from turnline.core.envelope import Basis, Close, Decision, Envelope, JsonObject, Speak
from turnline.core.event_types import EV_TURN_FAILED
from turnline.core.graph import TransitionGraph
from turnline.core.state import State
from turnline.core.step_targets import named_by
from turnline.core.transitions import (
    Condition,
    RevertToInitiatorTarget,
    ToolCalled,
    TransitionDecision,
    TransitionTarget,
    TurnFailed,
    holds,
    parts_of,
    routing_of,
)
from turnline.errors import BadGraph, BadTarget, RoutingFailed
from turnline.expressions.functions import OutOfSteps, Steps

MAX_DECISION_STEPS: Final = 50_000
"""What the conditions of one decision may cost together; see `expressions.functions.MAX_STEPS`."""
OUT_OF_STEPS: Final = "out_of_steps"
_TEXT_CHARACTERS: Final = 200
"""How much of a condition or target is written on the envelope."""

T = TypeVar("T")


class Router:
    """Answers where the floor goes."""

    def __init__(self, graph: TransitionGraph, spec: ChannelSpec) -> None:
        names = Names(spec)
        self.initial_speaker = names.resolve(graph.initial_speaker)
        self._spec = spec
        self.max_turns = graph.max_turns
        ready = [Ready(i, t.when, t.then, names) for i, t in enumerate(graph.transitions)]
        priorities = [t.priority for t in graph.transitions]
        self.on_turn = sorted(ready, key=lambda one: priorities[one.index])
        self.on_failure = [one for one in self.on_turn if one.is_about_failure]
        self._default = resolved(graph.default_target, names)
        self.default_text = _text(graph.default_target)
        self._graph = graph
        self.routing_tools = frozenset(_tool_names(t.when for t in graph.transitions))
        """The tools that some transition waits for: what a round looks for among its calls (T4)."""

    def route(self, state: State, envelope: Envelope) -> Decision:
        """Return where the floor goes after `envelope`, which `state` includes."""
        decision = (
            self._failed(state, envelope)
            if envelope.event_type == EV_TURN_FAILED
            else self._turn(state, envelope)
        )
        if isinstance(decision, Speak) and self.max_turns is not None and state.turn_count >= self.max_turns:
            return Close("max_turns", Basis(kind="max_turns", target=f"max_turns={self.max_turns}"))
        return decision

    def _turn(self, state: State, envelope: Envelope) -> Decision:
        routing = routing_of(envelope)
        match routing.get("kind"):
            case "finish":
                return Close(routing.get("reason") or "finished", Basis(kind="finish"))
            case "handoff":
                return self._handoff(str(routing["target"]), str(routing.get("tool", "")))
        return self._first(self.on_turn, state, envelope) or self._fallback(state, envelope)

    def _failed(self, state: State, envelope: Envelope) -> Decision:
        return self._first(self.on_failure, state, envelope) or Close(
            "turn_failed", Basis(kind="turn_failed")
        )

    def _handoff(self, target: str, tool: str) -> Decision:
        basis = Basis(kind="handoff", condition=tool, target=target)
        return Speak(self._on_channel(f"the handoff to {target!r}", target), basis)

    def _first(self, ready: Iterable[Ready], state: State, envelope: Envelope) -> Decision | None:
        steps = Steps(MAX_DECISION_STEPS)
        for one in ready:
            try:
                is_next = _guarded(one.when_text, one.index, partial(holds, one.when, state, envelope, steps))
            except OutOfSteps:
                basis = Basis(kind=OUT_OF_STEPS, index=one.index, condition=one.when_text)
                return Close(OUT_OF_STEPS, basis)
            if is_next:
                basis = Basis(
                    kind="transition", index=one.index, condition=one.when_text, target=one.then_text
                )
                return self._answer(one.then, one.then_text, state, envelope, basis)
        return None

    def _fallback(self, state: State, envelope: Envelope) -> Decision:
        basis = Basis(kind="default", target=self.default_text)
        return self._answer(self._default, self.default_text, state, envelope, basis)

    def _answer(
        self, target: TransitionTarget, text: str, state: State, envelope: Envelope, basis: Basis
    ) -> Decision:
        answer = _guarded(text, basis.index, partial(target.resolve, state, envelope))
        if not _is_decision(answer):
            wrong = TypeError(f"expected a TransitionDecision with text in it, found {answer!r}")
            raise RoutingFailed(text, index=basis.index, cause=wrong)
        if answer.next_speaker is None:
            return Close(answer.close_reason or "terminated", basis)
        return Speak(self._on_channel(text, answer.next_speaker), basis)

    def _on_channel(self, what: str, name: str) -> str:
        agent_id = self._spec.names().get(name)
        member = None if agent_id is None else self._spec.participant(agent_id)
        if member is None or not member.takes_turns:
            takers = (one.name for one in self._spec.participants if one.takes_turns)
            raise BadTarget(what, named=name, participants=takers)
        return member.agent_id

    def check_turns(self, spec: ChannelSpec) -> None:
        """Refuse a graph that can give the floor to a participant that takes no turns (N9)."""
        silent = [one for one in spec.participants if not one.takes_turns]
        names = {name: one.name for one in silent for name in (one.agent_id, one.name)}
        for path, name in floors_of(self._graph, spec.creator_id) if names else ():
            # The opener's message is its turn, so it may come first.
            if name in names and (path != INITIAL or spec.message is None):
                found = f"{names[name]!r}, which takes no turns on this channel"
                raise BadGraph(".".join(map(str, path)), found=found, expected="a participant that does")


INITIAL: Final = ("initial_speaker",)


def floors_of(graph: TransitionGraph, opener: str | None) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the participants that the graph itself can give the floor, and where it says so."""
    yield INITIAL, graph.initial_speaker
    targets = [(("transitions", place, "then"), one.then) for place, one in enumerate(graph.transitions)]
    for path, target in (*targets, (("default_target",), graph.default_target)):
        for name in named_by(target):
            yield path, name
        if isinstance(target, RevertToInitiatorTarget) and opener:
            yield path, opener


def compile_graph(data: JsonObject, spec: ChannelSpec) -> Router:
    """Return the router of a graph among the participants of `spec`."""
    return Router(TransitionGraph.loads(data), spec)


class Ready:
    """A transition with names looked up, and the texts that go on the envelope."""

    def __init__(self, index: int, when: Condition, then: TransitionTarget, names: Names) -> None:
        self.index = index
        self.when = resolved(when, names)
        self.then = resolved(then, names)
        self.when_text = _text(when)
        self.then_text = _text(then)
        self.is_about_failure = any(isinstance(part, TurnFailed) for part in parts_of(when))


def _is_decision(answer: object) -> bool:
    if not isinstance(answer, TransitionDecision):
        return False
    return all(
        value is None or isinstance(value, str) for value in (answer.next_speaker, answer.close_reason)
    )


def resolved(thing: T, names: ChannelSpec | Names) -> T:
    """`thing` with ids where names were written, at any depth."""
    agent_fields: tuple[str, ...] = getattr(thing, "agent_fields", ())
    changes: dict[str, Any] = {}
    for f in fields(thing):  # type: ignore[arg-type]  # conditions and targets are dataclasses
        value = getattr(thing, f.name)
        if f.name in agent_fields and (value is not None or f.default is not None):
            changes[f.name] = _ids(value, names, f"{type(thing).__name__}.{f.name}")
        elif isinstance(value, list | tuple) and any(is_dataclass(item) for item in value):
            inner = (resolved(item, names) if is_dataclass(item) else item for item in value)
            changes[f.name] = type(value)(inner)
        elif is_dataclass(value):
            changes[f.name] = resolved(value, names)
    return replace(thing, **changes) if changes else thing  # type: ignore[type-var]


def _ids(value: object, names: ChannelSpec | Names, field: str) -> str | list[str] | tuple[str, ...]:
    match value:
        case str():
            return names.resolve(value)
        case list() | tuple() if all(isinstance(one, str) for one in value):
            return type(value)(map(names.resolve, value))
    raise BadGraph(field, found=repr(value)[:80], expected="a participant's id or name")


def _tool_names(whens: Iterable[Condition]) -> Iterable[str]:
    return (part.tool_name for when in whens for part in parts_of(when) if isinstance(part, ToolCalled))


def _guarded(what: str, index: int | None, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except OutOfSteps:
        raise
    except (
        Exception
    ) as error:  # A user's own class may raise anything; the turn is refused, the channel lives.
        raise RoutingFailed(what, index=index, cause=error) from error


def _text(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= _TEXT_CHARACTERS else text[: _TEXT_CHARACTERS - 1] + "…"
