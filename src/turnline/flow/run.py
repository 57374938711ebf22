"""A run: what its channel's first line says of it, and how to start one (F1, F8).

The knob `flow` of the channel names the definition and the place in it whose steps
the run takes: the flow's own, or those inside a step of it. Everything else about a
run is computed from its channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from turnline.core.envelope import JsonObject
from turnline.core.parts import FilePart
from turnline.core.state import State
from turnline.errors import BadSpec
from turnline.flow.compile import graph_of, participants_of
from turnline.flow.definition.flow import Flow, inner_steps
from turnline.flow.definition.steps import Step
from turnline.hub.request import OpenRequest, keep_graph

OF_THE_RUN: Final = frozenset({"_response", "_response_status", "_last_error", "_last_error_type"})
"""Private keys that say how a run itself goes. They are not handed down to runs below it."""
_GRAPHS: Final = 1024
_graphs: Final[dict[object, JsonObject]] = {}
"""Digest, place and start -> the graph as data. A cache: what is forgotten is compiled again."""


class RunKnob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which flow a run is of."""

    name: str
    digest: str
    at: list[list[str]] = []
    """The way into the definition: [[step id, name of its inner steps], ...]."""
    pins: dict[str, str] = {}
    """Flow -> the digest of the definition its steps may start runs of."""
    private: JsonObject = {}
    """The keys with `_` that the run begins with."""
    input: str = ""
    """What the run was started with, by its digest: the same request, sent again, finds its run."""
    retry_of: str = ""
    """The run it was started from, at one of its steps."""
    is_untrusted: bool = False
    """Whether it has its data from a run that got no secrets. Then it gets none either."""


def first_private(flow: Flow, user_id: object = None) -> JsonObject:
    """The keys with `_` that a run of a flow begins with: who started it, and the versions of its models."""
    private: JsonObject = {} if user_id is None else {"_user_id": user_id}
    versions = flow.model_versions()
    return {**private, "_context_model_versions": versions} if versions else private


def is_run(state: State) -> bool:
    """Return whether a channel says of which flow it is a run. Cheaper than reading it (`run_knob`)."""
    return isinstance(state.spec.knobs.get("flow"), dict)


def run_knob(state: State) -> RunKnob | None:
    """What a channel says of its flow; None for one that is no run."""
    return knob_in(state.spec.knobs)


def knob_in(knobs: JsonObject) -> RunKnob | None:
    """Return what a channel's knobs say of its flow. Whoever opened the channel wrote it."""
    data = knobs.get("flow")
    if not isinstance(data, dict):
        return None
    try:
        return msgspec.convert(data, RunKnob)
    except msgspec.ValidationError as error:
        raise BadSpec("knobs.flow", found=str(error), expected="what starting a run wrote") from error


def steps_at(flow: Flow, at: Sequence[Sequence[str]]) -> Sequence[Step]:
    """The steps at a place of the definition."""
    steps = flow.steps
    for step, inner in at:
        steps = inner_steps(step_of(steps, step))[inner]
    return steps


def step_of(steps: Sequence[Step], name: str) -> Step:
    return next(step for step in steps if step.id == name)


def request_for(
    flow: Flow,
    knob: RunKnob,
    context: JsonObject,
    *,
    run_id: str | None = None,
    parent: str | None = None,
    labels: Mapping[str, str] | None = None,
    start: str | None = None,
    within_seconds: float | None = None,
    files: Sequence[FilePart] = (),
) -> OpenRequest:
    """Return what opens the channel of a run. A nested run gets the limit of its parent, `within_seconds`."""
    steps = steps_at(flow, knob.at)
    key = (knob.digest, tuple(map(tuple, knob.at)), start)
    if key not in _graphs:
        if len(_graphs) >= _GRAPHS:
            _graphs.clear()
        graph = graph_of(steps, max_steps=flow.spec.limits.max_steps, start=start)
        _graphs[key] = keep_graph(graph.to_dict())
    knobs: JsonObject = {
        "graph": _graphs[key],
        "flow": msgspec.to_builtins(knob),
        "context_vars": context,
    }
    limits = flow.spec.limits
    return OpenRequest(
        type="workflow",
        knobs=knobs,
        labels={**(labels or {}), "flow": flow.name},
        expectations=[],
        ttl_seconds=min((one for one in (limits.timeout, within_seconds) if one is not None), default=None),
        max_depth=limits.max_depth,
        max_runs=limits.max_runs,
        channel_id=run_id,
        files=list(files),
        parent_id=parent,
        steps=participants_of(steps),
    )
