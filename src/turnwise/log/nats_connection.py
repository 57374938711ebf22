"""One connection to the servers of a `NatsLog`, in one event loop.

    ask       a question to JetStream, asked again until it is answered or patience ends
    publish   one attempt to write, whose outcome may be unknown

Rule 1: nothing is held back while the servers cannot be reached: what was not
sent is known not to be sent.

Rule 2: what the servers or nats-py raise becomes `LogUnavailable`; a definite
refusal is `Refused`, for the caller to judge. Neither names credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error

from turnwise.errors import LogUnavailable
from turnwise.log.nats_address import NatsAddress

ATTEMPT_SECONDS: Final = 2.0
"""How long one request may go unanswered before it is made again."""
PAUSE_SECONDS: Final = 0.05
PING_SECONDS: Final = 2
MAX_MISSED_PINGS: Final = 2
"""A server that is paused, not dead, is left for another one after so many."""
RECONNECT_SECONDS: Final = 1
UNAVAILABLE: Final = 503
"""What JetStream answers while it has no leader."""

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


class Patience:
    """How long to go on trying."""

    def __init__(self, address: str, *, seconds: float) -> None:
        self._address = address
        self._until = asyncio.get_running_loop().time() + seconds

    async def pause(self, because: str) -> None:
        """Wait a little, or raise `LogUnavailable` when patience has ended."""
        if asyncio.get_running_loop().time() >= self._until:
            raise LogUnavailable(self._address, because=because)
        await asyncio.sleep(PAUSE_SECONDS)


class Connection:
    """Made when it is first needed, and again whenever it was given up."""

    def __init__(self, address: NatsAddress, *, patience_seconds: float) -> None:
        self.address = address
        self.patience_seconds = patience_seconds
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._last_error = ""

    def patience(self) -> Patience:
        return Patience(self.address.text, seconds=self.patience_seconds)

    async def client(self) -> Client:
        """Return the connected client. Raises `LogUnavailable`."""
        async with self._connecting:
            if self._closed:
                raise self.unavailable("it has been closed")
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
            return self._client

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
        if self._client is not None:
            await self._client.close()

    def unavailable(self, because: str) -> LogUnavailable:
        return LogUnavailable(self.address.text, because=because)

    async def _request(self, subject: str, body: bytes, headers: dict[str, Any] | None, answer: type[A]) -> A:
        client = await self.client()
        reply = await client.request(subject, body, timeout=ATTEMPT_SECONDS, headers=headers)
        found = msgspec.json.decode(reply.data, type=answer)
        if found.error is None:
            return found
        if found.error.code == UNAVAILABLE:
            raise Error(found.error.description)
        raise Refused(found.error)

    async def _connect(self) -> Client:
        client = Client()
        try:
            async with asyncio.timeout(self.patience_seconds):
                await client.connect(
                    servers=self.address.servers,
                    error_cb=self._note,
                    name="turnwise",
                    user=self.address.user,
                    password=self.address.password,
                    token=self.address.token,
                    connect_timeout=round(ATTEMPT_SECONDS),
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_SECONDS,
                    ping_interval=PING_SECONDS,
                    max_outstanding_pings=MAX_MISSED_PINGS,
                    pending_size=0,
                )
        except NATS_RAISES as error:
            await client.close()
            raise self.unavailable(self._last_error or reason(error)) from None
        except asyncio.CancelledError:
            await client.close()
            raise
        return client

    async def _note(self, error: Exception) -> None:
        # Without this, nats-py writes what happens to a connection into the program's log.
        self._last_error = reason(error)


def reason(error: BaseException) -> str:
    """Say what went wrong, for people."""
    if isinstance(error, asyncio.TimeoutError):
        return "its servers did not answer in time"
    return str(error).removeprefix("nats: ") or type(error).__name__
