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
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import Final

from msgspec.structs import asdict

from turnline import tracing
from turnline.agent.failures import report_failure
from turnline.agent.tool_result import CallPaused
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
from turnline.threads import is_being_cancelled
from turnline.turns.children import Children
from turnline.turns.files import with_whole_texts
from turnline.turns.work import AWAY, Done, LogAway, Paused, Perform, Port, Work

logger = logging.getLogger(__name__)

ERROR_CHARACTERS: Final = 500
BEATS_PER_LEASE: Final = 3
"""Two of them may be late before the worker is replaced."""

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
        self._free: float = inf if places is None else places
        """How many more turns may be worked on at once."""
        self._place_given = Bell()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Channel -> what takes its turns."""
        self._waiting: dict[str, Floor] = {}
        """Channel -> a turn that waits for a performer, or for the end of the one that is taken."""
        self._performing: dict[str, tuple[int, str]] = {}
        """Channel -> the line that gave the floor of the turn that is performed, and the id of its claim."""
        self._unbegun: set[str] = set()
        """Channels whose task performs nothing yet: it may wait for long, for a place or another's claim."""
        self._offered: set[str] = set()
        """Channels whose turn is claimed together with the floor, and not begun yet. Each has a place."""
        self._stopping = False

    # What the hub says.

    def wake(self, notice: Notice) -> None:
        """See `Receiver.wake`."""
        self._waiting.pop(notice.channel_id, None)
        if notice.floor is not None:
            self._give(notice.channel_id, notice.floor)

    def _give(self, channel_id: str, floor: Floor) -> None:
        if self._stopping or floor.seq <= self._performing.get(channel_id, (0, ""))[0]:
            return
        if channel_id in self._tasks or self._performer_of(floor.speaker) is None:
            self._waiting[channel_id] = floor
            return
        task = asyncio.create_task(self._take_turns(channel_id, floor))
        self._tasks[channel_id] = task
        task.add_done_callback(partial(self._leave, channel_id))

    @property
    def waiting(self) -> Mapping[str, Floor]:
        """The turns that wait, by channel: for a performer, or for the end of another turn."""
        return self._waiting

    def wake_waiting(self) -> None:
        """Take the turns that waited for a performer, if there is one now."""
        for channel_id in list(self._waiting):
            self._give(channel_id, self._waiting.pop(channel_id))

    def offer(self, channel_id: str, floor: Floor) -> str:
        """Return the worker that claims the turn together with its floor; empty if none has a place (N6)."""
        if self._stopping or channel_id in self._offered or channel_id in self._unbegun or self._free < 1:
            return ""
        if not self._player.lane.is_free_for(channel_id) or self._performer_of(floor.speaker) is None:
            return ""
        self._free -= 1
        self._offered.add(channel_id)
        return self._player.worker

    def withdraw(self, channel_id: str) -> None:
        """Give back the place of an offer: the claim has not landed."""
        if channel_id in self._offered:
            self._offered.discard(channel_id)
            self._give_place()

    async def _take_place(self) -> None:
        while self._free < 1:
            await self._place_given.wait(self._place_given.rung)
        self._free -= 1

    def _give_place(self) -> None:
        self._free += 1
        self._place_given.ring()

    # What its owner says.

    async def take(self, channel_id: str, floor: Floor) -> None:
        """Take a turn now, and return when its packet or its pause is written."""
        self._give(channel_id, floor)
        if (task := self._tasks.get(channel_id)) is not None:
            await asyncio.wait((task,))

    def cancel(self, channel_id: str, cause: str | None) -> None:
        """Stop the performer of the channel's turn, if one works: the channel has closed.

        `cause` is the claim under which it was closed, if it was: the packet of a turn may close its channel.
        """
        if channel_id in self._performing and self._performing[channel_id][1] != cause:
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
        for channel_id in list(self._offered):
            await self._release(channel_id)

    # A channel.

    def _leave(self, channel_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(channel_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("channel %s is left alone: %s", channel_id, type(error).__name__)
        if channel_id in self._waiting:
            self._give(channel_id, self._waiting.pop(channel_id))

    async def _take_turns(self, channel_id: str, floor: Floor | None) -> None:
        claim_id = ""
        try:
            while not self._stopping:
                self._unbegun.add(channel_id)
                claim_id = claim_id or self._player.new_id()
                try:
                    if floor is None and (floor := await self._look(channel_id)) is None:
                        await self._release_unbegun(channel_id)
                    if floor is None or not await self._take_turn(channel_id, floor, claim_id):
                        return
                    claim_id, floor = "", self._waiting.pop(channel_id, None)
                    if floor is None:
                        return
                    continue
                except Held as held:
                    await self._player.lane.wait(held)
                except TurnTaken:
                    wait = partial(self._port.wait_unclaimed, channel_id)
                    await retry(self._port, wait, f"the claim of another worker on {channel_id} is not read")
                except (EnvelopeIdReused, _Lost):  # The claim is over. The turn may still be ours to take.
                    claim_id = ""
                except LogError as error:
                    logger.warning("a turn of %s could not be written down: %s", channel_id, error)
                    await self._port.sleep(RETRY_SECONDS)
                except TurnlineError as error:
                    logger.warning("channel %s is left alone: %s", channel_id, error)
                    return
                floor = None
        finally:
            self._unbegun.discard(channel_id)
            self._player.lane.leave(channel_id, claim_id)

    async def _release_unbegun(self, channel_id: str) -> None:
        """Release a claim that came with the floor, if no turn is begun with it. `stop` releases all."""
        if channel_id in self._offered and channel_id not in self._waiting and not self._stopping:
            await let_go(self._release(channel_id))

    async def _look(self, channel_id: str) -> Floor | None:
        """Return the turn that waits now: others may have taken it, or ended it."""
        self._waiting.pop(channel_id, None)
        return floor_for(self._player.agent_id, await self._port.state(channel_id))

    async def _take_turn(self, channel_id: str, floor: Floor, claim_id: str) -> bool:
        """Take a turn; return whether there is a performer for it. Raises `Held` if it may not start yet."""
        perform, lane = self._performer_of(floor.speaker), self._player.lane
        is_claimed = channel_id in self._offered
        if perform is None:
            await self._release_unbegun(channel_id)
            return False
        if is_claimed:
            self._offered.discard(channel_id)
        else:
            await self._take_place()
        try:
            if is_claimed:
                lane.begin(channel_id, claim_id)
            alone = not is_claimed and lane.enter(channel_id, claim_id, floor.unexplained)
            try:
                await self._claim_and_work(channel_id, floor, claim_id, alone, perform)
            finally:
                lane.leave(channel_id, claim_id)
        finally:
            self._give_place()
        return True

    async def _claim_and_work(
        self, channel_id: str, floor: Floor, claim_id: str, alone: bool, perform: Perform
    ) -> None:
        try:
            claimed = await self._port.claim_turn(floor, channel_id, claim_id=claim_id, alone=alone)
            if any(one.event_type == ev.EV_TURN_TOOL for one in claimed.lines):
                claimed = await with_whole_texts(self._port, claimed, channel_id)
        except OVER as error:
            logger.debug("turn %s of %s is not ours: %s", floor.turn, channel_id, error)
            return
        except asyncio.CancelledError:  # A claim that came with the floor is there already.
            await let_go(self._release(channel_id))
            raise
        work = Work(
            **asdict(claimed),
            channel_id=channel_id,
            turn=floor.turn,
            speaker=floor.speaker,
            port=self._port,
            lane=self._player.lane,
            find_children=partial(Children, self._port, channel_id, floor.turn),
            signs=Bell(),
        )
        await self._work(work, perform)

    async def _release(self, channel_id: str) -> None:
        """Release the claim on a channel's turn if it is this worker's; the worker does not begin it."""
        self.withdraw(channel_id)
        with suppress(TurnlineError):
            claim = (await self._port.state(channel_id)).claim
            if claim is not None and claim.worker == self._player.worker:
                await self._port.write(channel_id, claim.draft(ev.EV_TURN_RELEASED, {}))

    # A turn.

    async def _work(self, work: Work, perform: Perform) -> None:
        self._performing[work.channel_id] = (work.state.floor_line, work.claim.envelope_id)
        self._unbegun.discard(work.channel_id)
        try:
            with _span(work) as span:
                await self._perform(work, perform, span)
        except BaseException as raised:
            self._unbegun.add(work.channel_id)
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
                try:
                    outcome = await perform(work)
                except CallPaused as waits:
                    outcome = waits.paused
                if isinstance(outcome, Done) and not outcome.is_written:
                    await work.write(ev.EV_PACKET, outcome.data, audience=outcome.audience)
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

    @asynccontextmanager
    async def _heartbeat(self, work: Work) -> AsyncIterator[None]:
        """Within this, other processes hear of the worker, however long its turn is silent.

        A worker is never replaced within its own process, so without others it costs nothing.
        """
        beating = [asyncio.create_task(self._beat(work))] if self._player.has_heartbeat else []
        try:
            yield
        finally:
            for task in beating:
                task.cancel()
                await asyncio.wait((task,))

    async def _beat(self, work: Work) -> None:
        while True:
            seen = work.signs.rung
            await self._port.sleep(work.claim.lease_seconds / BEATS_PER_LEASE)
            if work.signs.rung > seen:
                continue
            try:
                await self._port.write(work.channel_id, work.claim.draft(ev.EV_TURN_RENEWED, {}))
            except LogError as error:
                logger.warning("the claim of a turn could not be renewed: %s", error)
            except TurnlineError:
                return  # The turn is over for us; the next line that its worker writes is refused.


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
