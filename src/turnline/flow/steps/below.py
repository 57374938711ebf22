"""The children of a step: opened in order, so many at a time, waited for, read.

Rule 1: they are opened in the order of their places. So those that exist are the first
ones, also after a crash between two of them.

Rule 2: a pause notes how far they are. So being woken costs the children that are open,
not all that ever were. The note is a short cut: without it, the same is read from them.

Rule 3: with `on_error: fail`, nothing is opened behind a child that failed, and the step
fails when the last open one has closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from msgspec.structs import replace

from turnline.core.claims import Paused
from turnline.core.envelope import JsonObject
from turnline.core.state import State, WorkflowState
from turnline.errors import ChildFailed, ForeignChild, InputRefused, UnknownChannel, UnknownName
from turnline.flow.body import checked_body
from turnline.flow.context import difference, from_outside, public
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import OnError
from turnline.flow.definitions import Definitions
from turnline.flow.files import as_uploaded
from turnline.flow.pauses import last_note
from turnline.flow.run import OF_THE_RUN, RunKnob, first_private, request_for
from turnline.flow.trusted_runs import StateOf, TrustedRuns
from turnline.flow.verdict import RunError, public_error, verdict
from turnline.flow.work import StepChildren, StepWork
from turnline.hub.request import OpenRequest
from turnline.turns.children import Children


@dataclass(frozen=True, kw_only=True)
class Below(Children):
    """See `work.StepChildren`."""

    definitions: Definitions
    trusted_runs: TrustedRuns
    state_of: StateOf
    run: State
    knob: RunKnob
    step: str

    async def run_inner(self, place: str, inner: str, context: JsonObject) -> None:
        flow = await self.definitions.get(self.knob.digest)
        private = {key: value for key, value in self.run.private_vars.items() if key not in OF_THE_RUN}
        at = [*self.knob.at, [self.step, inner]]
        knob = replace(self.knob, at=at, private=private, retry_of="", input="")
        await self._start(place, flow, knob, context)

    async def run_flow(self, place: str, flow: str, input: JsonObject | None) -> None:
        pins = self.knob.pins
        if flow not in pins:
            raise UnknownName("flow", flow, pins)
        definition = await self.definitions.get(pins[flow])
        private = first_private(definition, self.run.private_vars.get("_user_id"))
        knob = RunKnob(name=flow, digest=pins[flow], pins=pins, private=private)
        given = self._taken_by(definition) if input is None else input
        clean, problems = checked_body(definition, as_uploaded(definition, given, self.run.spec.files))
        if problems:
            raise InputRefused(flow, problems=list(map(str, problems)))
        context = {**definition.spec.context.defaults, **clean}
        await self._start(place, definition, knob, context)

    def _taken_by(self, flow: Flow) -> JsonObject:
        """Return the run's context, without keys that the flow's trigger does not take."""
        trigger, context = flow.spec.trigger, self.run.context_vars
        if trigger is None or trigger.input is None or trigger.extra:
            return context
        return {key: value for key, value in context.items() if key in trigger.input}

    async def converse(
        self, place: str, agents: Sequence[str], graph: JsonObject, message: str, context: JsonObject
    ) -> None:
        request = OpenRequest(
            type="workflow",
            target=list(agents),
            opener_takes_turns=False,
            knobs={"graph": graph, "context_vars": context},
            message=message,
            labels={"flow": self.knob.name, "step": self.step},
            ttl_seconds=self.run.spec.ttl_seconds,
        )
        await self.open(place, request)

    async def state(self, place: str) -> State | None:
        state = await super().state(place)
        if state is not None:
            await self._check_opened_here(state)
        return state

    async def _check_opened_here(self, child: State) -> None:
        """Refuse a child that came with an import, and would answer a run that reads secrets."""
        trusted = self.trusted_runs
        if await trusted.is_known(child) or not await trusted.is_trusted(self.run, self.state_of):
            return
        raise ForeignChild(child.channel_id, run_id=self.run.channel_id)

    async def _start(self, place: str, flow: Flow, knob: RunKnob, context: JsonObject) -> None:
        spec = self.run.spec
        request = request_for(flow, knob, context, within_seconds=spec.ttl_seconds, files=spec.files)
        await self.open(place, request)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brood:
    """The children a step wants, one at each place."""

    places: Sequence[str]
    open_one: Callable[[int], Awaitable[None]]
    call: Callable[[int], str]
    """What an error calls a child."""
    at_once: int
    on_error: OnError = "fail"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a child that has closed leaves behind."""

    data: JsonObject
    """Its response, or else what its steps wrote."""
    error: RunError | None = None
    """Why it failed. What a step raised is not in it: every caller gets the public context."""

    def as_data(self) -> JsonObject:
        """Return the result for a step that collects: a child that failed is a result like any other."""
        if self.error is None:
            return self.data
        return {"error": {"type": self.error.type, "message": self.error.message, "step": self.error.step}}


async def brought_up(work: StepWork[Any], brood: Brood) -> Paused | None:
    """Open what is to be opened. Return the pause until a child has closed; None when all have.

    Raises `ChildFailed` for the first that failed, if that fails the step.
    """
    note, places = last_note(work.history, "children"), brood.places
    opened, failed = note.get("opened", 0), note.get("failed", len(places))
    noted, still_open = note.get("open", []), list[str]()
    for place in (*noted, *places[opened:]):  # Those that were open at the pause, and any opened since.
        state = await work.children.state(place)
        if state is None:
            break
        opened += place not in noted
        if not state.is_over:
            still_open.append(place)
        elif verdict(cast("WorkflowState", state)).status == "failed":
            failed = min(failed, places.index(place))
    has_failed = failed < len(places) and brood.on_error == "fail"
    room = 0 if has_failed else max(brood.at_once - len(still_open), 0)
    for index in range(opened, min(opened + room, len(places))):
        await brood.open_one(index)
        opened = index + 1
        still_open.append(places[index])
    if still_open:
        failures = {"failed": failed} if failed < len(places) else {}
        return wait_for(work, still_open, opened=opened, **failures)
    if has_failed:
        error = verdict(await run_at(work.children, places[failed])).error
        assert error is not None  # It was seen to have failed, and what has closed does not change.
        raise ChildFailed(brood.call(failed), error_type=error.type, message=error.message, step=error.step)
    return None


async def outcome(
    work: StepWork[Any], place: str, began: JsonObject, besides: Collection[str | None] = ()
) -> Outcome:
    """Return what a child of inner steps leaves behind that `began` with this context.

    The keys in `besides` are the child's own, and no result of what it wrote.
    """
    state = await run_at(work.children, place)
    found = verdict(state)
    if found.error is not None:
        # Without the id of the run, so that a replay writes the same.
        shown = public_error(state, found, reference=f"child {place!r} of this run") or found.error
        return Outcome({}, RunError(type=shown.type, message=shown.message, step=found.error.step))
    if isinstance(state.private_vars.get("_response"), dict):
        return Outcome(let_in(work, found.data))
    written, _ = difference(began, public(state.context_vars))
    return Outcome({key: value for key, value in written.items() if key not in besides})


async def run_at(children: StepChildren, place: str) -> WorkflowState:
    """Return the state of a run that was opened at this place."""
    state = await children.state(place)
    if state is None:
        raise UnknownChannel(place)
    return cast("WorkflowState", state)  # A run is a workflow channel.


def let_in(work: StepWork[Any], data: JsonObject) -> JsonObject:
    """Return what of a child's data may go into the context (F1)."""
    ours, dropped = from_outside(data)
    if dropped:
        work.dropped(work.step.kind, dropped)
    return ours


def wait_for(work: StepWork[Any], places: Sequence[str], **notes: int) -> Paused:
    """Return the pause until one of these children has closed: its data lists them as `open`."""
    children = [work.children.id_of(place) for place in places]
    return Paused(reason="children", children=children, data={"open": list(places), **notes})
