"""A flow as nodes and edges: its steps in their order, and where each signal leads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from turnwise.core.envelope import JsonObject
from turnwise.flow.compile import NOWHERE, route
from turnwise.flow.definition.flow import END, FAIL, inner_steps
from turnwise.flow.definition.steps import Step, kind_of
from turnwise.flow.work import DEFAULT

_ENDS: Final = (END, FAIL)


def flow_picture(steps: Sequence[Step]) -> JsonObject:
    """The picture of a list of steps. What is inside a step is told with it, not drawn."""
    edges = [edge for place in range(len(steps)) for edge in _edges(steps, place)]
    nodes: list[JsonObject] = [
        {"id": step.id, "label": step.id, "kind": kind_of(step) or "", "inner": _inner(step)}
        for step in steps
    ]
    nodes[0]["first"] = True
    ends = [end for end in _ENDS if any(edge["target"] == end for edge in edges)]
    nodes += [{"id": end, "label": end.lower(), "kind": "end"} for end in ends]
    return {"nodes": nodes, "edges": edges}


def _edges(steps: Sequence[Step], place: int) -> Iterator[JsonObject]:
    step = steps[place]
    for signal, target in step.routes.items():
        yield {"source": step.id, "target": target, "label": signal}
    onwards = route(steps, place, DEFAULT)
    if DEFAULT not in step.routes and onwards != NOWHERE and not _always_routed(step):
        yield {"source": step.id, "target": onwards, "label": ""}


def _always_routed(step: Step) -> bool:
    """Whether a step ends with a signal that its routes take, whatever happens: a router's do."""
    return kind_of(step) == "router" and bool(step.routes)


def _inner(step: Step) -> dict[str, list[str]]:
    return {name: [one.id for one in steps] for name, steps in inner_steps(step).items()}
