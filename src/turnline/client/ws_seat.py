"""A seat at a hub elsewhere: each thing a participant can do is one request. See `Seat` in `link`.

What needs nothing on this side is one line here: `ask_hub` makes the request of the method of `hub.seat`.

Rule: what the hub would refuse as no JSON is refused here, with the same error. On its way it would be
changed in silence: a tuple into a list, NaN into null.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from inspect import signature
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, get_type_hints

import msgspec
from msgspec.structs import replace

from turnline.agent.files import PIECE_BYTES
from turnline.client.frames import Text
from turnline.client.ws_calls import Calls
from turnline.core.adapters import check_header
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.event_types import check_event_type
from turnline.core.json import normalised
from turnline.core.state import State, WorkflowState
from turnline.core.views import Floor, Notice
from turnline.errors import ClientClosed, LogError, TurnlineError
from turnline.hub.request import OpenRequest, checked
from turnline.hub.seat import Claimed, Player, Seat as HubSeat
from turnline.hub.texts import Listening
from turnline.hub.timers import Clock, NewId
from turnline.hub.turns import Lane
from turnline.log.joined import Transaction

P = ParamSpec("P")
R = TypeVar("R")

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

    def note(self, notice: Notice) -> None:
        """Note what the seat is told of a channel; of one that is over nothing is kept."""
        self.seqs[notice.channel_id] = max(notice.seq, self.seqs.get(notice.channel_id, 0))
        if notice.is_over:
            del self.seqs[notice.channel_id]
            self.heard.discard(notice.channel_id)


def ask_hub(
    method: Callable[Concatenate[HubSeat, P], Awaitable[R]],
) -> Callable[Concatenate[WsSeat, P], Coroutine[Any, Any, R]]:
    """Return the method that asks a hub elsewhere for what `method` does at a hub of this process."""
    parameters, returns = signature(method), get_type_hints(method)["return"]

    async def ask(seat: WsSeat, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = normalised(dict([*parameters.bind(seat, *args, **kwargs).arguments.items()][1:]))
        found = await seat.ask(method.__name__, **given)
        result: R = _state_of(found) if returns is State else msgspec.convert(found, returns)
        return result

    return ask


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

    peers = ask_hub(HubSeat.peers)
    channels = ask_hub(HubSeat.channels)
    answer_invite = ask_hub(HubSeat.answer_invite)
    close_channel = ask_hub(HubSeat.close_channel)
    read = ask_hub(HubSeat.read)
    read_next = ask_hub(HubSeat.read_next)
    state = ask_hub(HubSeat.state)
    metadata = ask_hub(HubSeat.metadata)
    wait_unclaimed = ask_hub(HubSeat.wait_unclaimed)
    usage = ask_hub(HubSeat.usage)
    summary = ask_hub(HubSeat.summary)
    read_chunk = ask_hub(HubSeat.read_chunk)

    async def open(self, request: OpenRequest) -> str:
        """See `Seat.open`. The id is chosen here, so that opening again after a cut finds the channel."""
        request = checked(request)
        if request.channel_id is None:
            request = replace(request, channel_id=self.new_id())
        channel_id = str(await self.ask("open", request=request))
        self.place.seqs.setdefault(channel_id, 0)
        return channel_id

    async def post(self, channel_id: str, draft: Draft) -> Envelope:
        check_event_type(draft.event_type, self.agent_id)
        check_header(draft)
        draft = replace(draft, event_data=normalised(draft.event_data))
        return msgspec.convert(await self.ask("post", channel_id=channel_id, draft=draft), Envelope)

    async def add_file(self, channel_id: str, pieces: AsyncIterable[bytes]) -> tuple[str, int]:
        """See `Seat.add_file`. Each request has one piece; the last one is empty and gets the answer."""
        upload, number = self.new_id(), 0
        async for piece in pieces:
            for start in range(0, len(piece), PIECE_BYTES):
                data = piece[start : start + PIECE_BYTES]
                await self.ask("put_piece", channel_id=channel_id, upload=upload, number=number, data=data)
                number += 1
        last = {"channel_id": channel_id, "upload": upload, "number": number, "data": b""}
        digest, size = await self.ask("put_piece", **last)
        return digest, size

    def listen(self, channel_id: str) -> Listening:
        return self.listen_as(self.agent_id, channel_id)

    def is_heard(self, channel_id: str) -> bool:
        """As the last answer about the channel said."""
        return channel_id in self.place.heard

    def tell_text(self, channel_id: str, text: str, audience: list[str] | None = None) -> None:
        self.calls.tell(Text(channel_id=channel_id, agent_id=self.agent_id, text=text, audience=audience))

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        """See `Port.claim_turn`. The lines of a long turn come in several answers."""
        args = {"channel_id": channel_id, "floor": floor, "claim_id": claim_id, "alone": alone}
        found = await self.ask("claim", **args)
        claimed = replace(msgspec.convert(found["claimed"], Claimed), state=_state_of(found))
        while not found["is_complete"]:
            found = await self.ask("claim", **args, after=claimed.lines[-1].seq)
            more = msgspec.convert(found["claimed"], Claimed)
            claimed = replace(claimed, lines=claimed.lines + more.lines, ages=claimed.ages + more.ages)
        return claimed

    async def write(
        self, channel_id: str, draft: Draft, *, within: Transaction | None = None, can_hold: bool = False
    ) -> None:
        if within is not None:
            raise LogError("A transaction cannot cross a link. Commit the rows before you post.")
        line = {
            "event_type": draft.event_type,
            "data": normalised(draft.event_data),
            "audience": draft.audience,
        }
        await self.ask("write", channel_id=channel_id, claim=draft.claim, speaker=draft.sender_id, **line)

    async def sleep(self, seconds: float) -> None:
        """See `Seat.sleep`. Sleeping needs no hub: the link may be down, and a request would cost a trip."""
        await self.clock.sleep(seconds)

    async def ask(self, op: str, **args: Any) -> Any:
        """Return what the hub answers, as JSON."""
        if self.place.lost is not None:
            raise self.place.lost
        answer = await self.calls.ask(op, seat=self.agent_id, args=args)
        note = self.place.heard.add if answer.heard else self.place.heard.discard
        note(args.get("channel_id", ""))
        return answer.result


def _state_of(found: JsonObject) -> Any:
    return msgspec.convert(found["state"], _STATES.get(found["type"], State))
