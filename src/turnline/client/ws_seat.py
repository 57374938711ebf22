"""A seat at a hub elsewhere: each thing a participant can do is one request. See `Seat` in `link`.

Rule: what the hub would refuse as no JSON is refused here, with the same error. On its way it would be
changed in silence: a tuple into a list, NaN into null.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from turnline.agent.files import PIECE_BYTES
from turnline.client.frames import Text
from turnline.client.ws_calls import Calls
from turnline.core.adapters import check_header
from turnline.core.channel import ChannelMetadata
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_CLOSED, check_event_type
from turnline.core.json import normalised
from turnline.core.state import Claim, State, WorkflowState
from turnline.core.study.spent import Spent
from turnline.core.views import Floor
from turnline.errors import ClientClosed, LogError, TurnlineError
from turnline.hub.request import OpenRequest, checked
from turnline.hub.seat import Claimed, FileChunk, Peer, Player, Reading
from turnline.hub.texts import Listening
from turnline.hub.timers import Clock, NewId
from turnline.hub.turns import Lane
from turnline.log.joined import Transaction

_STATES: Final[dict[str, type[State]]] = {"WorkflowState": WorkflowState}
"""What a state says it is -> its class; any other is read as a `State`."""


class Place:
    """How far a seat has been told of its channels: where it is taken up after a cut."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Whose seat it is."""
        self.seqs: dict[str, int] = {}
        self.heard: set[str] = set()
        """Channels on which somebody listens to the words of a turn, when last heard of."""
        self.lost: TurnlineError | None = None
        """Why the seat is no longer this client's."""

    def note(self, channel_id: str, seq: int) -> None:
        self.seqs[channel_id] = max(seq, self.seqs.get(channel_id, 0))

    def forget(self, channel_id: str) -> None:
        self.seqs.pop(channel_id, None)
        self.heard.discard(channel_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class WsSeat:
    """One participant's place at a hub elsewhere."""

    calls: Calls
    agent_id: str
    place: Place
    new_id: NewId
    clock: Clock
    lane: Lane
    listen_as: Callable[[str, str], Listening]
    leave_seat: Callable[[str], None]

    @property
    def player(self) -> Player:
        """See `Seat.player`. The heart beats here, not at the server: it says that this process is alive."""
        who, new_id = self.agent_id, self.new_id
        return Player(agent_id=who, worker=who, lane=self.lane, new_id=new_id, has_heartbeat=True)

    def leave(self) -> None:
        self.leave_seat(self.agent_id)
        self.place.lost = self.place.lost or ClientClosed(self.place.name)

    async def peers(self) -> list[Peer]:
        return msgspec.convert(await self._ask("peers"), list[Peer])

    async def channels(self) -> list[ChannelMetadata]:
        return msgspec.convert(await self._ask("channels"), list[ChannelMetadata])

    async def open(self, request: OpenRequest) -> str:
        """See `Seat.open`. The id is chosen here, so that opening again after a cut finds the channel."""
        request = checked(request)
        if request.channel_id is None:
            request = replace(request, channel_id=self.new_id())
        channel_id = str(await self._ask("open", request=request))
        self.place.note(channel_id, 0)
        return channel_id

    async def post(self, channel_id: str, draft: Draft) -> Envelope:
        check_event_type(draft.event_type, self.agent_id)
        check_header(draft)
        draft = replace(draft, event_data=normalised(draft.event_data))
        return msgspec.convert(await self._ask("post", channel_id=channel_id, draft=draft), Envelope)

    async def add_file(self, channel_id: str, pieces: AsyncIterable[bytes]) -> tuple[str, int]:
        """See `Seat.add_file`. Each request has one piece; the last one is empty and gets the answer."""
        upload, number = self.new_id(), 0
        async for piece in pieces:
            for start in range(0, len(piece), PIECE_BYTES):
                data = piece[start : start + PIECE_BYTES]
                await self._ask("put_piece", channel_id=channel_id, upload=upload, number=number, data=data)
                number += 1
        last = {"channel_id": channel_id, "upload": upload, "number": number, "data": b""}
        digest, size = await self._ask("put_piece", **last)
        return digest, size

    async def read_chunk(self, channel_id: str, seq: int, index: int, number: int) -> FileChunk:
        place = {"channel_id": channel_id, "seq": seq, "index": index, "number": number}
        return msgspec.convert(await self._ask("read_chunk", **place), FileChunk)

    async def answer_invite(self, channel_id: str, *, rejected_because: str | None = None) -> None:
        normalised({"reason": rejected_because})
        await self._ask("answer_invite", channel_id=channel_id, rejected_because=rejected_because)

    async def close_channel(self, channel_id: str, reason: str) -> None:
        normalised({"reason": reason})
        await self._ask("close_channel", channel_id=channel_id, reason=reason)

    async def read(self, channel_id: str, after: int) -> Reading:
        return await self._read("read", channel_id, after)

    async def read_next(self, channel_id: str, after: int) -> Reading:
        return await self._read("read_next", channel_id, after)

    async def _read(self, op: str, channel_id: str, after: int) -> Reading:
        reading = msgspec.convert(await self._ask(op, channel_id=channel_id, after=after), Reading)
        if any(one.event_type == EV_CHANNEL_CLOSED for one in reading.envelopes):
            self.place.forget(channel_id)
        return reading

    def listen(self, channel_id: str) -> Listening:
        return self.listen_as(self.agent_id, channel_id)

    def is_heard(self, channel_id: str) -> bool:
        """As the last answer about the channel said."""
        return channel_id in self.place.heard

    def tell_text(self, channel_id: str, text: str, audience: list[str] | None = None) -> None:
        self.calls.tell(Text(channel_id=channel_id, agent_id=self.agent_id, text=text, audience=audience))

    async def state(self, channel_id: str) -> State:
        return _state_of(await self._ask("state", channel_id=channel_id))

    async def metadata(self, channel_id: str) -> ChannelMetadata:
        return msgspec.convert(await self._ask("metadata", channel_id=channel_id), ChannelMetadata)

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        """See `Port.claim_turn`. The lines of a long turn come in several answers."""
        args = {"channel_id": channel_id, "floor": floor, "claim_id": claim_id, "alone": alone}
        found = await self._ask("claim", **args)
        claimed = replace(msgspec.convert(found["claimed"], Claimed), state=_state_of(found))
        while not found["is_complete"]:
            found = await self._ask("claim", **args, after=claimed.lines[-1].seq)
            more = msgspec.convert(found["claimed"], Claimed)
            claimed = replace(claimed, lines=claimed.lines + more.lines, ages=claimed.ages + more.ages)
        return claimed

    async def write(
        self,
        channel_id: str,
        claim: Claim,
        event_type: str,
        data: JsonObject,
        *,
        audience: list[str] | None = None,
        within: Transaction | None = None,
    ) -> None:
        if within is not None:
            raise LogError("A transaction cannot cross a link. Commit the rows before you post.")
        line = {"event_type": event_type, "data": normalised(data), "audience": audience}
        await self._ask("write", channel_id=channel_id, claim=claim.seq, speaker=claim.agent_id, **line)

    async def wait_unclaimed(self, channel_id: str) -> None:
        await self._ask("wait_unclaimed", channel_id=channel_id)

    async def usage(self, channel_id: str) -> Spent:
        return msgspec.convert(await self._ask("usage", channel_id=channel_id), Spent)

    async def summary(self, channel_id: str) -> JsonObject | None:
        found: JsonObject | None = await self._ask("summary", channel_id=channel_id)
        return found

    async def sleep(self, seconds: float) -> None:
        """See `Seat.sleep`. Sleeping needs no hub: the link may be down, and a request would cost a trip."""
        await self.clock.sleep(seconds)

    async def _ask(self, op: str, **args: Any) -> Any:
        if self.place.lost is not None:
            raise self.place.lost
        answer = await self.calls.ask(op, seat=self.agent_id, args=args)
        note = self.place.heard.add if answer.heard else self.place.heard.discard
        note(args.get("channel_id", ""))
        return answer.result


def _state_of(found: JsonObject) -> State:
    return msgspec.convert(found["state"], _STATES.get(found["type"], State))
