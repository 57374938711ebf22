"""The driver: plays the steps of runs, from whatever is on the log.

It is a participant like any other, the opener of every run, and its engine is woken by what concerns a run: a
step has the floor, a pause is over. After a restart it is woken by the same lines; there is no recovery of
its own (F7).

A step is performed within its time, and is tried again as its retry says (F5). What it raises is a signal;
what is wrong with the claim or the log is no fault of the step.

A run with `durability: end` is recorded before a step that does something outside, and again with that step's
packet. So a crash repeats only steps that compute (`hub.posting`, rule 6). A turn that is taken up after a
crash is recorded by itself: if it kills its process, the log says which turn does (N3).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from turnline.agent.agent import Agent, Config
from turnline.agent.failures import is_bug, report_failure
from turnline.agent.files import File
from turnline.agent.messages import Usage
from turnline.agent.performer import OnProgress, stream_words
from turnline.agent.tool_result import CallPaused
from turnline.agent.variables import masked
from turnline.core import event_types as ev
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.governance import Passport
from turnline.core.json import copied, normalised, size_of
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import State, WorkflowState
from turnline.core.views import Message, WindowedSummary
from turnline.errors import (
    AddressRefused,
    BadAddress,
    BadDraft,
    ChannelClosed,
    ChannelQuarantined,
    ChildFailed,
    HubClosed,
    LogError,
    ModelError,
    ParseFailed,
    SecretRefused,
    TurnlineError,
)
from turnline.expressions import compile_expression
from turnline.flow.compile import ERRORS
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import AgentStep, Step
from turnline.flow.definitions import Definitions
from turnline.flow.files import RunFiles
from turnline.flow.pauses import counted_seconds
from turnline.flow.run import OF_THE_RUN, RunKnob, run_knob, step_of, steps_at
from turnline.flow.steps import PERFORM, only_computes
from turnline.flow.steps.below import Below
from turnline.flow.trust import TrustKey
from turnline.flow.trusted_runs import TrustedRuns
from turnline.flow.verdict import COMPLETED, STEP_FAILED, RunError, verdict
from turnline.flow.work import PerformStep, Services, StepResult, StepWork, WorkTimeout, skipped
from turnline.hub.hub import Hub
from turnline.hub.request import OpenRequest
from turnline.hub.retry import retry
from turnline.hub.seat import Seat
from turnline.hub.texts import TurnText
from turnline.log.base import Bell
from turnline.threads import off_the_loop
from turnline.turns.children import perform_target
from turnline.turns.engine import ERROR_CHARACTERS, OVER, Engine
from turnline.turns.files import attach_files, read_file
from turnline.turns.journal import entries
from turnline.turns.people import AskedGroup, People
from turnline.turns.views import Read, Windows
from turnline.turns.work import Done, Paused, Perform, Work

DRIVER: Final = "flows"
"""The name of the participant that opens runs and plays their steps."""

NAME_A_GROUP: Final = "name a group in the step: agent.ask: {group: ops}."
"""What an agent step without `agent.ask` is told when a tool asks."""

NOT_THE_STEPS: Final = (*OVER, ChannelQuarantined, HubClosed, LogError)
"""What is wrong with the claim, the log or its database is no fault of the step: it is performed again."""

OnFailed = Callable[[WorkflowState, RunError], None]
Record = Callable[[str], Awaitable[None]]
"""Records what is held of a run."""


class Driver:
    """One process's driver. `start` it once; it works until `stop`."""

    def __init__(
        self,
        hub: Hub,
        services: Services,
        *,
        perform: Mapping[type, PerformStep] = PERFORM,
        trust_key: TrustKey | None = None,
        on_failed: OnFailed | None = None,
    ) -> None:
        """`perform` says how steps are performed, for each class of their definitions.

        `trust_key` marks the definitions of `services.flows`, and the log. Without it only these
        definitions read secrets, in runs that were opened on this log.
        `on_failed` is called when a run that this driver worked on has failed.
        """
        self.hub = hub
        self.services = services
        self._perform = perform
        self._on_failed = on_failed
        self._took: dict[str, str | None] = {}
        """Open run whose turns this driver took -> the channel above it."""
        self.definitions = Definitions(
            hub.log, hub.clock, hub.new_id, own=services.flows.values(), key=trust_key
        )
        self._trusted_runs = TrustedRuns(hub.log, hub.clock, hub.new_id, key=trust_key)
        self.agent_id = ""
        self._engine: Engine | None = None
        self._seat: Seat | None = None
        self._windows = Windows(lambda work: hub.turns.summary(work.channel_id, work.speaker))
        self._bells: WeakValueDictionary[str, Bell] = WeakValueDictionary()
        self._errands: set[asyncio.Task[None]] = set()
        self._has_stopped = False

    async def start(self) -> None:
        """Take the seat, and resume what waits."""
        await self._trusted_runs.start()
        registration = await self.hub.enrol(Passport(name=DRIVER), None, None)
        self.agent_id = registration.agent_id
        self._seat = Seat(self.hub, registration, log_name=self._trusted_runs.log_name)
        self._engine = Engine(self._seat, self._seat.player, self._performer_of)
        self.hub.attach(self.agent_id, self._engine)
        self.hub.add_listener(self._heard)

    async def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Begin nothing new, and let what is performed end, for so long. Another process resumes the rest."""
        self._has_stopped = True
        self.hub.detach(self.agent_id)
        if self._engine is not None and self._seat is not None:
            await self._engine.stop(grace_seconds=grace_seconds)
            self._seat.leave()
        for task in self._errands:
            task.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)

    def bell(self, run_id: str) -> Bell:
        """Rung when the run, or what is below it, comes to rest or to its end. Whoever waits keeps it."""
        return self._bells.setdefault(run_id, Bell())

    async def open(self, request: OpenRequest, *, can_hold: bool = False) -> str:
        """Open a run. With `can_hold` it may not be recorded yet (`hub.posting`, rule 6)."""
        name = self._trusted_runs.log_name
        return await self.hub.open_channel(request, self.agent_id, log_name=name, can_hold=can_hold)

    async def read_file(self, run_id: str, index: int) -> File:
        """Return a file that a run began with. Raises `UnknownFile` if it was erased."""
        assert self._seat is not None
        return await read_file(self._seat, run_id, 1, index)

    def note_dropped(self, channel_id: str, source: str, keys: list[str]) -> None:
        """Write into the audit that keys from outside were dropped (F1)."""
        if keys:
            self.hub.audit_log.note("reserved_keys_dropped", channel_id=channel_id, source=source, keys=keys)

    # A run.

    def _heard(self, line: Envelope) -> None:
        """A line of any channel has landed. Cancel the step of a run that has closed, and tell who waits."""
        is_over = line.event_type == ev.EV_CHANNEL_CLOSED
        is_awaited = self._bells and line.event_type in (ev.EV_TURN_PAUSED, ev.EV_HUMAN_REQUESTED)
        if self._has_stopped or self._engine is None or not (is_over or is_awaited):
            return
        if is_over:
            self._engine.cancel(line.channel_id, line.causation_id)
            self._windows.forget(line.channel_id)
            if line.event_data.get("reason") == COMPLETED and self._took.pop(line.channel_id, "?") is None:
                self._ring(line.channel_id)  # Nothing is above the run, and nothing has failed.
                return
        task = asyncio.create_task(self._tell(line.channel_id, is_over=is_over))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _tell(self, channel_id: str, *, is_over: bool) -> None:
        """Report a run that has failed; tell those who wait for a run, or for one above it.

        The hub closes what is below it. If the hub has closed, the next process finds the rest on the log.
        """
        above: str | None = channel_id
        with suppress(TurnlineError):
            if is_over:
                self._tell_failure(await self._read(channel_id))
            while above is not None:
                self._ring(above)
                above = (await self._read(above)).spec.parent_id

    def _ring(self, run_id: str) -> None:
        if (bell := self._bells.get(run_id)) is not None:
            bell.ring()

    async def _read(self, channel_id: str) -> State:
        return await retry(self.hub.clock, partial(self.hub.state, channel_id), f"{channel_id} is not read")

    def _tell_failure(self, state: State) -> None:
        """Report a failed run once: by the driver that took its last step, or for a timeout by each.

        A nested run that a step failed is left out: the step is reported, and the top run names the path.
        """
        is_ours = state.channel_id in self._took or state.pending_close_reason == "ttl_expired"
        self._took.pop(state.channel_id, None)
        if self._on_failed is None or not is_ours or not isinstance(state, WorkflowState):
            return
        if state.spec.parent_id is not None and state.pending_close_reason == STEP_FAILED:
            return
        error = None if run_knob(state) is None else verdict(state).error
        if error is not None and error.type != CANCELLED:
            self._on_failed(state, error)

    # A step.

    def _performer_of(self, speaker: str) -> Perform | None:
        return None if speaker == self.agent_id else self._perform_step

    async def _perform_step(self, work: Work) -> Done | Paused:
        knob = run_knob(work.state)
        if knob is None:  # A conversation that a `channel` step has opened.
            return await perform_target(work)
        if work.state.spec.parent_id is not None and await self.hub.tree.close_if_cut_off(work.channel_id):
            raise ChannelClosed(work.channel_id, reason=CANCELLED)
        self._took[work.channel_id] = work.state.spec.parent_id
        step_work = await self._step_work(work, knob)
        record = self.hub.record if step_work.flow.spec.durability == "end" else None
        return await attempt(step_work, self._perform[type(step_work.step)], work, record)

    async def _step_work(self, work: Work, knob: RunKnob) -> StepWork[Any]:
        assert self._seat is not None
        state, channel_id = work.state, work.channel_id
        flow = await self.definitions.get(knob.digest)
        tries, history = _this_attempt(list(work.lines))
        steps = steps_at(flow, knob.at)
        step = step_of(steps, work.speaker)
        elapsed = _elapsed_seconds(step, work, history)
        within = WorkTimeout(_seconds_left(step, elapsed))
        return StepWork(
            step=step,
            run_id=channel_id,
            flow=flow,
            turn=work.turn,
            attempt=tries,
            # A node gets a copy of its own; other steps only read it.
            public=state.context_vars,
            private=copied(state.private_vars),
            history=history,
            now=self.hub.clock.now(),
            elapsed_seconds=elapsed,
            services=await self._services_for(state, flow, knob.digest),
            children=Below(
                work.port,
                channel_id,
                work.turn,
                prefix=f"{tries}-" if tries > 1 else "",
                definitions=self.definitions,
                trusted_runs=self._trusted_runs,
                state_of=self.hub.state,
                run=state,
                knob=knob,
                step=step.id,
            ),
            journal=work.journal,
            recorded=entries(history),
            sleep=self.hub.clock.sleep,
            dropped=partial(self.note_dropped, channel_id),
            files=RunFiles.of(self._seat, channel_id, state.spec.files),
            people=_people(step, work, self._seat.read_next, within),
            show_answers=partial(self._show_answers, work, steps),
            words=self._words(work),
            within=within,
        )

    async def _show_answers(
        self, work: Work, steps: Sequence[Step], agent: Agent, recent_n: int, config: Config
    ) -> tuple[list[Message], Usage]:
        """See `ShowAnswers`."""
        agents = {one.id: one for one in steps if isinstance(one, AgentStep)}

        def is_answer(line: Envelope) -> bool:
            if line.event_type != ev.EV_PACKET or line.sender_id not in agents:
                return False
            return line.event_data.get("body", "") not in ("", skipped(agents[line.sender_id]))

        view = WindowedSummary(recent_n)
        return await self._windows.show(work, agent, view, config=config, is_shown=is_answer)

    def _words(self, work: Work) -> OnProgress | None:
        """Tell the words of a step's model as they come, where somebody listens."""
        texts = self.hub.texts
        if not texts.is_heard(work.channel_id):
            return None
        words = partial(TurnText, channel_id=work.channel_id, agent_id=work.speaker)
        return stream_words(lambda text: texts.tell(words(text=text)))

    async def is_trusted(self, state: State) -> bool:
        """Return whether the run's data may be used together with secrets. See `flow.trusted_runs`."""
        return await self._trusted_runs.is_trusted(state, self.hub.state)

    async def _services_for(self, state: State, flow: Flow, digest: str) -> Services:
        """Return the services without secrets, unless the definition and the run are the project's own."""
        is_own_definition = await self.definitions.is_trusted(digest)
        if is_own_definition and await self.is_trusted(state):
            return self.services
        run_id = state.channel_id if is_own_definition else ""

        def refuse(name: str) -> str | None:
            raise SecretRefused(name, flow=flow.name, digest=digest, run_id=run_id)

        return dataclasses.replace(self.services, secret=refuse)


def _people(step: Step, work: Work, read_next: Read, within: WorkTimeout) -> People | None:
    """Return whom the tools of an agent step ask."""
    if not isinstance(step, AgentStep):
        return None
    ask, agent = step.agent.ask, step.agent.name or step.id
    group = None if ask is None else AskedGroup(name=ask.group, agent=agent, expires=ask.expires)
    return People(work, (), read_next, group=group, nobody=NAME_A_GROUP, while_waiting=within.stop_clock)


def _elapsed_seconds(step: Step, work: Work, history: list[Envelope]) -> float:
    """Return how much of the step's `timeout` is over."""
    ages = [work.age_of(line) for line in history]
    if isinstance(step, AgentStep):
        return counted_seconds(history, ages)
    return ages[0] if ages else 0.0


def _seconds_left(step: Step, elapsed: float) -> float | None:
    """Return how long a performance may take. An agent that has waited has the rest of its `timeout`."""
    if step.timeout is None or not isinstance(step, AgentStep):
        return step.timeout
    return max(step.timeout - elapsed, 0.0)


def packet_of(done: StepResult) -> JsonObject:
    """The data of a step's packet."""
    parts: Mapping[str, Any] = {
        "body": done.body,
        "context_updates": done.updates,
        "context_deletes": list(done.deletes),
        "private_updates": done.private,
        "private_deletes": list(done.private_deletes),
        "usage": done.usage,
    }
    routing = {"kind": "signal", "signal": done.signal}
    said = {"routing": routing, **{key: value for key, value in parts.items() if value}}
    return attach_files(said, done.files) if done.files else said


def _this_attempt(lines: list[Envelope]) -> tuple[int, list[Envelope]]:
    """Return the number of the attempt, and its lines: those after the last retry. A fork begins again."""
    tries, begins = 1, 0
    for place, line in enumerate(lines):
        if line.event_type == ev.EV_CHANNEL_FORKED:
            tries, begins = 1, place + 1
        if line.event_type == ev.EV_TURN_PAUSED and line.event_data.get("reason") == "retry":
            tries, begins = tries + 1, place + 1
    return tries, lines[begins:]


# An attempt at a step.


async def attempt(
    work: StepWork[Any], perform: PerformStep, turn: Work, record: Record | None = None
) -> Done | Paused:
    """Perform the step, and write its packet with its database work. Return how the turn ended.

    What the step raises, and what keeps its packet from landing, is how the step ended (F5).
    `record` is for a run whose steps may be held; it is called before a step that does something outside.
    """
    when, unit = work.step.when, None
    is_due = when is None or await _holds(when, work.public)
    can_hold = record is not None and turn.state.unexplained <= 1 and (only_computes(work) or not is_due)
    if record is not None and not can_hold:
        await record(work.run_id)
    try:
        async with work.within:
            done = await _perform(work, perform) if is_due else StepResult(body=skipped(work.step))
        if isinstance(done, Paused):
            return _within_its_time(work, done)
        unit = done.commit
        if done.signal in ERRORS:
            reason = done.private.get("_last_error") or f"it ended with the signal {done.signal!r}"
            report_failure(_step_of(work), None, masked(str(reason), _hidden(work)))
        settled = settle(work, done)
        if isinstance(settled, StepResult):
            await _commit(work, settled, turn, can_hold=can_hold)
            return Done(is_written=True)
    except NOT_THE_STEPS:
        raise
    except Exception as error:
        settled = settle(work, failed(work, work.took_too_long if work.within.has_expired else error))
    finally:
        if unit is not None:
            await unit.close()
    return settled if isinstance(settled, Paused) else Done(data=packet_of(settled))


async def _perform(work: StepWork[Any], perform: PerformStep) -> StepResult | Paused:
    try:
        return await perform(work)
    except CallPaused as waits:
        return waits.paused


async def _commit(work: StepWork[Any], done: StepResult, turn: Work, *, can_hold: bool) -> None:
    """Write the packet with the step's database work: in one transaction where the log can (F7)."""
    unit, data, packet = done.commit, work.services.data, packet_of(done)
    joins = data is not None and data.shares_log
    try:
        if unit is not None:  # Its rows must not be kept if the packet is refused.
            packet = normalised(packet)
        if unit is not None and not joins:
            await unit.commit_alone()
        within = unit if joins else None
        await turn.write(ev.EV_PACKET, packet, within=within, can_hold=can_hold)
    except BadDraft as error:  # A node knows its context, and not the line that it goes on.
        field = error.field.removeprefix("event_data").removeprefix(".context_updates")
        raise BadDraft(f"ctx{field}", found=error.found, expected=error.expected) from None


async def _holds(when: str, context: JsonObject) -> bool:
    return await off_the_loop(compile_expression(when).holds, context, size=size_of(context))


def _within_its_time(work: StepWork[Any], paused: Paused) -> Paused:
    """A step's `timeout` also counts the time it waits for others, except for a person whom an agent asks."""
    if work.step.timeout is None or paused.questions:
        return paused
    left = work.step.timeout - work.elapsed_seconds
    if left <= 0:
        raise work.took_too_long
    if paused.seconds is not None and paused.seconds <= left:
        return paused
    return dataclasses.replace(paused, seconds=left, times_out=True)


def settle(work: StepWork[Any], done: StepResult) -> StepResult | Paused:
    """Return how the attempt ended, or a pause before the next one, as the step's retry says."""
    retry = work.step.retry
    if retry is None or done.is_final or work.attempt >= retry.attempts:
        return done
    if not retry.repeats(done.signal, done.status):
        return done
    seconds = min(retry.backoff * 2.0 ** (work.attempt - 1), retry.max_backoff)
    data: JsonObject = {"signal": done.signal, "attempt": work.attempt}
    if "_last_error" in done.private:
        data["error"] = done.private["_last_error"]
    return Paused(reason="retry", seconds=seconds, data=data)


def failed(work: StepWork[Any], error: Exception) -> StepResult:
    """Return an exception as the end of a step: the signal, and the text for the next steps.

    Values of keys with `_` are masked in the text. The operator gets a report, except of a step that fails
    because of a nested run: a step of that run has been reported.
    """
    kind = "error"
    if isinstance(error, TimeoutError):
        kind = "timeout"
    elif isinstance(error, ParseFailed):
        kind = "parse_error"
    text = masked(described(error), _hidden(work))
    named = type(error).__name__
    is_named = text.startswith(named) or not is_bug(error)
    if not (isinstance(error, ChildFailed) and error.step):
        report_failure(_step_of(work), error, text if is_named else f"{named}: {text}")
    return StepResult(
        signal=kind,
        private={"_last_error": text, "_last_error_type": kind},
        status=error.status if isinstance(error, ModelError) else None,
        is_final=isinstance(error, AddressRefused | BadAddress),
    )


def _step_of(work: StepWork[Any]) -> str:
    return f"step {work.step.id!r} of run {work.run_id} (flow {work.flow.name!r})"


def _hidden(work: StepWork[Any]) -> JsonObject:
    """Return what no text may show: the values of keys with `_`, without the engine's report of the run."""
    return {key: value for key, value in work.private.items() if key not in OF_THE_RUN}


def described(error: BaseException) -> str:
    """Return the message of an exception, with its type where the message alone says too little."""
    text = _shortened(str(error))
    if not text:
        return type(error).__name__
    is_bare = isinstance(error, KeyError) and not isinstance(error, TurnlineError)
    return f"{type(error).__name__}: {text}" if is_bare else text


def _shortened(text: str) -> str:
    """Cut the middle of a long text: the error of a nested run ends with its cause."""
    if len(text) <= ERROR_CHARACTERS:
        return text
    half = ERROR_CHARACTERS // 2
    return f"{text[: half - 1]}…{text[-half:]}"
