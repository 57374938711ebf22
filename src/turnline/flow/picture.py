"""The picture of a flow: its steps, and which signal leads where.

It is the picture of the graph that the flow compiles to (`compile`), without what nobody
wrote: that the run fails with an error or a signal that no route takes, and where a step
would lead with a signal that it never gives. A run has the nodes and edges of its flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from turnline.core.channel import Participant
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.study.drawing import graph_picture
from turnline.core.study.picture import OTHERWISE, Edge, Node, Picture, node_id
from turnline.core.transitions import FromSpeaker, SignalIs, parts_of
from turnline.flow.check.signals import signals_of
from turnline.flow.compile import ERRORS, graph_of, participants_of
from turnline.flow.definition.flow import Flow, inner_steps
from turnline.flow.definition.steps import Step, kind_of
from turnline.flow.work import DEFAULT

_ERROR: Final = ERRORS[0]
"""The route that takes the other errors, too, where they have none."""


def flow_picture(flow: Flow) -> Picture:
    """Return what there is to draw of a flow; its `max_turns` where somebody wrote it down."""
    limits = flow.spec.limits
    graph = graph_of(flow.steps, max_steps=limits.max_steps)
    drawn = run_picture(graph, participants_of(flow.steps), flow.steps)
    return replace(drawn, max_turns=limits.max_steps if "max_steps" in limits.model_fields_set else None)


def run_picture(
    graph: TransitionGraph, participants: Iterable[Participant], steps: Iterable[Step] = ()
) -> Picture:
    """Return what there is to draw of a run; what a step does is its `detail`, where `steps` say it."""
    members = list(participants)
    drawn = graph_picture(graph, participants=members)
    known = {node_id(step.id): step for step in steps}
    edges = list(_joined(graph, [one for one in drawn.edges if _is_written(graph, one, known)]))
    led = {edge.target for edge in edges}
    order = {node_id(one.agent_id): place for place, one in enumerate(members)}
    nodes = [_detailed(one, known) for one in drawn.nodes if one.kind == "step" or one.id in led]
    return Picture(
        nodes=tuple(sorted(nodes, key=lambda one: order.get(one.id, len(order)))),
        edges=tuple(sorted(edges, key=lambda one: order[one.source])),
        rules=tuple(
            replace(words, text=_signal(rule) or "whatever it ends with")
            for words, rule in zip(drawn.rules, graph.transitions, strict=True)
        ),
    )


def _signal(transition: Transition) -> str | None:
    """The signal that a transition waits for; None if it takes whatever a step ends with."""
    parts = parts_of(transition.when)
    return next((part.signal for part in parts if isinstance(part, SignalIs)), None)


def _is_written(graph: TransitionGraph, edge: Edge, steps: Mapping[str, Step]) -> bool:
    if edge.index is None:
        return False
    rule = graph.transitions[edge.index]
    if not any(isinstance(part, FromSpeaker) for part in parts_of(rule.when)):
        return False
    step = steps.get(edge.source)
    return step is None or _is_given(step, _signal(rule))


def _is_given(step: Step, signal: str | None) -> bool:
    said = signals_of(step)
    if signal is None:
        return DEFAULT in step.routes or said.is_open or not said.given <= step.routes.keys()
    return signal in (*step.routes, *ERRORS) or signal in said.given


def _joined(graph: TransitionGraph, edges: Sequence[Edge]) -> Iterator[Edge]:
    """One edge for all signals that lead from one step to another."""
    signals: dict[tuple[str, str], list[str | None]] = {}
    first: dict[tuple[str, str], Edge] = {}
    for edge in edges:
        ends = (edge.source, edge.target)
        signals.setdefault(ends, []).append(_signal(graph.transitions[edge.index or 0]))
        first.setdefault(ends, edge)
    for ends, each in signals.items():
        others = (one for other, one in signals.items() if other[0] == ends[0] and other != ends)
        has_choice = any(not set(one) <= set(ERRORS) for one in others)
        yield replace(first[ends], label=_label(each, has_choice=has_choice))


def _label(signals: Sequence[str | None], *, has_choice: bool) -> str:
    """What is said of an edge. The way on needs no words, unless the step can say where else to go."""
    if None in signals:
        return OTHERWISE if has_choice else ""
    falling = ERRORS if _ERROR in signals else ()
    named = [one for one in signals if one is not None and (one == _ERROR or one not in falling)]
    return "" if named == [DEFAULT] and not has_choice else ", ".join(named)


def _detailed(node: Node, steps: Mapping[str, Step]) -> Node:
    step = steps.get(node.id)
    if step is None:
        return replace(node, detail="")
    inner = "; ".join(", ".join(one.id for one in each) for each in inner_steps(step).values())
    return replace(node, detail=f"{kind_of(step)} ({inner})" if inner else f"{kind_of(step)}")
