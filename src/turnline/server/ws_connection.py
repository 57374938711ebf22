"""One connection of a client: hello, then frames both ways, then bye.

    hello within 5 s -> who is it -> presence -> requests in, answers and news out -> bye

Rule 1: nothing but a hello is taken from somebody who has not said who it is.

Rule 2: a frame that is none is refused and the connection goes on, up to a number of
times; then it is closed. Nobody is left waiting.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, Protocol

from turnline.client.frames import (
    SMALLEST_FRAME_BYTES,
    VERSION,
    Ack,
    Bye,
    Cancel,
    Frame,
    FromClient,
    Hello,
    Part,
    Ping,
    Pong,
    Refusal,
    Request,
    Text,
    Welcome,
    decode_from_client,
    encode,
)
from turnline.client.parts import Joining, split
from turnline.client.told_errors import told
from turnline.errors import (
    AccessBusy,
    BadFrame,
    Forbidden,
    LogError,
    TurnlineError,
    Unauthenticated,
)
from turnline.hub.timers import Clock
from turnline.server.auth.authenticator import until_refused
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.principal import Principal
from turnline.server.ws_outbox import Outbox
from turnline.server.ws_presence import Presence
from turnline.server.ws_settings import WsCounters, WsSettings
from turnline.threads import off_the_loop

logger = logging.getLogger(__name__)

BYE_SECONDS: Final = 1.0
"""How long a bye may take to go out."""


class WireClosed(Exception):
    """The other side has gone."""


class Wire(Protocol):
    """One WebSocket connection, accepted."""

    @property
    def credentials(self) -> Credentials:
        """What came with the handshake, and from where."""
        ...

    async def receive(self) -> str | bytes:
        """Return the next message. Raises `WireClosed`."""
        ...

    async def send(self, text: str) -> None:
        """Return once the connection has taken it. Raises `WireClosed`."""
        ...

    async def close(self, reason: str) -> None: ...

    def note_token(self) -> None:
        """The client has said who it is."""
        ...


class Door(Protocol):
    """What a connection needs of the door it came in by."""

    settings: WsSettings
    counters: WsCounters

    async def admit(self, credentials: Credentials) -> Principal: ...

    def enter(self, hello: Hello, principal: Principal, outbox: Outbox) -> tuple[Presence, bool]: ...

    def left(self, presence: Presence, outbox: Outbox, *, for_good: bool) -> None: ...


class Connection:
    """One connection of one client."""

    def __init__(self, door: Door, wire: Wire, outbox: Outbox, clock: Clock) -> None:
        self.outbox = outbox
        self._clock = clock
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._door = door
        self._settings = door.settings
        self._wire = wire
        self._joining = Joining(door.settings.payload_bytes)
        self._frame_bytes = SMALLEST_FRAME_BYTES
        self._parts = 0
        self._refused = 0
        self._credentials = wire.credentials
        self._for_good = False
        self._refusal: Bye | None = None
        """The last frame, for a client whose token holds no more."""

    async def talk(self) -> None:
        """Until one side has had enough."""
        try:
            await self._talk()
        except WireClosed:
            pass
        except Exception:
            logger.exception("a connection ended")
        finally:
            with suppress(Exception):
                async with asyncio.timeout(BYE_SECONDS):
                    await self._wire.close("")
            self.over.set_result(None)

    async def _talk(self) -> None:
        try:
            async with asyncio.timeout(self._settings.hello_seconds):
                hello, principal = await self._greeted()
            presence, is_back = self._door.enter(hello, principal, self.outbox)
        except (TurnlineError, TimeoutError) as error:
            self._door.counters.turned_away += 1
            await say_bye(self._wire, _not_let_in(error))
            return
        try:
            self._wire.note_token()
            self._frame_bytes = hello.frame_bytes
            self._welcome(presence, is_back=is_back)
            await self._both_ways(presence)
        finally:
            # A client whose token holds no more cannot come back for its seats, and may not end its requests.
            self._door.left(presence, self.outbox, for_good=self._for_good or self._refusal is not None)

    async def _greeted(self) -> tuple[Hello, Principal]:
        hello = decode_from_client(await self._wire.receive())
        if not isinstance(hello, Hello):
            raise BadFrame("the first frame is not a hello")
        if hello.version != VERSION:
            raise BadFrame(f"version {hello.version} is not spoken here; expected {VERSION}")
        if min(hello.frame_bytes, hello.payload_bytes) < SMALLEST_FRAME_BYTES:
            raise BadFrame(f"a client takes at least {SMALLEST_FRAME_BYTES} bytes")
        if hello.token:
            self._credentials = Credentials(hello.token, peer=self._credentials.peer)
        return hello, await self._door.admit(self._credentials)

    def _welcome(self, presence: Presence, *, is_back: bool) -> None:
        self._put(
            Welcome(
                version=VERSION,
                presence=presence.id,
                frame_bytes=self._settings.frame_bytes,
                payload_bytes=self._settings.payload_bytes,
                requests=self._settings.requests,
                grace_seconds=self._settings.grace_seconds,
                resumed=is_back,
            )
        )

    async def _both_ways(self, presence: Presence) -> None:
        work = (self._read(presence), self._write(), self._look_again(presence), self.outbox.ended.wait())
        tasks = [asyncio.ensure_future(one) for one in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
        if self.outbox.ended.is_set():
            await say_bye(self._wire, self._refusal or Bye(reason=self.outbox.reason))
        for one in done:
            if isinstance(one, Exception) and not isinstance(one, WireClosed):
                raise one

    async def _read(self, presence: Presence) -> None:
        while not self._for_good:
            await self.outbox.room()
            message = await self._wire.receive()
            try:
                frame = await self._decoded(message)
                if isinstance(frame, Request):
                    await presence.learn_seats(frame)
                if frame is not None:
                    self._take(frame, presence)
            except BadFrame as error:
                self._refuse(error)
            except LogError:  # Its seats are not known to be lost: the client comes back and asks again.
                self.outbox.end("log_away")

    async def _decoded(self, message: str | bytes) -> FromClient | None:
        frame = await _read_frame(message)
        if not isinstance(frame, Part):
            return frame
        whole = self._joining.take(frame)
        return None if whole is None else await _read_frame(whole)

    def _take(self, frame: FromClient, presence: Presence) -> None:
        match frame:
            case Request():
                presence.ask(frame)
            case Cancel(id=request_id):
                presence.cancel(request_id)
            case Ack(ids=ids):
                presence.acknowledge(ids)
            case Text():
                presence.hear(frame)
            case Ping(n=n):
                self._put(Pong(n=n))
            case Bye():
                self._for_good = True
            case Hello() | Part():
                raise BadFrame("it may not come now")

    def _refuse(self, error: BadFrame) -> None:
        self._refused += 1
        self._door.counters.refused_frames += 1
        if self._refused > self._settings.bad_frames:
            self.outbox.end("bad_frames")
        else:
            self._put(Refusal(error=told(error)))

    async def _write(self) -> None:
        while True:
            text = await self.outbox.next()
            self._parts += 1
            try:
                for piece in split(text, self._frame_bytes, f"p{self._parts}"):
                    async with asyncio.timeout(self._settings.stuck_seconds):
                        await self._wire.send(piece)
            except TimeoutError:
                self._door.counters.slow += 1
                self.outbox.end("too_slow")
                return
            self.outbox.sent(text)

    async def _look_again(self, presence: Presence) -> None:
        """End the connection once its token has expired or was revoked."""

        async def admit() -> None:
            presence.principal = await self._door.admit(self._credentials)

        error = await until_refused(admit, self._clock, every_seconds=self._settings.recheck_seconds)
        self._refusal = _not_let_in(error)
        self.outbox.end(self._refusal.reason)

    def _put(self, frame: Frame) -> None:
        self.outbox.put(encode(frame))


async def _read_frame(text: str | bytes) -> FromClient:
    return await off_the_loop(decode_from_client, text, size=len(text))


async def say_bye(wire: Wire, bye: Bye) -> None:
    """The last word, if the other side still takes it."""
    with suppress(WireClosed, TimeoutError):
        async with asyncio.timeout(BYE_SECONDS):
            await wire.send(encode(bye))
            await wire.close(bye.reason)


def _not_let_in(error: Exception) -> Bye:
    match error:
        case TimeoutError():
            return Bye(reason="unauthenticated", error=told(Unauthenticated("no hello came in time")))
        case Unauthenticated():
            return Bye(reason="unauthenticated", error=told(error))
        case Forbidden():
            return Bye(reason="forbidden", error=told(error))
        case AccessBusy():
            return Bye(reason="too_many", error=told(error))
        case BadFrame():
            reason = "version" if "version" in error.because else "bad_frames"
            return Bye(reason=reason, error=told(error))
        case _:
            return Bye(reason="closing", error=told(error))
