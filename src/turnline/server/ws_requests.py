"""What a client may ask of a hub over a link: a table; what is not in it is refused.

    op -> the operation whose scope it needs, and the method of the seat, whose parameters are its arguments

Rule 1: whoever asks is the seat; nothing in the arguments says otherwise.

Rule 2: a channel that the seat's participant is not on is answered as one that is not there. `perform` checks
it for every operation on a channel.

Rule 3: what is written has the request's id as its envelope id, so that the same request,
asked again, here or of another process, writes nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import cache, partial
from inspect import signature
from typing import Any, Final, get_type_hints

import msgspec
from msgspec import Struct, defstruct
from msgspec.structs import asdict, replace

from turnline.agent.failures import first_line
from turnline.client.frames import Request, converted
from turnline.core.codec import encode as encode_line
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_TURN_FAILED
from turnline.core.governance import Registration
from turnline.core.state import Claim, State
from turnline.core.views import Floor
from turnline.errors import (
    BadDraft,
    BadFrame,
    BadSpec,
    ChannelPruned,
    ClaimLost,
    EnvelopeIdReused,
    NotParticipant,
    UnknownChannel,
)
from turnline.hub.hub import OWN_PREFIX, Hub
from turnline.hub.request import OpenRequest
from turnline.hub.retry import retry
from turnline.hub.seat import SIGNS, Reading, Seat
from turnline.hub.turns import UNITS
from turnline.log.blobs import CHUNK_BYTES
from turnline.turns.views import last_shown, read_view

logger = logging.getLogger(__name__)

MAX_UPLOADS: Final = 4
"""Files that one seat sends at the same time. A further one ends the oldest."""


class LinkSeat(Seat):
    """A seat whose participant is at the other end of a link."""

    def __init__(self, hub: Hub, registration: Registration, *, reading_bytes: int) -> None:
        """`reading_bytes` limits one answer; a client reads what is longer page by page."""
        super().__init__(hub, registration)
        self._reading_bytes = reading_bytes
        self._uploads: OrderedDict[str, _Upload] = OrderedDict()

    def leave(self) -> None:
        super().leave()
        while self._uploads:
            self._uploads.popitem()[1].cancel()

    async def put_piece(
        self, channel_id: str, upload: str, number: int, data: bytes
    ) -> tuple[str, int] | None:
        """Take a piece of a file; after an empty one, return the digest and the size of all (Y6).

        A piece that is sent again after a cut is taken once. Another server does not have the pieces before:
        it raises `BadDraft`, and the client sends the file again.
        """
        if len(data) > CHUNK_BYTES:
            raise BadDraft("data", found=f"{len(data)} bytes", expected=f"at most {CHUNK_BYTES}")
        found = self._uploads.get(upload)
        if found is None and number == 0:
            found = self._uploads[upload] = _Upload(partial(self.add_file, channel_id), channel_id)
            if len(self._uploads) > MAX_UPLOADS:
                self._uploads.popitem(last=False)[1].cancel()
        if found is None or found.channel_id != channel_id:
            raise BadDraft("upload", found="one that has not begun here", expected="its first piece first")
        return await found.put(number, data)

    async def open(self, request: OpenRequest) -> str:
        """See `Seat.open`. The client has chosen the id, so that opening again finds the channel."""
        if request.steps:
            expected = "none: only the hub's own process has steps of flows"
            raise BadSpec("steps", found="given", expected=expected)
        if request.channel_id is None:
            raise BadSpec("channel_id", found="none", expected="one that the client has chosen")
        if request.parent_id is not None:
            await member_state(self._hub, self.agent_id, request.parent_id)
        return await super().open(request)

    async def claim(
        self,
        floor: Floor,
        channel_id: str,
        *,
        claim_id: str = "",
        alone: bool = False,
        after: int = 0,
        envelope_id: str,
    ) -> JsonObject:
        """Claim a turn, and answer with all that its worker needs (N5).

        `after` is the last line of the turn that an earlier answer had; the next answer continues there.
        """
        try:
            claimed = await self.claim_turn(floor, channel_id, claim_id=claim_id or envelope_id, alone=alone)
        except EnvelopeIdReused:  # The first time it was one claim too many, or another one has replaced it.
            if claim_id:
                raise
            raise ClaimLost(channel_id, claim=None, live=None) from None
        state, units = claimed.state, [one for one in claimed.lines if one.event_type in UNITS]
        ages = {line.seq: age for line, age in zip(claimed.lines, claimed.ages, strict=True)}
        later = [one for one in claimed.lines if one.seq > after]
        lines = self.shorten(Reading(later, 0)).envelopes
        view = None
        if not after:
            view = await read_view(self.read, state, floor.speaker, last_shown(state, units))
            if len(msgspec.json.encode(view)) > self._reading_bytes:
                view = None  # The worker reads it, page by page.
        answer = replace(
            claimed, state=State(), lines=lines, ages=[ages[one.seq] for one in lines], view=view
        )
        return {**_with_type(state), "claimed": answer, "is_complete": len(lines) == len(later)}

    async def write_line(
        self,
        channel_id: str,
        *,
        claim: int,
        speaker: str,
        event_type: str,
        data: JsonObject,
        audience: list[str] | None = None,
        envelope_id: str,
    ) -> None:
        """Write a line of a turn that the seat has claimed. See `Seat.write`."""
        held = Claim(seq=claim, envelope_id="", agent_id=speaker, worker="", lease_seconds=0)
        # What stands under the id may be what came of the draft: then it was done the first time.
        with suppress(EnvelopeIdReused):
            await self.write(channel_id, held.draft(event_type, data, audience, envelope_id=envelope_id))
            if event_type == EV_TURN_FAILED:
                error = data.get("error", {})
                reason = first_line(f"{error.get('type')}: {error.get('message')}")
                logger.warning("a turn of %s on channel %s failed: %s", speaker, channel_id, reason)

    def shorten(self, reading: Reading) -> Reading:
        """Return as much of the reading as fits into one answer, and at least one line."""
        taken, size = list[Envelope](), 0
        for envelope in reading.envelopes:
            size += len(encode_line(envelope))
            if taken and size > self._reading_bytes:
                return Reading(taken, taken[-1].seq)
            taken.append(envelope)
        return reading


class _Upload:
    """A file that comes in pieces. One piece is held at a time."""

    def __init__(
        self, add: Callable[[AsyncIterator[bytes]], Coroutine[Any, Any, tuple[str, int]]], channel_id: str
    ) -> None:
        self.channel_id = channel_id
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)
        self._next = 0
        self._adding = asyncio.create_task(add(self._read()))

    async def put(self, number: int, data: bytes) -> tuple[str, int] | None:
        if number > self._next:
            raise BadDraft("number", found=str(number), expected=str(self._next))
        if number == self._next:
            self._next += 1
            putting = asyncio.create_task(self._pieces.put(data))
            await asyncio.wait((putting, self._adding), return_when=asyncio.FIRST_COMPLETED)
            putting.cancel()
        if data and not self._adding.done():
            return None
        return await asyncio.shield(self._adding)

    def cancel(self) -> None:
        self._adding.cancel()

    async def _read(self) -> AsyncIterator[bytes]:
        while piece := await self._pieces.get():
            yield piece


def _with_type(state: State) -> JsonObject:
    return {"type": type(state).__name__, "state": state}


REQUESTS: Final[dict[str, tuple[str, Callable[..., Awaitable[object]]]]] = {
    "peers": ("agents.list", Seat.peers),
    "channels": ("channels.list", Seat.channels),
    "open": ("channels.open", LinkSeat.open),
    "post": ("channels.post", Seat.post),
    "answer_invite": ("channels.post", Seat.answer_invite),
    "close_channel": ("channels.close", Seat.close_channel),
    "read": ("channels.read", Seat.read),
    "read_next": ("channels.read", Seat.read_next),
    "put_piece": ("channels.post", LinkSeat.put_piece),
    "read_chunk": ("channels.read", Seat.read_chunk),
    "state": ("channels.read", Seat.state),
    "metadata": ("channels.read", Seat.metadata),
    "claim": ("channels.post", LinkSeat.claim),
    "write": ("channels.post", LinkSeat.write_line),
    "wait_unclaimed": ("channels.read", Seat.wait_unclaimed),
    "usage": ("channels.read", Seat.usage),
    "summary": ("channels.read", Seat.summary),
}
"""Op -> the operation in `auth.operations`, and what is done. Its parameters are the arguments of the op."""


@cache
def _arguments(function: Callable[..., object]) -> type[Struct]:
    """Return what the arguments of an operation have to be, as its parameters say."""
    hints, fields = get_type_hints(function), list[Any]()
    for one in signature(function).parameters.values():
        if one.name not in ("self", *_FROM_FRAME):
            default = () if one.default is one.empty else (one.default,)
            fields.append((one.name, hints[one.name], *default))
    return defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)


_FROM_FRAME: Final = {"envelope_id": "id", "request_id": "id", "seat": "seat"}
"""Parameters that the request itself gives, not its arguments (rules 1 and 3) -> its field."""


def read_args(function: Callable[..., object], request: Request) -> JsonObject:
    """Return what an operation is called with: its parameters say what. Raises `BadFrame`."""
    given = {key: getattr(request, field) for key, field in _FROM_FRAME.items()}
    wanted = signature(function).parameters
    args = asdict(converted(request.args, _arguments(function)))
    return args | {key: value for key, value in given.items() if key in wanted}


async def perform(hub: Hub, seat: LinkSeat, request: Request) -> object:
    """Do what is asked, and return the result as JSON text. Raises what refused it.

    As text, a large result that is kept until its client acknowledges it costs the loop little.
    """
    function = REQUESTS[request.op][1]
    args = read_args(function, request)
    if "channel_id" in args:
        check = partial(member_state, hub, seat.agent_id, args["channel_id"])
        # What a turn has come to waits until the log can be read, as it waits until the log takes it.
        waits = request.op == "write" and args["event_type"] not in SIGNS
        what = f"a line of a turn on {args['channel_id']} is not written yet"
        await (retry(hub.clock, check, what) if waits else check())
    try:
        result = await function(seat, **args)
    except NotParticipant as error:
        raise UnknownChannel(error.channel_id) from None
    if isinstance(result, Reading):
        result = seat.shorten(result)
    elif isinstance(result, State):
        result = _with_type(result)
    return None if result is None else msgspec.Raw(msgspec.json.encode(result))


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
    try:
        found = await hub.state(channel_id)
    except ChannelPruned:  # Its participants are not known any more, and others must not know of it.
        raise UnknownChannel(channel_id) from None
    if found.spec.participant(agent_id) is None:
        raise UnknownChannel(channel_id)
    return found


def check_known(request: Request) -> str:
    """Return the operation that a request needs. Raises `BadFrame` for what nobody can ask."""
    if request.op not in REQUESTS:
        raise BadFrame(f"nobody can ask for {request.op[:40]!r} over a link")
    return REQUESTS[request.op][0]
