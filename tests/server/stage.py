"""A server in the same process: flows written as YAML, nodes written as functions, callers with tokens.

async with served("{trigger: {path: /hello}, steps: [{id: greet, runner: greet}]}", greet=greet) as server:
    answer = await server.post("/hello", {"name": "Ann"})
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import httpx2
import msgspec
from starlette.applications import Starlette

from tests.flow.stage import SAFETY_SECONDS, flows_of
from tests.logs import new_log
from turnline.agent.agent import Agent
from turnline.core.envelope import JsonObject
from turnline.errors import Unauthenticated
from turnline.flow.work import Services
from turnline.hub.timers import Clock
from turnline.log.base import Log
from turnline.server.app import create_app
from turnline.server.auth.authenticator import Authenticator
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.principal import Principal
from turnline.server.runtime import Runtime
from turnline.server.settings import ServerSettings
from turnline.testing.manual_clock import ManualClock

Ctx = dict[str, Any]
Response = httpx2.Response
EDGE: Final = "edge9"
"""The boundary of forms."""


def person(user_id: str, *scopes: str, groups: Iterable[str] = ()) -> Principal:
    return Principal(user_id=user_id, scopes=frozenset(scopes), groups=frozenset(groups))


PEOPLE: Final = {
    "root": person("root", "*", groups=["sales"]),
    "ann": person("ann", "runs:start:*"),
    "bob": person("bob", "runs:start:other"),
    "reader": person("reader", "runs:read"),
    "seller": person("seller", "tasks:read", "tasks:answer", groups=["sales"]),
    "carol": person("carol", "channels:read", "channels:write"),
    "dave": person("dave", "channels:read", "channels:write"),
    "onlooker": person("onlooker", "channels:read"),
    "buyer": person("buyer", "tasks:read", "tasks:answer", groups=["purchase"]),
}
"""Token -> whose it is."""


@contextmanager
def known(**people: Principal) -> Iterator[None]:
    """Let these people in, by the tokens that are their names here."""
    PEOPLE.update(people)
    try:
        yield
    finally:
        for token in people:
            PEOPLE.pop(token, None)


class KnownTokens:
    """See `Authenticator`. A token is a name in `PEOPLE`."""

    async def authenticate(self, credentials: Credentials) -> Principal:
        if credentials.token not in PEOPLE:
            raise Unauthenticated("the token is not known")
        return PEOPLE[credentials.token]


class Server:
    """A client of an app, and what is behind the app."""

    def __init__(self, app: Starlette, runtime: Runtime, client: httpx2.AsyncClient, clock: Clock) -> None:
        self.app = app
        self.runtime = runtime
        self.client = client
        self._clock = clock

    @property
    def clock(self) -> ManualClock:
        assert isinstance(self._clock, ManualClock)
        return self._clock

    async def post(self, path: str, body: object = None, *, token: str = "root", **headers: str) -> Response:
        return await self.send("POST", path, body, token=token, **headers)

    async def get(self, path: str, *, token: str = "root", **headers: str) -> Response:
        return await self.send("GET", path, token=token, **headers)

    async def send(
        self, method: str, path: str, body: object = None, *, token: str = "root", **headers: str
    ) -> Response:
        """Send JSON; bytes go as they are. `Prefer_x="y"` is the header `Prefer-x: y`."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        if body is not None and "Content-Type" not in given:
            given["Content-Type"] = "application/json"
        content = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        return await self.client.request(method, path, content=content, headers=given)

    async def ended(self, run_id: str) -> JsonObject:
        """The run, once it is over."""
        runs = self.runtime.runs
        while not (state := await runs.state(run_id)).is_over:
            await runs.wait_beyond(run_id, state.seq)
        found: JsonObject = (await self.get(f"/runs/{run_id}")).json()["data"]
        return found

    async def waiting(self, run_id: str) -> str:
        """Wait until the run waits; return what for."""
        while (state := await self.runtime.runs.state(run_id)).pause is None:
            await self.runtime.runs.wait_beyond(run_id, state.seq)
        return state.pause.reason

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.runtime.hub.tick()

    async def audited(self, what: str) -> list[JsonObject]:
        lines = await self.runtime.hub.audit_log.read_all()
        return [line.event_data for line in lines if line.event_type == f"audit.{what}"]


def form(*parts: tuple[str, str | None, str, bytes], end: bytes = b"--") -> bytes:
    """Return a form of (name, filename, media type, content)."""
    body = b""
    for name, filename, media, content in parts:
        file = "" if filename is None else f'; filename="{filename}"'
        kind = f"Content-Type: {media}\r\n" if media else ""
        head = f'--{EDGE}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n{kind}\r\n'
        body += head.encode() + content + b"\r\n"
    return body + f"--{EDGE}".encode() + end + b"\r\n"


def runtime_with(
    *flows: str,
    log: Callable[[], Log] = new_log,
    clock: Clock | None = None,
    quotas: Mapping[str, int] | None = None,
    agents: Iterable[Agent] = (),
    **nodes: Callable[[Any], Any],
) -> Runtime:
    known = {agent.name: agent for agent in agents}
    services, clock = Services(flows=flows_of(*flows), nodes=nodes, agents=known), clock or ManualClock()
    return Runtime(services, open_log=log, clock=clock, quotas=quotas, sweep_seconds=0, grace_seconds=0)


@asynccontextmanager
async def served(
    *flows: str,
    log: Callable[[], Log] = new_log,
    clock: Clock | None = None,
    settings: ServerSettings | None = None,
    authenticator: Authenticator | None = None,
    quotas: Mapping[str, int] | None = None,
    agents: Iterable[Agent] = (),
    **nodes: Callable[[Any], Any],
) -> AsyncIterator[Server]:
    """An app that serves `flows`, started and stopped as a server does it."""
    runtime = runtime_with(*flows, log=log, clock=clock, quotas=quotas, agents=agents, **nodes)
    app = create_app(runtime, authenticator=authenticator or KnownTokens(), settings=settings)
    transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 4711))
    async with (
        asyncio.timeout(SAFETY_SECONDS),
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://server") as client,
    ):
        yield Server(app, runtime, client, runtime.clock)


class Listening:
    """A stream as it arrives: one request to the app, whose answer is read piece by piece."""

    def __init__(self, app: Starlette, path: str, *, token: str = "root", **headers: str) -> None:
        given = {"authorization": f"Bearer {token}", **{k.replace("_", "-"): v for k, v in headers.items()}}
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.lower().encode(), text.encode()) for name, text in given.items()],
            "client": ("127.0.0.1", 4711),
            "server": ("server", 80),
        }
        self._app = app
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = asyncio.Semaphore(0)
        self.status = 0
        self.answered = asyncio.Event()
        """Set once the status is known."""
        self.ended = asyncio.Event()
        """Set once the app has nothing further to say."""
        self.headers: dict[str, str] = {}
        self._task = asyncio.create_task(self._run())

    async def next(self) -> str:
        """The next piece of the stream; empty at its end."""
        self._room.release()
        return (await self._pieces.get()).decode()

    async def rest(self) -> list[str]:
        found = []
        while piece := await self.next():
            found.append(piece)
        return found

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        await self._app(self._scope, self._receive, self._send)
        self.ended.set()

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): text.decode() for name, text in message["headers"]}
            self.answered.set()
            return
        await self._room.acquire()  # Nobody reads faster than the test does.
        self._pieces.put_nowait(message.get("body", b""))
