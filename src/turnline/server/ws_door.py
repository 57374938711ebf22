"""A door: where clients come in over WebSocket, whatever serves the connections.

`serve_ws` gives it the connections of a server of its own; `turnline serve` those at `/ws`.
A client that is cut off keeps its presence for a grace period; then it is given up.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from turnline.client.frames import Bye, Hello
from turnline.errors import AccessBusy
from turnline.hub.hub import Hub
from turnline.server.auth.authenticator import Authenticator
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.operations import authorise
from turnline.server.auth.principal import Principal
from turnline.server.ws_connection import Connection, Wire, say_bye
from turnline.server.ws_outbox import Outbox
from turnline.server.ws_presence import Desk, Presence
from turnline.server.ws_settings import WsCounters, WsSettings


class WsDoor:
    """Lets clients in to one hub."""

    def __init__(
        self,
        hub: Hub,
        authenticator: Authenticator,
        *,
        is_open: bool = False,
        settings: WsSettings | None = None,
        new_secret: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        self.settings = settings or WsSettings()
        self.counters = WsCounters()
        self.authenticator = authenticator
        self._hub = hub
        self._desk = Desk(
            hub=hub, settings=self.settings, counters=self.counters, sitting={}, is_open=is_open
        )
        self._new_secret = new_secret
        self._presences: dict[str, Presence] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """Presences that nobody is connected to -> what gives them up."""
        self._connections: set[Connection] = set()
        self._closed = False

    async def serve(self, wire: Wire) -> None:
        """Talk over one connection until it ends. Raises nothing."""
        if self._closed or len(self._connections) >= self.settings.connections:
            self.counters.turned_away += 1
            await say_bye(wire, Bye(reason="closing" if self._closed else "too_many"))
            return
        connection = Connection(self, wire, Outbox(self.settings, self.counters), self._hub.clock)
        self._connections.add(connection)
        self.counters.connections += 1
        try:
            await connection.talk()
        finally:
            self._connections.discard(connection)
            self.counters.connections -= 1

    async def admit(self, credentials: Credentials) -> Principal:
        """Return who this is, who may connect."""
        principal = await self.authenticator.authenticate(credentials)
        if not self._desk.is_open:  # An open door has programs of the project, and no users.
            await self._hub.note_user(principal.user_id)
        authorise(principal, "channels.connect", now=self._hub.clock.now())
        return principal

    def enter(self, hello: Hello, principal: Principal, outbox: Outbox) -> tuple[Presence, bool]:
        """Return the client's presence, and whether it was here before. Raises `AccessBusy`."""
        known = self._presences.get(hello.presence)
        is_back = known is not None and known.principal.user_id == principal.user_id
        if known is None or not is_back:
            if len(self._presences) >= self.settings.presences:
                raise AccessBusy(f"{len(self._presences)} clients are here already (ws.presences)")
            self._check_user(principal.user_id)
            known = Presence(self._new_secret(), principal, self._desk)
            self._presences[known.id] = known
            self.counters.presences += 1
        leaving = self._leaving.pop(known.id, None)
        if leaving is not None:
            leaving.cancel()
        if known.outbox is not None:
            known.outbox.end("replaced")  # The client has noticed before us that it was cut off.
        known.principal, known.outbox, known.payload_bytes = principal, outbox, hello.payload_bytes
        return known, is_back

    def _check_user(self, user: str) -> None:
        most = self.settings.presences_per_user
        count = sum(one.principal.user_id == user for one in self._presences.values())
        if count >= most and not self._desk.is_open:
            because = f"{user!r} has {count} clients here, the most for one user (ws.presences_per_user)"
            raise AccessBusy(f"{because}; close one, or wait until the server gives it up")

    def left(self, presence: Presence, outbox: Outbox, *, for_good: bool) -> None:
        """A connection has ended. Its client may come back, for a while."""
        if presence.outbox is not outbox:
            return
        presence.outbox = None
        if for_good or self._closed:
            self._give_up(presence)
        else:
            self._leaving[presence.id] = asyncio.create_task(self._wait_for(presence))

    async def close(self) -> None:
        """Say bye to everybody, and give up what is held for them. Their clients come back elsewhere."""
        self._closed = True
        for connection in list(self._connections):
            connection.outbox.end("closing")
        while self._connections:
            await asyncio.wait([connection.over for connection in list(self._connections)])
        for leaving in self._leaving.values():
            leaving.cancel()
        presences = list(self._presences.values())
        for presence in presences:
            self._give_up(presence)
        await asyncio.gather(*(presence.settle() for presence in presences))

    async def _wait_for(self, presence: Presence) -> None:
        await self._hub.clock.sleep(self.settings.grace_seconds)
        self._leaving.pop(presence.id, None)
        self.counters.given_up += 1
        self._give_up(presence)

    def _give_up(self, presence: Presence) -> None:
        if self._presences.pop(presence.id, None) is not None:
            self.counters.presences -= 1
            presence.leave_all()
