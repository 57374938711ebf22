"""Channels as they go on: the lines of one, with the words of the turn in flight; the heads of all.

    id: 5                                        event: words
    event: envelope                              data: {"agent_id":"...","text":"Let me "}
    data: {"seq":5,"event_type":"packet",...}

A line's id is its number, so `Last-Event-ID` is all that a client needs to go on. A line that
is not for whoever listens is told as `event: passed`, with its number alone. Words are on no
log: a client that missed some finds all of them in the packet.

Rule: nothing queues but words, and of those only so many (`hub.texts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, suppress
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnline.core.envelope import JsonObject
from turnline.core.state import State
from turnline.errors import HubClosed
from turnline.hub.hub import OWN_PREFIX
from turnline.hub.texts import Listening
from turnline.log.base import Head
from turnline.server.answers import respond
from turnline.server.channels.sight import Sight, seen, sight_of
from turnline.server.house import House
from turnline.server.parameters import last_seen
from turnline.server.problems import NO_CONTENT
from turnline.server.stream import HEARTBEAT, encode_words, open_stream

_encoder = msgspec.json.Encoder()


class ChannelStreams:
    """The streams of one server's channels."""

    def __init__(self, house: House) -> None:
        self._house = house

    def of_channel(self, request: Request, state: State, sight: Sight) -> Response:
        """Return what happens on one channel, after the last line seen."""
        after = last_seen(request)
        if state.is_over and after >= state.seq:
            return respond(None, status=NO_CONTENT)
        admit = partial(seen, self._house, request, "channels.stream")
        return open_stream(self._house, self._told(state.channel_id, after, sight), admit, sight.principal)

    async def of_all(self, request: Request, sight: Sight) -> Response:
        """Return which channels something happens on, from now on."""
        after = await self._house.runtime.hub.lines.end()
        admit = partial(sight_of, self._house, request, "channels.stream")
        return open_stream(self._house, self._heads(after, sight), admit, sight.principal)

    async def _told(self, channel_id: str, after: int, sight: Sight) -> AsyncIterator[bytes]:
        """Yield what goes over the wire, until the channel has ended or the server stops."""
        hub = self._house.runtime.hub
        members = (await hub.state(channel_id)).spec.participants
        hears = partial(sight.may_hear, members)
        with suppress(HubClosed), Listening(hub.texts, channel_id, hears) as listening:
            yield HEARTBEAT  # Whoever waits for the first byte knows that somebody listens.
            while True:
                rung = listening.bell.rung
                for words in encode_words(listening.take()):
                    yield words
                async with self._house.pages:
                    lines = await hub.read_page(channel_id, after)
                    state = await hub.state(channel_id)
                    told = [
                        (line.seq, _event("envelope", line.seq, sight.shown(line, state.spec.participants)))
                        for line in lines
                    ]
                for seq, event in told:
                    yield event
                    after = seq
                if self._house.runtime.stopping.is_set() or (state.is_over and after >= state.seq):
                    return
                if lines:
                    continue
                if await self._is_quiet(hub.wait_beyond(channel_id, after), listening.bell.wait(rung)):
                    yield HEARTBEAT

    async def _heads(self, after: int, sight: Sight) -> AsyncIterator[bytes]:
        hub = self._house.runtime.hub
        async with aclosing(hub.lines.tail(after=after)) as tail:  # type: ignore[type-var]
            coming = asyncio.ensure_future(anext(tail, None))
            try:
                yield HEARTBEAT
                while not self._house.runtime.stopping.is_set():
                    if await self._is_quiet(asyncio.wait((coming,))):
                        yield HEARTBEAT
                    head = coming.result() if coming.done() else None
                    if head is not None and await self._may_know(head, sight):
                        yield _event("channel", None, _head(head))
                    if coming.done():
                        if head is None:  # The log has been closed.
                            return
                        coming = asyncio.ensure_future(anext(tail, None))
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def _may_know(self, head: Head, sight: Sight) -> bool:
        if head.channel_id.startswith(OWN_PREFIX):
            return False
        closed_at = head.seq if head.closed else 0
        facts = await self._house.facts.of(head.channel_id, closed_at=closed_at)
        return facts is not None and sight.may_know(facts.participants)

    async def _is_quiet(self, *news: Awaitable[object]) -> bool:
        """Wait for news, or for the server to stop; True if neither comes before a heartbeat is due."""
        runtime = self._house.runtime
        beat = asyncio.ensure_future(runtime.clock.sleep(self._house.settings.heartbeat_seconds))
        tasks = [asyncio.ensure_future(one) for one in (*news, runtime.stopping.wait())]
        try:
            done, _ = await asyncio.wait((*tasks, beat), return_when=asyncio.FIRST_COMPLETED)
            return done == {beat}
        finally:
            for task in (*tasks, beat):
                task.cancel()
            await asyncio.gather(*tasks, beat, return_exceptions=True)


def _event(name: str, seq: int | None, data: JsonObject | None) -> bytes:
    """One event. JSON has no line breaks of its own, so it is one line."""
    place = b"" if seq is None else b"id: %d\n" % seq
    if data is None:
        name, data = "passed", {"seq": seq}
    return place + b"event: %s\ndata: %s\n\n" % (name.encode(), _encoder.encode(data))


def _head(head: Head) -> JsonObject:
    return {"channel_id": head.channel_id, "seq": head.seq, "closed": head.closed}
