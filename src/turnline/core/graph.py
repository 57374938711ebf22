"""The graph of a workflow channel: who speaks first, and who after whom.

    TransitionGraph(initial_speaker, transitions, default_target, max_turns)
    Transition(when=condition, then=target, priority=0)

Rule 1: transitions are tried in ascending priority, ties in list order; the
first whose condition holds wins; if none does, `default_target` answers (W2).

Rule 2: a graph is data. It can be written before anyone has registered, with
names instead of ids, and `loads(to_dict())` gives an equal one (W1, L2).

Rule 3: what a graph costs is known before any of it is compiled (`cost_of`). `loads`, and so
`open`, refuses one that costs more than `MAX_COST`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from turnline.core.envelope import JsonObject
from turnline.core.transitions import (
    AgentTarget,
    Always,
    AtTurn,
    Condition,
    FromSpeaker,
    RoundRobinTarget,
    TerminateTarget,
    TransitionTarget,
    conditions,
    targets,
)
from turnline.errors import BadGraph

MAX_TRANSITIONS: Final = 2_000
MAX_COST: Final = 10_000
"""Of a graph and those nested in it: 1 for each condition, target, and word or sign of an expression."""
_WORDS: Final = re.compile(r"\w+|[^\w\s]")

if TYPE_CHECKING:
    from turnline.core.study.exploration import Exploration
    from turnline.core.study.simulation import Script, Simulation


@dataclass(frozen=True, slots=True)
class Transition:
    """When this holds, then the floor goes there."""

    when: Condition
    then: TransitionTarget
    priority: int = 0
    """Lower is tried first; negatives are allowed."""

    def __post_init__(self) -> None:
        if not hasattr(self.when, "evaluate"):
            raise BadGraph(
                "Transition.when", found=repr(self.when)[:80], expected="a condition, e.g. FromSpeaker(...)"
            )
        if not hasattr(self.then, "resolve"):
            raise BadGraph(
                "Transition.then", found=repr(self.then)[:80], expected="a target, e.g. AgentTarget(...)"
            )

    def to_dict(self) -> JsonObject:
        return {
            "when": conditions.to_dict(self.when),
            "then": targets.to_dict(self.then),
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class TransitionGraph:
    """Who speaks first, who after whom, and when it ends."""

    initial_speaker: str
    transitions: Sequence[Transition]
    default_target: TransitionTarget
    max_turns: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "transitions", tuple(self.transitions))
        _check(self)

    @classmethod
    def sequence(cls, steps: Iterable[str]) -> TransitionGraph:
        """Each speaks once per mention, in this order; then the channel closes with `sequence_complete`."""
        order = _names(steps, "sequence")
        if len(set(order)) == len(order):
            whens: list[Condition] = [FromSpeaker(step) for step in order]
        else:
            # A speaker that comes twice does not say where we are; the number of the turn does.
            whens = [AtTurn(turn) for turn in range(1, len(order) + 1)]
        pairs = zip(whens, order[1:], strict=False)
        return cls(
            order[0], [Transition(w, AgentTarget(s)) for w, s in pairs], TerminateTarget("sequence_complete")
        )

    @classmethod
    def round_robin(cls, participants: Iterable[str], max_turns: int | None = None) -> TransitionGraph:
        """Everybody in turn, in this order, until `max_turns`."""
        order = _names(participants, "round_robin")
        turn = Transition(Always(), RoundRobinTarget(order))
        return cls(order[0], [turn], TerminateTarget("round_robin_complete"), max_turns)

    def simulate(self, script: Script, **options: Any) -> Simulation:
        """See `turnline.core.study.simulation.simulate`."""
        from turnline.core.study.simulation import simulate  # noqa: PLC0415  Nobody who routes studies.

        return simulate(self, script, **options)

    def explore(self, **options: Any) -> Exploration:
        """See `turnline.core.study.exploration.explore`."""
        from turnline.core.study.exploration import explore  # noqa: PLC0415

        return explore(self, **options)

    def to_dict(self) -> JsonObject:
        return {
            "initial_speaker": self.initial_speaker,
            "transitions": [transition.to_dict() for transition in self.transitions],
            "default_target": targets.to_dict(self.default_target),
            "max_turns": self.max_turns,
        }

    def dumps(self) -> str:
        return msgspec.json.encode(self.to_dict()).decode()

    @classmethod
    def loads(cls, data: JsonObject | str) -> TransitionGraph:
        """Return the graph that `to_dict` or `dumps` gave."""
        data = _parsed(data) if isinstance(data, str) else data
        _check_cost(data)
        match data:
            case {
                "initial_speaker": initial_speaker,
                "transitions": list(transitions),
                "default_target": default,
                **rest,
            } if rest.keys() <= {"max_turns"}:
                return cls(
                    initial_speaker=initial_speaker,
                    transitions=[_transition(index, one) for index, one in enumerate(transitions)],
                    default_target=targets.from_dict(default),
                    max_turns=rest.get("max_turns"),
                )
        raise BadGraph("the graph", found=repr(data)[:80], expected="what `TransitionGraph.to_dict()` gave")


def sequence(steps: Iterable[str]) -> TransitionGraph:
    """See `TransitionGraph.sequence`."""
    return TransitionGraph.sequence(steps)


def round_robin(participants: Iterable[str], max_turns: int | None = None) -> TransitionGraph:
    """See `TransitionGraph.round_robin`."""
    return TransitionGraph.round_robin(participants, max_turns)


def cost_of(data: object) -> int:
    """Return what compiling and asking a graph costs, from its data: conditions, words and signs."""
    cost, left = 0, [data]
    while left:
        match left.pop():
            case {"name": str(), "args": dict(args), **rest}:
                cost += 1
                expression = args.get("expression")
                cost += len(_WORDS.findall(expression)) if isinstance(expression, str) else 0
                left += [*args.values(), *rest.values()]
            case dict(found):
                left += found.values()
            case list(found):
                left += found
    return cost


def _check_cost(data: object) -> None:
    cost = cost_of(data)
    if cost > MAX_COST:
        expected = f"at most {MAX_COST} conditions, targets and words (MAX_COST); split it"
        raise BadGraph("the graph", found=f"of {cost}", expected=expected)


def _parsed(text: str) -> JsonObject:
    try:
        return msgspec.json.decode(text, type=JsonObject)
    except msgspec.DecodeError as error:
        raise BadGraph("the graph", found=f"not JSON ({error})", expected="what `dumps` gave") from error


def _transition(index: int, data: object) -> Transition:
    match data:
        case {"when": when, "then": then, **rest} if rest.keys() <= {"priority"}:
            priority = rest.get("priority", 0)
            if isinstance(priority, int):
                return Transition(conditions.from_dict(when), targets.from_dict(then), priority)
    raise BadGraph(f"transitions[{index}]", found=repr(data)[:80], expected="when, then and perhaps priority")


def _check(graph: TransitionGraph) -> None:
    if not isinstance(graph.initial_speaker, str) or not graph.initial_speaker:
        raise BadGraph(
            "initial_speaker", found=repr(graph.initial_speaker)[:80], expected="a participant's id or name"
        )
    if not hasattr(graph.default_target, "resolve"):
        raise BadGraph("default_target", found=repr(graph.default_target)[:80], expected="a target")
    if len(graph.transitions) > MAX_TRANSITIONS:
        found, expected = f"{len(graph.transitions)} of them", f"at most {MAX_TRANSITIONS} (MAX_TRANSITIONS)"
        raise BadGraph("transitions", found=found, expected=expected)
    for index, one in enumerate(graph.transitions):
        if not isinstance(one, Transition):
            raise BadGraph(f"transitions[{index}]", found=repr(one)[:80], expected="a Transition(when, then)")
    limit = graph.max_turns
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise BadGraph("max_turns", found=repr(limit), expected="a whole number from 1 on, or None")


def _names(names: Iterable[str], factory: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise BadGraph(factory, found=f"the text {names!r}", expected="a list of ids or names")
    order = tuple(names)
    if not order:
        raise BadGraph(factory, found="an empty list", expected="at least one participant")
    return order
