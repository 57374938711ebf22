"""A seat: what one participant can do at a hub.

The sender of everything that goes through a seat is the seat's, and what it
reads is what that participant may see. A link hands out seats, over whatever
distance; this is the one in the hub's own process.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.channel import ChannelMetadata, ChannelState
from turnline.core.claims import check_has_turn
from turnline.core.envelope import Draft, Envelope, JsonObject, shown_to
from turnline.core.governance import Passport, Registration, may_address
from turnline.core.json import copied
from turnline.core.state import Claim, State, metadata_of
from turnline.core.study.spent import Spent
from turnline.core.views import state_for
from turnline.errors import ClientClosed, NotParticipant
from turnline.hub.delegation import check_delegation
from turnline.hub.delivery import is_for_a_step
from turnline.hub.hub import Hub
from turnline.hub.lane import Lane
from turnline.hub.request import OpenRequest
from turnline.hub.texts import Listening, TurnText, is_for

ENVELOPES_PER_READING: Final = 256


class Reading(Struct, frozen=True):
    """What a participant may see of a stretch of a channel's log."""

    envelopes: list[Envelope]
    seq: int
    """How far the stretch goes: where to read on from."""


class Peer(Struct, frozen=True, kw_only=True):
    """What a participant may know of another."""

    agent_id: str
    name: str
    kind: str
    capabilities: list[str]
    summary: str


class Seat:
    """One participant's place at a hub of this process."""

    def __init__(self, hub: Hub, registration: Registration, worker: str = "") -> None:
        self._at = hub
        self._has_left = False
        self.registration = registration
        self.worker = worker or hub.turns.process.join(f"{registration.agent_id}-{hub.new_id()[-8:]}")

    @property
    def agent_id(self) -> str:
        return self.registration.agent_id

    @property
    def _hub(self) -> Hub:
        """The hub, for as long as the seat is held. Raises `ClientClosed` after `leave`."""
        if self._has_left:
            raise ClientClosed(self.registration.name)
        return self._at

    def new_id(self) -> str:
        return self._hub.new_id()

    def leave(self) -> None:
        """Give the seat up; what was claimed from it can be taken over at once. It is of no use then."""
        self._has_left = True
        self._at.detach(self.agent_id)
        self._at.turns.process.leave(self.worker)

    async def peers(self) -> list[Peer]:
        """Return everybody whom the participant may address, in the order of registration."""
        me = await self._hub.lookup(self.agent_id)
        others = (one for one in self._hub.participants() if one.agent_id != me.agent_id)
        return [_peer(one) for one in others if may_address(me, one)]

    async def channels(self) -> list[ChannelMetadata]:
        """Return the open channels the participant is on."""
        found = await self._hub.list_channels(agent_id=self.agent_id, state=ChannelState.ACTIVE)
        return [replace(one, knobs=copied(one.knobs), participants=[*one.participants]) for one in found]

    async def open(self, request: OpenRequest) -> str:
        """Open a channel; below another one (`parent_id`) only as a member of that, and in no circle (T7)."""
        if request.parent_id is not None:
            parent, me = await self._member(request.parent_id), await self._hub.lookup(self.agent_id)
            asked = [await self._hub.lookup(name, asked_by=me) for name in request.target]
            await check_delegation(self._hub.state, parent, me, asked)
        return await self._hub.open_channel(request, self.agent_id)

    async def post(self, channel_id: str, draft: Draft) -> Envelope:
        """Return the envelope `draft` became, or raise what refused it."""
        envelopes = await self._hub.post(channel_id, replace(draft, sender_id=self.agent_id))
        return envelopes[0]

    # What has no id of its own takes one: doing it again under the same `envelope_id` never doubles (E1).

    async def answer_invite(
        self, channel_id: str, *, rejected_because: str | None = None, envelope_id: str = ""
    ) -> None:
        """Accept an invitation, or reject it."""
        once = {"envelope_id": envelope_id}
        if rejected_because is None:
            data: JsonObject = {"agent_id": self.agent_id}
            await self._hub.write(channel_id, ev.EV_CHANNEL_INVITE_ACK, data, audience=[], **once)
        else:
            data = {"agent_id": self.agent_id, "reason": rejected_because}
            await self._hub.write(channel_id, ev.EV_CHANNEL_INVITE_REJECT, data, **once)

    async def close_channel(self, channel_id: str, reason: str, *, envelope_id: str = "") -> None:
        await self._member(channel_id)
        data = {"reason": reason, "by": self.agent_id}
        await self._hub.write(channel_id, ev.EV_CHANNEL_CLOSED, data, envelope_id=envelope_id)

    async def read(self, channel_id: str, after: int) -> Reading:
        """Return what the participant may see behind `after`."""
        state = await self._member(channel_id)
        envelopes = (await self._hub.read_recent(channel_id, after))[:ENVELOPES_PER_READING]
        seq = envelopes[-1].seq if envelopes else after
        shown = (shown_to(one, self.agent_id) or self._step(one, state) for one in envelopes)
        return Reading([one for one in shown if one is not None], seq)

    def listen(self, channel_id: str) -> Listening:
        """Listen to the words of the turns in flight; a context manager. Members only, as `read` checks."""
        return Listening(self._hub.texts, channel_id, partial(is_for, self.agent_id))

    def is_heard(self, channel_id: str) -> bool:
        """Whether anybody listens to the words of a turn in flight."""
        return self._hub.texts.is_heard(channel_id)

    def tell_text(self, channel_id: str, text: str, audience: list[str] | None = None) -> None:
        """Tell listeners a piece of what is about to be said; `audience` is that of the packet, by id."""
        words = TurnText(channel_id=channel_id, agent_id=self.agent_id, text=text, audience=audience)
        self._hub.texts.tell(words)

    async def wait_beyond(self, channel_id: str, seq: int) -> bool:
        await self._member(channel_id)
        return await self._hub.wait_beyond(channel_id, seq)

    async def state(self, channel_id: str) -> State:
        """Return what the channel's log adds up to now, as the participant may see it.

        Its context variables are the caller's own copy.
        """
        state = state_for(self.agent_id, await self._member(channel_id))
        return replace(state, context_vars=copied(state.context_vars))

    async def metadata(self, channel_id: str) -> ChannelMetadata:
        return metadata_of(await self.state(channel_id))

    @property
    def lane(self) -> Lane:
        """The lane of the process that works here."""
        return self._hub.turns.lane

    async def claim(self, channel_id: str, turn: int, *, envelope_id: str = "", alone: bool = False) -> Claim:
        return await self._hub.turns.claim(
            channel_id, self.agent_id, worker=self.worker, turn=turn, envelope_id=envelope_id, alone=alone
        )

    async def wait_unclaimed(self, channel_id: str) -> None:
        await self._hub.turns.wait_unclaimed(channel_id)

    def kept(self, channel_id: str, claim: Claim) -> AbstractAsyncContextManager[None]:
        """See `Turns.kept`."""
        return self._hub.turns.kept(channel_id, claim)

    async def renew(self, channel_id: str, claim: int, heard: int) -> int:
        """See `Turns.renew`."""
        return await self._hub.turns.renew(channel_id, claim, heard, by=self.agent_id)

    async def sleep(self, seconds: float) -> None:
        await self._hub.clock.sleep(seconds)

    async def record(
        self, channel_id: str, claim: int, event_type: str, data: JsonObject, *, envelope_id: str = ""
    ) -> None:
        by = self.agent_id
        await self._hub.turns.record(channel_id, claim, event_type, data, by=by, envelope_id=envelope_id)

    async def recorded(self, channel_id: str) -> list[Envelope]:
        """See `Turns.recorded`. Raises `OutOfTurn` for a participant that does not have the turn."""
        state = await self._member(channel_id)
        check_has_turn(state, self.agent_id)
        return await self._hub.turns.recorded(state)

    async def usage(self, channel_id: str) -> Spent:
        """Return what the channel and those below it used."""
        await self._member(channel_id)
        own, below = await self._hub.tree.spent(channel_id)
        return own + below.spent

    async def summary(self, channel_id: str) -> JsonObject | None:
        await self._member(channel_id)
        return await self._hub.turns.summary(channel_id, self.agent_id)

    async def release(self, channel_id: str, claim: int, *, envelope_id: str = "") -> None:
        await self._hub.turns.release(channel_id, claim, by=self.agent_id, envelope_id=envelope_id)

    async def fail(self, channel_id: str, claim: int, error: JsonObject, *, envelope_id: str = "") -> None:
        await self._hub.turns.fail(
            channel_id, claim, agent_id=self.agent_id, error=error, envelope_id=envelope_id
        )

    async def as_step(self, channel_id: str, step: str) -> Seat:
        """Return the seat of a step of a channel that this participant has opened: it works on it."""
        state = await self._member(channel_id)
        member = state.spec.participant(step)
        if member is None or member.kind != "step" or state.creator_id != self.agent_id:
            raise NotParticipant(channel_id, sender=step, participants=[self.registration.name])
        return Seat(self._hub, Registration(agent_id=step, passport=Passport(name=member.name)), self.worker)

    def _step(self, envelope: Envelope, state: State) -> Envelope | None:
        """The opener is told that a step has the floor, whoever what was said is for."""
        if state.creator_id == self.agent_id and is_for_a_step(envelope):
            return replace(envelope, event_data={})
        return None

    async def _member(self, channel_id: str) -> State:
        state = await self._hub.state(channel_id)
        if state.spec.participant(self.agent_id) is None:
            names = [one.name for one in state.spec.participants]
            raise NotParticipant(channel_id, sender=self.agent_id, participants=names)
        return state


def _peer(one: Registration) -> Peer:
    return Peer(
        agent_id=one.agent_id,
        name=one.name,
        kind=one.passport.kind,
        capabilities=list(one.resume.capabilities),
        summary=one.resume.summary,
    )
