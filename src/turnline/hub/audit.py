"""The audit: every governance event, on a channel of its own.

Rule: a line refers to the line that it speaks of (channel, seq) and copies no text of it and no name, so
what is erased there is nowhere here (Y2). Only a refusal, which is on no other channel, has its texts.

A line follows the event it speaks of. It is appended in the background, many at
a time, so that a post never waits for its audit; `flush` waits. After a crash
between the two, the event is on its own channel's log and the audit lacks it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Final

from turnline.core import event_types as ev
from turnline.core.codec import split
from turnline.core.envelope import Envelope
from turnline.hub.timers import Clock, NewId
from turnline.log.base import Bell, Log
from turnline.log.pruning import Pruned
from turnline.log.system_channel import SystemChannel, SystemLine

logger = logging.getLogger(__name__)

AUDIT_CHANNEL: Final = "_audit"
_LINES_PER_APPEND: Final = 256
GATHER_SECONDS: Final = 0.05
"""How long a line waits for others, so that they share a commit. `flush` does not wait."""
MAX_PENDING_LINES: Final = 10_000
"""Lines kept while the log cannot be written; what comes beyond them is counted, and the count is told."""
PRUNED_NAMED: Final = 100
"""Top channels of pruned trees that one line names."""
AUDITED: Final = {
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
        self._channel = SystemChannel(log, AUDIT_CHANNEL, clock.now, new_id)
        self._pending: list[SystemLine] = []
        self._dropped = 0
        self._flushing: asyncio.Task[None] | None = None
        self._gathering: asyncio.TimerHandle | None = None
        """Set while lines wait for others that share their commit."""
        self._bell = Bell()

    @property
    def last_at(self) -> datetime:
        """Return the time of the last known line."""
        return self._channel.last_at

    async def hydrate(self) -> None:
        """Find the end of the audit. A damaged line costs the audit's past, never the hub (E5)."""
        await self._channel.catch_up()

    def note(self, what: str, **facts: object) -> None:
        """Write down that something happened; it is appended soon."""
        if len(self._pending) >= MAX_PENDING_LINES:  # The log has not taken any for a long time.
            self._dropped += 1
            return
        if self._dropped:
            self._pending.append(self._line("lines_dropped", {"count": self._dropped}))
            self._dropped = 0
        self._pending.append(self._line(what, facts))
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._gathered)

    def note_envelopes(self, envelopes: Iterable[Envelope]) -> None:
        """Note lines of a channel that are governance: their types are in `AUDITED`."""
        for envelope in envelopes:
            structure, _ = split(envelope.event_type, envelope.event_data)
            facts = {key: value for key, value in structure.items() if key in _AUDITED_FACTS}
            what = AUDITED[envelope.event_type]
            self.note(what, channel_id=envelope.channel_id, seq=envelope.seq, **facts)

    def note_pruned(self, done: Pruned, before: datetime) -> None:
        """Write down what was pruned (Y3)."""
        facts = {"trees": done.trees[:PRUNED_NAMED], "channels": done.channels, "records": done.records}
        at = before.isoformat(timespec="seconds")
        self.note("pruned", closed_before=at, archive=done.archive, **facts)

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

    def _gathered(self) -> None:
        self._gathering = None
        if self._pending:
            self._start()

    def _start(self) -> asyncio.Task[None]:
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
            self._flushing.add_done_callback(_log_failure)
        return self._flushing

    async def _flush(self) -> None:
        while self._pending:
            written = await self._channel.append(self._next_lines)
            del self._pending[: len(written)]
            self._bell.ring()

    def _next_lines(self) -> list[SystemLine]:
        return self._pending[:_LINES_PER_APPEND]

    def _line(self, what: str, facts: dict[str, object]) -> SystemLine:
        return SystemLine(f"audit.{what}", facts, at=self._clock.now())


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        logger.warning("the audit could not be written, and will be tried again: %s", error)
