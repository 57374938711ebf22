"""Claims on turns: make one, wait for one to end, release one (T1, T6).

Whether another worker can still be alive is known here and nowhere else: a
worker of a process that has ended is replaced at once, one that is silent
somewhere else after its lease, by this hub's own monotonic clock, from the last
sign of life it has met. If that was wrong, no harm is done: the log accepts the
packet of one claim only.

Workers: when several processes run the same agent, all of them see that it has the floor and race for the
claim. Rendezvous hashing of (channel, process) picks one; the others wait PAUSE_SECONDS before they try.
This only saves work: correctness comes from the claim on the log. Live workers are inferred from recent
claims. A worker not seen for SEEN_SECONDS is ignored.

Lane: a turn that was in flight when its process died is not guilty yet: every turn beside it died too. After
`SUSPECT_CLAIMS` such claims it is a suspect (N3). A suspect starts when its process has lived for a while and
no other turn runs that could be blamed, and nothing else starts beside it. So if the process dies again, that
suspect is the cause. A turn keeps others waiting from its claim until it records a unit or ends, at most
`BLAME_SECONDS`. Its claim says `alone` for good: if the process dies later, the claim still counts
(`core.claims`, rule 4).

Rule: a waiting suspect holds back new turns, never the other way round for long. Turns that were held back
start before the next suspect does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from turnline.core import event_types as ev
from turnline.core.claims import MAX_CLAIMS
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.event_types import EV_TURN_CLAIMED
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.core.state import LEASE_SECONDS, Claim, State
from turnline.core.views import Floor
from turnline.errors import ClaimLost, NotStuck, TurnTaken
from turnline.hub import worker
from turnline.hub.opening import first_of
from turnline.hub.timers import Clock
from turnline.hub.worker import Process, is_gone
from turnline.log.base import Bell

if TYPE_CHECKING:
    from turnline.hub.hub import Hub

logger = logging.getLogger(__name__)

UNITS: Final = (ev.EV_TURN_MODEL, ev.EV_TURN_TOOL, ev.EV_TURN_ONCE)
"""What a turn records."""
LET_GO_SECONDS: Final = 0.5
"""How long a cancelled worker tries to release its claim. Then the claim ends with its lease."""
HELD_LOOK_SECONDS: Final = 5.0
"""How often a turn that the lane holds looks at its channel."""
LOOK_SECONDS: Final = 2.0
"""How often a worker that waits for another one of this host looks whether that process is still there."""


class Turns:
    """What can be done about a turn."""

    def __init__(self, hub: Hub, *, lease_seconds: float = LEASE_SECONDS, process: Process = worker) -> None:
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
        data = self._claim_data(agent_id, worker, turn)
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

    def _claim_data(self, agent_id: str, worker: str, turn: int) -> JsonObject:
        data: JsonObject = {"agent_id": agent_id, "worker": worker, "turn": turn}
        return data if self._lease_seconds == LEASE_SECONDS else data | {"lease_seconds": self._lease_seconds}

    def draft_claim(self, channel_id: str, floor: Floor, worker: str, envelope_id: str) -> Draft | None:
        """Return the draft of a claim that rides with the floor; None where another process is preferred."""
        if self._hub.follows and self.workers.first_for(channel_id, floor.speaker, worker) != worker:
            return None
        return Draft(
            envelope_id=envelope_id,
            sender_id=ev.HUB,
            event_type=ev.EV_TURN_CLAIMED,
            event_data=self._claim_data(floor.speaker, worker, floor.turn),
            audience=[],
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

    async def summary(self, channel_id: str, agent_id: str) -> JsonObject | None:
        """Return the last summary that this agent recorded on the channel. Reads all of it."""
        found = None
        for envelope in await self._hub.read_wal(channel_id):
            summary = envelope.event_data.get("summary") if envelope.event_type == ev.EV_TURN_MODEL else None
            if isinstance(summary, dict) and summary.get("agent_id") == agent_id:
                found = summary
        return found

    async def release(self, channel_id: str, claim: int) -> None:
        """Stop working on a turn without a packet; what it recorded stays."""
        await self._hub.write(channel_id, ev.EV_TURN_RELEASED, {}, claim=claim, audience=[])

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
        if state.is_over:  # The claim is refused; nothing would forget what is kept here.
            return
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


async def let_go(release: Coroutine[Any, Any, object]) -> None:
    """Release a claim from a task that is being cancelled, within `LET_GO_SECONDS`.

    The process may be ending, and its log may be gone already, so errors are ignored.
    """
    releasing = asyncio.ensure_future(release)
    releasing.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait((releasing,), timeout=LET_GO_SECONDS)


PAUSE_SECONDS: Final = 0.05
"""For so long a worker that is not preferred leaves a turn alone: longer than a tail takes to be read."""
SEEN_SECONDS: Final = 60.0
"""A worker that took no turn of the agent's for so long is not counted any more."""
MAX_WORKERS: Final = 1_000
"""So many are remembered, of all agents; the ones not seen for longest are forgotten."""


def preferred(channel_id: str, workers: Iterable[str]) -> str:
    """Return the worker that the channel prefers. The same everywhere, whatever their order."""
    return max(workers, key=lambda worker: (_weight(channel_id, worker), worker))


def _weight(channel_id: str, worker: str) -> bytes:
    return blake2b(f"{channel_id}\n{worker}".encode(), digest_size=8).digest()


def process_of(worker: str) -> str:
    """Return the process of a worker: its seats in one process are not told apart."""
    return worker.partition("/")[0]


class Workers:
    """The workers that were lately seen to take an agent's turns."""

    def __init__(self, clock: Clock, is_gone: Callable[[str], bool] = is_gone) -> None:
        self._clock = clock
        self._is_gone = is_gone
        self._seen: dict[tuple[str, str], float] = {}
        """Agent and worker -> when a claim of it was last seen, the latest last."""

    def note(self, line: Envelope) -> None:
        """A line has landed; of a claim, remember whose it is."""
        if line.event_type != EV_TURN_CLAIMED:
            return
        key = str(line.event_data.get("agent_id")), str(line.event_data.get("worker"))
        self._seen.pop(key, None)
        self._seen[key] = self._clock.monotonic()
        if len(self._seen) > MAX_WORKERS:
            del self._seen[next(iter(self._seen))]

    def first_for(self, channel_id: str, agent_id: str, worker: str) -> str:
        """The worker that is to have a moment for itself: `worker`, where no other one is preferred."""
        since = self._clock.monotonic() - SEEN_SECONDS
        others = {who for (agent, who), at in self._seen.items() if agent == agent_id and at >= since}
        by_process = {process_of(one): one for one in (*sorted(others), worker)}
        first = by_process[preferred(channel_id, by_process)]
        return worker if self._is_gone(first) else first


BLAME_SECONDS: Final = 60.0
"""A turn that has run for so long is not the one that kills processes at once."""
LIVED_SECONDS: Final = (5.0, 10.0, 20.0)
"""How long a process must have lived before a suspect starts: longer for each claim it did not survive."""


class Held(Exception):
    """The turn may not start yet. `Lane.wait` returns when it is worth another try."""

    def __init__(self, seconds: float, seen: int) -> None:
        self.seconds = seconds
        self.seen = seen
        super().__init__(f"held for at most {seconds:g} s")


class Lane:
    """The turns of one process that have started, and the suspect that runs alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at = clock.monotonic()
        self._running: dict[str, tuple[str, float]] = {}
        """channel id -> the visit that runs its turn, and until when that turn can be blamed for a crash; by
        that time"""
        self._suspect = ("", "")
        """The channel and visit of the suspect that runs alone, or is next to do so."""
        self._held: dict[str, str] = {}
        """channel id -> the visit of an ordinary turn that a suspect holds back"""
        self._bell = Bell()

    def enter(self, channel_id: str, visit: str, unexplained: int) -> bool:
        """Start a turn and return whether it runs alone. Raises `Held` if it may not start yet.

        `visit` names this try; only the same visit, or a recorded unit, leaves the lane again.
        """
        now = self._clock.monotonic()
        self._forgive(now)
        if not SUSPECT_CLAIMS <= unexplained < MAX_CLAIMS:
            self._enter_beside_others(channel_id, visit, now)
            return False
        self._enter_alone(channel_id, visit, unexplained, now)
        return True

    def begin(self, channel_id: str, visit: str) -> None:
        """Note a turn whose claim came with its floor: it starts whatever else runs."""
        self._running.pop(channel_id, None)
        self._running[channel_id] = (visit, self._clock.monotonic() + BLAME_SECONDS)

    def is_free_for(self, channel_id: str) -> bool:
        """Return whether the next turn of this channel may be claimed together with its floor."""
        self._forgive(self._clock.monotonic())
        return self._suspect[0] in ("", channel_id)

    def leave(self, channel_id: str, visit: str = "") -> None:
        """Note that the turn has ended or has recorded a unit (no `visit`): it is not to blame."""
        changed = False
        if visit in ("", self._running.get(channel_id, ("", 0.0))[0]):
            changed = self._running.pop(channel_id, None) is not None
        if visit and visit == self._held.get(channel_id):
            del self._held[channel_id]
            changed = True
        if self._suspect[0] == channel_id and visit in ("", self._suspect[1]):
            self._suspect = ("", "")
            changed = True
        if changed:
            self._bell.ring()

    async def wait(self, held: Held) -> None:
        """Return when a turn that was held may try again, or after `HELD_LOOK_SECONDS`.

        Its worker then looks whether the turn is still to be taken. If another process has taken it, it must
        not keep its place here: others would wait for it.
        """
        seconds = min(held.seconds, HELD_LOOK_SECONDS)
        await first_of(self._bell.wait(held.seen), self._clock.sleep(seconds))

    def _enter_beside_others(self, channel_id: str, visit: str, now: float) -> None:
        if self._suspect[0]:
            self._held[channel_id] = visit
            _, until = self._running.get(self._suspect[0], ("", now + BLAME_SECONDS))
            raise Held(until - now, self._bell.rung)
        self._running.pop(channel_id, None)
        self._running[channel_id] = (visit, now + BLAME_SECONDS)
        if self._held.pop(channel_id, None) is not None:
            self._bell.ring()

    def _enter_alone(self, channel_id: str, visit: str, unexplained: int, now: float) -> None:
        must_have_lived = LIVED_SECONDS[min(unexplained - SUSPECT_CLAIMS, len(LIVED_SECONDS) - 1)]
        young = self._started_at + must_have_lived - now
        if young > 0:
            raise Held(young, self._bell.rung)
        if self._suspect != (channel_id, visit) and (self._suspect[0] or self._held):
            raise Held(BLAME_SECONDS, self._bell.rung)
        self._suspect = (channel_id, visit)
        others = [until for name, (_, until) in self._running.items() if name != channel_id]
        if others:
            raise Held(max(others) - now, self._bell.rung)
        self._running.pop(channel_id, None)
        self._running[channel_id] = (visit, now + BLAME_SECONDS)

    def _forgive(self, now: float) -> None:
        """Forget the turns that have run for long enough."""
        while self._running:
            name, (visit, until) = next(iter(self._running.items()))  # The one that started first.
            if until > now:
                return
            self.leave(name, visit)
