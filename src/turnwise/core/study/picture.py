"""The picture of a graph, without a layout: nodes, and edges with labels.

    graph_picture(graph).to_dict()

Whoever draws it (`mermaid`, `dot`, `boxes`, the studio) says where things are. A rule is an
edge from each speaker after whose turn it may fire, or from `anyone` if that is everybody.
Handoffs are not drawn: the graph does not know them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Final

from turnwise.core.channel import Participant
from turnwise.core.conditions import AllOf, AnyOf, Condition, FromSpeaker, TurnFailed
from turnwise.core.envelope import JsonObject
from turnwise.core.graph import TransitionGraph
from turnwise.core.step_targets import FanOutTarget, NestedTarget, step_id
from turnwise.core.study.cast import OTHER, cast_of
from turnwise.core.study.exploration import Walk
from turnwise.core.study.possible import Possible, Rule
from turnwise.core.study.wording import target_told, told
from turnwise.core.targets import (
    AgentTarget,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    TransitionTarget,
    next_in,
)

ANYONE: Final = "anyone"
OTHERWISE: Final = "otherwise"
_FEW: Final = 2
"""So many speakers have an edge each, even if they are everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Somebody who may have the floor, or an end."""

    id: str
    label: str
    kind: str
    """`agent`, `human`, `remote_agent`, `step`, `close`, `anyone`; `someone`: the graph leaves open who."""
    is_first: bool = False
    agent_id: str = ""
    """Of a participant; what a channel's `expected_next_speaker` is compared with."""
    detail: str = ""
    """What a step does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The floor may go from one to the other."""

    source: str
    target: str
    label: str = ""
    """When it does; empty if nothing else has to hold."""
    index: int | None = None
    """Of the transition; None for the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What there is to draw."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    max_turns: int | None = None

    def node(self, node_id: str) -> Node:
        return next(one for one in self.nodes if one.id == node_id)

    def to_dict(self) -> JsonObject:
        """Return the picture for programs."""
        return {
            "nodes": [asdict(one) for one in self.nodes],
            "edges": [asdict(one) for one in self.edges],
            "max_turns": self.max_turns,
        }


def graph_picture(
    graph: TransitionGraph,
    *,
    participants: Iterable[str | Participant] | None = None,
    opener: str | None = None,
) -> Picture:
    """Return what there is to draw of a graph; of the participants, those it names."""
    cast = cast_of(graph, participants=participants, opener=opener, handoffs=False)
    return _Drawing(Possible(graph, cast)).picture()


class _Drawing:
    """A picture in the making."""

    def __init__(self, possible: Possible) -> None:
        self._possible = possible
        self._cast = possible.cast
        self._nodes: dict[str, Node] = {}
        self._edges: dict[Edge, None] = {}
        self._walk = Walk(possible)
        self._speakers = [one for one in self._walk.reached if one != OTHER]
        self._speakers += [one for one in self._structural if one not in self._speakers]
        self._fired: dict[int | None, list[str]] = {}
        for move in self._walk.moves:
            if move.speaker != OTHER and (move.index is not None or move.by in ("default", "max_turns")):
                sources = self._fired.setdefault(move.index, [])
                if move.speaker not in sources:
                    sources.append(move.speaker)

    @property
    def _structural(self) -> Iterator[str]:
        """Whom conditions name as speakers: a handoff may lead there."""
        for rule in self._possible.rules:
            yield from sorted(_speakers(rule.when) or ())

    def picture(self) -> Picture:
        self._participant(self._possible.initial)
        for rule in self._possible.tried:
            self._draw(rule.then, self._sources(rule), _label(rule.when), rule.index)
        self._draw(self._possible.default, self._fired.get(None, []), OTHERWISE, None)
        return Picture(
            nodes=tuple(self._nodes.values()),
            edges=tuple(self._edges),
            max_turns=self._possible.graph.max_turns,
        )

    def _sources(self, rule: Rule) -> list[str]:
        named = _speakers(rule.when)
        if named is not None:
            return [one for one in self._speakers if one in named]
        return self._fired.get(rule.index, [])

    def _draw(self, target: TransitionTarget, sources: list[str], label: str, index: int | None) -> None:
        everybody = len(sources) > _FEW and set(sources) >= set(self._speakers)
        if everybody and not isinstance(target, RoundRobinTarget):
            to = self._anyone() if isinstance(target, StayTarget) else self._target(target, "")
            self._edge(self._anyone(), to, label, index)
            return
        for source in sources:
            self._edge(self._participant(source), self._target(target, source), label, index)

    def _edge(self, source: str, target: str, label: str, index: int | None) -> None:
        self._edges[Edge(source=source, target=target, label=label, index=index)] = None

    def _target(self, target: TransitionTarget, source: str) -> str:  # noqa: PLR0911  A line per target.
        match target:
            case AgentTarget(agent_id=agent_id):
                return self._participant(agent_id)
            case StayTarget():
                return self._participant(source)
            case TerminateTarget(reason=reason):
                return self._end(reason)
            case FanOutTarget(step=step, agents=agents):
                asked = ", ".join(self._cast.shown(one) for one in agents)
                return self._participant(step_id(step), f"asks {asked}")
            case NestedTarget(step=step):
                return self._participant(step_id(step), "runs a graph")
            case RoundRobinTarget(participants=order) if order:
                return self._participant(next_in(tuple(order), source))
            case RoundRobinTarget():
                return self._someone("the next in order")
            case RevertToInitiatorTarget() if self._cast.opener is not None:
                return self._participant(self._cast.opener)
            case RevertToInitiatorTarget():
                return self._someone("whoever opened it")
        return self._someone(target_told(target))

    def _participant(self, agent_id: str, detail: str = "") -> str:
        node_id = f"participant:{agent_id}"
        known = self._nodes.get(node_id)
        if known is None or (detail and not known.detail):
            self._nodes[node_id] = Node(
                id=node_id,
                label=self._cast.shown(agent_id),
                kind="human" if self._cast.is_person(agent_id) else self._cast.kind(agent_id) or "agent",
                is_first=agent_id == self._possible.initial,
                agent_id=agent_id,
                detail=detail,
            )
        return node_id

    def _end(self, reason: str) -> str:
        node = Node(id=f"close:{reason}", label=reason, kind="close")
        return self._nodes.setdefault(node.id, node).id

    def _someone(self, label: str) -> str:
        node = Node(id=f"someone:{label}", label=label, kind="someone")
        return self._nodes.setdefault(node.id, node).id

    def _anyone(self) -> str:
        node = Node(id=ANYONE, label=ANYONE, kind=ANYONE)
        return self._nodes.setdefault(node.id, node).id


def _speakers(condition: Condition) -> set[str] | None:
    """Whose turn it has to be; None if the condition does not say."""
    match condition:
        case FromSpeaker(agent_id=agent_id):
            return {agent_id}
        case TurnFailed(agent_id=str(agent_id)):
            return {agent_id}
        case AllOf(conditions=parts):
            named = [one for part in parts if (one := _speakers(part)) is not None]
            return set.intersection(*named) if named else None
        case AnyOf(conditions=parts):
            each = [_speakers(part) for part in parts]
            known = [one for one in each if one is not None]
            return set().union(*known) if len(known) == len(each) else None
    return None


def _label(condition: Condition) -> str:
    """The condition without what the edge says by where it begins."""
    match condition:
        case FromSpeaker():
            return ""
        case AnyOf(conditions=parts) if all(isinstance(one, FromSpeaker) for one in parts):
            return ""
        case AllOf(conditions=parts):
            rest = [one for one in parts if _label(one)]
            return told(AllOf(*rest)) if len(rest) > 1 else told(rest[0]) if rest else ""
    return told(condition)
