"""The picture of a flow: its steps, and which signal leads where.

It is the picture of the graph that the flow compiles to (`compile`), without what every flow
has: that an error nobody routes fails the run, and a signal nobody routes, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from turnwise.core.conditions import SignalIs
from turnwise.core.graph import TransitionGraph
from turnwise.core.study.picture import OTHERWISE, Edge, Picture, graph_picture
from turnwise.flow.compile import graph_of, participants_of
from turnwise.flow.definition.flow import Flow


def flow_picture(flow: Flow) -> Picture:
    """Return what there is to draw of a flow; the kind of each step is its `detail`."""
    limits = flow.spec.limits
    graph = graph_of(flow.steps, max_steps=limits.max_steps)
    drawn = graph_picture(graph, participants=participants_of(flow.steps))
    edges = tuple(_joined(edge for edge in drawn.edges if not _is_of_every_flow(graph, edge)))
    led = {edge.target for edge in edges}
    kinds = {step.id: step.kind for step in flow.steps}
    nodes = [one for one in drawn.nodes if one.kind == "step" or one.id in led]
    return Picture(
        nodes=tuple(
            replace(one, detail=kinds.get(one.label, "") if one.kind == "step" else "") for one in nodes
        ),
        edges=edges,
        max_turns=limits.max_steps if "max_steps" in limits.model_fields_set else None,
    )


def _is_of_every_flow(graph: TransitionGraph, edge: Edge) -> bool:
    return edge.index is None or isinstance(graph.transitions[edge.index].when, SignalIs)


def _joined(edges: Iterator[Edge]) -> Iterator[Edge]:
    """One edge for all signals that lead from one step to another."""
    signals: dict[tuple[str, str], list[Edge]] = {}
    for edge in edges:
        signals.setdefault((edge.source, edge.target), []).append(edge)
    for (source, _), each in signals.items():
        named = [edge.label.removeprefix("signal ") for edge in each if edge.label]
        rest = OTHERWISE if sum(one == source for one, _ in signals) > 1 else ""
        yield replace(each[0], label=", ".join(named) if len(named) == len(each) else rest)
