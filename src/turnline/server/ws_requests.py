"""What a client may ask of a hub over a link: a table; what is not in it is refused.

    op -> the operation whose scope it needs, its arguments, what is done

Rule 1: whoever asks is the seat; nothing in the arguments says otherwise.

Rule 2: a channel that the seat's participant is not on is answered as one that is not there.

Rule 3: what is written has the request's id as its envelope id, so that the same request,
asked again, here or of another process, writes nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnline.agent.failures import first_line
from turnline.client.frames import Request, converted
from turnline.core.codec import encode as encode_line
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.state import State
from turnline.core.views import state_for
from turnline.errors import (
    BadFrame,
    BadSpec,
    ClaimLost,
    EnvelopeIdReused,
    NotParticipant,
    UnknownChannel,
)
from turnline.hub.hub import OWN_PREFIX, Hub
from turnline.hub.request import OpenRequest
from turnline.hub.seat import Reading, Seat

logger = logging.getLogger(__name__)


class Asked(Struct, frozen=True):
    """A request that is to be answered, and by whom."""

    hub: Hub
    seat: Seat
    id: str
    args: Any
    reading_bytes: int


class _Args(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the arguments of all operations have in common."""


class NoArgs(_Args, frozen=True):
    """Of an operation that needs none."""


class ChannelArgs(_Args, frozen=True, kw_only=True):
    """A channel."""

    channel_id: str


class OpenArgs(_Args, frozen=True, kw_only=True):
    """What to open; its channel id is chosen by the client, so that opening again finds it."""

    request: OpenRequest


class PostArgs(ChannelArgs, frozen=True, kw_only=True):
    """What to say."""

    draft: Draft


class InviteArgs(ChannelArgs, frozen=True, kw_only=True):
    """None accepts."""

    rejected_because: str | None = None


class CloseArgs(ChannelArgs, frozen=True, kw_only=True):
    """Why the channel ends."""

    reason: str


class AfterArgs(ChannelArgs, frozen=True, kw_only=True):
    """A line."""

    after: int


class TurnArgs(ChannelArgs, frozen=True, kw_only=True):
    """Which turn."""

    turn: int
    envelope_id: str = ""
    """Of the claim; that of the request, where none is given."""
    alone: bool = False
    """The worker starts nothing else beside this turn (N3)."""


class ClaimArgs(ChannelArgs, frozen=True, kw_only=True):
    """The seq of a claim."""

    claim: int


class RecordArgs(ClaimArgs, frozen=True, kw_only=True):
    """An entry of a round."""

    event_type: str
    data: JsonObject


class RenewArgs(ClaimArgs, frozen=True, kw_only=True):
    """The last sign of life that the worker knows of."""

    heard: int


class FailArgs(ClaimArgs, frozen=True, kw_only=True):
    """Why a turn is given up."""

    error: JsonObject


class SleepArgs(_Args, frozen=True, kw_only=True):
    """How long, by the hub's clock."""

    seconds: float


async def peers(asked: Asked) -> object:
    return await asked.seat.peers()


async def channels(asked: Asked) -> object:
    return await asked.seat.channels()


async def open_(asked: Asked) -> object:
    request: OpenRequest = asked.args.request
    if request.steps or request.worker:
        raise BadSpec("steps", found="given", expected="none: only the hub's own process has steps of flows")
    if request.channel_id is None:
        raise BadSpec("channel_id", found="none", expected="one that the client has chosen")
    if request.parent_id is not None:
        await _member(asked, request.parent_id)
    return await asked.seat.open(request)


async def post(asked: Asked) -> object:
    await _member(asked, asked.args.channel_id)
    return await asked.seat.post(asked.args.channel_id, replace(asked.args.draft, goes_on=""))


async def answer_invite(asked: Asked) -> None:
    channel_id, because = asked.args.channel_id, asked.args.rejected_because
    await _member(asked, channel_id)
    await asked.seat.answer_invite(channel_id, rejected_because=because, envelope_id=asked.id)


async def close_channel(asked: Asked) -> None:
    await _member(asked, asked.args.channel_id)
    await asked.seat.close_channel(asked.args.channel_id, asked.args.reason, envelope_id=asked.id)


async def read(asked: Asked) -> object:
    await _member(asked, asked.args.channel_id)
    reading = await asked.seat.read(asked.args.channel_id, asked.args.after)
    return _bounded(reading, asked.reading_bytes)


async def wait_beyond(asked: Asked) -> object:
    await _member(asked, asked.args.channel_id)
    return await asked.seat.wait_beyond(asked.args.channel_id, asked.args.after)


async def state(asked: Asked) -> object:
    shown = state_for(asked.seat.agent_id, await _member(asked, asked.args.channel_id))
    return {"type": type(shown).__name__, "state": shown}


async def metadata(asked: Asked) -> object:
    await _member(asked, asked.args.channel_id)
    return await asked.seat.metadata(asked.args.channel_id)


async def as_step(asked: Asked) -> object:
    """The step stands on the request, and has been looked up by now."""
    await _member(asked, asked.args.channel_id)
    return asked.seat.agent_id


async def claim(asked: Asked) -> object:
    channel_id, given = asked.args.channel_id, asked.args.envelope_id
    await _member(asked, channel_id)
    try:
        args = asked.args
        return await asked.seat.claim(channel_id, args.turn, envelope_id=given or asked.id, alone=args.alone)
    except EnvelopeIdReused:  # The first time it was one claim too many, or another one has replaced it.
        if given:
            raise
        raise ClaimLost(channel_id, claim=None, live=None) from None


async def wait_unclaimed(asked: Asked) -> None:
    await _member(asked, asked.args.channel_id)
    await asked.seat.wait_unclaimed(asked.args.channel_id)


async def renew(asked: Asked) -> int:
    await _member(asked, asked.args.channel_id)
    args: RenewArgs = asked.args
    return await asked.seat.renew(args.channel_id, args.claim, args.heard)


async def record(asked: Asked) -> None:
    args: RecordArgs = asked.args
    await _member(asked, asked.args.channel_id)
    await asked.seat.record(args.channel_id, args.claim, args.event_type, args.data, envelope_id=asked.id)


async def recorded(asked: Asked) -> object:
    """What the turn has recorded behind a line: as much as fits into one answer."""
    await _member(asked, asked.args.channel_id)
    lines = await asked.seat.recorded(asked.args.channel_id)
    behind = [one for one in lines if one.seq > asked.args.after]
    return _bounded(Reading(behind, behind[-1].seq if behind else asked.args.after), asked.reading_bytes)


async def usage(asked: Asked) -> object:
    await _member(asked, asked.args.channel_id)
    return await asked.seat.usage(asked.args.channel_id)


async def summary(asked: Asked) -> object:
    await _member(asked, asked.args.channel_id)
    return await asked.seat.summary(asked.args.channel_id)


async def release(asked: Asked) -> None:
    await _member(asked, asked.args.channel_id)
    await asked.seat.release(asked.args.channel_id, asked.args.claim, envelope_id=asked.id)


async def fail(asked: Asked) -> None:
    await _member(asked, asked.args.channel_id)
    args: FailArgs = asked.args
    # What stands under the id is not the draft but what came of it: then it was done the first time.
    with suppress(EnvelopeIdReused):
        await asked.seat.fail(args.channel_id, args.claim, args.error, envelope_id=asked.id)
        reason = first_line(f"{args.error.get('type')}: {args.error.get('message')}")
        logger.warning("a turn of %s on channel %s failed: %s", asked.seat.agent_id, args.channel_id, reason)


async def sleep(asked: Asked) -> None:
    await asked.seat.sleep(asked.args.seconds)


Perform = Callable[[Asked], Awaitable[object]]

REQUESTS: Final[dict[str, tuple[str, type[_Args], Perform]]] = {
    "peers": ("agents.list", NoArgs, peers),
    "channels": ("channels.list", NoArgs, channels),
    "open": ("channels.open", OpenArgs, open_),
    "post": ("channels.post", PostArgs, post),
    "answer_invite": ("channels.post", InviteArgs, answer_invite),
    "close_channel": ("channels.close", CloseArgs, close_channel),
    "read": ("channels.read", AfterArgs, read),
    "wait_beyond": ("channels.read", AfterArgs, wait_beyond),
    "state": ("channels.read", ChannelArgs, state),
    "metadata": ("channels.read", ChannelArgs, metadata),
    "as_step": ("channels.read", ChannelArgs, as_step),
    "claim": ("channels.post", TurnArgs, claim),
    "wait_unclaimed": ("channels.read", ChannelArgs, wait_unclaimed),
    "renew": ("channels.post", RenewArgs, renew),
    "record": ("channels.post", RecordArgs, record),
    "recorded": ("channels.read", AfterArgs, recorded),
    "usage": ("channels.read", ChannelArgs, usage),
    "summary": ("channels.read", ChannelArgs, summary),
    "release": ("channels.post", ClaimArgs, release),
    "fail": ("channels.post", FailArgs, fail),
    "sleep": ("channels.connect", SleepArgs, sleep),
}
"""Op -> the operation in `auth.operations`, its arguments, what is done."""


async def perform(hub: Hub, seat: Seat, request: Request, *, reading_bytes: int) -> object:
    """Do what is asked, and return the result as plain JSON. Raises what refused it."""
    _, kind, function = REQUESTS[request.op]
    args = converted(request.args, kind)
    asked = Asked(hub, seat, request.id, args, reading_bytes)
    if request.step:
        await _member(asked, channel_of(request))
        seat = await seat.as_step(channel_of(request), request.step)
        asked = Asked(hub, seat, request.id, args, reading_bytes)
    try:
        return msgspec.to_builtins(await function(asked))
    except NotParticipant as error:
        raise UnknownChannel(error.channel_id) from None


def channel_of(request: Request) -> str:
    """The channel a request is about; empty if it is about none, or does not say."""
    found = request.args.get("channel_id")
    if found is None and isinstance(request.args.get("request"), dict):
        found = request.args["request"].get("channel_id")
    return found if isinstance(found, str) else ""


async def member_state(hub: Hub, agent_id: str, channel_id: str) -> State:
    """Return the state of a channel that the participant is on. Raises `UnknownChannel` for any other."""
    if channel_id.startswith(OWN_PREFIX) or not channel_id:
        raise UnknownChannel(channel_id)
    found = await hub.state(channel_id)
    if found.spec.participant(agent_id) is None:
        raise UnknownChannel(channel_id)
    return found


async def _member(asked: Asked, channel_id: str) -> State:
    return await member_state(asked.hub, asked.seat.agent_id, channel_id)


def _bounded(reading: Reading, most: int) -> Reading:
    """As much of the reading as fits into `most` bytes, and at least one line."""
    taken, size = list[Envelope](), 0
    for envelope in reading.envelopes:
        size += len(encode_line(envelope))
        if taken and size > most:
            return Reading(taken, taken[-1].seq)
        taken.append(envelope)
    return reading


def check_known(request: Request) -> str:
    """Return the operation that a request needs. Raises `BadFrame` for what nobody can ask."""
    if request.op not in REQUESTS:
        raise BadFrame(f"nobody can ask for {request.op[:40]!r} over a link")
    return REQUESTS[request.op][0]
