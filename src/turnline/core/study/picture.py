"""A picture, without a layout: nodes, edges with labels, and every transition in words.

    graph_picture(graph)     of a graph                      (`core.study.drawing`)
    flow_picture(flow)       of a flow, or of a run of it    (`flow.picture`)

There is one picture of a thing, and whoever shows it (`mermaid`, `dot`, `boxes`, the studio)
says only where things are: all of them show the same nodes, edges and labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

from turnline.core.channel import Participant
from turnline.core.envelope import JsonObject

ANYONE: Final = "anyone"
OTHERWISE: Final = "otherwise"


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
class Words:
    """A transition in words."""

    text: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What there is to draw."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    rules: tuple[Words, ...] = ()
    """Every transition, as the graph lists them."""
    max_turns: int | None = None

    def node(self, node_id: str) -> Node:
        return next(one for one in self.nodes if one.id == node_id)

    def to_dict(self) -> JsonObject:
        """Return the picture for programs."""
        return {
            "nodes": [asdict(one) for one in self.nodes],
            "edges": [asdict(one) for one in self.edges],
            "rules": [asdict(one) for one in self.rules],
            "max_turns": self.max_turns,
        }


def node_id(agent_id: str) -> str:
    """The id of a participant's node. It is no end's, whatever the participant is called."""
    return f"participant:{agent_id}"


def participants_picture(participants: Iterable[Participant]) -> Picture:
    """Return what there is to draw where no graph moves the floor."""
    return Picture(
        nodes=tuple(
            Node(id=node_id(one.agent_id), label=one.name, kind=one.kind, agent_id=one.agent_id)
            for one in participants
        )
    )
