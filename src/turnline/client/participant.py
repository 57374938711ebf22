"""What an agent's client and a person's have in common: opening, reading, waiting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnline.agent.output import Output
from turnline.client.channel import Channel, Predicate
from turnline.client.inbox import Inbox
from turnline.client.link import Link, Seat
from turnline.client.retry import retried
from turnline.client.steps import handler_of
from turnline.client.turn import take_turn
from turnline.core.channel import ACK_TIMEOUT_SECONDS, ChannelSpec, Expectation
from turnline.core.envelope import Envelope, JsonObject, gives_floor_to
from turnline.core.event_types import EV_CHANNEL_INVITE
from turnline.core.governance import Passport, Registration
from turnline.errors import ChannelClosed, ClientClosed, NotDue, TurnlineError, UnknownParticipant
from turnline.hub.delivery import concerns, is_for_a_step
from turnline.hub.request import OpenRequest, names

logger = logging.getLogger(__name__)

OnEnvelope = Callable[[Envelope], Awaitable[None] | None]

DECLINED: Final = "declined"
"""Why an invitation is rejected where the callback gives no reason."""
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
    """One attached participant."""

    def __init__(
        self, registration: Registration, *, auto_ack_invites: bool, accept: Accept | None = None
    ) -> None:
        self._registration = registration
        self._auto_ack = auto_ack_invites
        self._accept = accept
        self._callbacks: list[OnEnvelope] = []
        self._inbox = Inbox(self._deliver, self._tools, self._end)
        self._seat: Seat | None = None
        self._is_closed = False
        self._link: Link | None = None
        self.outputs: dict[str, Output[Any]] = {}
        """Participant id -> the type of its answers: of the agents that this program has registered."""
        self._working: dict[asyncio.Task[None], str] = {}
        """What is being done, and which line asked for it."""
        self._at_work: set[str] = set()
        """The lines that gave the turns which are claimed from here."""

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
        """Take the seat and begin to read."""
        self._seat = await link.attach(self._registration, self._inbox)
        self._link = link
        self._inbox.start(self._seat)

    async def close(self, *, grace_seconds: float = 0.0) -> None:
        """Give the seat up. What is open stays open, on the log.

        No further turn begins; those in progress may end, for so long. What is left is released: another
        process takes it up at once. A closed client refuses every further call with `ClientClosed`.
        """
        await self._inbox.stop()
        in_progress = [task for task, line in self._working.items() if line in self._at_work]
        if in_progress and grace_seconds > 0:
            await asyncio.wait(in_progress, timeout=grace_seconds)
        left = list(self._working)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._is_closed = True
        seat, self._seat = self._seat, None
        if seat is not None:  # Closing twice must not take the seat from whoever sits there by then.
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

    async def _deliver(self, envelope: Envelope) -> None:
        if envelope.event_type == EV_CHANNEL_INVITE and self._auto_ack:
            await self._answer_invite(envelope)
        if is_for_a_step(envelope):
            self._begin(self._work_on_step(envelope), envelope)
        if concerns(envelope, self.agent_id):
            await self._handle(envelope)

    async def _work_on_step(self, envelope: Envelope) -> None:
        """Work on a step of a channel that this participant has opened."""
        channel_id, step = envelope.channel_id, gives_floor_to(envelope)
        state = await retried(self.seat, partial(self.seat.state, channel_id), f"{channel_id} is not read")
        if state.creator_id != self.agent_id or step is None:
            return
        handler = handler_of(self, state, step)
        if handler is not None:
            work = partial(self.seat.as_step, channel_id, step)
            seat = await retried(self.seat, work, f"{channel_id} is not read")
            await take_turn(seat, envelope, handler, at_work=self._at_work)

    def _begin(self, work: Coroutine[Any, Any, None], asked_by: Envelope) -> None:
        task = asyncio.create_task(work)
        self._working[task] = asked_by.envelope_id
        task.add_done_callback(self._working.pop)

    async def _handle(self, envelope: Envelope) -> None:
        for callback in self._callbacks:
            try:
                answer = callback(envelope)
                if isawaitable(answer):
                    await answer
            except Exception:  # It may raise anything; the next callback and envelope are another matter.
                what, where = envelope.event_type, envelope.channel_id
                logger.exception("a callback of %s raised on %s of channel %s", self.name, what, where)

    async def _answer_invite(self, envelope: Envelope) -> None:
        """Accept the invitation, unless the `accept` callback rejects it."""
        channel_id, reason = envelope.channel_id, await self._decide_invite(envelope)
        what = f"the invitation to {channel_id} could not be answered"
        answer = partial(self.seat.answer_invite, channel_id, rejected_because=reason)
        try:
            await retried(self.seat, answer, what)
        except (NotDue, ChannelClosed):
            return  # Told of it twice, or too late: the invitation is settled.

    async def _decide_invite(self, envelope: Envelope) -> str | None:
        """Return why the invitation is rejected; None accepts it. A callback that fails rejects."""
        if self._accept is None:
            return None
        try:
            answer = self._accept(_invitation(envelope))
            if isawaitable(answer):
                answer = await answer
        except Exception:  # It may raise anything; the opener must not wait for the timeout.
            logger.exception("the accept callback of %s raised on channel %s", self.name, envelope.channel_id)
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


def _invitation(envelope: Envelope) -> Invitation:
    spec = msgspec.convert(envelope.event_data, ChannelSpec)
    opener = spec.participant(spec.creator_id)
    return Invitation(
        channel_id=envelope.channel_id,
        type=spec.type,
        opener=spec.creator_id if opener is None else opener.name,
        opener_id=spec.creator_id,
        labels=spec.labels,
        message=spec.message,
        knobs=spec.knobs,
    )
