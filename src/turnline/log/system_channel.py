"""System channels: what the hub itself writes down, such as the audit, the directory and revocations.

    channel = SystemChannel(log, "_directory", clock.now, new_id, apply=fold_line)
    await channel.catch_up()
    await channel.append(lambda: [] if name in known else [SystemLine("participant.registered", data)])

Rule 1: `decide` returns the lines that follow from what is known, and changes nothing. If another process
appends first, its lines are applied and `decide` runs again.

Rule 2: only an append compares what is known with the log. If a decision to write nothing, or to raise,
must not be made on old knowledge, call `catch_up` first.

Rule 3: each line is applied once and in order, also when two readings overlap.

Rule 4: nothing is appended after a damaged line, because a decision without the lines after it can be wrong.
A channel without `apply` decides nothing from its lines; it continues after a damaged one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from msgspec import Struct

from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.event_types import HUB
from turnline.core.state import LONG_AGO
from turnline.errors import ChannelQuarantined, CorruptRecord, LogConflict, LogUnavailable
from turnline.log.base import Log

MAX_CONFLICTS: Final = 1_000
"""Attempts of one append, while other processes append first."""
LINES_PER_SLICE: Final = 256
"""Lines applied before other tasks run. Lines are read in the pages of the log and never collected."""


class SystemLine(Struct, frozen=True):
    """A line to append. It reaches no participant."""

    event_type: str
    data: JsonObject
    """As `core.json.normalised` returns it."""
    envelope_id: str = ""
    """Empty: each attempt gets a new one."""
    at: datetime | None = None
    """When it happened. None: now. A line is never dated before the one that it follows."""


class SystemChannel:
    """A channel that only the system writes, as one process knows it."""

    def __init__(
        self,
        log: Log,
        channel_id: str,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        *,
        apply: Callable[[Envelope], None] | None = None,
        max_conflicts: int = MAX_CONFLICTS,
    ) -> None:
        """`apply` gets each line once. Without it the lines are not read, only the end of the channel."""
        self.channel_id = channel_id
        self.seq = 0
        """The last line that is known."""
        self.last_at = LONG_AGO
        self.damage: CorruptRecord | None = None
        """What ended the last reading; None if it reached the end."""
        self._log = log
        self._now = now
        self._new_id = new_id
        self._apply = apply
        self._max_conflicts = max_conflicts
        self._lock = asyncio.Lock()

    async def catch_up(self) -> None:
        """Apply the lines after the last known one. Raises `ChannelQuarantined` at a damaged one."""
        if self._apply is None:
            await self._find_end()
            return
        try:
            async for line in self._log.read(self.channel_id, after=self.seq):
                self._adopt(line)
                if line.seq % LINES_PER_SLICE == 0:
                    await asyncio.sleep(0)
        except CorruptRecord as error:
            self.damage = error
            raise ChannelQuarantined(self.channel_id, cause=error) from error
        self.damage = None

    async def append(self, decide: Callable[[], Sequence[SystemLine]]) -> list[Envelope]:
        """Append what `decide` returns, all of it or nothing, and return it as it was written.

        Raises what `decide` and `Log.append` raise, `ChannelQuarantined` after a damaged line, and
        `LogUnavailable` after `max_conflicts` attempts. Calling it again is safe.
        """
        async with self._lock:  # Tasks of one process wait for each other instead of conflicting.
            for _ in range(self._max_conflicts):
                lines = decide()
                if not lines:
                    return []
                if self.damage is not None:
                    raise ChannelQuarantined(self.channel_id, cause=self.damage)
                envelopes = self._number(lines)
                try:
                    await self._log.append(self.channel_id, envelopes, after=envelopes[0].seq - 1)
                except LogConflict:
                    await self.catch_up()
                    continue
                for envelope in envelopes:
                    self._adopt(envelope)
                return envelopes
        raise LogUnavailable(
            self._log.address,
            because=f"other writers were first in {self._max_conflicts} appends to {self.channel_id!r}",
        )

    async def _find_end(self) -> None:
        head = await self._log.head(self.channel_id)
        if head is None:
            return
        with suppress(CorruptRecord):  # It hides the time of the last line, and stops nothing (rule 4).
            async for line in self._log.read(self.channel_id, after=head.seq - 1):
                self._adopt(line)
        self.seq = max(self.seq, head.seq)

    def _adopt(self, line: Envelope) -> None:
        if line.seq <= self.seq:
            return  # Two readings overlapped. An old line must not undo a later one.
        if self._apply is not None:
            self._apply(line)
        self.seq, self.last_at = line.seq, line.created_at

    def _number(self, lines: Sequence[SystemLine]) -> list[Envelope]:
        envelopes, at = list[Envelope](), self.last_at
        for seq, line in enumerate(lines, self.seq + 1):
            at = max(at, line.at or self._now())
            envelopes.append(
                Envelope(
                    schema_version=SCHEMA_VERSION,
                    envelope_id=line.envelope_id or self._new_id(),
                    channel_id=self.channel_id,
                    seq=seq,
                    sender_id=HUB,
                    event_type=line.event_type,
                    event_data=line.data,
                    audience=[],
                    created_at=at,
                )
            )
        return envelopes
