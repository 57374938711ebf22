"""A turn: claim it, work on it, commit it with one packet (T1, T4, T5).

    claim -> handler(turn) -> packet

A handler that raises gives the turn up: what it wrote into the context is
undone, and the graph's `TurnFailed` rule or a close with `turn_failed` follows.
A handler that is cancelled (its process is shutting down) releases the claim, so
that whoever is next can begin at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Final

from turnline import tracing
from turnline.agent.failures import report_failure
from turnline.client.channel import Channel
from turnline.client.link import Seat
from turnline.client.retry import RETRY_SECONDS, retried
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_PACKET, EV_TURN_RESUMED
from turnline.core.routing import packet
from turnline.core.state import Claim, State
from turnline.core.views import Message, WindowedSummary, view_for
from turnline.errors import (
    ChannelClosed,
    ChannelQuarantined,
    ClaimLost,
    EnvelopeIdReused,
    HubClosed,
    LogError,
    OutOfTurn,
    TurnlineError,
    TurnTaken,
)
from turnline.hub.lane import Held
from turnline.hub.turns import let_go

logger = logging.getLogger(__name__)

Room = AbstractAsyncContextManager[object]
"""Where turns are worked on: a semaphore, say, lets in so many at once."""
NO_LIMIT: Final[Room] = nullcontext()
_ERROR_CHARACTERS: Final = 500
_OVER: Final = (ClaimLost, ChannelClosed, OutOfTurn)
"""What refuses a line of a turn that is not ours any more."""


class Turn:
    """A turn in progress, as its handler sees it."""

    def __init__(self, seat: Seat, envelope: Envelope, number: int, claim: Claim) -> None:
        self.envelope = envelope
        """The line that gave the floor."""
        self.number = number
        self.claim = claim
        self.channel = Channel(seat, envelope.channel_id, claim=claim.seq)
        """What is sent through this handle is part of the turn."""
        self.audience: list[str] | None = None
        """Who sees the turn's packet and hears its words, by id or name: None is everyone. Set it first."""
        self._seat = seat

    async def tell(self, text: str) -> None:
        """Tell listeners a piece of what is about to be said. Only the packet's audience hears it."""
        to = self.audience
        if to is not None:
            spec = (await self.channel.state()).spec
            to = [spec.resolve(name) for name in to]
        self._seat.tell_text(self.channel.channel_id, text, to)

    async def messages(self) -> list[Message]:
        """What the participant is shown of the conversation (W10); the default view reads only that."""
        state, me = await self.channel.state(), self._seat.agent_id
        view = view_for(me, state.spec)
        if isinstance(view, WindowedSummary):
            since, earlier = view.start(state)
            return view.project(await self.read(since), me, state.spec, earlier)
        return view.project(await self.read(0), me, state.spec)

    async def read(self, since: int) -> list[Envelope]:
        """Everything behind `since` that the participant may see."""
        envelopes = list[Envelope]()
        while True:
            reading = await self._seat.read(self.channel.channel_id, since)
            envelopes += reading.envelopes
            if reading.seq == since:
                return envelopes
            since = reading.seq


TurnHandler = Callable[[Turn], Awaitable[str | JsonObject | None]]
"""Returns what was said, or a whole packet's data (`turnline.core.routing.packet`), or None."""


async def take_turn(
    seat: Seat,
    envelope: Envelope,
    handler: TurnHandler,
    *,
    at_work: set[str] | None = None,
    room: Room = NO_LIMIT,
) -> None:
    """Take the turn that `envelope` gave to the seat's participant, for as long as it is to be taken.

    While another worker has it, wait for that one's packet, or for its lease to
    end; while the log cannot be written, try again. It is claimed and worked on in
    `room`; the turn's line is in `at_work` for as long as this worker has it.
    A claim is asked for again under its id for as long as it may have landed and nobody works on it: it
    is this worker's own, and nobody of this process could replace it.
    """
    try:
        await _take_turn(seat, envelope, handler, set() if at_work is None else at_work, room)
    finally:
        seat.lane.leave(envelope.channel_id, envelope.envelope_id)


async def _take_turn(
    seat: Seat, envelope: Envelope, handler: TurnHandler, at_work: set[str], room: Room
) -> None:
    claim_id = seat.new_id()
    while True:
        try:
            async with room:
                turn = await _claimed(seat, envelope, claim_id)
                if turn is not None:
                    await _at_work(seat, turn, handler, at_work)
        except Held as held:
            await seat.lane.wait(held)
        except TurnTaken:
            seat.lane.leave(envelope.channel_id, envelope.envelope_id)
            await seat.wait_unclaimed(envelope.channel_id)
        except EnvelopeIdReused:  # The claim has landed, and is over: another one is made.
            claim_id = seat.new_id()
        except LogError as error:
            seat.lane.leave(envelope.channel_id, envelope.envelope_id)
            logger.warning("a turn of %s could not be written down: %s", envelope.channel_id, error)
            await seat.sleep(RETRY_SECONDS)
        except TurnlineError as error:
            logger.warning("a turn of %s was not taken: %s", envelope.channel_id, error)
            return
        else:
            return


def _has_floor(agent_id: str, state: State, envelope: Envelope) -> bool:
    """Return whether `envelope` gave the floor that the agent still has, or resumed its stuck turn."""
    if state.expected_next_speaker != agent_id or state.pause is not None:
        return False
    if envelope.event_type == EV_TURN_RESUMED:
        return envelope.seq > state.floor_seq
    return envelope.seq == state.floor_seq


async def _at_work(seat: Seat, turn: Turn, handler: TurnHandler, at_work: set[str]) -> None:
    at_work.add(turn.envelope.envelope_id)
    try:
        await _work(seat, turn, handler)
    finally:
        at_work.discard(turn.envelope.envelope_id)


async def _claimed(seat: Seat, envelope: Envelope, claim_id: str) -> Turn | None:
    state = await seat.state(envelope.channel_id)
    if not _has_floor(seat.agent_id, state, envelope):
        return None
    alone = seat.lane.enter(envelope.channel_id, envelope.envelope_id, state.unexplained)
    try:
        claim = await seat.claim(envelope.channel_id, state.turn, envelope_id=claim_id, alone=alone)
    except (OutOfTurn, ClaimLost, ChannelClosed) as error:
        logger.debug("turn %s of %s is not ours: %s", state.turn, envelope.channel_id, error)
        return None
    return Turn(seat, envelope, state.turn, claim)


async def _work(seat: Seat, turn: Turn, handler: TurnHandler) -> None:
    state = await turn.channel.state()
    if state.claim is None or state.claim.seq != turn.claim.seq:
        raise EnvelopeIdReused(state.channel_id, envelope_id=turn.claim.envelope_id, seq=turn.claim.seq)
    member = state.spec.participant(seat.agent_id)
    name = seat.agent_id if member is None else member.name
    attributes: dict[str, tracing.Value] = {
        tracing.OPERATION: "invoke_agent",
        tracing.CONVERSATION: state.channel_id,
        "gen_ai.agent.id": seat.agent_id,
        "gen_ai.agent.name": name,
        "turnline.turn": turn.number,
    }
    with tracing.span_below(state.spec.traceparent, f"invoke_agent {name}", attributes) as recording:
        await _worked(seat, turn, handler, recording)


async def _worked(seat: Seat, turn: Turn, handler: TurnHandler, recording: tracing.Recording) -> None:
    channel_id, claim = turn.channel.channel_id, turn.claim.seq
    try:
        await _performed(seat, turn, handler, recording)
    except asyncio.CancelledError:
        await let_go(seat.release(channel_id, claim))
        raise
    except (ChannelQuarantined, HubClosed, LogError):
        # Nothing is wrong with the turn: it is anybody's again.
        await _let_go(seat, channel_id, claim)
        raise


async def _performed(seat: Seat, turn: Turn, handler: TurnHandler, recording: tracing.Recording) -> None:
    channel_id = turn.channel.channel_id
    # Where giving up is refused the turn is over for us, whatever we have; our output is dropped.
    with suppress(*_OVER):
        try:
            async with seat.kept(channel_id, turn.claim):
                await _commit(turn, await handler(turn))
        except (ChannelQuarantined, HubClosed, LogError):
            raise
        except Exception as error:  # The handler's own, or what refused its packet (W8).
            recording.fail(type(error).__name__)
            await seat.fail(channel_id, turn.claim.seq, described(error))
            _log_failure(seat, turn, error)


async def _let_go(seat: Seat, channel_id: str, claim: int) -> None:
    """Release the claim, whenever the log can be written again: nobody of this process could replace it."""
    with suppress(*_OVER):  # It has been released, or what was written last has landed after all.
        await retried(seat, partial(seat.release, channel_id, claim), f"a claim on {channel_id} stays")


async def _commit(turn: Turn, said: str | JsonObject | None) -> None:
    data = packet(said or "") if said is None or isinstance(said, str) else said
    if said is None and (await turn.channel.state()).turn != turn.number:
        return  # The handler has spoken through `turn.channel` itself.
    await turn.channel.send(event_type=EV_PACKET, event_data=data, audience=turn.audience)


def _log_failure(seat: Seat, turn: Turn, error: Exception) -> None:
    """Log why the turn failed."""
    what, told = (
        f"turn {turn.number} of {seat.agent_id} on channel {turn.channel.channel_id}",
        described(error),
    )
    report_failure(what, error, f"{told['type']}: {told['message']}")


def described(error: BaseException) -> JsonObject:
    """An exception as data: its type and message, never a traceback."""
    return {"type": type(error).__name__, "message": str(error)[:_ERROR_CHARACTERS]}
