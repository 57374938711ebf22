"""Connections: how many there may be, and how long they may take to say what they want.

    accepted -> headers, in time -> a request -> its body, in time -> an answer -> headers again, or closed

Rule 1: there are fewer connections than descriptors, always. Where all are taken, the connection
that has waited longest without a request is closed for the new one. Until its socket is closed, asyncio
accepts up to `ACCEPTED_BACKLOGS` times the backlog. These connections have descriptors too.

Rule 2: the connections of one address that have not shown a token are limited. Behind a
trusted proxy the forwarded address counts, for each request (`limits.Addresses`).

Rule 3: a client reads in time. A connection that takes nothing of its answer for `stuck_seconds` is closed.

Rule 4: an answer arrives. A connection whose client is still sending is closed for writing, and what
comes is read and dropped for a moment: closed at once, it would be reset, and the answer be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final, cast

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from turnline.errors import UnknownName
from turnline.hub.governance import Counts
from turnline.server.answers import failure
from turnline.server.limits import CONNECTION_KEY
from turnline.server.problems import BAD_REQUEST, Answer
from turnline.server.settings import ServerSettings

logger = logging.getLogger(__name__)

RESERVED_DESCRIPTORS: Final = 128
"""For the log, the data and what the project's own code opens."""
MAX_REFUSED: Final = RESERVED_DESCRIPTORS // 2
"""Refused connections that are kept open until their clients have read why; further ones are cut."""
MAX_DESCRIPTORS: Final = 65_536
"""What the soft limit is raised to, where the hard one allows it."""
MAX_BACKLOG: Final = 2048
"""Connections that the kernel keeps until they are accepted; accepted at once, they need descriptors."""
ACCEPTED_BACKLOGS: Final = 3
"""Backlogs that asyncio accepts before the first of their connections has made another one close.

It accepts a backlog in each turn of the loop. A connection begins two turns after it was accepted, and the
socket of another one closes one turn later.
"""
WARN_SECONDS: Final = 60.0
"""Between two lines of the log that say that descriptors or connections ran out."""
_NO_DESCRIPTOR: Final = "socket.accept() out of system resource"


class Connections:
    """The connections of one server."""

    def __init__(self, settings: ServerSettings, *, descriptors: int) -> None:
        self.settings = settings
        self.backlog = min(MAX_BACKLOG, descriptors // 8)
        accepted = ACCEPTED_BACKLOGS * (self.backlog + 1)  # Newer versions of asyncio accept one more.
        self.most = max(1, min(settings.connections, descriptors - accepted - RESERVED_DESCRIPTORS))
        self.open: set[Guarded] = set()
        self._refused: set[Guarded] = set()
        self._idle: dict[Guarded, None] = {}
        """Those that wait for a request, the one that has waited longest first."""
        self._strangers = Counts()
        """Address -> its connections that have not shown a token."""
        self._trusted = [ip_network(one, strict=False) for one in settings.trusted_proxies]
        self._warned_at = -WARN_SECONDS

    def enter(self, one: Guarded, address: str) -> str:
        """Take a place for a connection; return what its client is told if there is none."""
        most = self.settings.connections_per_address
        if address and self._strangers[address] >= most:
            return (
                f"this address has {most} connections without a token already "
                f"(connections_per_address); close one, or send a token on each"
            )
        if len(self.open) >= self.most:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                self.warn(f"all {self.most} connections are in use (connections); one more was refused")
                return f"{self.most} connections are served already (connections); try again later"
            self.leave(oldest)
            oldest.end()
        self.open.add(one)
        if address and not self.is_proxy(address):
            self._strangers[address] += 1
            one.stranger_at = address
        return ""

    def may_linger(self, one: Guarded) -> bool:
        """Return whether a connection that gets no place may stay until its client has read why."""
        if len(self._refused) < MAX_REFUSED:
            self._refused.add(one)
        return one in self._refused

    def leave(self, one: Guarded) -> None:
        self.open.discard(one)
        self._refused.discard(one)
        self._idle.pop(one, None)
        self.forget_stranger(one)

    def forget_stranger(self, one: Guarded) -> None:
        """The connection has shown a token, or is gone: it does not count for its address any more."""
        address, one.stranger_at = one.stranger_at, ""
        if address:
            self._strangers[address] -= 1

    def note_idle(self, one: Guarded, *, is_idle: bool) -> None:
        if not is_idle:
            self._idle.pop(one, None)
        elif one in self.open:
            self._idle.setdefault(one)

    def is_proxy(self, address: str) -> bool:
        """Return whether this is the address of a trusted proxy."""
        try:
            return any(ip_address(address) in network for network in self._trusted)
        except ValueError:
            return False

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Say once a minute that there is no descriptor left; asyncio would write thousands of tracebacks."""
        if str(context.get("message", "")).startswith(_NO_DESCRIPTOR):
            self.warn("there is no file descriptor left for a connection; raise the limit (ulimit -n)")
        else:
            loop.default_exception_handler(dict(context))

    def warn(self, text: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._warned_at >= WARN_SECONDS:
            self._warned_at = now
            logger.warning("%s", text)


if TYPE_CHECKING:
    _Protocol = H11Protocol
else:
    _Protocol = object


class Guarded(_Protocol):
    """One connection, whose client has limited time for its headers and its body.

    A mixin of uvicorn's protocols: `GuardedH11` here, and `GuardedHttpTools` where httptools is installed.
    """

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, CONNECTION_KEY: self}, _loop)
        self.stranger_at = ""
        """The address for which it counts, until it has shown a token."""
        self._all = connections
        self._settings = connections.settings
        self._lingered: int | None = None
        """How much was dropped since the answer to a client that still sends; None: it does not linger."""
        self._timer: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        """Runs while the client does not read what waits for it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        lingering = _Lingering(cast("asyncio.Transport", transport), self)
        super().connection_made(cast("asyncio.Transport", lingering))
        refused = self._all.enter(self, self.client[0] if self.client else "")
        if refused:
            self.say("503 Service Unavailable", refused)
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        if self._lingered is not None:
            self._lingered += len(data)
            if self._lingered > self._settings.linger_bytes:
                self.end()
            return
        super().data_received(data)
        if self.transport.get_protocol() is self:
            self._watch()

    def pause_writing(self) -> None:
        """Give the client limited time to read what waits for it."""
        super().pause_writing()
        self._stuck = self.loop.call_later(self._settings.stuck_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stuck()

    @property
    def is_idle(self) -> bool:
        """Whether the next thing to come are the headers of a request."""
        raise NotImplementedError

    @property
    def has_begun(self) -> bool:
        """Whether some bytes of these headers have come."""
        raise NotImplementedError

    @property
    def is_sending(self) -> bool:
        """Whether the client has not sent all of a request's body."""
        raise NotImplementedError

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.is_sending:
            self.transport.close()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_stuck()
        self._all.leave(self)
        super().connection_lost(exc)

    def prepare_upgrade(self, method: bytes, names: Collection[bytes]) -> bool:
        """Return whether a WebSocket handshake can be handed over; if not, its client is told why."""
        self._stop_timer()
        self._stop_stuck()
        self._all.note_idle(self, is_idle=False)
        if method != b"GET" or not _BODY_HEADERS.isdisjoint(names):
            self.say("400 Bad Request", "a WebSocket handshake is a GET request without a body")
            return False
        self.transport = cast("_Lingering", self.transport).real
        return True

    def watch_upgrade(self) -> None:
        """Keep the place of a connection that was handed over, until it is lost.

        A handshake that the WebSocket library cannot read never reaches the app, and uvicorn does not answer
        it. So the time for headers runs until the app has the request (`note_websocket`).
        """
        upgraded = self.transport.get_protocol()
        lost = upgraded.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._stop_timer()
            self._all.leave(self)
            lost(exc)

        upgraded.connection_lost = connection_lost  # type: ignore[method-assign]
        self._timer = self.loop.call_later(self._settings.header_seconds, self.transport.close)

    def note_websocket(self) -> None:
        """Stop the time of the handshake: the app has the request."""
        self._stop_timer()

    def note_token(self) -> None:
        """A request on it has shown a good token."""
        self._all.forget_stranger(self)

    def linger(self, transport: asyncio.Transport) -> None:
        """Close for writing, and drop what comes for a while; or close, if nothing more can come."""
        if self._lingered is not None:
            return
        if not self.is_sending or transport.is_closing():
            transport.close()
        else:
            self._drop_the_rest(transport)

    def _drop_the_rest(self, transport: asyncio.Transport) -> None:
        self._lingered = 0
        self._unset_keepalive_if_required()
        self._stop_timer()
        self._timer = self.loop.call_later(self._settings.linger_seconds, self.end)
        self.flow.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()

    @property
    def is_lingering(self) -> bool:
        return self._lingered is not None

    def end(self) -> None:
        """Close, whatever its client does."""
        self._stop_timer()
        cast("_Lingering", self.transport).real.close()

    def _watch(self) -> None:
        """Start the time of the next headers, unless it runs; stop it during a request.

        A body has a time of its own (`server.body`), and so has a connection that is kept alive.
        """
        if self.transport.is_closing():
            return
        is_idle = self.is_idle
        self._all.note_idle(self, is_idle=is_idle)
        if is_idle and self.has_begun:
            self._unset_keepalive_if_required()
        if not is_idle or self.timeout_keep_alive_task is not None:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._settings.header_seconds, self._give_up_headers)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _give_up_headers(self) -> None:
        if self.has_begun:
            seconds = self._settings.header_seconds
            self.say("408 Request Timeout", f"the headers did not come in {seconds:g} s (header_seconds)")
        else:
            self.end()

    def say(self, status: str, because: str) -> None:
        """Answer before, or without, a request that can be read."""
        text = because.encode() + b".\n"
        head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + text)
        if self._all.may_linger(self):
            self._drop_the_rest(cast("_Lingering", self.transport).real)
        else:
            self.end()


class GuardedH11(Guarded, H11Protocol):
    """A connection whose requests h11 reads: where httptools is not installed."""

    @property
    def is_idle(self) -> bool:
        return self.conn.their_state is h11.IDLE

    @property
    def has_begun(self) -> bool:
        return bool(self.conn.trailing_data[0])

    @property
    def is_sending(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to the WebSocket library."""
        if self.prepare_upgrade(event.method, {name for name, _ in event.headers}):
            super().handle_websocket_upgrade(event)
            self.watch_upgrade()


class _Lingering:
    """A transport whose `close` lets its client read the answer first. Everything else is as it was."""

    def __init__(self, real: asyncio.Transport, connection: Guarded) -> None:
        self.real = real
        self._connection = connection

    def close(self) -> None:
        self._connection.linger(self.real)

    def is_closing(self) -> bool:
        return self._connection.is_lingering or self.real.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class OneLength:
    """An ASGI app around another one: it ends the connection of a request whose length is said in two ways.

    It also tells a connection that its WebSocket handshake has arrived.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            connection = cast("Guarded", scope["state"][CONNECTION_KEY])
            connection.note_websocket()
        names = {name for name, _ in scope.get("headers", ())}
        if scope["type"] == "http" and names >= _BODY_HEADERS:
            message = "Content-Length and Transfer-Encoding stand in one request; send one of them."
            answer = Answer(status=BAD_REQUEST, type="bad_request", message=message, headers=_CLOSE)
            await failure(answer)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


_CLOSE: Final = {"Connection": "close"}
_BODY_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


def trusted_proxies(given: Sequence[str]) -> tuple[str, ...]:
    """Return addresses and networks as given. Raises `UnknownName` for what is neither."""
    for one in given:
        try:
            ip_network(one, strict=False)
        except ValueError:
            raise UnknownName("address or network", one, ["10.0.0.7", "10.0.0.0/8"]) from None
    return tuple(given)


def descriptors() -> int:
    """Return how many descriptors this process may have, after raising its soft limit."""
    try:
        import resource  # noqa: PLC0415  There is none on Windows.
    except ImportError:
        return MAX_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
        return soft
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
