"""The driver: takes the turns of a run's steps, from whatever is on the log.

    claim -> perform -> packet, or a pause

It is a participant like any other, the opener of every run, and is woken by what
concerns a run: a step has the floor, a pause is over, a child has closed. After a
restart it is woken by the same lines; there is no recovery of its own (F7).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from msgspec.structs import replace

from turnline import tracing
from turnline.core import event_types as ev
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.governance import Passport
from turnline.core.json import copied
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import Claim, State, WorkflowState
from turnline.core.step_targets import STEP_PREFIX
from turnline.errors import (
    ChannelQuarantined,
    HubClosed,
    LogError,
    Refused,
    SecretRefused,
    TurnlineError,
    TurnTaken,
    UnknownChannel,
)
from turnline.flow.attempt import NOT_THE_STEPS, OVER_FOR_US, attempt, failed, settle
from turnline.flow.below import Below
from turnline.flow.definition.flow import Flow
from turnline.flow.definitions import Definitions
from turnline.flow.run import RunKnob, run_knob, step_of, steps_at
from turnline.flow.steps import PERFORM
from turnline.flow.trust import TrustKey
from turnline.flow.verdict import RunError, verdict
from turnline.flow.work import Done, Paused, Perform, Services, Work
from turnline.hub.hub import Hub
from turnline.hub.journal import LogJournal, entries
from turnline.hub.lane import Held
from turnline.hub.request import OpenRequest
from turnline.hub.turns import let_go
from turnline.log.bell import Bell

logger = logging.getLogger(__name__)

DRIVER: Final = "flows"
"""The name of the participant that opens runs and works on their steps."""
RETRY_SECONDS: Final = 1.0

OnFailed = Callable[[WorkflowState, RunError], None]


class Driver:
    """One process's driver. `start` it once; it works until `stop`."""

    def __init__(
        self,
        hub: Hub,
        services: Services,
        *,
        perform: Mapping[type, Perform] = PERFORM,
        trust_key: TrustKey | None = None,
        on_failed: OnFailed | None = None,
    ) -> None:
        """`perform` says how steps are performed, for each class of their definitions.

        `trust_key` marks the definitions of `services.flows`. Without it only these read secrets.
        `on_failed` is called when a run that this driver worked on has failed.
        """
        self.hub = hub
        self.services = services
        self._perform = perform
        self._on_failed = on_failed
        self._took: set[str] = set()
        """Channels whose turn this driver took since it was woken for them."""
        self.definitions = Definitions(
            hub.log, hub.clock, hub.new_id, own=services.flows.values(), key=trust_key
        )
        self.agent_id = ""
        self._worker = ""
        self._working: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        """Channels that were woken while they were worked on."""
        self._performing: set[str] = set()
        """Channels whose step is being performed; what it comes to is not being written yet."""
        self._idle: set[str] = set()
        """Channels whose step is another worker's: nothing is to be done but to wait."""
        self._below: dict[str, set[str]] = {}
        """Run -> its children that are open."""
        self._bells: WeakValueDictionary[str, Bell] = WeakValueDictionary()
        self._resuming: asyncio.Task[None] | None = None
        """Resumes what waited when the driver started."""
        self._stopping = False

    async def start(self) -> None:
        """Take the seat, and take up whatever waits."""
        registration = await self.hub.enrol(Passport(name=DRIVER), None, None)
        self.agent_id = registration.agent_id
        self._worker = self.hub.turns.process.join(f"{DRIVER}-{self.hub.new_id()[-8:]}")
        waiting = await self.take_stock()
        self.hub.attach(self.agent_id, self)
        self.hub.add_listener(self._heard)
        self._resuming = asyncio.create_task(self._resume_all(waiting))

    async def _resume_all(self, waiting: Iterable[str]) -> None:
        """Resume the runs that wait for their children: one may have closed while no driver worked.

        The server answers meanwhile. A log that cannot be written is tried again.
        """
        orphans = [child for children in list(self._below.values()) for child in children]
        for channel_id in waiting:
            await self._until_written(self._resume, channel_id)
        for channel_id in orphans:
            await self._until_written(self.hub.tree.close_if_cut_off, channel_id)

    async def _until_written(self, do: Callable[[str], Awaitable[bool]], channel_id: str) -> None:
        while not self._stopping:
            try:
                await do(channel_id)
            except LogError as error:
                logger.warning("run %s could not be resumed yet: %s", channel_id, error)
                await self.hub.clock.sleep(RETRY_SECONDS)
            except TurnlineError as error:
                logger.warning("run %s is left alone: %s", channel_id, error)
                return
            else:
                return

    async def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Begin nothing new, and let what is performed end, for so long. Somebody takes up the rest."""
        self._stopping = True
        self.hub.detach(self.agent_id)
        worked_on = set(self._working)
        busy = [task for channel_id, task in self._working.items() if channel_id not in self._idle]
        if busy:
            await asyncio.wait(busy, timeout=grace_seconds)
        left = [*self._working.values(), *([] if self._resuming is None else [self._resuming])]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._release(worked_on)
        self.hub.turns.process.leave(self._worker)

    def wake(self, channel_id: str, seq: int) -> None:
        """See `Receiver.wake`."""
        if self._stopping:
            return
        if channel_id in self._working:
            self._again.add(channel_id)
            return
        task = asyncio.create_task(self._work_on(channel_id))
        self._working[channel_id] = task
        task.add_done_callback(partial(self._left, channel_id))

    def bell(self, run_id: str) -> Bell:
        """Rung when the run, or what is below it, comes to rest or to its end. Whoever waits keeps it."""
        return self._bells.setdefault(run_id, Bell())

    def children_of(self, run_id: str) -> frozenset[str]:
        """The open channels below a run."""
        return frozenset(self._below.get(run_id, ()))

    async def open(self, request: OpenRequest) -> str:
        """Open a channel below a run, or the run's own."""
        worker = self._worker_for(request.channel_id or "")
        channel_id = await self.hub.open_channel(replace(request, worker=worker), self.agent_id)
        if request.parent_id is not None:
            self._below.setdefault(request.parent_id, set()).add(channel_id)
        if self._stopping:
            await self._release([channel_id])
        return channel_id

    def _worker_for(self, channel_id: str) -> str:
        """Return who claims the channel's next turn together with its floor; empty if nobody may."""
        is_free = not self._stopping and self.hub.turns.lane.is_free_for(channel_id)
        return self._worker if is_free else ""

    async def _release(self, channel_ids: Iterable[str]) -> None:
        """Give back the claims that came with a floor and that nobody here will work on any more."""
        for channel_id in channel_ids:
            with suppress(TurnlineError):
                claim = (await self.hub.state(channel_id)).claim
                if claim is not None and claim.worker == self._worker:
                    await self.hub.turns.release(channel_id, claim.seq)

    # A run.

    def _heard(self, line: Envelope) -> None:
        """Nobody works on a run that has closed, by an operator or its time: its step is cancelled."""
        if line.event_type == ev.EV_CHANNEL_CLOSED and line.channel_id in self._performing:
            self._working[line.channel_id].cancel()

    def _left(self, channel_id: str, task: asyncio.Task[None]) -> None:
        self._working.pop(channel_id, None)
        self._took.discard(channel_id)
        if not task.cancelled() and task.exception() is not None:
            logger.error("run %s is left alone: %s", channel_id, type(task.exception()).__name__)
        if channel_id in self._again:
            self._again.discard(channel_id)
            self.wake(channel_id, 0)

    async def _work_on(self, channel_id: str) -> None:
        while not self._stopping:
            self._again.discard(channel_id)
            try:
                if not await self._take_turn(channel_id):
                    return
            except TurnTaken:
                await self._rest(channel_id, self.hub.turns.wait_unclaimed(channel_id))
            except Held as held:
                await self._rest(channel_id, self.hub.turns.lane.wait(held))
            except LogError as error:
                logger.warning("a step of %s could not be written down: %s", channel_id, error)
                await self.hub.clock.sleep(RETRY_SECONDS)
            except (ChannelQuarantined, HubClosed, UnknownChannel) as error:
                logger.warning("run %s is left alone: %s", channel_id, error)
                return

    async def _rest(self, channel_id: str, waiting: Awaitable[None]) -> None:
        """Wait without work in hand, so that stopping need not wait for it."""
        self._idle.add(channel_id)
        try:
            await waiting
        finally:
            self._idle.discard(channel_id)

    async def _take_turn(self, channel_id: str) -> bool:
        """Take the run's turn, if there is one to take; whether to look again."""
        state = await self.hub.state(channel_id)
        if state.is_over:
            await self._ended(state)
            return False
        if state.spec.parent_id is not None:  # It may have been opened by the driver of another process.
            self._below.setdefault(state.spec.parent_id, set()).add(channel_id)
            if await self.hub.tree.close_if_cut_off(channel_id):
                return True
        knob = run_knob(state) if state.creator_id == self.agent_id else None
        floor = state.expected_next_speaker or ""
        if knob is None or not floor.startswith(STEP_PREFIX):
            return False
        if state.pause is not None:
            await self._ring(state)
            return False
        try:
            claim = await self._claim(state, floor)
        except OVER_FOR_US:
            self.hub.turns.lane.leave(channel_id, self._worker)
            return (await self.hub.state(channel_id)).seq != state.seq
        except (TurnTaken, LogError):
            self.hub.turns.lane.leave(channel_id, self._worker)
            raise
        name = f"step {floor.removeprefix(STEP_PREFIX)}"
        attributes: dict[str, tracing.Value] = {tracing.CONVERSATION: channel_id, "turnline.turn": state.turn}
        try:
            with tracing.span_below(state.spec.traceparent, name, attributes):
                await self._performed(state, knob, claim)
        finally:
            self.hub.turns.lane.leave(channel_id, self._worker)
        return True

    async def _claim(self, state: State, floor: str) -> Claim:
        """Return this driver's claim on the turn: the one that came with the floor, or a new one."""
        channel_id, lane = state.channel_id, self.hub.turns.lane
        if state.claim is not None and state.claim.worker == self._worker:
            lane.begin(channel_id, self._worker)
            return state.claim
        alone = lane.enter(channel_id, self._worker, state.unexplained)
        return await self.hub.turns.claim(
            channel_id, floor, worker=self._worker, turn=state.turn, alone=alone
        )

    async def _performed(self, state: State, knob: RunKnob, claim: Claim) -> None:
        self._took.add(state.channel_id)
        with suppress(*OVER_FOR_US):  # The turn is over for us, whatever we have; it is dropped.
            try:
                work, below = await self._work(state, knob, claim)
                async with self.hub.turns.kept(state.channel_id, claim):
                    self._performing.add(state.channel_id)
                    try:
                        done = await attempt(work, self._perform[type(work.step)])
                    finally:
                        self._performing.discard(state.channel_id)
                    if isinstance(done, Done):
                        done = await self._committed(work, claim, done)
                if isinstance(done, Paused):
                    await self._pause(state, claim, done, below)
                else:
                    await self._close(below.seen_open)
            except BaseException as error:
                # A shutdown, or a log that cannot be written: nothing is wrong with the step.
                if not isinstance(error, Refused):
                    await let_go(self.hub.turns.release(state.channel_id, claim.seq))
                raise

    # A step.

    async def _work(self, state: State, knob: RunKnob, claim: Claim) -> tuple[Work[Any], Below]:
        channel_id, floor = state.channel_id, claim.agent_id
        flow = await self.definitions.get(knob.digest)
        is_fresh = max(state.seq, claim.seq) == state.floor_seq + 1
        lines = [] if is_fresh else await self.hub.read_recent(channel_id, state.floor_seq)
        tries, history = _this_attempt(lines)
        step = step_of(steps_at(flow, knob.at), floor.removeprefix(STEP_PREFIX))
        below = Below(
            self.hub, self.definitions, self.open, run=state, knob=knob, step=step.id, attempt=tries
        )
        work = Work(
            step=step,
            run_id=channel_id,
            flow=flow,
            turn=state.turn,
            attempt=tries,
            public=copied(state.context_vars),
            private=copied(state.private_vars),
            history=history,
            now=self.hub.clock.now(),
            elapsed_seconds=self.hub.seconds_since(history[0]) if history else 0.0,
            services=await self._services_for(flow, knob.digest),
            children=below,
            journal=LogJournal(self.hub.turns, channel_id, claim.seq),
            recorded=entries(history),
            sleep=self.hub.clock.sleep,
            dropped=partial(self.note_dropped, channel_id),
        )
        return work, below

    async def _services_for(self, flow: Flow, digest: str) -> Services:
        """Return the services without secrets, unless the definition is the project's own."""
        if await self.definitions.is_trusted(digest):
            return self.services

        def refuse(name: str) -> str | None:
            raise SecretRefused(name, flow=flow.name, digest=digest)

        return dataclasses.replace(self.services, secret=refuse)

    def note_dropped(self, channel_id: str, source: str, keys: list[str]) -> None:
        """Write into the audit that keys from outside were dropped (F1)."""
        if keys:
            self.hub.audit_log.note("reserved_keys_dropped", channel_id=channel_id, source=source, keys=keys)

    async def _committed(self, work: Work[Any], claim: Claim, done: Done) -> Done | Paused:
        """Commit the step; where its database work does not land, that is how the step ended (F5)."""
        try:
            await self._commit(work.run_id, claim, done)
        except NOT_THE_STEPS:
            raise
        except Exception as error:
            settled = settle(work, failed(work, error))
            if isinstance(settled, Done):
                await self._commit(work.run_id, claim, settled)
            return settled
        return done

    async def _commit(self, run_id: str, claim: Claim, done: Done) -> None:
        draft = Draft(
            envelope_id=self.hub.new_id(),
            sender_id=claim.agent_id,
            event_type=ev.EV_PACKET,
            event_data=packet_of(done),
            claim=claim.seq,
            goes_on=self._worker_for(run_id),
        )
        unit = done.commit
        if unit is None:
            await self.hub.post(run_id, draft)
            return
        try:
            if self.services.data is not None and self.services.data.shares_log:
                await self.hub.post(run_id, draft, within=unit)
            else:
                await unit.commit_alone()
                await self.hub.post(run_id, draft)
        finally:
            await unit.close()

    async def _pause(self, state: State, claim: Claim, paused: Paused, below: Below) -> None:
        data: JsonObject = {"agent_id": claim.agent_id, "turn": state.turn, "reason": paused.reason}
        if paused.seconds is not None:
            data["seconds"] = paused.seconds
        if paused.until is not None:
            data["until"] = paused.until.isoformat()
        data |= {"times_out": True} if paused.times_out else {}
        data |= {"key": paused.key} if paused.key else {}
        data |= {"data": paused.data} if paused.data else {}
        await self.hub.write(state.channel_id, ev.EV_TURN_PAUSED, data, claim=claim.seq)
        # One may have closed after it was looked at, and found nothing that waited for it.
        for child in below.seen_open:
            if (await self.hub.state(child)).is_over:
                await self._resume(state.channel_id)
                return

    # Children.

    async def take_stock(self) -> list[str]:
        """Note what is open below what, and return the runs that wait for their children."""
        waiting = []
        for status in ("pending", "active"):
            for one in await self.hub.list_channels(agent_id=self.agent_id, state=status):
                if one.parent_id is not None:
                    self._below.setdefault(one.parent_id, set()).add(one.channel_id)
                pause = (await self.hub.state(one.channel_id)).pause
                if pause is not None and pause.reason == "children":
                    waiting.append(one.channel_id)
        return waiting

    async def _close(self, children: Iterable[str]) -> None:
        """Cancel what a step leaves behind: it took too long, or its run has ended."""
        for child in list(children):
            with suppress(Refused):
                await self.hub.write(child, ev.EV_CHANNEL_CLOSED, {"reason": CANCELLED, "by": self.agent_id})
            await self.hub.tree.close_below(child, by=self.agent_id)

    async def _ended(self, state: State) -> None:
        """A channel has closed: its children close with it, and its parent is told."""
        await self._close(self._below.pop(state.channel_id, set()))
        self._tell_failure(state)
        await self._ring(state)
        parent = state.spec.parent_id
        if parent is not None and state.creator_id == self.agent_id:
            self._below.get(parent, set()).discard(state.channel_id)
            await self._resume(parent)

    def _tell_failure(self, state: State) -> None:
        """Report a failed run once: by the driver that took its last step, or for a timeout by each."""
        is_ours = state.channel_id in self._took or state.pending_close_reason == "ttl_expired"
        if self._on_failed is None or not is_ours or not isinstance(state, WorkflowState):
            return
        error = None if run_knob(state) is None else verdict(state).error
        if error is not None and error.type != CANCELLED:
            self._on_failed(state, error)

    async def _ring(self, state: State) -> None:
        """Tell whoever waits for the run, or for one above it."""
        while True:
            bell = self._bells.get(state.channel_id)
            if bell is not None:
                bell.ring()
            if state.spec.parent_id is None:
                return
            state = await self.hub.state(state.spec.parent_id)

    async def _resume(self, channel_id: str) -> bool:
        """End the run's pause, if it waits for its children; whether that was so."""
        state = await self.hub.state(channel_id)
        if state.pause is None or state.pause.reason != "children":
            return False
        with suppress(Refused):
            await self.hub.write(channel_id, ev.EV_TURN_RESUMED, {"pause": state.pause.seq})
            return True
        return False


def packet_of(done: Done) -> JsonObject:
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
    return {"routing": routing, **{key: value for key, value in parts.items() if value}}


def _this_attempt(lines: list[Envelope]) -> tuple[int, list[Envelope]]:
    """The number of the attempt, and its lines: those behind the last retry."""
    tries, begins = 1, 0
    for place, line in enumerate(lines):
        if line.event_type == ev.EV_TURN_PAUSED and line.event_data.get("reason") == "retry":
            tries, begins = tries + 1, place + 1
    return tries, lines[begins:]
