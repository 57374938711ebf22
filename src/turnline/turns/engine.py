"""The engine: takes the turns of one participant, and of those that it plays.

    wake -> the floor is mine, no pause -> claim -> perform -> packet, pause or failure

It is the only such loop. Clients and the driver of flows say which performer takes a turn; everything else
about a turn is here: one at a time per channel, so many at once, retries while the log is away, the
heartbeat, and the release of what cannot be finished.

Rule 1: a notice of the hub wakes the engine, with the turn that waits. After a restart the hub sends the same
notices, so there is no recovery of its own.

Rule 2: waiting holds nothing (N1). A turn whose performer returns `Paused` has no claim, no task and no
heartbeat until the line that ends the pause wakes the engine again.

Rule 3: a performer that raises fails its turn (T5), also with a `CancelledError` although nobody stops it. If
the claim is lost, its work is dropped: the turn is another worker's, or over. While the log is away the claim
is kept: what the turn has come to is written later (`Port.write`). A turn that could not read is performed
again.

Rule 4: whatever is written under a claim is a sign of life. Only a worker that has written nothing for a
third of its lease writes `turn.renewed`; a turn that is over sooner costs no line. The heart beats in the
event loop that does the work, on whichever side of a link. A process that is stopped, or that hangs, is
silent, and is replaced after its lease; what it writes then is refused (T6).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from typing import Final

from msgspec.structs import asdict

from turnline import tracing
from turnline.agent.failures import report_failure
from turnline.core import event_types as ev
from turnline.core.envelope import JsonObject
from turnline.core.views import Floor, Notice, floor_for
from turnline.errors import (
    BadDraft,
    ChannelClosed,
    ClaimLost,
    EnvelopeIdReused,
    LogError,
    NotDue,
    OutOfTurn,
    TurnlineError,
    TurnTaken,
)
from turnline.hub.retry import RETRY_SECONDS, retry
from turnline.hub.seat import Player
from turnline.hub.turns import Held, let_go
from turnline.log.base import Bell
from turnline.log.joined import Transaction
from turnline.threads import is_being_cancelled
from turnline.turns.children import Children
from turnline.turns.files import with_whole_texts
from turnline.turns.work import AWAY, Done, LogAway, Paused, Perform, Port, Work, Write

logger = logging.getLogger(__name__)

ERROR_CHARACTERS: Final = 500

OVER: Final = (ClaimLost, OutOfTurn, NotDue, ChannelClosed)
"""The turn is another worker's, or over: what we have of it is dropped."""


class _Lost(Exception):
    """The turn is another worker's, or over; what we have of it is dropped."""


PerformerOf = Callable[[str], Perform | None]
"""Gives what takes the turns of a participant: the player's own, or those of one that it plays."""


class Engine:
    """The turns of one participant in one process. A `Receiver` that takes turns."""

    def __init__(
        self, port: Port, player: Player, performer_of: PerformerOf, *, places: int | None = None
    ) -> None:
        """Take the turns that `performer_of` has a performer for, at most `places` at once."""
        self._port = port
        self._player = player
        self._performer_of = performer_of
        self._places = _Places(places)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Channel -> what takes its turns."""
        self._next: dict[str, Floor] = {}
        """Channel -> a turn that was given while another one was taken."""
        self._unplayed: dict[str, Floor] = {}
        """Channel -> a turn that waits for a performer."""
        self._performing: dict[str, int] = {}
        """Channel -> the line that gave the floor of the turn that is performed."""
        self._offered: set[str] = set()
        """Channels whose turn is claimed together with the floor, and not begun yet. Each has a place."""
        self._stopping = False

    # What the hub says.

    def wake(self, notice: Notice) -> None:
        """See `Receiver.wake`."""
        channel_id, floor = notice.channel_id, notice.floor
        self._unplayed.pop(channel_id, None)
        if floor is None or self._stopping:
            return
        if self._performer_of(floor.speaker) is None:
            self._unplayed[channel_id] = floor
        elif channel_id not in self._tasks:
            task = asyncio.create_task(self._take_turns(channel_id, floor))
            self._tasks[channel_id] = task
            task.add_done_callback(partial(self._leave, channel_id))
        elif floor.seq > self._performing.get(channel_id, 0):
            self._next[channel_id] = floor

    @property
    def unplayed(self) -> Mapping[str, Floor]:
        """The turns that wait for a performer, by channel."""
        return self._unplayed

    def wake_unplayed(self) -> None:
        """Take the turns that waited for a performer, if there is one now."""
        for channel_id, floor in list(self._unplayed.items()):
            self.wake(Notice(channel_id=channel_id, first=floor.seq, seq=floor.seq, floor=floor))

    def offer(self, channel_id: str, floor: Floor) -> str:
        """Return the worker that claims the turn together with its floor; empty if none has a place (N6)."""
        is_waiting = channel_id in self._tasks and channel_id not in self._performing
        if self._stopping or channel_id in self._offered or is_waiting:  # A task that waits may wait longer.
            return ""
        if not self._player.lane.is_free_for(channel_id) or self._performer_of(floor.speaker) is None:
            return ""
        if not self._places.take_free():
            return ""
        self._offered.add(channel_id)
        return self._player.worker

    def withdraw(self, channel_id: str) -> None:
        """Give back the place of an offer: the claim has not landed."""
        if channel_id in self._offered:
            self._offered.discard(channel_id)
            self._places.give()

    # What its owner says.

    async def take(self, channel_id: str, floor: Floor) -> None:
        """Take a turn now, and return when its packet or its pause is written."""
        self.wake(Notice(channel_id=channel_id, first=floor.seq, seq=floor.seq, floor=floor))
        if (task := self._tasks.get(channel_id)) is not None:
            await asyncio.wait((task,))

    def cancel(self, channel_id: str) -> None:
        """Stop the performer of the channel's turn, if one works: the channel has closed."""
        if channel_id in self._performing:
            self._tasks[channel_id].cancel()

    async def stop(self, *, grace_seconds: float = 0.0) -> None:
        """Begin nothing new, and let what is performed end, for so long. The rest is released."""
        self._stopping = True
        busy = [self._tasks[channel_id] for channel_id in self._performing]
        if busy and grace_seconds > 0:
            await asyncio.wait(busy, timeout=grace_seconds)
        left = list(self._tasks.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._release_offered(list(self._offered))

    # A channel.

    def _leave(self, channel_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(channel_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("channel %s is left alone: %s", channel_id, type(error).__name__)
        if (floor := self._next.pop(channel_id, None)) is not None:
            self.wake(Notice(channel_id=channel_id, first=floor.seq, seq=floor.seq, floor=floor))

    async def _take_turns(self, channel_id: str, given: Floor) -> None:
        claim_id = self._player.new_id()
        floor: Floor | None = given
        try:
            while not self._stopping:
                try:
                    if floor is None and (floor := await self._look(channel_id)) is None:
                        await self._release_unbegun(channel_id)
                    if floor is None or not await self._take_turn(channel_id, floor, claim_id):
                        return
                    if channel_id not in self._next:
                        return
                    claim_id = self._player.new_id()
                    floor = self._next.pop(channel_id)
                    continue
                except Held as held:
                    await self._player.lane.wait(held)
                except TurnTaken:
                    await self._wait_unclaimed(channel_id)
                except (EnvelopeIdReused, _Lost):  # The claim is over. The turn may still be ours to take.
                    claim_id = self._player.new_id()
                except LogError as error:
                    logger.warning("a turn of %s could not be written down: %s", channel_id, error)
                    await self._port.sleep(RETRY_SECONDS)
                except TurnlineError as error:
                    logger.warning("channel %s is left alone: %s", channel_id, error)
                    return
                floor = None
        finally:
            self._player.lane.leave(channel_id, claim_id)

    async def _release_unbegun(self, channel_id: str) -> None:
        """Release a claim that came with the floor, if no turn was begun with it. `stop` does it for all."""
        if channel_id in self._offered and channel_id not in self._next and not self._stopping:
            await let_go(self._release_offered([channel_id]))

    async def _wait_unclaimed(self, channel_id: str) -> None:
        wait = partial(self._port.wait_unclaimed, channel_id)
        await retry(self._port, wait, f"the claim of another worker on {channel_id} is not read")

    async def _look(self, channel_id: str) -> Floor | None:
        """Return the turn that waits now: others may have taken it, or ended it."""
        self._next.pop(channel_id, None)
        return floor_for(self._player.agent_id, await self._port.state(channel_id))

    async def _take_turn(self, channel_id: str, floor: Floor, claim_id: str) -> bool:
        """Take a turn; return whether there is a performer for it. Raises `Held` if it may not start yet."""
        perform, lane = self._performer_of(floor.speaker), self._player.lane
        if perform is None:
            await self._release_unbegun(channel_id)
            return False
        is_claimed = channel_id in self._offered
        if is_claimed:
            self._offered.discard(channel_id)
        else:
            await self._places.take()
        try:
            if is_claimed:
                lane.begin(channel_id, claim_id)
            alone = not is_claimed and lane.enter(channel_id, claim_id, floor.unexplained)
            try:
                await self._claim_and_work(channel_id, floor, claim_id, alone, perform)
            finally:
                lane.leave(channel_id, claim_id)
        finally:
            self._places.give()
        return True

    async def _claim_and_work(
        self, channel_id: str, floor: Floor, claim_id: str, alone: bool, perform: Perform
    ) -> None:
        try:
            claimed = await self._port.claim_turn(floor, channel_id, claim_id=claim_id, alone=alone)
            claimed = await with_whole_texts(self._port, claimed, channel_id)
        except OVER as error:
            logger.debug("turn %s of %s is not ours: %s", floor.turn, channel_id, error)
            return
        except asyncio.CancelledError:  # A claim that came with the floor is there already.
            await let_go(self._release_claim(channel_id))
            raise
        work = Work(
            **asdict(claimed),
            channel_id=channel_id,
            turn=floor.turn,
            speaker=floor.speaker,
            find_children=partial(Children, self._port, channel_id, floor.turn),
            write=Write(self._port, channel_id, claimed.claim, self._player.lane),
            read=self._port.read,
        )
        await self._work(work, perform)

    # A turn.

    async def _work(self, work: Work, perform: Perform) -> None:
        self._performing[work.channel_id] = work.state.floor_line
        try:
            with _span(work) as span:
                await self._perform(work, perform, span)
        except BaseException as raised:
            error = raised.error if isinstance(raised, LogAway) else raised
            # With the log away the claim stays ours, and the turn is performed again.
            if not isinstance(error, LogError | _Lost):  # A shutdown: nothing is wrong with the turn.
                await let_go(work.write(ev.EV_TURN_RELEASED, {}))
            raise error from None
        finally:
            self._performing.pop(work.channel_id, None)

    async def _perform(self, work: Work, perform: Perform, span: tracing.Recording) -> None:
        try:
            async with self._heartbeat(work):
                outcome = await perform(work)
                if isinstance(outcome, Done):
                    outcome = await self._commit(work, outcome)
            if isinstance(outcome, Paused):
                await self._pause(work, outcome)
        except AWAY:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            span.fail(type(error).__name__)
            try:
                await self._fail(work, error)
            except OVER:
                raise _Lost from None

    async def _commit(self, work: Work, done: Done) -> Done | Paused:
        """Write the packet. Return how the turn ended, which may be otherwise."""

        async def write(within: Transaction | None) -> None:
            await work.write(ev.EV_PACKET, done.data, audience=done.audience, within=within)

        try:
            await (write(None) if done.around is None else done.around(write))
        except (*OVER, *AWAY):
            raise
        except Exception as error:
            if done.otherwise is None:
                raise
            instead = done.otherwise(error)
            if isinstance(instead, Paused):
                return instead
            return await self._commit(work, dataclasses.replace(instead, otherwise=None))
        return done

    async def _pause(self, work: Work, paused: Paused) -> None:
        is_timed = paused.seconds is not None or paused.until is not None
        if not (is_timed or paused.key or paused.questions or paused.children):
            expected = "one with `seconds`, `until`, `questions` or `children`"
            raise BadDraft("Paused", found="a pause that nothing ends", expected=expected)
        data: JsonObject = {"agent_id": work.speaker, "turn": work.turn, **paused.as_data()}
        await work.write(ev.EV_TURN_PAUSED, data)

    async def _fail(self, work: Work, error: BaseException) -> None:
        said = "cancelled from within" if isinstance(error, asyncio.CancelledError) else str(error)
        reason: JsonObject = {"type": type(error).__name__, "message": said[:ERROR_CHARACTERS]}
        await work.write(ev.EV_TURN_FAILED, {"error": reason})
        name = work.state.spec.name_of(work.speaker)
        what = f"turn {work.turn} of {name!r} on channel {work.channel_id}"
        report_failure(what, error, f"{reason['type']}: {reason['message']}")

    def _heartbeat(self, work: Work) -> AbstractAsyncContextManager[None]:
        """Within this, other processes hear of the worker, however long its turn is silent.

        A worker is never replaced within its own process, so without others it costs nothing.
        """
        if not self._player.has_heartbeat:
            return nullcontext()
        return beating(work.write.renew, work.claim.lease_seconds, self._port.sleep)

    async def _release_offered(self, channel_ids: Iterable[str]) -> None:
        """Give back the claims that came with a floor and that nobody here will work on any more."""
        for channel_id in channel_ids:
            self.withdraw(channel_id)
            with suppress(TurnlineError):
                await self._release_claim(channel_id)

    async def _release_claim(self, channel_id: str) -> None:
        """Release the claim on a channel's turn, if it is this worker's."""
        claim = (await self._port.state(channel_id)).claim
        if claim is not None and claim.worker == self._player.worker:
            await self._port.write(channel_id, claim, ev.EV_TURN_RELEASED, {})


def _span(work: Work) -> AbstractContextManager[tracing.Recording]:
    """Return the span of a turn: an agent's own, or that of a step which it plays."""
    spec, speaker = work.state.spec, work.state.spec.participant(work.speaker)
    name = work.speaker if speaker is None else speaker.name
    attributes: dict[str, tracing.Value] = {tracing.CONVERSATION: work.channel_id, "turnline.turn": work.turn}
    if speaker is not None and speaker.played_by:
        return tracing.span_below(spec.traceparent, f"step {name}", attributes)
    attributes |= {tracing.OPERATION: "invoke_agent"}
    attributes |= {"gen_ai.agent.id": work.speaker, "gen_ai.agent.name": name}
    return tracing.span_below(spec.traceparent, f"invoke_agent {name}", attributes)


class _Places:
    """How many turns are worked on at once."""

    def __init__(self, count: int | None) -> None:
        self._free = count
        self._bell = Bell()

    def take_free(self) -> bool:
        """Take a place if one is free; return whether it was."""
        if self._free == 0:
            return False
        if self._free is not None:
            self._free -= 1
        return True

    async def take(self) -> None:
        """Take a place; wait for one."""
        while not self.take_free():
            await self._bell.wait(self._bell.rung)

    def give(self) -> None:
        """Give a place back."""
        if self._free is not None:
            self._free += 1
            self._bell.ring()


BEATS_PER_LEASE: Final = 3
"""Two of them may be late before the worker is replaced."""

Renew = Callable[[], Awaitable[None]]
"""Says that the worker is alive, unless it wrote something since the last time."""
Sleep = Callable[[float], Awaitable[None]]


@asynccontextmanager
async def beating(renew: Renew, lease_seconds: float, sleep: Sleep) -> AsyncIterator[None]:
    """Within this, `renew` is called several times in each lease, for as long as it is not refused."""
    task = asyncio.create_task(_beat(renew, lease_seconds, sleep))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _beat(renew: Renew, lease_seconds: float, sleep: Sleep) -> None:
    while True:
        await sleep(lease_seconds / BEATS_PER_LEASE)
        try:
            await renew()
        except LogError as error:
            logger.warning("the claim of a turn could not be renewed: %s", error)
        except TurnlineError:
            return  # The turn is over for us; the next line that its worker writes is refused.
