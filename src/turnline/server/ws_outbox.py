"""An outbox: what waits to be sent over one connection, bounded.

Rule 1: putting something in never waits, so whoever does not read holds up nobody.

Rule 2: of a channel's news only where they begin and end is kept; a client reads the lines
itself. Words of a turn in flight are dropped, the oldest first.

Rule 3: what cannot be dropped and does not fit makes the outbox overflow, which ends the
connection. The client comes back and is told what it missed.
"""

from __future__ import annotations

import asyncio
from collections import deque

from msgspec.structs import replace

from turnline.client.frames import Text, Wake, encode
from turnline.core.views import Notice
from turnline.server.ws_settings import WsCounters, WsSettings


class Outbox:
    """What waits to be sent: words first, for they come before the packet they become; answers; news."""

    def __init__(self, settings: WsSettings, counters: WsCounters) -> None:
        self._settings = settings
        self._counters = counters
        self._answers: deque[str] = deque()
        self._bytes = 0
        self._news: dict[tuple[str, str], Notice] = {}
        self._words: deque[Text] = deque()
        self._changed = asyncio.Event()
        self._roomy = asyncio.Event()
        self._roomy.set()
        self.ended = asyncio.Event()
        """Nothing more is taken; the connection is to be closed, with `reason`."""
        self.reason = ""

    def put(self, text: str) -> None:
        """An answer, or anything else that is sent as it is."""
        if self.ended.is_set():
            return
        self._answers.append(text)
        self._bytes += len(text)
        if self._bytes > self._settings.room_bytes:
            self._roomy.clear()
        if self._bytes > self._settings.unsent_bytes:
            self._overflow()
        self._changed.set()

    def put_news(self, seat: str, notice: Notice) -> None:
        """A channel has lines, or a turn, for a seat."""
        if self.ended.is_set():
            return
        known = self._news.get((seat, notice.channel_id), notice)
        self._news[seat, notice.channel_id] = replace(notice, first=min(notice.first, known.first))
        if len(self._news) > self._settings.unsent_channels:
            self._overflow()
        self._changed.set()

    def put_words(self, words: Text) -> None:
        """Words of a turn in flight."""
        if self.ended.is_set():
            return
        if len(self._words) >= self._settings.unsent_words:
            self._words.popleft()
            self._counters.dropped_words += 1
        self._words.append(words)
        self._changed.set()

    async def next(self) -> str:
        """Return what is to be sent next; wait until there is something."""
        while not (self._answers or self._news or self._words):
            self._changed.clear()
            await self._changed.wait()
        if self._words:
            return encode(self._words.popleft())
        if self._answers:
            return self._answers[0]
        (seat, channel_id), notice = next(iter(self._news.items()))
        del self._news[seat, channel_id]
        return encode(Wake(seat=seat, notice=notice))

    def sent(self, text: str) -> None:
        """`next` gave this, and it has gone."""
        if self._answers and self._answers[0] is text:
            self._answers.popleft()
            self._bytes -= len(text)
        if self._bytes <= self._settings.room_bytes:
            self._roomy.set()

    async def room(self) -> None:
        """Return when so little waits that more may be asked for."""
        await self._roomy.wait()

    def end(self, reason: str) -> None:
        """Forget what waits, and let the connection end."""
        if self.ended.is_set():
            return
        self.reason = reason
        self._counters.dropped_answers += len(self._answers)
        self._answers.clear()
        self._news.clear()
        self._words.clear()
        self._bytes = 0
        self._roomy.set()
        self.ended.set()

    def _overflow(self) -> None:
        self._counters.slow += 1
        self.end("too_slow")
