"""The graph of a `channel` step's conversation."""

from __future__ import annotations

from dataclasses import replace

from turnline.core.graph import TransitionGraph
from turnline.flow.definition.steps import ChannelBlock


def graph_of(block: ChannelBlock) -> TransitionGraph:
    """Return the graph of the conversation. One of the user's own that has no limit gets the step's."""
    if block.graph is not None:
        graph = TransitionGraph.loads(block.graph)
        return replace(graph, max_turns=block.max_turns) if graph.max_turns is None else graph
    if block.pattern == "sequence":
        return TransitionGraph.sequence(block.agents)
    return TransitionGraph.round_robin(block.agents, block.max_turns)
