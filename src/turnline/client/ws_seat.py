"""A seat at a hub elsewhere: each thing a participant can do is one request. See `Seat` in `link`.

Rule: what the hub would refuse as no JSON is refused here, with the same error. On its way it would be
changed in silence: a tuple into a list, NaN into null.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from turnline.client.frames import Text
from turnline.client.link import Seat
from turnline.client.ws_calls import Calls
from turnline.core.adapters.turn_taking import check_header
from turnline.core.channel import ChannelMetadata
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_CLOSED, check_event_type
from turnline.core.json import normalised
from turnline.core.state import Claim, State, WorkflowState
from turnline.core.study.spent import Spent
from turnline.errors import ClientClosed, LinkLost, TurnlineError
from turnline.hub.heartbeat import beating
from turnline.hub.ids import NewId
from turnline.hub.lane import Lane
from turnline.hub.request import OpenRequest, checked
from turnline.hub.seat import Peer, Reading
from turnline.hub.texts import Listening

RELEASE_SECONDS: Final = 5.0
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


class WsSeat:
    """One participant's place at a hub elsewhere."""

    def __init__(
        self,
        calls: Calls,
        agent_id: str,
        place: Place,
        *,
        new_id: NewId,
        lane: Lane,
        listen: Callable[[str, str], Listening],
        leave: Callable[[str], None],
        step: str = "",
    ) -> None:
        self._calls = calls
        self._holder = agent_id
        self._place = place
        self._new_id = new_id
        self.lane = lane
        self._listen = listen
        self._leave = leave
        self._step = step

    @property
    def agent_id(self) -> str:
        return self._step or self._holder

    def new_id(self) -> str:
        return self._new_id()

    def leave(self) -> None:
        self._leave(self._holder)
        self._place.lost = self._place.lost or ClientClosed(self._place.name)

    async def peers(self) -> list[Peer]:
        return msgspec.convert(await self._ask("peers"), list[Peer])

    async def channels(self) -> list[ChannelMetadata]:
        return msgspec.convert(await self._ask("channels"), list[ChannelMetadata])

    async def open(self, request: OpenRequest) -> str:
        """See `Seat.open`. The id is chosen here, so that opening again after a cut finds the channel."""
        request = checked(request)
        if request.channel_id is None:
            request = replace(request, channel_id=self._new_id())
        channel_id = str(await self._ask("open", request=request))
        self._place.note(channel_id, 0)
        return channel_id

    async def post(self, channel_id: str, draft: Draft) -> Envelope:
        check_event_type(draft.event_type, self.agent_id)
        check_header(draft)
        draft = replace(draft, event_data=normalised(draft.event_data))
        return msgspec.convert(await self._ask("post", channel_id=channel_id, draft=draft), Envelope)

    async def answer_invite(self, channel_id: str, *, rejected_because: str | None = None) -> None:
        normalised({"reason": rejected_because})
        await self._ask("answer_invite", channel_id=channel_id, rejected_because=rejected_because)

    async def close_channel(self, channel_id: str, reason: str) -> None:
        normalised({"reason": reason})
        await self._ask("close_channel", channel_id=channel_id, reason=reason)

    async def read(self, channel_id: str, after: int) -> Reading:
        reading = msgspec.convert(await self._ask("read", channel_id=channel_id, after=after), Reading)
        if any(one.event_type == EV_CHANNEL_CLOSED for one in reading.envelopes):
            self._place.forget(channel_id)
        return reading

    def listen(self, channel_id: str) -> Listening:
        return self._listen(self._holder, channel_id)

    def is_heard(self, channel_id: str) -> bool:
        """As the last answer about the channel said."""
        return channel_id in self._place.heard

    def tell_text(self, channel_id: str, text: str, audience: list[str] | None = None) -> None:
        self._calls.tell(Text(channel_id=channel_id, agent_id=self.agent_id, text=text, audience=audience))

    async def wait_beyond(self, channel_id: str, seq: int) -> bool:
        return bool(await self._ask("wait_beyond", channel_id=channel_id, after=seq))

    async def state(self, channel_id: str) -> State:
        found = await self._ask("state", channel_id=channel_id)
        return msgspec.convert(found["state"], _STATES.get(found["type"], State))

    async def metadata(self, channel_id: str) -> ChannelMetadata:
        return msgspec.convert(await self._ask("metadata", channel_id=channel_id), ChannelMetadata)

    async def as_step(self, channel_id: str, step: str) -> Seat:
        seat = WsSeat(
            self._calls,
            self._holder,
            self._place,
            new_id=self._new_id,
            lane=self.lane,
            listen=self._listen,
            leave=self._leave,
            step=step,
        )
        await seat._ask("as_step", channel_id=channel_id)
        return seat

    async def claim(self, channel_id: str, turn: int, *, envelope_id: str = "", alone: bool = False) -> Claim:
        args = {"channel_id": channel_id, "turn": turn, "envelope_id": envelope_id, "alone": alone}
        return msgspec.convert(await self._ask("claim", **args), Claim)

    async def wait_unclaimed(self, channel_id: str) -> None:
        await self._ask("wait_unclaimed", channel_id=channel_id)

    def kept(self, channel_id: str, claim: Claim) -> AbstractAsyncContextManager[None]:
        """See `Seat.kept`. The heart beats here, not at the server: it says that this process is alive."""
        return beating(partial(self._renew, channel_id, claim.seq), claim, asyncio.sleep)

    async def _renew(self, channel_id: str, claim: int, heard: int) -> int:
        return int(await self._ask("renew", channel_id=channel_id, claim=claim, heard=heard))

    async def record(self, channel_id: str, claim: int, event_type: str, data: JsonObject) -> None:
        data = normalised(data)
        await self._ask("record", channel_id=channel_id, claim=claim, event_type=event_type, data=data)
        self.lane.leave(channel_id)

    async def recorded(self, channel_id: str) -> list[Envelope]:
        """See `Seat.recorded`. A long turn's comes in several answers."""
        envelopes, after = list[Envelope](), 0
        while True:
            found = await self._ask("recorded", channel_id=channel_id, after=after)
            reading = msgspec.convert(found, Reading)
            if reading.seq == after:
                return envelopes
            envelopes += reading.envelopes
            after = reading.seq

    async def usage(self, channel_id: str) -> Spent:
        return msgspec.convert(await self._ask("usage", channel_id=channel_id), Spent)

    async def summary(self, channel_id: str) -> JsonObject | None:
        found: JsonObject | None = await self._ask("summary", channel_id=channel_id)
        return found

    async def release(self, channel_id: str, claim: int) -> None:
        """See `Seat.release`. Not waited for long: a server gives up what its client does not."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._ask("release", channel_id=channel_id, claim=claim)
        except TimeoutError:
            raise LinkLost(f"a claim could not be released within {RELEASE_SECONDS:g} s") from None

    async def fail(self, channel_id: str, claim: int, error: JsonObject) -> None:
        normalised({"error": error})
        await self._ask("fail", channel_id=channel_id, claim=claim, error=error)

    async def sleep(self, seconds: float) -> None:
        await self._ask("sleep", seconds=seconds)

    async def _ask(self, op: str, **args: Any) -> Any:
        if self._place.lost is not None:
            raise self._place.lost
        answer = await self._calls.ask(op, seat=self._holder, step=self._step, args=args)
        channel_id = args.get("channel_id", "")
        if answer.heard:
            self._place.heard.add(channel_id)
        else:
            self._place.heard.discard(channel_id)
        return answer.result
