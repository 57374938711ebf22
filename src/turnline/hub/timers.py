"""Timers: what falls due, over all channels.

Nothing is stored. After every append the channel's adapter says what falls due
next; when it does, the hub posts it, and `decide` has the last word on whether
the moment it speaks of is still the current one. So with several hubs on one
log each may try, and at most one succeeds.

The lines of a channel have the times of whichever hub wrote them, and clocks
differ. A hub counts from when it met the line that a deadline is measured from, by
its own clock (page 08, rule 7): one whose clock is fast must not end everybody's turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final

from msgspec.structs import replace

from turnline.core.expectations import Deadline
from turnline.hub.entry import Entry
from turnline.log.bell import Bell

SAME_TIME: Final = timedelta(seconds=1)
"""Clocks that differ by less are alike; reading the tail takes as long."""
_NOTHING: Final = timedelta(0)
_KEPT: Final = 16
"""Changes of clock that are remembered of a channel."""

MOMENTS_PER_CHANNEL: Final = 4
FEW_MOMENTS: Final = 1000
"""More than these are kept of channels that have moved on; then the moments that are over are let go of."""


class Timers:
    """Channel -> when it has to be looked at next."""

    def __init__(self, awake_since: datetime) -> None:
        self.awake_since = awake_since
        """Since when nothing has kept the participants from answering: a start, or the end of an outage."""
        self._ahead: dict[str, tuple[tuple[int, timedelta], ...]] = {}
        """Channel -> by how much its lines were ahead of this hub's clock, from which line on."""
        self._since: dict[str, datetime] = {}
        """Channel -> when it was met, where its deadlines can only be counted from then."""
        self._met: dict[str, int] = {}
        """Channel -> the last line that was met; an entry may be forgotten, and read again."""
        self._next: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []
        self.sooner = Bell()
        """Rung when something falls due earlier than whoever sleeps until then thinks."""

    def met(self, entry: Entry, now: datetime) -> None:
        """The channel's last line has landed just now, with all that was not met before."""
        first = max(self._met.pop(entry.channel_id, 0), entry.told_seq) + 1
        if entry.state.is_over:
            self._ahead.pop(entry.channel_id, None)
            self._since.pop(entry.channel_id, None)
            return
        self._met[entry.channel_id] = entry.state.seq
        ahead = entry.state.last_at - now
        ahead = ahead if abs(ahead) >= SAME_TIME else _NOTHING
        lasted = entry.state.last_at - entry.state.created_at
        if first == 1 and max(abs(ahead), lasted) >= SAME_TIME:
            self._since[entry.channel_id] = now  # Of lines before the last one nobody knows when they landed.
        known = self._ahead.get(entry.channel_id, ())
        if abs(ahead - (known[-1][1] if known else _NOTHING)) >= SAME_TIME:
            kept = (*known[:1], *known[1:][-_KEPT:])  # A TTL is measured from the first line.
            self._ahead[entry.channel_id] = (*kept, (first, ahead))

    def watch(self, entry: Entry) -> None:
        """Note when the channel has to be looked at next."""
        due = self._due(entry)
        if not due:
            self._next.pop(entry.channel_id, None)
        elif self._next.get(entry.channel_id) != due[0].at:
            self._next[entry.channel_id] = due[0].at
            heappush(self._heap, (due[0].at, entry.channel_id))
            self._forget_stale()
            if self._heap[0][1] == entry.channel_id:
                self.sooner.ring()

    def __len__(self) -> int:
        """How many moments are kept, those that have passed over included."""
        return len(self._heap)

    def next_at(self) -> datetime | None:
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: datetime) -> deque[str]:
        """Return the channels that have to be looked at by `now`; they are watched again after that."""
        channels: deque[str] = deque()
        self._drop_stale()
        while self._heap and self._heap[0][0] <= now:
            channels.append(heappop(self._heap)[1])
            self._next.pop(channels[-1], None)
            self._drop_stale()
        return channels

    def put_back(self, channels: Iterable[str], now: datetime) -> None:
        """These were taken and could not be looked at."""
        for channel_id in channels:
            self._next[channel_id] = now
            heappush(self._heap, (now, channel_id))

    def due(self, entry: Entry, now: datetime) -> list[Deadline]:
        """What has fallen due on the channel."""
        return [one for one in self._due(entry) if one.at <= now]

    def seconds_left(self, entry: Entry, now: datetime) -> float:
        """Until the channel's next deadline; 0 if it has passed."""
        due = self._due(entry)
        return max((due[0].at - now) / timedelta(seconds=1), 0.0) if due else 0.0

    def pause_until_next(self, now: datetime, at_most_seconds: float) -> float:
        """Seconds until something falls due, or until it is time to look anyway."""
        at = self.next_at()
        if at is None:
            return at_most_seconds
        return min(max((at - now) / timedelta(seconds=1), 0.0), at_most_seconds)

    def _due(self, entry: Entry) -> Sequence[Deadline]:
        """What falls due on the channel, by this hub's clock."""
        known, awake_since = self._ahead.get(entry.channel_id, ()), self.awake_since
        awake_since = max(awake_since, self._since.get(entry.channel_id, awake_since))
        if not known:
            return entry.adapter.due(entry.state, awake_since)
        found = [
            replace(one, at=one.at - ahead)
            for ahead in {_NOTHING, *(ahead for _, ahead in known)}
            for one in entry.adapter.due(entry.state, awake_since + ahead)
            if _ahead_at(known, _measured_from(one)) == ahead
        ]
        return sorted(found, key=lambda one: one.at)

    def _forget_stale(self) -> None:
        """A channel leaves a moment behind whenever it moves on; one that is far ahead would stay long."""
        if len(self._heap) > MOMENTS_PER_CHANNEL * len(self._next) + FEW_MOMENTS:
            self._heap = [(at, channel_id) for channel_id, at in self._next.items()]
            heapify(self._heap)

    def _drop_stale(self) -> None:
        while self._heap and self._next.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)


def _ahead_at(known: Iterable[tuple[int, timedelta]], seq: int) -> timedelta:
    """By how much the line at `seq` was ahead of this hub's clock."""
    ahead = _NOTHING
    for first, one in known:
        if first <= seq:
            ahead = one
    return ahead


def _measured_from(deadline: Deadline) -> int:
    """The line whose time a deadline is measured from."""
    data = deadline.event_data
    seq = data.get("since", data.get("pause", 1))
    return seq if isinstance(seq, int) else 1
