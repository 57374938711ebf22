"""A run's events as a stream that can be taken up again (F6).

    id: 5
    event: step_ended
    data: {"seq":5,"type":"step_ended",...}

An event's id is its line on the log, so `Last-Event-ID` is all that a client needs to go on,
here or on another process. The words of an agent step come as they are written (`event: words`); they are on
no log, and a client that missed some finds the result in `step_ended`.

Rule 1: nothing queues but words, and of those only so many (`hub.texts`). A stream reads the log where its
client stopped reading, a page at a time; a slow client costs one page.

Rule 2: the reader of a stream is let in again every second. A reader who would be refused now, because the
token was revoked or has expired, loses the stream, whether they read it or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from functools import partial
from itertools import groupby
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from turnline.errors import HubClosed
from turnline.flow.events import RunEvent, event_of
from turnline.hub.texts import Listening, TurnText
from turnline.server.answers import JSON, respond, run_headers, success
from turnline.server.auth.authenticator import until_refused
from turnline.server.auth.principal import Principal
from turnline.server.house import House
from turnline.server.parameters import last_seen
from turnline.server.problems import NO_CONTENT

EVENT_STREAM: Final = "text/event-stream"
HEARTBEAT: Final = b": still here\n\n"
WORDS_CHARACTERS: Final = 16_384
"""Of one event with words; of more, the last are sent."""
END_SECONDS: Final = 1.0
"""How long the end of a stream may take to go out."""
STREAM_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}

_encoder = msgspec.json.Encoder()


class Streams:
    """The event streams of one server."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def answer(self, request: Request, run_id: str, principal: Principal) -> Response:
        """Return the run's events: as a stream, or as a list for whoever accepts JSON only."""
        state = await self._house.runtime.runs.state(run_id)
        after = last_seen(request)
        headers = run_headers(request, run_id)
        if wants_json(request.headers.get("accept", "")):
            events, seen = await self._page(run_id, after)
            following = seen if seen < state.seq else None
            return success({"events": events, "next": following}, headers=headers)
        if state.is_over and after >= state.seq:
            return respond(None, status=NO_CONTENT, headers=headers)
        admit = partial(self._house.access.admit_to_run, request, "runs.stream", run_id)
        return open_stream(self._house, self._told(run_id, after), admit, principal, headers=headers)

    async def _told(self, run_id: str, after: int) -> AsyncIterator[bytes]:
        """Yield what goes over the wire, until the run has ended or the server stops."""
        texts = self._house.runtime.hub.texts
        with suppress(HubClosed), Listening(texts, run_id, lambda words: True) as listening:
            while True:
                rung = listening.bell.rung
                for words in encode_words(listening.take()):
                    yield words
                events, after = await self._page(run_id, after)
                for event in events:
                    yield encoded(event)
                if events and events[-1].type == "ended":
                    return
                if self._house.runtime.stopping.is_set():
                    return
                if not events and not await self._has_more(run_id, after):
                    return
                if not events and await self._is_quiet(run_id, after, listening.bell.wait(rung)):
                    yield HEARTBEAT

    async def _page(self, run_id: str, after: int) -> tuple[Sequence[RunEvent], int]:
        """The events behind `after`, of one page of lines, and the last line that was looked at."""
        async with self._house.pages:
            lines = await self._house.runtime.hub.read_page(run_id, after)
        events = [event for event in map(event_of, lines) if event is not None]
        return events, lines[-1].seq if lines else after

    async def _has_more(self, run_id: str, after: int) -> bool:
        state = await self._house.runtime.runs.state(run_id)
        return not state.is_over or state.seq > after

    async def _is_quiet(self, run_id: str, after: int, words: Awaitable[object]) -> bool:
        """Wait for news, or for the server to stop; True if neither comes before a heartbeat is due."""
        runtime = self._house.runtime
        beat = asyncio.ensure_future(runtime.clock.sleep(self._house.settings.heartbeat_seconds))
        news = (runtime.runs.wait_beyond(run_id, after), words, runtime.stopping.wait())
        tasks = (*(asyncio.ensure_future(one) for one in news), beat)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done == {beat}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class EventStream(StreamingResponse):
    """A stream that holds a place for as long as its reader reads it, and may."""

    def __init__(
        self,
        content: AsyncIterator[bytes],
        place: ExitStack,
        headers: Mapping[str, str],
        until_refused: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__(content, headers=headers, media_type=EVENT_STREAM)
        self._place = place
        self._until_refused = until_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            async with aclosing(self.body_iterator):  # type: ignore[type-var]
                sending = asyncio.ensure_future(super().__call__(scope, receive, send))
                refused = asyncio.ensure_future(self._until_refused())
                try:
                    await asyncio.wait((sending, refused), return_when=asyncio.FIRST_COMPLETED)
                    if sending.done():
                        return sending.result()
                finally:
                    for task in (sending, refused):
                        task.cancel()
                    await asyncio.gather(sending, refused, return_exceptions=True)
                await _end(send)


async def _end(send: Send) -> None:
    """End the answer, if its reader still takes anything."""
    with suppress(OSError, RuntimeError, TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def open_stream(
    house: House,
    content: AsyncIterator[bytes],
    admit: Callable[[], Awaitable[object]],
    principal: Principal,
    *,
    headers: Mapping[str, str] | None = None,
) -> EventStream:
    """Return a stream for `principal`, whom `admit` has let in, for as long as it would again."""
    place = ExitStack()
    place.enter_context(house.streams.one(principal.user_id))
    watch = partial(until_refused, admit, house.runtime.clock)
    return EventStream(content, place, {**STREAM_HEADERS, **(headers or {})}, watch)


def encoded(event: RunEvent) -> bytes:
    """One event of the stream. JSON has no line breaks of its own, so it is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), _encoder.encode(event))


def encode_words(words: Iterable[TurnText]) -> Iterator[bytes]:
    """Return the words that came together, as one event for each speaker."""
    for agent_id, pieces in groupby(words, key=lambda one: one.agent_id):
        text = "".join(piece.text for piece in pieces)[-WORDS_CHARACTERS:]
        yield b"event: words\ndata: %s\n\n" % _encoder.encode({"agent_id": agent_id, "text": text})


def wants_json(accept: str) -> bool:
    """Whether somebody accepts JSON and no stream."""
    types = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return JSON in types and EVENT_STREAM not in types
