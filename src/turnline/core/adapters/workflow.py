"""`workflow`: a graph says who is next."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

import msgspec

from turnline.core.adapter import Manifest
from turnline.core.adapters.turn_taking import CLOSE, TurnTaking
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Decision, Envelope
from turnline.core.expectations import turn_within
from turnline.core.graph import TransitionGraph
from turnline.core.router import Router, compile_graph
from turnline.core.state import WorkflowState
from turnline.core.step_targets import steps_of

WORKFLOW_TYPE: Final = "workflow"
_ROUTERS: Final = 1024
"""How many compiled graphs are remembered. One that was forgotten is compiled again."""


class WorkflowAdapter(TurnTaking[WorkflowState]):
    """Two or more participants; turn order by `TransitionGraph`."""

    manifest = Manifest(
        type=WORKFLOW_TYPE,
        knobs=frozenset({"graph", "flow"}),
        required_knobs=frozenset({"graph"}),
        expectations=(turn_within(120, "warn"), turn_within(600, "auto_close")),
    )
    state_type = WorkflowState
    on_failure = CLOSE

    def __init__(self) -> None:
        self._routers: OrderedDict[str, Router] = OrderedDict()

    def initial(self, spec: ChannelSpec) -> WorkflowState:
        graph = spec.knobs.get("graph", {})
        state = super().initial(spec)
        flow = spec.knobs.get("flow")
        private = flow.get("private") if isinstance(flow, dict) else None
        return msgspec.structs.replace(
            state,
            graph_data=graph,
            graph_key=_key(spec),
            private_vars=private if isinstance(private, dict) else {},
        )

    def first_speaker(self, state: WorkflowState) -> str:
        return self.router(state).initial_speaker

    def route(self, state: WorkflowState, envelope: Envelope) -> Decision:
        return self.router(state).route(state, envelope)

    def route_failure(self, state: WorkflowState, envelope: Envelope) -> Decision:
        decision = self.router(state).route(state, envelope)
        return self._failed(state) if decision.by.kind == "turn_failed" else decision

    def check_spec(self, state: WorkflowState) -> None:
        self.router(state)

    def router(self, state: WorkflowState) -> Router:
        """The channel's graph, compiled at its first use (W1)."""
        router = self._routers.get(state.graph_key)
        if router is None:
            steps_of(TransitionGraph.loads(state.graph_data))
            router = self._routers[state.graph_key] = compile_graph(state.graph_data, state.spec)
            if len(self._routers) > _ROUTERS:
                self._routers.popitem(last=False)
        return router


def _key(spec: ChannelSpec) -> str:
    """Equal for channels with the same graph among the same participants."""
    named = [(one.agent_id, one.name) for one in spec.participants]
    return blake2b(msgspec.json.encode([spec.knobs.get("graph"), named]), digest_size=16).hexdigest()
