"""Calls: requests over a WebSocket that are answered, whatever happens to the connection.

    ask -> pending -> sent -> (cut, connected, sent again) -> answered

Rule 1: a request keeps its id until it is answered, however often it is sent, so whoever
answers it does it once.

Rule 2: whoever waits, waits through a reconnect. Only what no reconnect can mend ends it:
the link is closed, or the server does not let this client in.

Rule 3: after a cut the seats come first, with how far each has been told of its channels;
then what is pending, in the order in which it was asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from turnline.client.backoff import Backoff
from turnline.client.frames import (
    FRAME_BYTES,
    PAYLOAD_BYTES,
    VERSION,
    Ack,
    Answer,
    Bye,
    Cancel,
    Frame,
    FromServer,
    Hello,
    Part,
    Ping,
    Pong,
    Refusal,
    Request,
    Text,
    Told,
    Wake,
    Welcome,
    check_readable,
    converted,
    decode_from_server,
    encode,
)
from turnline.client.parts import Joining, check_size, split
from turnline.client.told_errors import raised
from turnline.client.ws_wire import Connect, Wire
from turnline.core.envelope import JsonObject
from turnline.errors import BadFrame, LinkError, LinkLost, TurnlineError
from turnline.hub.timers import Clock, NewId

logger = logging.getLogger(__name__)

HELLO_SECONDS: Final = 10.0
"""How long a server may take to let a client in."""
BYE_SECONDS: Final = 1.0
"""How long closing waits for a server that does not read."""
ANSWERS_PER_ACK: Final = 32
UNSENT_WORDS: Final = 1_000
KEPT_PRESENCES: Final = 16
"""Earlier presences that a client remembers: a server that still has one of them gives up its seats."""
_FATAL: Final = frozenset({"unauthenticated", "forbidden", "version"})
"""Reasons of a bye after which coming back is no use."""


class Owner(Protocol):
    """Who makes the calls: it is told what the server says unasked."""

    def woken(self, wake: Wake) -> None: ...

    def heard(self, words: Text) -> None: ...

    def seats(self) -> dict[str, dict[str, int]]:
        """Return how far each seat has been told of its channels."""
        ...

    def lost(self, agent_id: str, error: TurnlineError) -> None:
        """The seat could not be taken again."""
        ...

    def came_back(self) -> None:
        """The connection is new, and the seats are taken again."""
        ...


class _NotLetIn(Exception):
    """Coming back is no use."""

    def __init__(self, error: TurnlineError) -> None:
        self.error = error


class _Call:
    """A request, and who waits for its answer."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()


class Calls:
    """The requests of one link."""

    def __init__(
        self,
        owner: Owner,
        connect: Connect,
        *,
        token: str,
        new_id: NewId,
        clock: Clock,
        chance: Callable[[], float],
        backoff: Backoff,
        open_seconds: float,
    ) -> None:
        self._owner = owner
        self._connect = connect
        self._token = token
        self._new_id = new_id
        self._clock = clock
        self._chance = chance
        self._backoff = backoff
        self._open_seconds = open_seconds
        self._presence = ""
        self._earlier: deque[str] = deque(maxlen=KEPT_PRESENCES)
        """Presences that this client had before, perhaps at other servers."""
        self._payload_bytes = PAYLOAD_BYTES
        self._frame_bytes = FRAME_BYTES
        self._pending: dict[str, _Call] = {}
        self._unsent: deque[Frame] = deque()
        self._words: deque[Text] = deque()
        self._changed = asyncio.Event()
        self._sent = asyncio.Event()
        """Set while nothing waits to be sent."""
        self._answered: list[str] = []
        self._parts = 0
        self._resuming = ""
        self._attempts = 0
        self._running: asyncio.Task[None] | None = None
        self._is_up = False
        self._closed = False
        self.dropped_words = 0
        self.connections = 0
        """How often a server has let this client in."""

    # Asking.

    async def ask(self, op: str, *, seat: str = "", args: JsonObject | None = None) -> Answer:
        """Return the answer, however long it takes. Raises what the hub raised, and `LinkLost`."""
        call = self._begin(op, seat, args)
        try:
            answer = await call.answer
        except asyncio.CancelledError:
            if self._pending.pop(call.request.id, None) is not None and self._is_up:
                self._send(Cancel(id=call.request.id))
            raise
        if answer.error is not None:
            raise raised(answer.error)
        return answer

    def ask_soon(self, op: str, *, seat: str = "", args: JsonObject | None = None) -> None:
        """Ask, and do not wait: nobody reads the answer."""
        if not self._closed:
            self._begin(op, seat, args).answer.add_done_callback(_look_away)

    def tell(self, words: Text) -> None:
        """Send words of a turn in flight, if somebody is there; they are not sent again."""
        with suppress(BadFrame):
            check_readable(words.text)
            if self._is_up and len(self._words) < UNSENT_WORDS:
                self._words.append(words)
                self._changed.set()
                return
        self.dropped_words += 1

    def fail(self, seat: str, error: TurnlineError) -> None:
        """Nothing that was asked as this seat will be answered."""
        for request_id, call in list(self._pending.items()):
            if call.request.seat == seat:
                self._end(request_id, error)

    async def settle(self, op: str) -> None:
        """Wait for the answers to these, for a moment."""
        waiting = [one.answer for one in self._pending.values() if one.request.op == op]
        if waiting:
            await asyncio.wait(waiting, timeout=BYE_SECONDS)

    async def close(self) -> None:
        """Say bye, once what was asked of the server without waiting has gone out."""
        if self._closed:
            return
        self._closed = True
        if self._is_up:
            await self.settle("leave")
            self._send(Bye(reason="closed"))
            with suppress(TimeoutError):
                async with asyncio.timeout(BYE_SECONDS):
                    await self._sent.wait()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self._fail(LinkLost("it was closed"))

    def _begin(self, op: str, seat: str, args: JsonObject | None) -> _Call:
        if self._closed:
            raise LinkLost("it was closed")
        plain = msgspec.to_builtins(args or {})
        check_readable(plain)  # The server would refuse the frame, and nobody would be answered.
        call = _Call(Request(id=self._new_id(), op=op, seat=seat, args=plain))
        self._pending[call.request.id] = call
        if self._is_up:
            self._send(call.request)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return call

    # The connection.

    async def _run(self) -> None:
        began = self._clock.monotonic()
        while True:
            try:
                await self._connected()
            except _NotLetIn as refused:
                logger.warning("the hub does not let this client in: %s", refused.error)
                self._fail(refused.error)
                return
            except LinkError as error:
                self._attempts += 1
                late = self._clock.monotonic() - began > self._open_seconds
                if not self.connections and late:
                    self._fail(LinkLost(f"no server answered in {self._open_seconds:g} s ({error.because})"))
                    return
                logger.debug("attempt %d: %s", self._attempts, error)
            except Exception:  # Whatever it was, nobody may be left waiting.
                self._fail(LinkLost("something is wrong with this end of it"))
                raise
            await self._clock.sleep(self._backoff.pause(self._attempts, self._chance()))

    async def _connected(self) -> None:
        wire = await self._connect()
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                await wire.send(encode(Hello(version=VERSION, token=self._token, presence=self._presence)))
                self._welcomed(decode_from_server(await wire.recv()))
            self._take_up()
            await self._both_ways(wire)
        except TimeoutError:
            raise LinkLost(f"the server has not answered within {HELLO_SECONDS:g} s") from None
        finally:
            self._is_up = False
            self._unsent.clear()
            self._words.clear()
            self._sent.set()
            await wire.close()

    def _welcomed(self, frame: FromServer) -> None:
        match frame:
            case Welcome():
                if self._presence not in ("", frame.presence):
                    self._earlier.append(self._presence)
                self._presence = frame.presence
                self._payload_bytes, self._frame_bytes = frame.payload_bytes, frame.frame_bytes
                self.connections += 1
            case Bye():
                self._take_bye(frame)
            case _:
                raise BadFrame("the server did not say welcome")

    def _take_up(self) -> None:
        """What was asked before, and not answered, is asked again; the seats come first."""
        self._is_up = True
        seats = self._owner.seats()
        pending = [call.request for call in self._pending.values()]
        if self.connections > 1:
            self._resuming = self._new_id()
            args: JsonObject = {
                "seats": seats,
                "pending": [one.id for one in pending],
                "earlier": list(self._earlier),
            }
            self._send(Request(id=self._resuming, op="resume", args=args))
        for request in pending:
            self._send(request)
        if self.connections > 1:
            self._owner.came_back()

    async def _both_ways(self, wire: Wire) -> None:
        tasks = [asyncio.create_task(self._read(wire)), asyncio.create_task(self._write(wire))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
        for error in done:
            if isinstance(error, Exception):
                raise error
        raise LinkLost("the connection ended")

    async def _write(self, wire: Wire) -> None:
        while True:
            while not (self._unsent or self._words):
                self._sent.set()
                self._changed.clear()
                await self._changed.wait()
            if self._words:  # They come before the packet they become.
                for piece in self._pieces(self._words.popleft()):
                    await wire.send(piece)
                continue
            for piece in self._pieces(self._unsent[0]):
                await wire.send(piece)
            self._unsent.popleft()

    def _pieces(self, frame: Frame) -> list[str]:
        self._parts += 1
        try:
            text = check_size(frame, self._payload_bytes)
        except BadFrame as error:
            if isinstance(frame, Request):
                self._end(frame.id, error)
            return []
        return list(split(text, self._frame_bytes, f"p{self._parts}"))

    async def _read(self, wire: Wire) -> None:
        joining = Joining(PAYLOAD_BYTES)
        while True:
            frame = decode_from_server(await wire.recv())
            if isinstance(frame, Part):
                whole = joining.take(frame)
                if whole is None:
                    continue
                frame = decode_from_server(whole)
            self._attempts = 0
            self._take(frame)

    def _take(self, frame: FromServer) -> None:
        match frame:
            case Answer():
                self._take_answer(frame)
            case Wake():
                self._owner.woken(frame)
            case Text():
                self._owner.heard(frame)
            case Ping(n=n):
                self._send(Pong(n=n))
            case Bye():
                self._take_bye(frame)
            case Refusal(error=error):
                logger.warning("the server refused a frame: %s", error.message)

    def _take_answer(self, answer: Answer) -> None:
        self._answered.append(answer.id)
        if len(self._answered) >= ANSWERS_PER_ACK:
            self._send(Ack(ids=self._answered))
            self._answered = []
        if answer.id == self._resuming:
            self._resumed(answer)
        call = self._pending.pop(answer.id, None)
        if call is not None and not call.answer.done():
            call.answer.set_result(answer)

    def _resumed(self, answer: Answer) -> None:
        lost = answer.result.get("lost", {}) if isinstance(answer.result, dict) else {}
        if answer.error is not None:
            lost = dict.fromkeys(self._owner.seats(), answer.error)
        for agent_id, error in lost.items():
            self._owner.lost(agent_id, raised(converted(error, Told)))

    def _take_bye(self, bye: Bye) -> None:
        if bye.reason in _FATAL:
            raise _NotLetIn(LinkLost(bye.reason) if bye.error is None else raised(bye.error))
        raise LinkLost(f"the server said bye ({bye.reason})")

    def _send(self, frame: Frame) -> None:
        self._unsent.append(frame)
        self._sent.clear()
        self._changed.set()

    def _end(self, request_id: str, error: TurnlineError) -> None:
        call = self._pending.pop(request_id, None)
        if call is not None and not call.answer.done():
            call.answer.set_exception(error)

    def _fail(self, error: TurnlineError) -> None:
        for request_id in list(self._pending):
            self._end(request_id, error)


def _look_away(answer: asyncio.Future[Answer]) -> None:
    if not answer.cancelled():
        answer.exception()
