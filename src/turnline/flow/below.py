"""The channels below a run: the runs of inner steps, of other flows, and conversations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from turnline.core.channel import child_id
from turnline.core.envelope import JsonObject
from turnline.core.event_types import SUBSTANTIVE
from turnline.core.packet import body_of
from turnline.core.state import State
from turnline.errors import InputRefused, UnknownChannel, UnknownName
from turnline.flow.body import checked_body
from turnline.flow.definition.flow import Flow
from turnline.flow.definitions import Definitions
from turnline.flow.run import OF_THE_RUN, RunKnob, first_private, request_for
from turnline.hub.hub import Hub
from turnline.hub.request import OpenRequest

Open = Callable[[OpenRequest], Awaitable[str]]


class Below:
    """See `work.Children`. Remembers who was open, so that no close is missed while a step goes to rest."""

    def __init__(
        self,
        hub: Hub,
        definitions: Definitions,
        open_channel: Open,
        *,
        run: State,
        knob: RunKnob,
        step: str,
        attempt: int,
    ) -> None:
        self._hub = hub
        self._definitions = definitions
        self._open = open_channel
        self._run = run
        self._knob = knob
        self._step = step
        self._attempt = attempt
        self.seen_open: set[str] = set()
        """The children that had not closed when they were looked at."""

    async def run_inner(self, place: str, inner: str, context: JsonObject) -> None:
        flow = await self._definitions.get(self._knob.digest)
        private = {key: value for key, value in self._run.private_vars.items() if key not in OF_THE_RUN}
        at = [*self._knob.at, [self._step, inner]]
        knob = replace(self._knob, at=at, private=private, retry_of="", input="")
        await self._start(place, flow, knob, context)

    async def run_flow(self, place: str, flow: str, input: JsonObject | None) -> None:
        pins = self._knob.pins
        if flow not in pins:
            raise UnknownName("flow", flow, pins)
        definition = await self._definitions.get(pins[flow])
        private = first_private(definition, self._run.private_vars.get("_user_id"))
        knob = RunKnob(name=flow, digest=pins[flow], pins=pins, private=private)
        given = self._taken_by(definition) if input is None else input
        clean, problems = checked_body(definition, given)
        if problems:
            raise InputRefused(flow, problems=list(map(str, problems)))
        context = {**definition.spec.context.defaults, **clean}
        await self._start(place, definition, knob, context)

    def _taken_by(self, flow: Flow) -> JsonObject:
        """Return the run's context, without keys that the flow's trigger does not take."""
        trigger, context = flow.spec.trigger, self._run.context_vars
        if trigger is None or trigger.input is None or trigger.extra:
            return context
        return {key: value for key, value in context.items() if key in trigger.input}

    async def converse(
        self, place: str, agents: Sequence[str], graph: JsonObject, message: str, context: JsonObject
    ) -> None:
        request = OpenRequest(
            type="workflow",
            target=list(agents),
            knobs={"graph": graph, "context_vars": context},
            message=message,
            labels={"flow": self._knob.name, "step": self._step},
            ttl_seconds=self._run.spec.ttl_seconds,
            channel_id=self._id(place),
            parent_id=self._run.channel_id,
        )
        await self._open(request)
        self.seen_open.add(self._id(place))

    async def state(self, place: str) -> State | None:
        try:
            state = await self._hub.state(self._id(place))
        except UnknownChannel:
            return None
        if not state.is_over:
            self.seen_open.add(state.channel_id)
        return state

    async def last_words(self, place: str) -> str:
        """What was said last on the child."""
        for envelope in reversed(await self._hub.read_wal(self._id(place))):
            if envelope.event_type in SUBSTANTIVE and envelope.decision is not None:
                return body_of(envelope.event_type, envelope.event_data)
        return ""

    async def _start(self, place: str, flow: Flow, knob: RunKnob, context: JsonObject) -> None:
        spec = self._run.spec
        request = request_for(
            flow,
            knob,
            context,
            run_id=self._id(place),
            parent=spec.channel_id,
            within_seconds=spec.ttl_seconds,
        )
        await self._open(request)
        self.seen_open.add(self._id(place))

    def _id(self, place: str) -> str:
        # A step that is tried again begins anew: what failed below it stays as it is.
        again = f"{self._attempt}-" if self._attempt > 1 else ""
        return child_id(self._run.channel_id, self._run.turn, f"{again}{place}")
