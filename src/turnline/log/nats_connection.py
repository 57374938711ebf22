"""One connection to the servers of a `NatsLog`, in one event loop.

    ask       a question to JetStream, asked again until it is answered or patience ends
    publish   one attempt to write, whose outcome may be unknown

Rule 1: nothing is held back while the servers cannot be reached: what was not
sent is known not to be sent.

Rule 2: what the servers or nats-py raise becomes `LogUnavailable`; a definite
refusal is `Refused`, for the caller to judge. Neither names credentials.

Rule 3: a client of nats-py serves one connection. Left to connect again by
itself it leaves the sockets of failed attempts open; so each attempt has a
client of its own, which is closed when the attempt fails.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import Task
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error, NoRespondersError

from turnline.errors import LogUnavailable
from turnline.log.nats_address import NatsAddress

ATTEMPT_SECONDS: Final = 2.0
"""How long one request may go unanswered before it is made again."""
PAUSE_SECONDS: Final = 0.05
PING_SECONDS: Final = 2
MAX_MISSED_PINGS: Final = 2
"""A server that is paused, not dead, is left for another one after so many."""
UNAVAILABLE: Final = 503
"""What JetStream answers while it has no leader."""
NO_JETSTREAM: Final = (10039, 10076)
"""What it answers where it is not enabled: for the account, on the server."""
ENABLE: Final = "set `jetstream { sync_interval: always }` in the configuration of each server"
NOT_LET_IN: Final = "authorization violation"
"""What a server says to wrong credentials, which no patience mends."""

NATS_RAISES: Final = (Error, OSError, asyncio.TimeoutError)


class Failure(Struct, frozen=True):
    """Why JetStream did not do it."""

    code: int
    err_code: int = 0
    description: str = ""


class Answer(Struct, frozen=True):
    """What every answer of JetStream may say."""

    error: Failure | None = None


class Written(Answer, frozen=True):
    """JetStream has a message, now or from before."""

    seq: int = 0
    duplicate: bool = False


class Refused(Exception):
    """JetStream understood, and did not do it."""

    def __init__(self, failure: Failure) -> None:
        self.err_code = failure.err_code
        self.description = failure.description
        super().__init__(f"{failure.description} ({failure.err_code})")


A = TypeVar("A", bound=Answer)
T = TypeVar("T")


class Patience:
    """How long to go on trying."""

    def __init__(self, address: str, *, seconds: float, leave: Callable[[], Awaitable[None]]) -> None:
        self._address = address
        self._leave = leave
        self._until = asyncio.get_running_loop().time() + seconds

    async def pause(self, because: str) -> None:
        """Wait a little. When patience has ended, leave the server, which may be the one that is cut off
        from the others, and raise `LogUnavailable`."""
        if asyncio.get_running_loop().time() >= self._until:
            await self._leave()
            raise LogUnavailable(self._address, because=because)
        await asyncio.sleep(PAUSE_SECONDS)


class Connection:
    """Made when it is first needed, and again whenever it was given up."""

    def __init__(self, address: NatsAddress, *, patience_seconds: float) -> None:
        self.address = address
        self.patience_seconds = patience_seconds
        self._client: Client | None = None
        self._connecting: Task[Client] | None = None
        self._closed = False
        self._last_error = ""

    def patience(self) -> Patience:
        return Patience(self.address.text, seconds=self.patience_seconds, leave=self._leave)

    async def client(self) -> Client:
        """Return a connected client. Raises `LogUnavailable` when patience ends."""
        patience = self.patience()
        while True:
            try:
                return await self._connected()
            except NATS_RAISES as error:
                await patience.pause(reason(error))

    async def ask(self, what: str, request: Mapping[str, object], answer: type[A]) -> A:
        """Return what JetStream answers. Raises `Refused`, and `LogUnavailable` when patience ends."""
        patience = self.patience()
        body = msgspec.json.encode(request) if request else b""
        while True:
            try:
                return await self._request(f"$JS.API.{what}", body, None, answer)
            except NATS_RAISES as error:
                await patience.pause(reason(error))

    async def publish(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> Written:
        """Try once to write a message. Raises `Refused`, and one of `NATS_RAISES` when nobody knows."""
        return await self._request(subject, payload, dict(headers) or None, Written)

    async def put(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> None:
        """Write a message that may as well be written twice. Raises `Refused` and `LogUnavailable`."""
        patience = self.patience()
        while True:
            try:
                await self.publish(subject, payload, headers)
            except NATS_RAISES as error:
                await patience.pause(reason(error))
            else:
                return

    async def max_payload(self) -> int:
        """Return how many bytes a message may have, headers included."""
        return (await self.client()).max_payload

    async def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._client is not None:
            await _close(self._client)

    async def _leave(self) -> None:
        if self._client is not None:
            await _close(self._client)

    def unavailable(self, because: str) -> LogUnavailable:
        return LogUnavailable(self.address.text, because=because)

    async def _request(self, subject: str, body: bytes, headers: dict[str, Any] | None, answer: type[A]) -> A:
        client = await self._connected()
        reply = await heeding(client.request(subject, body, timeout=ATTEMPT_SECONDS, headers=headers))
        found = msgspec.json.decode(reply.data, type=answer)
        if found.error is None:
            return found
        if found.error.code == UNAVAILABLE:
            do = f"; {ENABLE}, and for the account" if found.error.err_code in NO_JETSTREAM else ""
            raise Error(f"{found.error.description}{do}")
        raise Refused(found.error)

    async def _connected(self) -> Client:
        """Return a connected client. Raises one of `NATS_RAISES` if no server answers just now."""
        if self._closed:
            raise self.unavailable("it has been closed")
        if self._client is not None and not self._client.is_closed:
            return self._client
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._tried)
        trying = self._connecting
        await asyncio.wait([trying])
        if trying.cancelled():
            raise self.unavailable("it has been closed")
        return trying.result()

    def _tried(self, trying: Task[Client]) -> None:
        self._connecting = None
        if not trying.cancelled() and trying.exception() is None:
            self._client = trying.result()

    async def _connect(self) -> Client:
        """Try every server once, in any order: those of the address, and those the last one told of."""
        told = [] if self._client is None else [server.geturl() for server in self._client.servers]
        servers = sorted({*self.address.servers, *told})
        failure: Exception = Error("it names no server")
        for server in random.sample(servers, len(servers)):
            try:
                return await self._connect_to(server)
            except NATS_RAISES as error:
                failure = Error(self._last_error or reason(error))
            if NOT_LET_IN in str(failure).lower():
                do = "check the user and the password, or the token, in the address"
                raise self.unavailable(f"the server says {failure}; {do}")
        raise failure

    async def _connect_to(self, server: str) -> Client:
        client = Client()
        self._last_error = ""
        try:
            await client.connect(
                servers=[server],
                error_cb=self._note,
                name="turnline",
                user=self.address.user,
                password=self.address.password,
                token=self.address.token,
                connect_timeout=round(ATTEMPT_SECONDS),
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                ping_interval=PING_SECONDS,
                max_outstanding_pings=MAX_MISSED_PINGS,
                pending_size=0,
            )
        except BaseException:
            await _close(client)
            raise
        return client

    async def _note(self, error: Exception) -> None:
        # Without this, nats-py writes what happens to a connection into the program's log.
        self._last_error = reason(error)


async def _close(client: Client) -> None:
    with suppress(*NATS_RAISES):  # Its last words may have nobody to go to.
        await client.close()


async def heeding(waiting: Awaitable[T]) -> T:
    """Wait for something of nats-py's, and be cancelled when this is.

    It waits with `asyncio.wait_for`, which on Python 3.11 loses a cancellation that comes with the result.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        return await waiting
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


def server_version(client: Client) -> str:
    """What the server says it is: `2.11.0`."""
    return repr(client.connected_server_version).removeprefix("<nats server v").removesuffix(">")


def reason(error: BaseException) -> str:
    """Say what went wrong, for people."""
    if isinstance(error, asyncio.TimeoutError):
        return "its servers did not answer in time"
    if isinstance(error, NoRespondersError):
        return f"a server is there, and no JetStream; {ENABLE}"
    if isinstance(error, OSError):
        return f"no server can be reached ({error.strerror or error}); start it, or correct the address"
    return str(error).removeprefix("nats: ") or type(error).__name__
