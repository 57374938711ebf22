"""Targets that are pieces of work: the floor goes to a step, and the step's packet moves it on.

    FanOutTarget(["ann", "ben"], step="opinions")      asks them all at once, gathers their answers
    NestedTarget(graph, step="review")                 runs another graph, hands its result on

A step is a participant of the channel that is not invited: the opener plays it (`played_by`). The opener
opens child channels for it, with ids that follow from the turn. So a step that was killed continues with
the children it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from turnline.core.channel import Participant, check_id
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.graph import TransitionGraph
from turnline.core.state import State
from turnline.core.transitions import TransitionDecision, TransitionTarget, parts_of, targets
from turnline.errors import BadDraft, BadGraph

POLICIES: Final = ("collect", "fail")
_STEP_NAMES: Final = frozenset({"fan_out", "nested"})


@targets.built_in
@dataclass(frozen=True, slots=True)
class FanOutTarget(TransitionTarget):
    """Ask several participants at once; go on when all have answered.

    Answers are in the order of `agents`. One that fails, or takes longer than
    `timeout_seconds`, is a result like any other with `collect`, and fails the turn
    with `fail`. With `into`, the results are also a context variable.
    """

    name: ClassVar[str] = "fan_out"
    agent_fields: ClassVar[tuple[str, ...]] = ("agents",)
    agents: Iterable[str]
    step: str = "fan_out"
    on_failure: str = "collect"
    timeout_seconds: float | None = None
    into: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "agents", tuple(self.agents))
        _check_step(self.step)
        if not self.agents or isinstance(self.agents, str):
            raise BadGraph(
                "FanOutTarget.agents", found=repr(self.agents), expected="at least one participant"
            )
        if self.on_failure not in POLICIES:
            expected = f"one of {', '.join(POLICIES)}"
            raise BadGraph("FanOutTarget.on_failure", found=repr(self.on_failure), expected=expected)

    def resolve(self, state: State, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(next_speaker=self.step)


@targets.built_in
@dataclass(frozen=True, slots=True)
class NestedTarget(TransitionTarget):
    """Run another graph, on a channel of its own below this one; its last words are the step's packet."""

    name: ClassVar[str] = "nested"
    graph: TransitionGraph | JsonObject
    step: str = "nested"
    into: str | None = None

    def __post_init__(self) -> None:
        _check_step(self.step)
        given = self.graph
        plain = (
            given.to_dict() if isinstance(given, TransitionGraph) else TransitionGraph.loads(given).to_dict()
        )
        object.__setattr__(self, "graph", plain)

    def resolve(self, state: State, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(next_speaker=self.step)


StepTarget = FanOutTarget | NestedTarget


def steps_of(graph: TransitionGraph) -> dict[str, StepTarget]:
    """Step -> what it does. Two steps of one name are an error, unless they do the same."""
    found: dict[str, StepTarget] = {}
    for target in (*(one.then for one in graph.transitions), graph.default_target):
        if isinstance(target, FanOutTarget | NestedTarget):
            known = found.setdefault(target.step, target)
            if known != target:
                raise BadGraph(
                    f"the step {target.step!r}", found="two of them", expected="a name for each step"
                )
    return found


def step_participants(graph: object, played_by: str) -> list[Participant]:
    """Return the steps of a graph written as data, as participants; none if it is not such a graph."""
    if not isinstance(graph, dict) or not _mentions_steps(graph):
        return []
    known = steps_of(TransitionGraph.loads(graph))
    return [Participant(step, step, "step", played_by=played_by) for step in known]


def names_in(graph: TransitionGraph) -> list[str]:
    """Everybody a graph names, by id or name, in the order it names them."""
    named = [graph.initial_speaker]
    for transition in graph.transitions:
        for thing in (*parts_of(transition.when), transition.then):
            named += named_by(thing)
    named += named_by(graph.default_target)
    return list(dict.fromkeys(named))


def named_by(thing: object) -> Iterator[str]:
    """Yield the participants that a condition or target names."""
    agent_fields = getattr(thing, "agent_fields", ())
    for f in fields(thing) if agent_fields else ():  # type: ignore[arg-type]  # registered things are dataclasses
        value: Any = getattr(thing, f.name)
        if f.name in agent_fields and value is not None:
            yield from [value] if isinstance(value, str) else value


def _mentions_steps(graph: JsonObject) -> bool:
    rules = graph.get("transitions")
    listed = [one.get("then") for one in rules if isinstance(one, dict)] if isinstance(rules, list) else []
    targets = [*listed, graph.get("default_target")]
    return any(isinstance(one, dict) and one.get("name") in _STEP_NAMES for one in targets)


def _check_step(step: object) -> None:
    try:
        check_id(step, "step")
    except BadDraft as error:
        raise BadGraph("step", found=error.found, expected=error.expected) from None
