"""A graph as nodes and edges, for whoever draws it.

    {"nodes": [{"id", "label", "kind", "first"}], "edges": [{"source", "target", "label", "index"}],
     "rules": [{"text", "target"}]}

A rule that names its speaker leads from there; one that does not leads from `anyone`. Where
the graph cannot be read any more, the participants are drawn without it. Of a run, only what
its author wrote is drawn: the ways out for errors that no route takes are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from turnwise.core.channel import ChannelSpec
from turnwise.core.conditions import AllOf, Always, AnyOf, Condition, FromSpeaker, SignalIs
from turnwise.core.envelope import JsonObject
from turnwise.core.graph import Transition, TransitionGraph
from turnwise.core.state import State, WorkflowState
from turnwise.core.step_targets import FanOutTarget, NestedTarget, step_id
from turnwise.core.study.wording import target_told, told
from turnwise.core.targets import (
    AgentTarget,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    TransitionTarget,
)
from turnwise.errors import BadGraph, UnknownName
from turnwise.flow.work import DEFAULT

ANYONE: Final = "*anyone"
_END: Final = "*end:"
_OTHERWISE: Final = "otherwise"


def picture(state: State) -> JsonObject:
    """The picture of a channel's graph, or of its participants where it has none."""
    drawing = _Drawing(state.spec)
    try:
        graph = TransitionGraph.loads(state.graph_data) if isinstance(state, WorkflowState) else None
    except (BadGraph, UnknownName):
        graph = None
    if graph is not None:
        drawing.draw(graph)
    return drawing.done()


class _Drawing:
    """Nodes and edges, as they are found."""

    def __init__(self, spec: ChannelSpec) -> None:
        self._ids = spec.names()
        self._creator = spec.creator_id
        self._order = [one.agent_id for one in spec.participants]
        self._nodes: dict[str, JsonObject] = {
            one.agent_id: {"id": one.agent_id, "label": one.name, "kind": one.kind}
            for one in spec.participants
        }
        self._edges: list[JsonObject] = []
        self._first = ""
        self._is_run = "flow" in spec.knobs
        self._rules: list[JsonObject] = []

    def draw(self, graph: TransitionGraph) -> None:
        self._first = self._ids.get(graph.initial_speaker, graph.initial_speaker)
        for index, one in enumerate(graph.transitions):
            self._rule(index, one)
        if not self._is_run:
            self._leads([ANYONE], graph.default_target, _OTHERWISE, None)

    def done(self) -> JsonObject:
        """Who is in no edge is left out, where there are edges at all."""
        used = {end for edge in self._edges for end in (edge["source"], edge["target"])} | {self._first}
        nodes = [node for node in self._nodes.values() if not self._edges or node["id"] in used]
        for node in nodes:
            if node["id"] == self._first:
                node["first"] = True
        return {"nodes": nodes, "edges": self._edges, "rules": self._rules}

    def _rule(self, index: int, rule: Transition) -> None:
        speakers, rest = _speakers(rule.when)
        sources = [self._ids.get(name, name) for name in speakers] or [ANYONE]
        label = " and ".join(_label(one) for one in rest if not isinstance(one, Always))
        # The steps of a run are known by their own names; that it is theirs is said by whose turn it was.
        text = label or "whatever it ends with" if self._is_run else told(rule.when)
        self._rules.append({"text": text, "target": self._named(rule.then)})
        if not self._is_run or sources != [ANYONE]:
            self._leads(sources, rule.then, "" if label == DEFAULT else label, index)

    def _leads(self, sources: Iterable[str], target: TransitionTarget, label: str, index: int | None) -> None:
        for source in sources:
            for start, end in self._ends(source, target):
                self._node(start, "anyone", "any")
                edge = {"source": start, "target": end, "label": label, "index": index}
                if isinstance(target, TerminateTarget):
                    edge["reason"] = target.reason
                self._edges.append(edge)

    def _ends(self, source: str, target: TransitionTarget) -> Iterator[tuple[str, str]]:
        """From where to where a target leads; one that goes round leads from each to the next."""
        match target:
            case AgentTarget(agent_id=name):
                yield source, self._node(self._ids.get(name, name), name, "agent")
            case StayTarget():
                yield source, source
            case RevertToInitiatorTarget():
                yield source, self._creator
            case TerminateTarget(reason=reason):
                end = self._node(_END + reason, reason, "end")
                self._nodes[end]["reason"] = reason
                yield source, end
            case FanOutTarget(step=step) | NestedTarget(step=step):
                yield source, self._node(step_id(step), step, "step")
            case RoundRobinTarget(participants=names):
                order = [self._ids.get(name, name) for name in names] or self._order
                starts = order if source == ANYONE else [source]
                yield from (
                    (one, order[(order.index(one) + 1) % len(order)]) for one in starts if one in order
                )
            case _:
                text = target_told(target)
                yield source, self._node(f"*{text}", text, "other")

    def _named(self, target: TransitionTarget) -> str:
        match target:
            case AgentTarget(agent_id=name):
                return str(self._nodes.get(self._ids.get(name, name), {"label": name})["label"])
            case TerminateTarget(reason=reason):
                return f"close: {reason}"
        return target_told(target)

    def _node(self, id: str, label: str, kind: str) -> str:
        self._nodes.setdefault(id, {"id": id, "label": label, "kind": kind})
        return id


def _label(condition: Condition) -> str:
    """A condition on an edge. A signal says enough by itself."""
    return condition.signal if isinstance(condition, SignalIs) else told(condition)


def _speakers(condition: Condition) -> tuple[list[str], list[Condition]]:
    """Whose turns a condition is about, and what else it asks for."""
    match condition:
        case FromSpeaker(agent_id=name):
            return [name], []
        case AnyOf(conditions=parts) if all(isinstance(part, FromSpeaker) for part in parts):
            return [part.agent_id for part in parts if isinstance(part, FromSpeaker)], []
        case AllOf(conditions=parts):
            found = [_speakers(part) for part in parts]
            named = [names for names, _ in found if names]
            return (named[0] if named else []), [one for _, rest in found for one in rest]
    return [], [condition]
