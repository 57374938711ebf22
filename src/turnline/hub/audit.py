"""The audit: every governance event, on a channel of its own.

A line follows the event it speaks of. It is appended in the background, many at
a time, so that a post never waits for its audit; `flush` waits. After a crash
between the two, the event is on its own channel's log and the audit lacks it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import datetime
from itertools import accumulate
from typing import Final

from turnline.core import event_types as ev
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.state import LONG_AGO
from turnline.errors import CorruptRecord, LogConflict
from turnline.hub.clock import Clock
from turnline.hub.ids import NewId
from turnline.log.base import Log
from turnline.log.bell import Bell

logger = logging.getLogger(__name__)

AUDIT_CHANNEL: Final = "_audit"
_LINES_PER_APPEND: Final = 256
MAX_PENDING_LINES: Final = 10_000
"""Lines kept while the log cannot be written; what comes beyond them is counted, and the count is told."""
_AUDITED: Final = {
    ev.EV_CHANNEL_OPENED: "channel_opened",
    ev.EV_CHANNEL_FORKED: "channel_forked",
    ev.EV_CHANNEL_CLOSED: "channel_closed",
    ev.EV_CHANNEL_INVITE_REJECT: "invite_rejected",
    ev.EV_EXPECTATION_VIOLATED: "expectation_violated",
    ev.EV_TURN_FAILED: "turn_failed",
}
_AUDITED_FACTS: Final = frozenset({"reason", "forked_from", "by", "agent_id", "name", "handler", "turn"})


class AuditLog:
    """Readable and tailable: `read_all`, `tail`."""

    def __init__(self, log: Log, clock: Clock, new_id: NewId) -> None:
        self._log = log
        self._clock = clock
        self._new_id = new_id
        self._seq = 0
        self.last_at = LONG_AGO
        self._pending: list[tuple[str, JsonObject, datetime]] = []
        self._dropped = 0
        self._flushing: asyncio.Task[None] | None = None
        self._bell = Bell()

    async def hydrate(self) -> None:
        head = await self._log.head(AUDIT_CHANNEL)
        self._seq = head.seq if head else 0
        with suppress(CorruptRecord):  # It costs the audit's past, never the hub (E5).
            async for last in self._log.read(AUDIT_CHANNEL, after=max(self._seq - 1, 0)):
                self.last_at = last.created_at

    def note(self, what: str, **facts: object) -> None:
        """Write down that something happened; it is appended soon."""
        if len(self._pending) >= MAX_PENDING_LINES:  # The log has not taken any for a long time.
            self._dropped += 1
            return
        if self._dropped:
            self._pending.append(("lines_dropped", {"count": self._dropped}, self._clock.now()))
            self._dropped = 0
        self._pending.append((what, dict(facts), self._clock.now()))
        self._start()

    def note_envelopes(self, envelopes: Iterable[Envelope]) -> None:
        """Note those of a channel's new lines that are governance."""
        for envelope in envelopes:
            what = _AUDITED.get(envelope.event_type)
            if what is not None:
                facts = {key: value for key, value in envelope.event_data.items() if key in _AUDITED_FACTS}
                self.note(what, channel_id=envelope.channel_id, seq=envelope.seq, **facts)

    async def flush(self) -> None:
        """Wait until everything noted so far is on the log."""
        while self._pending:
            await asyncio.shield(self._start())

    async def read_all(self, *, since: int = 0) -> list[Envelope]:
        await self.flush()
        return [envelope async for envelope in self._log.read(AUDIT_CHANNEL, after=since)]

    async def tail(self, *, since: int = 0) -> AsyncIterator[Envelope]:
        """Yield the lines behind `since`, and go on as they come."""
        while True:
            seen = self._bell.rung
            async for envelope in self._log.read(AUDIT_CHANNEL, after=since):
                yield envelope
                since = envelope.seq
            await self._bell.wait(seen)

    def _start(self) -> asyncio.Task[None]:
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
            self._flushing.add_done_callback(_log_failure)
        return self._flushing

    async def _flush(self) -> None:
        while self._pending:
            lines = self._pending[:_LINES_PER_APPEND]
            # A clock may be set back between two lines of one append.
            times = accumulate((max(at, self.last_at) for _, _, at in lines), max)
            numbered = enumerate(zip(lines, times, strict=True), start=self._seq + 1)
            envelopes = [self._line(n, what, facts, at) for n, ((what, facts, _), at) in numbered]
            try:
                await self._log.append(AUDIT_CHANNEL, envelopes, after=self._seq)
            except LogConflict:  # Another hub on the same log.
                await self.hydrate()
                continue
            self._seq, self.last_at = envelopes[-1].seq, envelopes[-1].created_at
            del self._pending[: len(lines)]
            self._bell.ring()

    def _line(self, seq: int, what: str, facts: JsonObject, at: datetime) -> Envelope:
        return Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=self._new_id(),
            channel_id=AUDIT_CHANNEL,
            seq=seq,
            sender_id=ev.HUB,
            event_type=f"audit.{what}",
            event_data=facts,
            audience=[],
            created_at=at,
        )


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        logger.warning("the audit could not be written, and will be tried again: %s", error)
