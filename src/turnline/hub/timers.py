"""Time, as a hub has it: the clock, ids that sort by the time they were made, and timers over all channels.

No deadline is stored. After every append the channel's adapter says what falls due
next; when it does, the hub posts it, and `decide` has the last word on whether
the moment it speaks of is still the current one. So with several hubs on one
log each may try, and at most one succeeds.

Rule 1: deadlines run on the monotonic clock. The timers have a time of their own. It starts with what the
clock reads; from then on only the monotonic clock moves it. Setting the clock of a live process changes
nothing. Only a deadline that is a time of day (`follows_wall`) is compared with the clock.

Rule 2: lines have the times of the clocks that they were written by, and clocks differ (R7). A
hub counts from when it met the line that a deadline is measured from. Setting a clock is such a difference.

Rule 3: if the clock is behind the newest line by more than `BEHIND`, the time of that line is the start, so
that waits end. A clock that is ahead cannot be told from a process that was down for long.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from msgspec.structs import replace

from turnline.core.codec import ID_PAIRS, ID_SHIFTS
from turnline.core.envelope import Envelope
from turnline.core.expectations import Deadline
from turnline.core.state import State
from turnline.hub.channels import Entry
from turnline.log.base import Bell


class Clock(Protocol):
    """Two times and a sleep."""

    def now(self) -> datetime:
        """The time people read, in UTC. It may be set back."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; what durations are measured with."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


NewId = Callable[[], str]

_CHANCE_BITS: Final = 80
_SECRET_BYTES: Final = 16


def sortable_ids(clock: Clock) -> NewId:
    """Return a source of 26-character ids: milliseconds, then chance. Ids of one source strictly grow."""
    last = 0

    def new_id() -> str:
        nonlocal last
        milliseconds = int(clock.now().timestamp() * 1000)
        if milliseconds > last >> _CHANCE_BITS:
            last = (milliseconds << _CHANCE_BITS) | secrets.randbits(_CHANCE_BITS)
        else:  # Two ids of one millisecond, or a clock set back: count on from the last one.
            last += 1
        return "".join([ID_PAIRS[last << 2 >> shift & 1023] for shift in ID_SHIFTS])  # As `write_id`.

    return new_id


def secret_id() -> str:
    """Return an id of 128 random bits. A sortable id can be computed from its neighbour; this one cannot."""
    return secrets.token_hex(_SECRET_BYTES)


BEHIND: Final = timedelta(hours=1)
"""A clock that is further behind the newest line was set back, or belongs to another machine."""
SAME_TIME: Final = timedelta(seconds=1)
"""Clocks that differ by less are alike; reading the tail takes as long."""
_NOTHING: Final = timedelta(0)
_KEPT: Final = 16
"""Changes of clock that are remembered of a channel, beside those that its deadlines are measured by."""

MOMENTS_PER_CHANNEL: Final = 4
FEW_MOMENTS: Final = 1000
"""More than these are kept of channels that have moved on; then the moments that are over are let go of."""

_Shifts = tuple[tuple[int, timedelta], ...]
"""By how much the lines of a channel were ahead of the timers' time, from which line on."""


class Moments:
    """Channel -> when it has to be looked at next, by one clock."""

    def __init__(self) -> None:
        self._next: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def __len__(self) -> int:
        """Count the moments in memory, those of channels that have moved on included."""
        return len(self._heap)

    def set(self, channel_id: str, at: datetime | None) -> bool:
        """Note when to look at the channel; None: never. Returns whether that is sooner than all others."""
        if at is None:
            self._next.pop(channel_id, None)
            return False
        if self._next.get(channel_id) == at:
            return False
        self._next[channel_id] = at
        heappush(self._heap, (at, channel_id))
        self._forget_stale()
        return self._heap[0] == (at, channel_id)

    def first(self) -> datetime | None:
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def take(self, now: datetime) -> Iterable[str]:
        """Yield the channels whose moment has come, and forget the moment."""
        while (at := self.first()) is not None and at <= now:
            channel_id = heappop(self._heap)[1]
            self._next.pop(channel_id, None)
            yield channel_id

    def _forget_stale(self) -> None:
        """A channel leaves a moment behind whenever it moves on; one that is far ahead would stay long."""
        if len(self._heap) > MOMENTS_PER_CHANNEL * len(self._next) + FEW_MOMENTS:
            self._heap = [(at, channel_id) for channel_id, at in self._next.items()]
            heapify(self._heap)

    def _drop_stale(self) -> None:
        while self._heap and self._next.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)


class Timers:
    """The deadlines of one hub."""

    def __init__(self, clock: Clock, absences: Callable[[State], Sequence[Deadline]] | None = None) -> None:
        """`absences` says what is due because a participant was removed; see `core.expectations`."""
        self._clock = clock
        self._absences = absences
        self._start = clock.now()
        self._started = clock.monotonic()
        self.awake_since = self._start
        """Since when nothing has kept the participants from answering: a start, or the end of an outage."""
        self._ahead: dict[str, _Shifts] = {}
        self._since: dict[str, datetime] = {}
        """Channel -> when it was met, where its deadlines can only be counted from then."""
        self._pauses: dict[str, int] = {}
        """Channel -> the line of the pause that it was met in."""
        self._rest: dict[str, timedelta] = {}
        """Channel -> by how much its pauses lasted longer than the times of their lines say."""
        self._moments = Moments()
        self._wall_moments = Moments()
        self.sooner = Bell()
        """Rung when something falls due earlier than a sweep that sleeps until then expects."""

    def __len__(self) -> int:
        return len(self._moments) + len(self._wall_moments)

    def now(self) -> datetime:
        """Return the timers' own time."""
        return self._start + timedelta(seconds=self._clock.monotonic() - self._started)

    def start_from(self, newest: datetime) -> timedelta:
        """Start from the newest line's time if the clock is far behind it. Returns by how much it is behind.

        Call it before anything has been met; what was watched has to be watched again.
        """
        behind = newest - self._start
        if behind <= BEHIND:
            return _NOTHING
        self._start = self.awake_since = newest
        return behind

    def wake(self) -> None:
        """An outage ends just now."""
        self.awake_since = self.now()

    def met(self, entry: Entry) -> None:
        """The channel's last line has landed just now, with all that was not met before."""
        channel_id, state, now, first = entry.channel_id, entry.state, self.now(), entry.told_seq + 1
        if entry.is_over:
            for kept in (self._ahead, self._since, self._pauses, self._rest):
                kept.pop(channel_id, None)
            return
        ahead = state.last_at - now
        ahead = ahead if abs(ahead) >= SAME_TIME else _NOTHING
        if first == 1 and max(abs(ahead), state.last_at - state.created_at) >= SAME_TIME:
            self._since[channel_id] = now  # When the lines before the last one were written is unknown.
        known = self._ahead.get(channel_id, ())
        if abs(ahead - _ahead_at(known, state.seq)) >= SAME_TIME:
            known = self._ahead[channel_id] = (*_needed(known, state), (first, ahead))
        self._measure_rest(channel_id, state, known)

    def expect(self, channel_id: str, at: datetime | None) -> None:
        """Note when to look at a channel that has not been read: nothing on it falls due before `at`.

        By either clock: the index does not say which one the deadline follows.
        """
        for moments in (self._moments, self._wall_moments):
            if moments.set(channel_id, at):
                self.sooner.ring()

    def watch(self, entry: Entry) -> None:
        """Note when the channel has to be looked at next."""
        due = self._due(entry)
        for moments, wall in ((self._moments, False), (self._wall_moments, True)):
            at = next((one.at for one in due if one.follows_wall is wall), None)
            if moments.set(entry.channel_id, at):
                self.sooner.ring()

    def take_due(self) -> deque[str]:
        """Return the channels that have to be looked at by now; they are watched again after that."""
        due = [*self._moments.take(self.now()), *self._wall_moments.take(self._clock.now())]
        return deque(dict.fromkeys(due))

    def look_at(self, channels: Iterable[str]) -> None:
        """Have these channels looked at as soon as possible."""
        for channel_id in channels:
            if self._moments.set(channel_id, self.now()):
                self.sooner.ring()

    def due(self, entry: Entry) -> list[Deadline]:
        """Return what has fallen due on the channel."""
        return [one for one in self._due(entry) if self._left(one) <= 0]

    def seconds_left(self, entry: Entry) -> float:
        """Return the seconds until the channel's next deadline; 0 if it has passed, or there is none."""
        return max(min((self._left(one) for one in self._due(entry)), default=0.0), 0.0)

    def seconds_since(self, line: Envelope) -> float:
        """Return how long ago a line was written.

        A line of the past that seems to come from the future was written by a clock that is ahead. It counts
        from when this hub first met a line of that time; otherwise it would not age until the clocks agree.
        """
        known, now = self._ahead.get(line.channel_id, ()), self.now()
        at = line.created_at - _ahead_at(known, line.seq)
        if at > now and known and line.seq < known[0][0]:
            at = line.created_at - known[0][1]
        return max((now - at).total_seconds(), 0.0)

    def pause_until_next(self, at_most_seconds: float) -> float:
        """Return the seconds until something falls due, or until it is time to look anyway.

        A clock that is set is noticed after `at_most_seconds`.
        """
        left = at_most_seconds
        for at, now in (
            (self._moments.first(), self.now()),
            (self._wall_moments.first(), self._clock.now()),
        ):
            if at is not None:
                left = min(left, (at - now).total_seconds())
        return max(left, 0.0)

    def _left(self, deadline: Deadline) -> float:
        now = self._clock.now() if deadline.follows_wall else self.now()
        return (deadline.at - now).total_seconds()

    def _measure_rest(self, channel_id: str, state: State, known: _Shifts) -> None:
        """Note how long a pause was, for a TTL does not count it. Its lines are wrong after a jump."""
        live = 0 if state.pause is None else state.pause.seq
        before = self._pauses.pop(channel_id, 0)
        if live:
            self._pauses[channel_id] = live
        if before not in (0, live):
            more = _ahead_at(known, before) - _ahead_at(known, state.seq)
            self._rest[channel_id] = self._rest.get(channel_id, _NOTHING) + more

    def _due(self, entry: Entry) -> Sequence[Deadline]:
        """Return what falls due on the channel, by the timers' own time, or by the clock (`follows_wall`)."""
        absences = [] if self._absences is None else self._absences(entry.state)
        return [*absences, *self._measured(entry)]

    def _measured(self, entry: Entry) -> Sequence[Deadline]:
        known, awake_since = self._ahead.get(entry.channel_id, ()), self.awake_since
        awake_since = max(awake_since, self._since.get(entry.channel_id, awake_since))
        if not known:
            return entry.adapter.due(entry.state, awake_since)
        rest = self._rest.get(entry.channel_id, _NOTHING).total_seconds()
        state = replace(entry.state, rested_seconds=entry.state.rested_seconds + rest)
        found = [
            one if one.follows_wall else replace(one, at=one.at - ahead)
            for ahead in {_NOTHING, *(ahead for _, ahead in known)}
            for one in entry.adapter.due(state, awake_since + ahead)
            if _ahead_at(known, one.line) == ahead
        ]
        return sorted(found, key=lambda one: one.at)


def _needed(known: _Shifts, state: State) -> _Shifts:
    """Return the last changes of clock, and those that the channel's deadlines are measured by."""
    pause = 0 if state.pause is None else state.pause.seq
    asked = (seq for one in state.questions.values() for seq in (one.seq, one.answer_seq))
    lines = (1, state.floor_line, state.spoken_seq, pause, *asked)
    measured = {_shift_at(known, seq) for seq in lines}
    return tuple(one for one in known if one in measured or one in known[-_KEPT:])


def _shift_at(known: _Shifts, seq: int) -> tuple[int, timedelta]:
    found = (0, _NOTHING)
    for one in known:
        if one[0] <= seq:
            found = one
    return found


def _ahead_at(known: _Shifts, seq: int) -> timedelta:
    """Return by how much the line at `seq` was ahead of the timers' time."""
    return _shift_at(known, seq)[1]
