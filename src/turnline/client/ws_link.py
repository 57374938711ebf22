"""`WsLink`: the way to a hub in another process, over WebSocket.

    async with WsLink("ws://127.0.0.1:8765") as link:
        client = HubClient(link)
        alice = await client.register(agent, Passport(name="alice"))

It behaves as `LocalLink` does. A connection that is cut is made again, with growing
pauses; whoever waits does not notice, and nothing is said twice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from ssl import SSLContext
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit

import msgspec

from turnline.client.backoff import Backoff
from turnline.client.frames import FRAME_BYTES, Text, Wake
from turnline.client.link import Seat
from turnline.client.ws_calls import Calls
from turnline.client.ws_seat import Place, WsSeat
from turnline.client.ws_wire import Connect, LibraryWire, Wire, library, reason
from turnline.core.governance import Passport, Registration, Resume, Rule
from turnline.errors import LinkLost, NameTaken, TurnlineError
from turnline.hub.delivery import KnowsEnd, Receiver
from turnline.hub.texts import Listening, Texts, TurnText, is_for
from turnline.hub.timers import Clock, NewId, SystemClock, sortable_ids
from turnline.hub.turns import Lane

OPEN_SECONDS: Final = 15.0
CONNECT_SECONDS: Final = 10.0
"""Of one attempt."""
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class WsLink:
    """The way to a hub of another process."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ssl: SSLContext | None = None,
        allow_plain: bool = False,
        open_seconds: float = OPEN_SECONDS,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        connect: Connect | None = None,
        new_id: NewId | None = None,
    ) -> None:
        """Connect when something is first asked. `LinkLost` is raised if no server answers in `open_seconds`.

        `connect` makes the connections; without it, the `websockets` library does.

        A token goes to another machine over `wss://` only, unless `allow_plain` says that
        the network between is trusted.
        """
        parts, self._place = _taken_apart(url)
        if token and parts.scheme == "ws" and parts.hostname not in _LOCAL and not allow_plain:
            raise LinkLost("a token would go over the network unencrypted; use wss://, or allow_plain=True")
        clock = clock or SystemClock()
        if connect is None:
            self._library, self._failures = library()
        self._url = url
        self._tls: dict[str, SSLContext] = {} if ssl is None else {"ssl": ssl}
        """Without one the library does as the scheme says: `wss://` trusts whom the machine does."""
        self._clock = clock
        self._new_id = new_id or sortable_ids(clock)
        self._lane = Lane(clock)
        self._texts = Texts()
        self._listeners: Counter[str] = Counter()
        self._listening_as: dict[str, str] = {}
        self._seats: dict[str, tuple[Receiver, Place]] = {}
        self._calls = Calls(
            self,
            connect or self._connect,
            token=token or "",
            new_id=self._new_id,
            clock=clock,
            chance=chance,
            backoff=backoff or Backoff(),
            open_seconds=open_seconds,
        )

    @property
    def connections(self) -> int:
        """How often a server has let this link in."""
        return self._calls.connections

    async def register(self, passport: Passport, resume: Resume | None, rule: Rule | None) -> Registration:
        args = {"passport": passport, "resume": resume, "rule": rule}
        return msgspec.convert((await self._calls.ask("register", args=args)).result, Registration)

    async def unregister(self, registration: Registration) -> None:
        await self._calls.ask("unregister", seat=registration.agent_id)

    async def attach(self, registration: Registration, receiver: Receiver) -> Seat:
        agent_id = registration.agent_id
        if agent_id in self._seats:
            do = "It is attached over this link; detach it, or use its client."
            raise NameTaken("participant", registration.name, do=do)
        place = Place(registration.name)
        self._seats[agent_id] = (receiver, place)
        try:
            await self._calls.ask("attach", seat=agent_id)
        except TurnlineError:
            self._seats.pop(agent_id, None)
            raise
        except BaseException:  # The server may have done it, or be about to.
            self._leave(agent_id)
            raise
        return WsSeat(
            calls=self._calls,
            agent_id=agent_id,
            place=place,
            new_id=self._new_id,
            clock=self._clock,
            lane=self._lane,
            listen_as=self._listen,
            leave_seat=self._leave,
        )

    async def settle(self) -> None:
        """See `Link.settle`. A server that does not answer is not waited for long."""
        await self._calls.settle("leave")

    async def close(self) -> None:
        """Give up every seat and end the connection."""
        await self._calls.close()
        for receiver, _ in self._seats.values():
            _end(receiver, LinkLost("it was closed"))
        self._seats.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What the server says unasked; see `Owner`.

    def woken(self, wake: Wake) -> None:
        if wake.seat in self._seats:
            receiver, place = self._seats[wake.seat]
            place.note(wake.notice)
            receiver.wake(wake.notice)

    def heard(self, words: Text) -> None:
        said = TurnText(
            channel_id=words.channel_id, agent_id=words.agent_id, text=words.text, audience=words.audience
        )
        self._texts.tell(said)

    def seats(self) -> dict[str, dict[str, int]]:
        return {agent_id: place.seqs for agent_id, (_, place) in self._seats.items() if place.lost is None}

    def lost(self, agent_id: str, error: TurnlineError) -> None:
        if agent_id in self._seats:
            receiver, place = self._seats[agent_id]
            place.lost = error
            _end(receiver, error)
            self._calls.fail(agent_id, error)

    def came_back(self) -> None:
        for channel_id, agent_id in self._listening_as.items():
            self._calls.ask_soon("listen", seat=agent_id, args={"channel_id": channel_id})

    # Inside.

    def _leave(self, agent_id: str) -> None:
        found = self._seats.pop(agent_id, None)
        if found is not None and found[1].lost is None:
            self._calls.ask_soon("leave", seat=agent_id)

    def _listen(self, agent_id: str, channel_id: str) -> Listening:
        return _Listening(self, agent_id, channel_id)

    def begin_listening(self, agent_id: str, channel_id: str) -> Texts:
        """One more of this link's listens to the words on a channel."""
        self._listeners[channel_id] += 1
        if self._listeners[channel_id] == 1:
            self._listening_as[channel_id] = agent_id
            self._calls.ask_soon("listen", seat=agent_id, args={"channel_id": channel_id})
        return self._texts

    def end_listening(self, channel_id: str) -> None:
        self._listeners[channel_id] -= 1
        if not self._listeners[channel_id]:
            del self._listeners[channel_id]
            agent_id = self._listening_as.pop(channel_id)
            self._calls.ask_soon("unlisten", seat=agent_id, args={"channel_id": channel_id})

    @property
    def texts(self) -> Texts:
        return self._texts

    async def _connect(self) -> Wire:
        try:
            connection = await self._library(
                self._url,
                **self._tls,
                compression=None,
                max_size=FRAME_BYTES,
                proxy=None,
                open_timeout=CONNECT_SECONDS,
                close_timeout=1,
                user_agent_header=None,
            )
        except self._failures as error:
            raise LinkLost(f"{self._place} cannot be reached: {reason(error)}") from None
        return LibraryWire(connection, self._failures)


def _taken_apart(url: str) -> tuple[SplitResult, str]:
    """The address, and what people are shown of it: the host and the port. Raises `LinkLost`."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:  # It is not shown: it may hold a password.
        raise LinkLost("this is no address of a server; expected ws://host:port/path, or wss://")
    return parts, parts.netloc.rpartition("@")[2]


def _end(receiver: Receiver, error: TurnlineError) -> None:
    if isinstance(receiver, KnowsEnd):
        receiver.end(error)


class _Listening(Listening):
    """A listener of this link. The server is told of the first on a channel, and of the last."""

    def __init__(self, link: WsLink, agent_id: str, channel_id: str) -> None:
        super().__init__(link.texts, channel_id, partial(is_for, agent_id))
        self._link = link
        self._agent_id = agent_id
        self._where = channel_id

    def __enter__(self) -> Listening:
        self._link.begin_listening(self._agent_id, self._where)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._link.end_listening(self._where)
