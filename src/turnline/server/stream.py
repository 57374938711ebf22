"""A run's events as a stream that can be taken up again (F6).

    id: 5
    event: step_ended
    data: {"seq":5,"type":"step_ended",...}

An event's id is its line on the log, so `Last-Event-ID` is all that a client needs to go on,
here or on another process.

Rule: nothing queues. A stream reads the log where its client stopped reading, a page at a
time; a slow client costs one page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, aclosing, suppress
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from turnline.core.envelope import Envelope
from turnline.errors import AccessError, HubClosed
from turnline.flow.events import RunEvent, event_of
from turnline.server.answers import JSON, respond, run_headers, success
from turnline.server.auth.principal import Principal
from turnline.server.house import House
from turnline.server.parameters import last_seen
from turnline.server.problems import NO_CONTENT

EVENT_STREAM: Final = "text/event-stream"
PAGE_LINES: Final = 256
HEARTBEAT: Final = b": still here\n\n"
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
        place = ExitStack()
        place.enter_context(self._house.streams.one(principal.user_id))
        return EventStream(self._told(run_id, after, principal), place, {**STREAM_HEADERS, **headers})

    async def _told(self, run_id: str, after: int, principal: Principal) -> AsyncIterator[bytes]:
        """What goes over the wire, until the run has ended, the server stops, or the token does."""
        with suppress(HubClosed, AccessError):
            while True:
                self._house.access.check(principal, "runs.stream", run_id)
                events, after = await self._page(run_id, after)
                for event in events:
                    yield encoded(event)
                if events and events[-1].type == "ended":
                    return
                if self._house.runtime.stopping.is_set():
                    return
                if not events and not await self._has_more(run_id, after):
                    return
                if not events and await self._is_quiet(run_id, after):
                    yield HEARTBEAT

    async def _page(self, run_id: str, after: int) -> tuple[Sequence[RunEvent], int]:
        """The events behind `after`, of one page of lines, and the last line that was looked at."""
        lines = await self._lines(run_id, after)
        events = [event for event in map(event_of, lines) if event is not None]
        return events, lines[-1].seq if lines else after

    async def _lines(self, run_id: str, after: int) -> list[Envelope]:
        runtime = self._house.runtime
        if (await runtime.runs.state(run_id)).seq - after <= PAGE_LINES:
            return await runtime.runs.lines(run_id, after=after)
        found: list[Envelope] = []
        async with aclosing(runtime.hub.lines.read(run_id, after=after)) as lines:  # type: ignore[type-var]
            async for line in lines:
                found.append(line)
                if len(found) == PAGE_LINES:
                    break
        return found

    async def _has_more(self, run_id: str, after: int) -> bool:
        state = await self._house.runtime.runs.state(run_id)
        return not state.is_over or state.seq > after

    async def _is_quiet(self, run_id: str, after: int) -> bool:
        """Wait for news, or for the server to stop; True if neither comes before a heartbeat is due."""
        runtime = self._house.runtime
        news = asyncio.ensure_future(runtime.runs.wait_beyond(run_id, after))
        stop = asyncio.ensure_future(runtime.stopping.wait())
        beat = asyncio.ensure_future(runtime.clock.sleep(self._house.settings.heartbeat_seconds))
        tasks = (news, stop, beat)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return not (news.done() or stop.done())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class EventStream(StreamingResponse):
    """A stream that holds a place for as long as somebody reads it."""

    def __init__(self, content: AsyncIterator[bytes], place: ExitStack, headers: dict[str, str]) -> None:
        super().__init__(content, headers=headers, media_type=EVENT_STREAM)
        self._place = place

    async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        with self._place:
            async with aclosing(self.body_iterator):  # type: ignore[type-var]
                await super().__call__(scope, receive, send)


def encoded(event: RunEvent) -> bytes:
    """One event of the stream. JSON has no line breaks of its own, so it is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), _encoder.encode(event))


def wants_json(accept: str) -> bool:
    """Whether somebody accepts JSON and no stream."""
    types = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return JSON in types and EVENT_STREAM not in types
