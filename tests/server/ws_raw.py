"""A client that sends what it likes over a WebSocket: frames as dictionaries, or anything else.

async with raw(served.url, token="ann") as client:
    answer = await client.ask("peers", seat=agent_id)
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from turnline.client.embedded import Hub
from turnline.core.envelope import JsonObject
from turnline.errors import Unauthenticated
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.principal import NEVER, Principal
from turnline.server.serve_ws import ServedWs, serve_ws
from turnline.server.ws_settings import WsSettings
from turnline.testing.manual_clock import ManualClock

PATIENCE_SECONDS = 60.0


class Tokens:
    """See `Authenticator`. A token is a name; its scopes can be changed, or it can be taken away."""

    def __init__(self, **scopes: Iterable[str]) -> None:
        self.scopes = {name: frozenset(granted) for name, granted in scopes.items()}
        self.expires_at: datetime = NEVER

    async def authenticate(self, credentials: Credentials) -> Principal:
        if credentials.token not in self.scopes:
            raise Unauthenticated("the token is not known")
        granted = self.scopes[credentials.token]
        return Principal(user_id=credentials.token, scopes=granted, expires_at=self.expires_at)


class Raw:
    """One connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._asked = 0
        self._name = secrets.token_hex(4)

    async def send(self, frame: JsonObject | str | bytes) -> None:
        await self.connection.send(json.dumps(frame) if isinstance(frame, dict) else frame)

    async def receive(self) -> JsonObject:
        async with asyncio.timeout(PATIENCE_SECONDS):
            found: JsonObject = json.loads(await self.connection.recv())
        return found

    async def hello(self, token: str = "", **more: Any) -> JsonObject:
        await self.send({"kind": "hello", "version": 1, "token": token, **more})
        return await self.receive()

    async def ask(self, op: str, *, seat: str = "", request_id: str = "", **args: Any) -> JsonObject:
        """The answer; what comes before it is passed over."""
        self._asked += 1
        request_id = request_id or f"{self._name}-{self._asked}"
        await self.send({"kind": "request", "id": request_id, "op": op, "seat": seat, "args": args})
        while (frame := await self.receive()).get("id") != request_id:
            pass
        return frame

    async def refused(self, op: str, **given: Any) -> str:
        """The type of the error it is refused with."""
        answer = await self.ask(op, **given)
        assert "error" in answer, answer
        return str(answer["error"]["type"])

    async def claim(self, seat: str, channel_id: str, *, turn: int = 1, **more: Any) -> int:
        """Claim a turn of the seat's participant; return the line of the claim."""
        floor = {"speaker": seat, "turn": turn, "seq": 0}
        answer = await self.ask("claim", seat=seat, channel_id=channel_id, floor=floor, **more)
        return int(answer["result"]["claimed"]["claim"]["seq"])

    async def join(self, name: str, **passport: Any) -> str:
        """Register and take a seat; return the agent id."""
        registered = await self.ask("register", passport={"name": name, **passport})
        agent_id = str(registered["result"]["agent_id"])
        assert "error" not in await self.ask("attach", seat=agent_id)
        return agent_id

    async def is_usable(self) -> bool:
        """Whether a ping is answered; what comes before the answer is passed over."""
        await self.send({"kind": "ping", "n": 4711})
        while (frame := await self.receive())["kind"] != "pong":
            if frame["kind"] == "bye":
                return False
        return True


@asynccontextmanager
async def raw(url: str, token: str | None = None) -> AsyncIterator[Raw]:
    """A connection; with a token, one that has been let in."""
    async with connect(url, proxy=None, max_size=None, compression=None) as connection:
        client = Raw(connection)
        if token is not None:
            assert (await client.hello(token))["kind"] == "welcome"
        yield client


@asynccontextmanager
async def served(
    tokens: Tokens | None = None, settings: WsSettings | None = None, log: Log | None = None, **options: Any
) -> AsyncIterator[tuple[Hub, ServedWs]]:
    """A hub that is served; its clock stands still."""
    hub = await Hub.open(log or MemoryLog(), ttl_sweep_interval=0, clock=ManualClock(), **options)
    try:
        async with serve_ws(hub, authenticator=tokens, settings=settings) as serving:
            yield hub, serving
    finally:
        await hub.close()
