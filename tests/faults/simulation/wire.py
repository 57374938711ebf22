"""WebSocket connections without sockets: one end in a client's process, the other in a server's.

    network = Network(loop, random, doors)
    link = WsLink("ws://127.0.0.1:1", connect=network.connector(place), ...)

Frames of one direction arrive in order, late. A connection that is cut loses what is on its way; each end
notices it at a time of its own. A client connects to any server that is up.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from tests.faults.simulation.loop import Place, SeededLoop, context_of
from tests.faults.simulation.store import OUTSIDE
from turnline.client.ws_wire import Connect, Wire
from turnline.errors import LinkLost
from turnline.server.auth.credentials import Credentials
from turnline.server.ws_connection import WireClosed
from turnline.server.ws_door import WsDoor

SLOW_SECONDS: Final = 0.05
"""How long, at most, a frame is on its way."""
UNNOTICED_SECONDS: Final = 4.0
"""How long, at most, an end does not notice that the connection is cut."""

Doors = Callable[[], Sequence[tuple[Place, WsDoor]]]
"""Returns the doors that are open now, and the processes that they belong to."""


class _End:
    """What has arrived at one end of a connection."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop
        self._arrived: deque[str] = deque()
        self._waiting: Future[None] | None = None
        self.is_gone = False
        """Whether this end has noticed that there is no connection."""

    def put(self, text: str) -> None:
        if not self.is_gone:
            self._arrived.append(text)
            self._ring()

    def lose(self) -> None:
        self.is_gone = True
        self._ring()

    async def take(self) -> str | None:
        """Return the next frame; None if there is no connection any more."""
        while not self._arrived:
            if self.is_gone:
                return None
            self._waiting = self._loop.create_future()
            await self._waiting
        return self._arrived.popleft()

    def _ring(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Cable:
    """One connection."""

    def __init__(self, loop: SeededLoop, random: Random, client: Place, server: Place) -> None:
        self.places = (client, server)
        self.client = _End(loop)
        self.server = _End(loop)
        self.is_cut = False
        self._loop = loop
        self._random = random
        self._arrives_at = {self.client: 0.0, self.server: 0.0}

    def send(self, to: _End, text: str) -> None:
        """Let a frame arrive at an end, after those that were sent before."""
        if not self.is_cut:
            at = self._loop.time() + SLOW_SECONDS * self._random.random() ** 3
            self._arrives_at[to] = at = max(at, self._arrives_at[to] + 1e-6)
            self._loop.call_at(at, self._arrive, to, text, context=OUTSIDE)

    def cut(self, unnoticed_seconds: float = UNNOTICED_SECONDS) -> None:
        """Lose what is on its way. The ends notice it later."""
        if not self.is_cut:
            self.is_cut = True
            for end in (self.client, self.server):
                late = unnoticed_seconds * self._random.random() ** 2
                self._loop.call_later(late, end.lose, context=OUTSIDE)

    def end(self) -> None:
        """Close the connection in order: what was sent before arrives first."""
        for end in (self.client, self.server):
            at = max(self._loop.time(), self._arrives_at[end]) + 1e-6
            self._loop.call_at(at, end.lose, context=OUTSIDE)

    def _arrive(self, to: _End, text: str) -> None:
        if not self.is_cut:
            to.put(text)


class ClientWire:
    """See `turnline.client.ws_wire.Wire`."""

    def __init__(self, cable: Cable) -> None:
        self._cable = cable

    async def recv(self) -> str | bytes:
        text = await self._cable.client.take()
        if text is None:
            raise LinkLost("the connection was cut")
        return text

    async def send(self, text: str) -> None:
        if self._cable.client.is_gone:
            raise LinkLost("the connection was cut")
        self._cable.send(self._cable.server, text)

    async def close(self) -> None:
        self._cable.end()


class ServerWire:
    """See `turnline.server.ws_connection.Wire`."""

    def __init__(self, cable: Cable) -> None:
        self._cable = cable

    @property
    def credentials(self) -> Credentials:
        return Credentials(peer="127.0.0.1")

    async def receive(self) -> str | bytes:
        text = await self._cable.server.take()
        if text is None:
            raise WireClosed
        return text

    async def send(self, text: str) -> None:
        if self._cable.server.is_gone:
            raise WireClosed
        self._cable.send(self._cable.client, text)

    async def close(self, reason: str) -> None:
        self._cable.end()

    def note_token(self) -> None:
        """Nobody counts tokens here."""


class Network:
    """Connects clients to the servers that are up."""

    def __init__(self, loop: SeededLoop, random: Random, doors: Doors) -> None:
        self._loop = loop
        self._random = random
        self._doors = doors
        self.cables: list[Cable] = []

    def connector(self, client: Place) -> Connect:
        """Return what connects a client's process."""

        async def connect() -> Wire:
            doors = self._doors()
            if not doors:
                raise LinkLost("no server is up")
            server, door = self._random.choice(doors)
            cable = Cable(self._loop, self._random, client, server)
            self.cables.append(cable)
            self._loop.create_task(door.serve(ServerWire(cable)), context=context_of(server))
            return ClientWire(cable)

        return connect

    def cut(self) -> None:
        """Cut every connection."""
        for cable in self.cables:
            cable.cut()

    def cut_off(self, place: Place) -> None:
        """Cut the connections of a process that has ended. Its system says so to the other ends."""
        for cable in self.cables:
            if place in cable.places:
                cable.cut(SLOW_SECONDS)
