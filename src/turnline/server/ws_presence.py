"""A presence: what a hub's end holds for one client, whichever connection it comes over.

Its seats, the requests that wait, and the answers it has not acknowledged outlive a
connection for a grace period: a blink costs no claim. After that they are given up.

Rule 1: a request is worked on once, however often it is sent; its answer is kept until the
client says that it has it. One that is no longer kept is worked out again, which doubles
nothing (`ws_requests`, rule 3).

Rule 2: while nobody is connected nothing queues up. A client that comes back says how far
it has been told of each channel, and is told the rest.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnline.client.frames import Answer, Request, Text, Told
from turnline.client.parts import check_size
from turnline.client.told_errors import told
from turnline.core.channel import ChannelSpec
from turnline.core.governance import Passport, Registrar, Registration, Resume, Rule
from turnline.core.state import State
from turnline.core.views import Notice, notice_for
from turnline.errors import (
    BadDraft,
    BadFrame,
    Forbidden,
    HubClosed,
    TurnlineError,
    UnknownParticipant,
)
from turnline.hub.hub import Hub
from turnline.hub.texts import Listening, TurnText, is_for
from turnline.server.auth.operations import authorise
from turnline.server.auth.principal import Principal
from turnline.server.ws_outbox import Outbox
from turnline.server.ws_requests import LinkSeat, channel_of, check_known, member_state, perform, read_args
from turnline.server.ws_settings import WsCounters, WsSettings

logger = logging.getLogger(__name__)


class Desk(Struct, frozen=True, kw_only=True):
    """What all presences at one door share."""

    hub: Hub
    settings: WsSettings
    counters: WsCounters
    sitting: dict[str, Presence] = {}
    """Who has taken a seat over this door -> its presence."""
    is_open: bool = False
    """Whether there are no tokens: everybody who can connect is the same person."""


@dataclass(frozen=True, slots=True)
class Doorbell:
    """What the hub knows of a seat. A `Receiver`."""

    wake: Callable[[Notice], None]


class Overhearing(Listening):
    """Passes the words of one channel on to a client."""

    def __init__(self, presence: Presence, state: State) -> None:
        super().__init__(presence.desk.hub.texts, state.channel_id, partial(presence.may_hear, state.spec))
        self._presence = presence

    def hear(self, text: TurnText) -> None:
        """See `Listening.hear`."""
        if self._presence.outbox is not None and self._may_hear(text):
            self._presence.outbox.put_words(Text(**msgspec.structs.asdict(text)))


class Presence:
    """One client."""

    def __init__(self, presence_id: str, principal: Principal, desk: Desk) -> None:
        self.id = presence_id
        self.principal = principal
        self.outbox: Outbox | None = None
        """Of the connection that it comes over; None while there is none."""
        self.payload_bytes = desk.settings.payload_bytes
        self.desk = desk
        self._hub = desk.hub
        self._seats: dict[str, LinkSeat] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._listening: dict[str, Overhearing] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._kept_bytes = 0
        self._earlier: frozenset[str] = frozenset()
        """Presences of the same client. It takes their seats over."""

    # Frames.

    def ask(self, request: Request) -> None:
        """Work on a request, or answer it again."""
        if request.id in self._kept:
            self._send(self._kept[request.id])
        elif request.id in self._running:
            return
        elif len(self._running) >= self.desk.settings.requests:
            self.desk.counters.refused_requests += 1
            refusal = BadFrame(f"{len(self._running)} requests wait already; send it again later")
            self._send(check_size(Answer(id=request.id, error=told(refusal)), self.payload_bytes))
        else:  # Tasks begin in the order of the frames: so are seats taken and left (`OWN`).
            self._running[request.id] = asyncio.create_task(self._work(request))

    def cancel(self, request_id: str) -> None:
        """Nobody waits for the answer."""
        self._forget(request_id)
        task = self._running.pop(request_id, None)
        if task is not None:
            task.cancel()

    def acknowledge(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            self._forget(request_id)

    def hear(self, words: Text) -> None:
        """Words of a turn that the client works on."""
        if words.agent_id in self._seats and len(self._errands) < self.desk.settings.unsent_words:
            self._begin(self._tell(words))
        else:
            self.desk.counters.dropped_words += 1

    def leave_all(self) -> None:
        """Give everything up: the client does not come back."""
        self._errands.update(self._running.values())
        self._running.clear()
        for task in self._errands:
            task.cancel()
        for channel_id in list(self._listening):
            self._listening.pop(channel_id).__exit__()
        for agent_id in list(self._seats):
            self._leave(agent_id)

    async def settle(self) -> None:
        """After `leave_all`: wait until everything has ended."""
        await asyncio.gather(*self._errands, return_exceptions=True)

    # Requests.

    async def _work(self, request: Request) -> None:
        try:
            result = await self._perform(request)
            answer = Answer(id=request.id, result=result, heard=self._hub.texts.is_heard(channel_of(request)))
        except Exception as error:
            answer = Answer(id=request.id, error=self._told(error, request.op))
        self._running.pop(request.id, None)
        self._answer(request, answer)

    async def _perform(self, request: Request) -> object:
        own = OWN.get(request.op)
        operation = check_known(request) if own is None else "channels.connect"
        self._authorise(operation, channel_of(request))
        if own is not None:
            return await own(self, **read_args(own, request))
        return await perform(self._hub, self._seat(request.seat), request)

    async def _attach(self, seat: str) -> None:
        self._take_seat(seat)

    async def _detach(self, seat: str) -> None:
        self._leave(seat)

    async def _resume(
        self,
        seats: dict[str, dict[str, int]],
        pending: list[str],
        request_id: str,
        earlier: frozenset[str] = frozenset(),
    ) -> dict[str, object]:
        """Take the seats of a client that comes back; return which ones could not be taken, and why.

        `seats` says for each seat and channel up to which line the client has been told. It still waits for
        the requests in `pending`. Of its presences `earlier` one may still be here: a server can take long
        to notice a cut.
        """
        self._earlier = earlier
        for one in {*self._running, *self._kept} - {*pending, request_id}:
            self.cancel(one)
        lost: dict[str, object] = {}
        for agent_id, points in seats.items():
            try:
                self._take_seat(agent_id)
            except TurnlineError as error:
                lost[agent_id] = told(error)
            else:
                self._begin(self._catch_up(agent_id, points))
        return {"lost": lost}

    async def _register(
        self, passport: Passport, resume: Resume | None = None, rule: Rule | None = None
    ) -> object:
        """Register a participant of this principal's. The hub refuses a name that is another owner's."""
        if rule is not None:
            self._authorise("agents.rule")
        by = None
        if not self.desk.is_open:
            user = self.principal.user_id
            if passport.owner not in ("", user):
                expected = "empty, or who the token says"
                raise BadDraft("passport.owner", found="somebody else", expected=expected)
            passport = msgspec.structs.replace(passport, owner=user)
            by = Registrar(user, self._is_admin(), self.desk.settings.names_per_user)
        registration = await self._hub.enrol(passport, resume, rule, by=by, before_change=self._replace_dead)
        return msgspec.to_builtins(registration)

    async def _unregister(self, seat: str) -> None:
        """Remove a participant whose seat this client has."""
        agent_id = self._seat(seat).agent_id
        if self._registration(agent_id).rule != Rule():  # Registered again, it would be rid of its rule.
            self._authorise("agents.rule")
        await self._hub.unregister(agent_id)
        self._leave(agent_id)

    def _is_admin(self) -> bool:
        try:
            self._authorise("channels.oversee")
        except Forbidden:
            return False
        return True

    # Seats.

    async def learn_seats(self, request: Request) -> None:
        """Read the log for seats that this hub does not know: another server may have registered them."""
        if request.op == "attach":
            await self._hub.learn([request.seat])
        elif request.op == "resume" and isinstance(request.args.get("seats"), dict):
            await self._hub.learn(request.args["seats"])

    def _seat(self, agent_id: str) -> LinkSeat:
        if agent_id not in self._seats:
            raise BadFrame(f"no seat of {agent_id[:80]!r} has been taken over this link")
        self._registration(agent_id)  # It may have been removed since.
        return self._seats[agent_id]

    def _take_seat(self, agent_id: str) -> None:
        """Take a seat, or the same again: then its holder is told anew of what waits for it."""
        registration, bell = self._registration(agent_id), Doorbell(partial(self._wake, agent_id))
        if agent_id in self._seats:
            self._hub.detach(agent_id)
            self._hub.attach(agent_id, bell)
            return
        if len(self._seats) >= self.desk.settings.seats:
            raise BadFrame(f"this client has {len(self._seats)} seats already")
        self._replace_dead(agent_id)
        self._hub.attach(agent_id, bell)
        reading_bytes = self.desk.settings.reading_bytes
        self._seats[agent_id] = LinkSeat(self._hub, registration, reading_bytes=reading_bytes)
        self.desk.sitting[agent_id] = self

    def _wake(self, agent_id: str, notice: Notice) -> None:
        """Say that there is something for a seat, if the client is there."""
        if self.outbox is not None:
            self.outbox.put_news(agent_id, notice)

    def _replace_dead(self, agent_id: str) -> None:
        """Free the seat of a client that is gone: its process was killed, or it has come back as this one."""
        other = self.desk.sitting.get(agent_id)
        if other is not None and (other.outbox is None or other.id in self._earlier):
            other._leave(agent_id)

    def _registration(self, agent_id: str) -> Registration:
        found = self._hub.find_participant(agent_id)
        if found is None or found.agent_id != agent_id or not self._is_own(found):
            raise UnknownParticipant(agent_id, ())
        return found

    def _is_own(self, one: Registration) -> bool:
        return self.desk.is_open or one.passport.owner == self.principal.user_id

    def _leave(self, agent_id: str) -> None:
        seat = self._seats.pop(agent_id, None)
        if seat is not None:
            self.desk.sitting.pop(agent_id, None)
            seat.leave()

    async def _catch_up(self, agent_id: str, points: dict[str, int]) -> None:
        """Tell a client that came back what it was not told of the channels it knows."""
        for channel_id, seq in points.items():
            if agent_id not in self._seats:
                return
            try:
                state = await member_state(self._hub, agent_id, channel_id)
            except TurnlineError:
                continue  # It is told when it asks.
            if state.seq > seq and agent_id in self._seats:
                self._wake(agent_id, notice_for(agent_id, state, seq + 1))

    # Words.

    async def _listen(self, seat: str, channel_id: str) -> None:
        self._authorise("channels.stream", channel_id)
        state = await member_state(self._hub, self._seat(seat).agent_id, channel_id)
        if len(self._listening) >= self.desk.settings.listening:
            raise BadFrame(f"this client listens to {len(self._listening)} channels already")
        if channel_id not in self._listening:
            self._listening[channel_id] = Overhearing(self, state)
            self._listening[channel_id].__enter__()

    async def _unlisten(self, channel_id: str) -> None:
        if (listening := self._listening.pop(channel_id, None)) is not None:
            listening.__exit__()

    def may_hear(self, spec: ChannelSpec, words: TurnText) -> bool:
        """Return whether a seat that this client has now is of a participant whom the words are for."""
        members = (one for one in self._seats if spec.participant(one) is not None)
        return any(is_for(one, words) and self._hub.find_participant(one) is not None for one in members)

    async def _tell(self, words: Text) -> None:
        try:
            self._authorise("channels.post", words.channel_id)
            state = await member_state(self._hub, words.agent_id, words.channel_id)
        except TurnlineError:
            return
        worker = None if state.claim is None else state.claim.agent_id
        if worker == words.agent_id and worker in self._seats:
            names = state.spec.names()
            to = None if words.audience is None else [names[one] for one in words.audience if one in names]
            self._seats[words.agent_id].tell_text(words.channel_id, words.text, to)

    # Answers.

    def _answer(self, request: Request, answer: Answer) -> None:
        try:
            text = check_size(answer, self.payload_bytes)
        except BadFrame as error:
            text = check_size(Answer(id=request.id, error=told(error)), self.payload_bytes)
        self._keep(request.id, text)
        self._send(text)

    def _keep(self, request_id: str, text: str) -> None:
        self._kept[request_id] = text
        self._kept_bytes += len(text)
        settings = self.desk.settings
        while len(self._kept) > settings.kept_answers or self._kept_bytes > settings.kept_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped)

    def _forget(self, request_id: str) -> None:
        self._kept_bytes -= len(self._kept.pop(request_id, ""))

    def _send(self, text: str) -> None:
        if self.outbox is not None:
            self.outbox.put(text)

    def _told(self, error: Exception, op: str) -> Told:
        if isinstance(error, HubClosed) and self.outbox is not None:
            self.outbox.end("closing")  # Asked again, another server will answer.
        if not isinstance(error, TurnlineError):
            frames = traceback.extract_tb(error.__traceback__)
            at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
            logger.error("the request %.40r of a client ended with %s at %s", op, type(error).__name__, at)
        return told(error)

    def _authorise(self, operation: str, resource: str = "") -> None:
        authorise(self.principal, operation, resource=resource, now=self._hub.clock.now())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)


OWN: Final[dict[str, Callable[..., Awaitable[object]]]] = {
    "register": Presence._register,
    "unregister": Presence._unregister,
    "attach": Presence._attach,
    "leave": Presence._detach,
    "resume": Presence._resume,
    "listen": Presence._listen,
    "unlisten": Presence._unlisten,
}
"""What is asked of the presence itself, beside the table of `ws_requests`.

Whoever takes or leaves a seat does not await anything before: the next request finds it done.
"""
