"""Working on turns: claim, release, record, give up (T1, T2, T5).

Whether another worker can still be alive is known here and nowhere else: a
worker of a process that has ended is replaced at once, one that is silent
somewhere else after its lease, by this hub's own monotonic clock, from the last
sign of life it has met. If that was wrong, no harm is done: the log accepts the
packet of one claim only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Final, Protocol

from turnline.core import event_types as ev
from turnline.core.claims import LEASE_SECONDS, check_claim
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.state import Claim, State
from turnline.errors import BadDraft, ClaimLost, NotStuck, TurnTaken
from turnline.hub import worker
from turnline.hub.clock import Clock
from turnline.hub.heartbeat import beating
from turnline.hub.lane import Lane
from turnline.hub.opening import first_of
from turnline.hub.preference import PAUSE_SECONDS, Workers
from turnline.hub.worker import Process

logger = logging.getLogger(__name__)

UNITS: Final = (ev.EV_TURN_MODEL, ev.EV_TURN_TOOL)
"""What a turn records."""
LET_GO_SECONDS: Final = 0.5
"""How long a cancelled worker tries to release its claim. Then the claim ends with its lease."""
LOOK_SECONDS: Final = 2.0
"""How often somebody who waits for a worker of this host looks whether its process is still there."""


class Writer(Protocol):
    """What is needed of a hub."""

    clock: Clock
    follows: bool

    async def state(self, channel_id: str) -> State: ...

    async def wait_beyond(self, channel_id: str, seq: int) -> bool: ...

    async def read_recent(self, channel_id: str, after: int) -> list[Envelope]: ...

    async def read_wal(self, channel_id: str, since: int = 0) -> list[Envelope]: ...

    async def write(
        self, channel_id: str, event_type: str, data: JsonObject, **fields: Any
    ) -> tuple[Envelope, ...]: ...


class Turns:
    """What can be done about a turn."""

    def __init__(
        self, hub: Writer, *, lease_seconds: float = LEASE_SECONDS, process: Process = worker
    ) -> None:
        self._hub = hub
        self._lease_seconds = lease_seconds
        self.process = process
        self.workers = Workers(hub.clock, process.is_gone)
        self.lane = Lane(hub.clock)
        self._left_to: dict[str, tuple[int, float]] = {}
        """Channel -> the line whose floor is left to the preferred worker, and until when."""
        self._heard: dict[str, tuple[int, float]] = {}
        """Channel -> the last sign of life of a worker that is waited for, and when this hub met it."""

    @property
    def remembered(self) -> int:
        """Of how many turns that others have, or are to have, something is kept."""
        return len(self._left_to) + len(self._heard)

    def note(self, line: Envelope) -> None:
        """A line has landed. What was kept of a turn is over with the next claim, and with the channel."""
        self.workers.note(line)
        if line.event_type in (ev.EV_TURN_CLAIMED, ev.EV_CHANNEL_CLOSED):
            self._left_to.pop(line.channel_id, None)
            self._heard.pop(line.channel_id, None)

    async def claim(
        self,
        channel_id: str,
        agent_id: str,
        *,
        worker: str,
        turn: int,
        envelope_id: str = "",
        alone: bool = False,
    ) -> Claim:
        """Return the claim on a turn. Claiming again under the same `envelope_id` gives the same claim (E1).

        `alone` says that the worker starts nothing else beside this turn (see `Lane`).
        Raises `TurnTaken` if another worker has it, `OutOfTurn` if the turn is
        over, and `ClaimLost` if this was one claim too many: the turn has failed or is stuck.
        """
        state = await self._hub.state(channel_id)
        if state.claim is not None and state.claim.envelope_id == envelope_id:
            return state.claim
        if self._hub.follows:
            self._let_others(state, agent_id, worker)
        data: JsonObject = {
            "agent_id": agent_id,
            "worker": worker,
            "turn": turn,
            "lease_seconds": self._lease_seconds,
        }
        if alone:
            data["alone"] = True
        if state.claim is not None and self._can_replace(state):
            data |= {"replaces": state.claim.seq, "heard": state.alive_seq}
        try:
            first = (await self._written(channel_id, data, envelope_id))[0]
        except TurnTaken:
            raise
        except BaseException:
            self._heard.pop(channel_id, None)
            raise
        self._heard.pop(channel_id, None)
        if first.event_type != ev.EV_TURN_CLAIMED:
            logger.warning(
                "turn %s of %s on channel %s is given up: its process ended each time that it was taken.",
                turn,
                agent_id,
                channel_id,
            )
            raise ClaimLost(channel_id, claim=None, live=None)
        return Claim(
            seq=first.seq,
            envelope_id=first.envelope_id,
            agent_id=agent_id,
            worker=worker,
            lease_seconds=self._lease_seconds,
            alone=alone,
        )

    async def retry(self, channel_id: str, *, by: str = "operator", envelope_id: str = "") -> None:
        """Resume a stuck turn after its last recorded unit. Raises `NotStuck` if the turn is not stuck."""
        state = await self._hub.state(channel_id)
        if state.pause is None or not state.is_stuck:
            raise NotStuck(channel_id)
        data: JsonObject = {"pause": state.pause.seq, "by": by}
        await self._hub.write(channel_id, ev.EV_TURN_RESUMED, data, envelope_id=envelope_id)

    async def answer_for(
        self,
        channel_id: str,
        request_id: str,
        answer: str,
        *,
        person: str,
        by: str = "operator",
        envelope_id: str = "",
    ) -> tuple[Envelope, ...]:
        """Answer a question for a person, by id; the line names the person and who answered.

        Raises `UnknownQuestion`, `AlreadyAnswered`, and `NotAsked` for a person whom it does not address.
        """
        data = {"request_id": request_id, "answer": answer, "by": by, "for": person}
        return await self._hub.write(channel_id, ev.EV_HUMAN_ANSWERED, data, envelope_id=envelope_id)

    async def wait_unclaimed(self, channel_id: str) -> None:
        """Return when the live claim has ended, or its worker can be replaced."""
        state = await self._hub.state(channel_id)
        if state.claim is None:
            await self._wait_for_the_preferred(state)
        claim = state.claim
        while claim is not None and not self._can_replace(state):
            left = claim.lease_seconds - self._age(state, claim)
            # A worker of this process has no lease, but it may leave without a word.
            seconds = left if left > 0 else claim.lease_seconds
            if self.process.is_near(claim.worker):
                seconds = min(seconds, LOOK_SECONDS)
            await first_of(self._hub.wait_beyond(channel_id, state.seq), self._hub.clock.sleep(seconds))
            state = await self._hub.state(channel_id)
            if state.claim is None or state.claim.seq != claim.seq:
                self._heard.pop(channel_id, None)
                return

    def kept(self, channel_id: str, claim: Claim) -> AbstractAsyncContextManager[None]:
        """Within this, hubs of other processes hear of the worker, however long its turn is silent.

        A worker is never replaced within its own process, so where nobody else is followed it costs nothing.
        """
        if not self._hub.follows:
            return nullcontext()
        return beating(partial(self.renew, channel_id, claim.seq), claim, self._hub.clock.sleep)

    async def renew(self, channel_id: str, claim: int, heard: int, *, by: str = "") -> int:
        """Say that the claim's worker is alive, unless it was heard of since `heard`; return the last sign.

        Raises `ClaimLost` if the claim is no longer the live one.
        """
        state = await self._hub.state(channel_id)
        draft = Draft(envelope_id="", sender_id=ev.HUB, event_type="", claim=claim, claimant=by)
        check_claim(state, draft)
        if not self._hub.follows or state.alive_seq != heard:
            return state.alive_seq
        (line,) = await self._hub.write(
            channel_id, ev.EV_TURN_RENEWED, {}, claim=claim, claimant=by, audience=[]
        )
        return line.seq

    async def record(
        self,
        channel_id: str,
        claim: int,
        event_type: str,
        data: JsonObject,
        *,
        by: str = "",
        envelope_id: str = "",
    ) -> None:
        """Write an entry of the round down: `turn.model` or `turn.tool` (T2). The hub is its sender.

        `by` is the participant that asks for it. Raises `ClaimLost` if the claim is another one's.
        """
        if event_type not in UNITS:
            expected = " or ".join(repr(one) for one in UNITS)
            raise BadDraft("event_type", found=repr(event_type)[:80], expected=expected)
        fields: dict[str, Any] = {"claim": claim, "claimant": by, "audience": [], "envelope_id": envelope_id}
        await self._hub.write(channel_id, event_type, data, **fields)
        self.lane.leave(channel_id)

    async def recorded(self, state: State) -> list[Envelope]:
        """Return what the turn in progress in `state` has recorded, by whichever worker (T3).

        What came after `state` is left out: it may belong to the next turn, of another participant.
        """
        envelopes = await self._hub.read_recent(state.channel_id, state.floor_seq)
        units = (one for one in envelopes if one.event_type in UNITS)
        return [one for one in units if one.seq <= state.seq]

    async def summary(self, channel_id: str, agent_id: str) -> JsonObject | None:
        """Return the last summary that this agent recorded on the channel. Reads all of it."""
        found = None
        for envelope in await self._hub.read_wal(channel_id):
            summary = envelope.event_data.get("summary") if envelope.event_type == ev.EV_TURN_MODEL else None
            if isinstance(summary, dict) and summary.get("agent_id") == agent_id:
                found = summary
        return found

    async def release(self, channel_id: str, claim: int, *, by: str = "", envelope_id: str = "") -> None:
        """Stop working on a turn without a packet; what it recorded stays."""
        fields: dict[str, Any] = {"claim": claim, "claimant": by, "audience": [], "envelope_id": envelope_id}
        await self._hub.write(channel_id, ev.EV_TURN_RELEASED, {}, **fields)

    async def fail(
        self, channel_id: str, claim: int, *, agent_id: str, error: JsonObject, envelope_id: str = ""
    ) -> tuple[Envelope, ...]:
        """Give the turn up."""
        data = {"agent_id": agent_id, "error": error}
        return await self._hub.write(
            channel_id, ev.EV_TURN_FAILED, data, claim=claim, claimant=agent_id, envelope_id=envelope_id
        )

    def _can_replace(self, state: State) -> bool:
        claim = state.claim
        if claim is None or self.process.is_here(claim.worker):
            return False
        return self.process.is_gone(claim.worker) or self._age(state, claim) >= claim.lease_seconds

    def _age(self, state: State, claim: Claim) -> float:
        """For how long this hub has heard nothing of the claim's worker."""
        now, alive_seq = self._hub.clock.monotonic(), max(claim.seq, state.alive_seq)
        seq, met_at = self._heard.get(state.channel_id, (0, now))
        if seq != alive_seq:
            met_at = now
        self._heard[state.channel_id] = (alive_seq, met_at)
        return now - met_at

    def _let_others(self, state: State, agent_id: str, worker: str) -> None:
        """Raise `TurnTaken` where somebody is known to have the turn, or is to have a moment to be first.

        Whoever is told waits outside of the place it would work in, and costs the log nothing.
        """
        if state.claim is not None:
            if not self._can_replace(state):
                raise TurnTaken(state.channel_id, turn=state.turn, worker=state.claim.worker)
            return
        first, now = self.workers.first_for(state.channel_id, agent_id, worker), self._hub.clock.monotonic()
        floor, until = self._left_to.pop(state.channel_id, (0, 0.0))
        if first == worker or (floor == state.floor_seq and now >= until):
            return
        until = until if floor == state.floor_seq else now + PAUSE_SECONDS
        self._left_to[state.channel_id] = (state.floor_seq, until)
        raise TurnTaken(state.channel_id, turn=state.turn, worker=first)

    async def _wait_for_the_preferred(self, state: State) -> None:
        floor, until = self._left_to.get(state.channel_id, (0, 0.0))
        left = until - self._hub.clock.monotonic()
        if floor != state.floor_seq or left <= 0:
            return
        await first_of(self._hub.wait_beyond(state.channel_id, state.seq), self._hub.clock.sleep(left))
        if (await self._hub.state(state.channel_id)).seq != state.seq:
            self._left_to.pop(state.channel_id, None)

    async def _written(self, channel_id: str, data: JsonObject, envelope_id: str) -> tuple[Envelope, ...]:
        """Write the claim. Whoever is cancelled meanwhile leaves none behind that nobody works on."""
        writing = asyncio.ensure_future(
            self._hub.write(channel_id, ev.EV_TURN_CLAIMED, data, audience=[], envelope_id=envelope_id)
        )
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await let_go(self._unclaim(channel_id, writing))
            raise

    async def _unclaim(self, channel_id: str, writing: asyncio.Future[tuple[Envelope, ...]]) -> None:
        """Release the claim that is being written, if it lands."""
        first = (await writing)[0]
        if first.event_type == ev.EV_TURN_CLAIMED:
            await self.release(channel_id, first.seq)


async def let_go(release: Coroutine[Any, Any, None]) -> None:
    """Release a claim from a task that is being cancelled, within `LET_GO_SECONDS`.

    The process may be ending, and its log may be gone already: whatever goes wrong is not told.
    """
    releasing = asyncio.ensure_future(release)
    releasing.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait((releasing,), timeout=LET_GO_SECONDS)
