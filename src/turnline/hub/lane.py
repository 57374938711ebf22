"""The lane: which turns of this process may start, so that a suspect runs alone (N3).

A turn that was in flight when its process died is not guilty yet: every turn beside it died too. After
`SUSPECT_CLAIMS` such claims it is a suspect. A suspect starts when its process has lived for a while and no
other turn runs that could be blamed, and nothing else starts beside it. So if the process dies again, that
suspect is the cause.

A turn can be blamed from its claim until it records a unit or ends, at most `BLAME_SECONDS`.
Rule: a waiting suspect holds back new turns, never the other way round for long. Turns that were held back
start before the next suspect does.
"""

from __future__ import annotations

from typing import Final

from turnline.core.claims import MAX_CLAIMS
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.hub.clock import Clock
from turnline.hub.opening import first_of
from turnline.log.bell import Bell

BLAME_SECONDS: Final = 60.0
"""A turn that has run for so long is not the one that kills processes at once."""
LIVED_SECONDS: Final = (5.0, 10.0, 20.0)
"""How long a process must have lived before a suspect starts: longer for each claim it did not survive."""


class Held(Exception):
    """The turn may not start yet. `Lane.wait` returns when it is worth another try."""

    def __init__(self, seconds: float, seen: int) -> None:
        self.seconds = seconds
        self.seen = seen
        super().__init__(f"held for at most {seconds:g} s")


class Lane:
    """The turns of one process that have started, and the suspect that runs alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at = clock.monotonic()
        self._running: dict[str, tuple[str, float]] = {}
        """channel id -> the visit that runs its turn, and until when that turn can be blamed for a crash"""
        self._suspect = ("", "")
        """The channel and visit of the suspect that runs alone, or is next to do so."""
        self._held: dict[str, str] = {}
        """channel id -> the visit of an ordinary turn that a suspect holds back"""
        self._bell = Bell()

    def enter(self, channel_id: str, visit: str, unexplained: int) -> bool:
        """Start a turn and return whether it runs alone. Raises `Held` if it may not start yet.

        `visit` names this try; only the same visit, or a recorded unit, leaves the lane again.
        """
        now = self._clock.monotonic()
        self._forgive(now)
        if not SUSPECT_CLAIMS <= unexplained < MAX_CLAIMS:
            self._enter_beside_others(channel_id, visit, now)
            return False
        self._enter_alone(channel_id, visit, unexplained, now)
        return True

    def begin(self, channel_id: str, visit: str) -> None:
        """Note a turn whose claim came with its floor: it starts whatever else runs."""
        self._running[channel_id] = (visit, self._clock.monotonic() + BLAME_SECONDS)

    def is_free_for(self, channel_id: str) -> bool:
        """Return whether the next turn of this channel may be claimed together with its floor."""
        self._forgive(self._clock.monotonic())
        return self._suspect[0] in ("", channel_id)

    def leave(self, channel_id: str, visit: str = "") -> None:
        """Note that the turn has ended or has recorded a unit (no `visit`): it is not to blame."""
        changed = False
        if visit in ("", self._running.get(channel_id, ("", 0.0))[0]):
            changed = self._running.pop(channel_id, None) is not None
        if visit and visit == self._held.get(channel_id):
            del self._held[channel_id]
            changed = True
        if self._suspect[0] == channel_id and visit in ("", self._suspect[1]):
            self._suspect = ("", "")
            changed = True
        if changed:
            self._bell.ring()

    async def wait(self, held: Held) -> None:
        """Return when a turn that was held may try again."""
        await first_of(self._bell.wait(held.seen), self._clock.sleep(held.seconds))

    def _enter_beside_others(self, channel_id: str, visit: str, now: float) -> None:
        if self._suspect[0]:
            self._held[channel_id] = visit
            _, until = self._running.get(self._suspect[0], ("", now + BLAME_SECONDS))
            raise Held(until - now, self._bell.rung)
        self._running[channel_id] = (visit, now + BLAME_SECONDS)
        if self._held.pop(channel_id, None) is not None:
            self._bell.ring()

    def _enter_alone(self, channel_id: str, visit: str, unexplained: int, now: float) -> None:
        must_have_lived = LIVED_SECONDS[min(unexplained - SUSPECT_CLAIMS, len(LIVED_SECONDS) - 1)]
        young = self._started_at + must_have_lived - now
        if young > 0:
            raise Held(young, self._bell.rung)
        if self._suspect != (channel_id, visit) and (self._suspect[0] or self._held):
            raise Held(BLAME_SECONDS, self._bell.rung)
        self._suspect = (channel_id, visit)
        others = [until for name, (_, until) in self._running.items() if name != channel_id]
        if others:
            raise Held(max(others) - now, self._bell.rung)
        self._running[channel_id] = (visit, now + BLAME_SECONDS)

    def _forgive(self, now: float) -> None:
        """Forget the turns that have run for long enough."""
        for name, (visit, until) in list(self._running.items()):
            if until <= now:
                self.leave(name, visit)
