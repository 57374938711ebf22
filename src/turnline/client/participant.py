"""The client of a participant: opening, reading, waiting. An agent's also acks invitations and takes turns.

`human_client` adds what a person needs: pulling envelopes, and answers to questions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnline.agent.agent import Agent
from turnline.agent.network_tools import NETWORK_TOOLS, tool_names
from turnline.agent.output import Output
from turnline.client.channel import Channel, Predicate
from turnline.client.inbox import Inbox
from turnline.client.link import Link, Seat
from turnline.client.plugin import NO_PLUGIN, NetworkPlugin
from turnline.client.turn import AgentTurns, TurnHandler, perform_with
from turnline.core.channel import ACK_TIMEOUT_SECONDS, ChannelSpec, Expectation
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_INVITE
from turnline.core.governance import Passport, Registration
from turnline.core.views import Floor, Notice
from turnline.errors import ChannelClosed, ClientClosed, NotDue, TurnlineError, UnknownParticipant
from turnline.hub.delivery import Undecided
from turnline.hub.request import OpenRequest, names
from turnline.hub.retry import retry
from turnline.turns.children import perform_target
from turnline.turns.engine import Engine
from turnline.turns.work import Done, Paused, Perform, Work

logger = logging.getLogger(__name__)

OnEnvelope = Callable[[Envelope], Awaitable[None] | None]

DECLINED: Final = "declined"
"""Why an invitation is rejected where the callback gives no reason."""
MAX_DECIDED: Final = 1_000
"""Invitations whose early decision is remembered, so that an `accept` callback is called once for each."""
REASON_CHARACTERS: Final = 500
"""Of a rejection; a longer reason is cut."""


class Invitation(Struct, frozen=True, kw_only=True):
    """What an `accept` callback decides on."""

    channel_id: str
    type: str
    opener: str
    """The name of the participant that opens the channel; `opener_id` is its id."""
    opener_id: str
    labels: dict[str, str]
    message: str | None
    knobs: JsonObject


Accept = Callable[[Invitation], Awaitable[bool | str] | bool | str]
"""Decides on an invitation: True accepts. False rejects, and so does a text, which is the reason."""


class ParticipantClient:
    """One attached participant.

    Its engine takes its turns and those of the steps that it plays; its inbox reads for its callbacks.
    """

    _offers_places = True
    """Whether the hub may claim a turn for this client together with its floor (N6)."""

    def __init__(
        self,
        registration: Registration,
        *,
        auto_ack_invites: bool,
        accept: Accept | None = None,
        turns_at_once: int | None = None,
    ) -> None:
        self._registration = registration
        self._auto_ack = auto_ack_invites
        self._accept = accept
        self._turns_at_once = turns_at_once
        self._callbacks: list[OnEnvelope] = []
        self._inbox = Inbox(self._handle)
        self._engine: Engine | None = None
        self._notices: dict[str, Notice] = {}
        """Channel -> what came before there was a seat."""
        self._early: dict[str, asyncio.Future[str | None] | None] = {}
        """Channel -> the decision on its invitation before that was on the log; None: accepted at once."""
        self._answering: dict[str, asyncio.Task[None]] = {}
        """Channel -> what answers its invitation."""
        self._seat: Seat | None = None
        self._is_closed = False
        self._link: Link | None = None
        self.outputs: dict[str, Output[Any]] = {}
        """Participant id -> the type of its answers: of the agents that this program has registered."""

    @property
    def agent_id(self) -> str:
        return self._registration.agent_id

    @property
    def passport(self) -> Passport:
        return self._registration.passport

    @property
    def name(self) -> str:
        return self._registration.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def attach(self, link: Link) -> None:
        """Take the seat, and what waits for it."""
        receiver = _Receiver(self)
        seat = await link.attach(self._registration, receiver)
        self._link, self._seat = link, seat
        self._engine = Engine(seat, seat.player, self._performer_of, places=self._turns_at_once)
        if self._offers_places:
            receiver.take_turns_with(self._engine)
        self._inbox.start(seat)
        notices, self._notices = self._notices, {}
        for notice in notices.values():
            self._take_notice(notice)

    async def close(self, *, grace_seconds: float = 0.0) -> None:
        """Give the seat up. What is open stays open, on the log.

        No further turn begins; those in progress may end, for so long. What is left is released: another
        process takes it up at once. A closed client refuses every further call with `ClientClosed`.
        """
        await self._inbox.stop()
        if self._engine is not None:
            await self._engine.stop(grace_seconds=grace_seconds)
        answering = list(self._answering.values())
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
        self._is_closed = True
        seat, self._seat = self._seat, None
        if seat is not None:  # Closing twice must not take the seat from its next holder.
            seat.leave()

    async def unregister(self) -> None:
        """Remove this participant and give its seat up. Its name is free then, for anyone.

        Channels that it is on keep its id and its name; nobody takes its turns there any more.
        """
        self._check_open()
        if self._link is None or self._seat is None:
            raise RuntimeError(f"{self!r} is not attached; use HubClient.register")
        with suppress(UnknownParticipant):  # It has been removed already.
            await self._link.unregister(self._registration)
        await self.close()

    async def open(
        self,
        type: str = "workflow",
        target: str | Iterable[str] | None = None,
        knobs: JsonObject | None = None,
        *,
        ttl: float | None = None,
        message: str | None = None,
        labels: Mapping[str, str] | None = None,
        expectations: Iterable[Expectation] | None = None,
        ack_timeout: float = ACK_TIMEOUT_SECONDS,
        channel_id: str | None = None,
        parent: str | None = None,
        takes_turns: bool = True,
    ) -> Channel:
        """Open a channel and return it once everybody has accepted (L1).

        With `channel_id`, opening again (the same script, started anew) gives
        the channel that is there; `message` is said once. What an agent opens in a
        turn of its own is below that turn's channel (T7); else `parent` says so.
        With `takes_turns=False` this participant only passes the message: round robin skips it.
        """
        request = OpenRequest(
            type=type,
            target=names(target),
            knobs=dict(knobs or {}),
            ttl_seconds=ttl,
            message=message,
            labels=dict(labels or {}),
            expectations=None if expectations is None else list(expectations),
            ack_timeout_seconds=ack_timeout,
            channel_id=channel_id,
            parent_id=parent or self._turn_channel(),
            opener_takes_turns=takes_turns,
        )
        return self.channel(await self.seat.open(request))

    def _tools(self) -> Collection[str] | None:
        """The names of this participant's tools, as far as they are known."""
        return None

    def _turn_channel(self) -> str | None:
        """The channel of the turn this is called in, if it is called in one of this participant's."""
        return None

    def channel(self, channel_id: str) -> Channel:
        """Return this participant's own handle on a channel."""
        return Channel(self.seat, channel_id, outputs=self.outputs)

    def on_envelope(self, callback: OnEnvelope) -> OnEnvelope:
        """Call `callback` with every envelope that concerns this participant. Works as a decorator."""
        self._check_open()
        self._callbacks.append(callback)
        return callback

    async def wait_for_channel_event(
        self, channel_id: str, predicate: Predicate, timeout: float | None = None, *, since: int = 0
    ) -> Envelope:
        """Return the channel's first envelope, past or to come, for which `predicate` holds."""
        return await self.channel(channel_id).wait_for(predicate, timeout=timeout, since=since)

    async def accept(self, channel_id: str) -> None:
        """Accept an invitation."""
        await self.seat.answer_invite(channel_id)

    async def reject(self, channel_id: str, reason: str = "") -> None:
        """Decline an invitation; the channel closes."""
        await self.seat.answer_invite(channel_id, rejected_because=reason)

    @property
    def seat(self) -> Seat:
        self._check_open()
        if self._seat is None:
            raise RuntimeError(f"{self!r} is not attached; use HubClient.register")
        return self._seat

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(self.name)

    def _end(self, error: TurnlineError) -> None:
        """Nothing more will come from the hub."""

    def _performer_of(self, speaker: str) -> Perform | None:
        """Return what takes the turns of this participant, or of a step that it plays."""
        return self._performer if speaker == self.agent_id else perform_target

    @property
    def _performer(self) -> Perform | None:
        """What takes this participant's own turns; None: its program does."""
        return None

    @property
    def _reads(self) -> bool:
        """Whether what the others say is read: without a callback nothing asks for it."""
        return bool(self._callbacks)

    def _take_notice(self, notice: Notice) -> None:
        channel_id = notice.channel_id
        if self._engine is None:
            self._notices[channel_id] = notice
            return
        if notice.is_over:
            self._forget(channel_id)
        if notice.is_invited and self._auto_ack:
            self._begin_answer(channel_id)
        else:
            self._early.pop(channel_id, None)  # The answer is on the log, with the invitation.
        if self._reads:
            self._inbox.wake(channel_id, notice.first, notice.seq)
        self._engine.wake(notice)

    def _forget(self, channel_id: str) -> None:
        """Forget what is kept for a channel: it has closed."""

    async def _handle(self, envelope: Envelope) -> None:
        for callback in self._callbacks:
            try:
                answer = callback(envelope)
                if isawaitable(answer):
                    await answer
            except Exception:  # It may raise anything; the next callback and envelope are another matter.
                what, where = envelope.event_type, envelope.channel_id
                logger.exception("a callback of %s raised on %s of channel %s", self.name, what, where)

    def _begin_answer(self, channel_id: str) -> None:
        if channel_id not in self._answering:
            task = asyncio.create_task(self._answer_invite(channel_id))
            self._answering[channel_id] = task
            task.add_done_callback(lambda _: self._answering.pop(channel_id, None))

    async def _answer_invite(self, channel_id: str) -> None:
        """Accept the invitation, unless the `accept` callback rejects it."""
        what = f"the invitation to {channel_id} could not be answered"
        try:
            reason = await self._decide_late(channel_id, what)
            answer = partial(self.seat.answer_invite, channel_id, rejected_because=reason)
            await retry(self.seat, answer, what)
        except (NotDue, ChannelClosed):
            return  # It was answered twice, or too late: the invitation is settled.
        except TurnlineError as error:
            logger.warning("%s: %s", what, error)

    async def _decide_late(self, channel_id: str, what: str) -> str | None:
        """Return why the invitation, which is on the log, is rejected; None accepts it."""
        early = self._early.pop(channel_id, None)
        if early is not None:
            return await early
        if self._accept is None:
            return None
        reading = await retry(self.seat, partial(self.seat.read, channel_id, 0), what)
        invite = next(one for one in reading.envelopes if one.event_type == EV_CHANNEL_INVITE)
        return await self._decide(msgspec.convert(invite.event_data, ChannelSpec))

    def _decide_early(self, spec: ChannelSpec) -> Awaitable[str | None] | None:
        """See `DecidesInvites.decide_invite`: the hub of this process asks before it writes anything."""
        if not self._auto_ack:
            raise Undecided
        if len(self._early) >= MAX_DECIDED:
            del self._early[next(iter(self._early))]
        decision = None if self._accept is None else asyncio.ensure_future(self._decide(spec))
        self._early[spec.channel_id] = decision
        return None if decision is None else asyncio.shield(decision)

    async def _decide(self, spec: ChannelSpec) -> str | None:
        """Return why the invitation is rejected; None accepts it. A callback that fails rejects."""
        if self._accept is None:
            return None
        try:
            answer = self._accept(_invitation(spec))
            if isawaitable(answer):
                answer = await answer
        except Exception:  # It may raise anything; the opener must not wait for the timeout.
            logger.exception("the accept callback of %s raised on channel %s", self.name, spec.channel_id)
            return "its accept callback failed"
        if answer is True:
            return None
        if isinstance(answer, str):
            return "".join(one for one in answer if one.isprintable())[:REASON_CHARACTERS] or DECLINED
        if answer is not False:
            found = type(answer).__name__
            logger.error(
                "The accept callback of %s returned a %s. Return True, False or a reason.", self.name, found
            )
        return DECLINED


class _Receiver:
    """What the hub knows of a client. `TakesTurns`, `DecidesInvites`, `KnowsTools`, `KnowsEnd`."""

    def __init__(self, client: ParticipantClient) -> None:
        self.wake = client._take_notice
        self.decide_invite = client._decide_early
        self.tools = client._tools
        self.end = client._end
        self.offer: Callable[[str, Floor], str] = lambda *_: ""
        self.withdraw: Callable[[str], None] = lambda _: None

    def take_turns_with(self, engine: Engine) -> None:
        """Offer the places of the client's engine to the hub from now on."""
        self.offer, self.withdraw = engine.offer, engine.withdraw


def _invitation(spec: ChannelSpec) -> Invitation:
    return Invitation(
        channel_id=spec.channel_id,
        type=spec.type,
        opener=spec.name_of(spec.creator_id),
        opener_id=spec.creator_id,
        labels=spec.labels,
        message=spec.message,
        knobs=spec.knobs,
    )


_NO_TURN: Final = ("", "")
_turn: Final = ContextVar("turn", default=_NO_TURN)
"""Whose turn this task works on, and on which channel: what is opened in it is below that (T7)."""


class AgentClient(ParticipantClient):
    """An attached agent: an `Agent`, or callbacks.

    `on_envelope` watches; `on_turn` works: its handler is called when the agent
    has the floor, under a claim, and what it returns is the packet.
    """

    def __init__(
        self,
        registration: Registration,
        agent: object = None,
        *,
        attach_plugin: bool = True,
        turns_at_once: int | None = None,
        accept: Accept | None = None,
    ) -> None:
        super().__init__(registration, auto_ack_invites=True, accept=accept, turns_at_once=turns_at_once)
        self.agent = agent
        self.attach_plugin = attach_plugin
        self._perform: Perform | None = None
        self._agent_turns: AgentTurns | None = None

    def on_turn(self, handler: TurnHandler) -> TurnHandler:
        """Call `handler` for every turn of this agent, a waiting one included. Works as a decorator."""
        self._take_turns_with(perform_with(handler, self.seat))
        return handler

    def on_envelope(self, callback: OnEnvelope) -> OnEnvelope:
        """See `ParticipantClient.on_envelope`. The first callback is told of the floors that wait already."""
        is_first = not self._callbacks
        super().on_envelope(callback)
        if is_first and self._engine is not None:
            for channel_id, floor in self._engine.waiting.items():
                self._inbox.wake(channel_id, floor.seq, floor.seq)
        return callback

    async def attach(self, link: Link) -> None:
        """See `ParticipantClient.attach`. An `Agent` takes its turns itself."""
        await super().attach(link)
        if isinstance(self.agent, Agent):
            plugin = NetworkPlugin() if self.attach_plugin else NO_PLUGIN
            self._agent_turns = AgentTurns(self.agent, self.seat, plugin)
            self._take_turns_with(self._agent_turns)

    def _take_turns_with(self, perform: Perform) -> None:
        async def perform_here(work: Work) -> Done | Paused:
            _turn.set((self.agent_id, work.channel_id))  # In this task, and those that are begun in it.
            return await perform(work)

        self._perform = perform_here
        if self._engine is not None:
            self._engine.wake_waiting()

    @property
    def _performer(self) -> Perform | None:
        return self._perform

    def _forget(self, channel_id: str) -> None:
        if self._agent_turns is not None:
            self._agent_turns.forget(channel_id)

    def _tools(self) -> frozenset[str] | None:
        if not isinstance(self.agent, Agent):
            return None
        return tool_names(self.agent, *(NETWORK_TOOLS if self.attach_plugin else ()))

    def _turn_channel(self) -> str | None:
        agent_id, channel_id = _turn.get()
        return channel_id if agent_id == self.agent_id else None

    async def _handle(self, envelope: Envelope) -> None:
        _turn.set(_NO_TURN)  # This task may have been begun, by way of the hub, from within a turn.
        await super()._handle(envelope)
