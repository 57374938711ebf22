"""The picture of a channel: that of its flow if it is a run, else that of its graph.

Where there is no graph, or none that can be read any more, the participants are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnline.core.graph import TransitionGraph
from turnline.core.state import State, WorkflowState
from turnline.core.study.drawing import graph_picture
from turnline.core.study.picture import Picture, participants_picture
from turnline.errors import BadGraph, UnknownName, UnknownRun
from turnline.flow.definition.steps import Step
from turnline.flow.picture import run_picture
from turnline.flow.run import run_knob, steps_at
from turnline.flow.runs import Runs


async def channel_picture(state: State, runs: Runs) -> Picture:
    """Return what there is to draw of a channel."""
    spec, graph = state.spec, _graph(state)
    if graph is None:
        return participants_picture(spec.participants)
    if "flow" in spec.knobs:
        return run_picture(graph, spec.participants, await _steps(state, runs))
    return graph_picture(graph, participants=spec.participants, opener=spec.creator_id or None)


def _graph(state: State) -> TransitionGraph | None:
    try:
        return TransitionGraph.loads(state.graph_data) if isinstance(state, WorkflowState) else None
    except (BadGraph, UnknownName):
        return None


async def _steps(state: State, runs: Runs) -> Sequence[Step]:
    """The definitions of a run's steps; none for what only looks like one, as its fork does."""
    try:
        flow, knob = await runs.definition(state.channel_id), run_knob(state)
    except (UnknownRun, UnknownName):
        return ()
    return () if knob is None else steps_at(flow, knob.at)
