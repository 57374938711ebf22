"""A graph -> its picture.

    graph_picture(graph).to_dict()

Rule 1: the picture is of what the graph says. It does not explore which context variables,
tools and signals may come together: that can take seconds, and the studio asks for a picture
with every page. So the studio and the command line show the same one, whatever the graph is.
Whom nothing leads to is `lint`'s to say.

Rule 2: a transition that names its speakers is an edge from each of them. Any other is an edge
from each speaker from whom no earlier one is sure to take the turn, or from `anyone` if that
is everybody (`ways`). So is the default.

Rule 3: handoffs are not drawn: the graph does not know them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnline.core.channel import Participant
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.step_targets import FanOutTarget, NestedTarget
from turnline.core.study.cast import Cast, cast_of
from turnline.core.study.picture import ANYONE, Edge, Node, Picture, Words, node_id
from turnline.core.study.ways import Way, Ways
from turnline.core.study.wording import target_told, told
from turnline.core.transitions import (
    AgentTarget,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    TransitionTarget,
)

_FEW: Final = 2
"""So many speakers have an edge each, even if they are everybody."""


def graph_picture(
    graph: TransitionGraph,
    *,
    participants: Iterable[str | Participant] | None = None,
    opener: str | None = None,
) -> Picture:
    """Return what there is to draw of a graph; of the participants, those it names."""
    cast = cast_of(graph, participants=participants, opener=opener, handoffs=False)
    drawing = _Drawing(cast, Ways(graph, cast))
    return Picture(
        nodes=tuple(drawing.nodes.values()),
        edges=tuple(drawing.edges),
        rules=tuple(_words(one, cast) for one in graph.transitions),
        max_turns=graph.max_turns,
    )


class _Drawing:
    """The nodes and edges, as they are found."""

    def __init__(self, cast: Cast, ways: Ways) -> None:
        self._cast = cast
        self._ways = ways
        self.nodes: dict[str, Node] = {}
        self.edges: dict[Edge, None] = {}
        self._participant(ways.initial)
        for way in ways.all:
            self._draw(way, ways.sources(way))

    def _draw(self, way: Way, sources: list[str]) -> None:
        everybody = len(sources) > _FEW and len(sources) == len(self._ways.speakers)
        if everybody and not isinstance(way.then, RoundRobinTarget):
            to = self._anyone() if isinstance(way.then, StayTarget) else self._target(way.then, "")
            self._edge(self._anyone(), to, way)
            return
        for source in sources:
            self._edge(self._participant(source), self._target(way.then, source), way)

    def _edge(self, source: str, target: str, way: Way) -> None:
        self.edges[Edge(source=source, target=target, label=way.label, index=way.index)] = None

    def _target(self, target: TransitionTarget, source: str) -> str:
        agent_id = self._ways.next(target, source)
        if agent_id is not None:
            return self._participant(agent_id, self._detail(target))
        match target:
            case TerminateTarget(reason=reason):
                return self._other(f"close:{reason}", reason, "close")
            case RoundRobinTarget():
                label = "the next in order"
            case RevertToInitiatorTarget():
                label = "whoever opened it"
            case _:
                label = target_told(target)
        return self._other(f"someone:{label}", label, "someone")

    def _detail(self, target: TransitionTarget) -> str:
        match target:
            case FanOutTarget(agents=agents):
                return f"asks {', '.join(map(self._cast.spec.name_of, agents))}"
            case NestedTarget():
                return "runs a graph"
        return ""

    def _participant(self, agent_id: str, detail: str = "") -> str:
        its_id = node_id(agent_id)
        known = self.nodes.get(its_id)
        if known is None or (detail and not known.detail):
            kind = self._cast.spec.kind_of(agent_id) or "agent"
            self.nodes[its_id] = Node(
                id=its_id,
                label=self._cast.spec.name_of(agent_id),
                kind="human" if self._cast.is_person(agent_id) else kind,
                is_first=agent_id == self._ways.initial,
                agent_id=agent_id,
                detail=detail,
            )
        return its_id

    def _anyone(self) -> str:
        return self._other(ANYONE, ANYONE, ANYONE)

    def _other(self, its_id: str, label: str, kind: str) -> str:
        return self.nodes.setdefault(its_id, Node(id=its_id, label=label, kind=kind)).id


def _words(transition: Transition, cast: Cast) -> Words:
    match transition.then:
        case AgentTarget(agent_id=name):
            target = cast.spec.name_of(cast.spec.resolve(name))
        case TerminateTarget(reason=reason):
            target = f"close: {reason}"
        case other:
            target = target_told(other)
    return Words(text=told(transition.when), target=target)
