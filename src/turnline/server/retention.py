"""Retention: a server prunes what closed long ago, by itself and in small steps (`serve --retain`, Y3).

Rule 1: a round prunes a bounded number of channels, and lines are deleted in short transactions. Several
servers may do it at once: the log takes one tombstone for each channel.

Rule 2: time is counted by the monotonic clock. If the clock of the machine jumps ahead by more than a day, or
is days ahead of the newest line when the server starts, it is not believed before a day has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from turnline.errors import LogError
from turnline.errors.base import count_of
from turnline.hub.audit import AUDIT_CHANNEL
from turnline.hub.hub import Hub
from turnline.hub.timers import Clock
from turnline.log.base import Log, Prunes
from turnline.log.pruning import (
    CHANNELS_PER_ARCHIVE,
    TRUSTED_AHEAD,
    Pruned,
    Pruner,
    finish_pruning,
    newest_time,
    plan_trees,
)
from turnline.log.records import Records

logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = 60.0

OpenRecordsOf = Callable[[Log], AbstractAsyncContextManager[Records]]


class Retain(Struct, frozen=True, kw_only=True):
    """What a server keeps."""

    age: timedelta
    """Trees that closed longer ago are pruned."""
    archive: Path | None
    """The folder that gets them first."""
    open_records: OpenRecordsOf
    tell: Callable[[str], None] = logger.info
    """Gets one line for each round that pruned something."""


class RetentionClock:
    """The time that ages are counted from (Rule 2)."""

    def __init__(self, clock: Clock, newest: datetime) -> None:
        self._clock = clock
        self._time = min(clock.now(), newest + TRUSTED_AHEAD)
        self._at = clock.monotonic()
        self._ahead_since: float | None = None

    def now(self) -> datetime:
        wall, at = self._clock.now(), self._clock.monotonic()
        counted = self._time + timedelta(seconds=at - self._at)
        if wall - counted <= TRUSTED_AHEAD:
            self._ahead_since = None
            counted = wall
        elif self._ahead_since is None:
            self._ahead_since = at
            logger.warning(
                "retention: the clock is %s ahead. Until it has been so for a day, ages are counted from %s.",
                timedelta(seconds=round((wall - counted).total_seconds())),
                counted.isoformat(timespec="seconds"),
            )
        elif at - self._ahead_since >= TRUSTED_AHEAD.total_seconds():
            self._ahead_since = None
            counted = wall
        self._time, self._at = counted, at
        return counted


class Retention:
    """Prunes the log of one hub, round by round."""

    def __init__(self, hub: Hub, retain: Retain) -> None:
        self._hub = hub
        self._retain = retain
        self._time: RetentionClock | None = None

    async def run(self) -> None:
        """Go on until it is cancelled. What fails is logged, and tried again in the next round."""
        while True:
            try:
                await self.once()
            except LogError as error:
                logger.warning("retention: %s The next round tries again.", error)
            except Exception:  # Whatever it is, the server goes on, and so does the next round.
                logger.exception("retention: a round failed")
            await self._hub.clock.sleep(ROUND_SECONDS)

    async def once(self) -> Pruned:
        """Do one round."""
        hub, log = self._hub, self._hub.log
        assert isinstance(log, Prunes)
        if self._time is None:
            self._time = RetentionClock(hub.clock, await newest_time(log, AUDIT_CHANNEL))
        before = self._time.now() - self._retain.age
        deleted = await finish_pruning(log)
        trees, kept, is_all = await plan_trees(log, before=before, labels={}, most=CHANNELS_PER_ARCHIVE)
        pruner = Pruner(
            log,
            partial(self._retain.open_records, log),
            now=hub.clock.now,
            new_id=hub.new_id,
            forget=hub.forget_pruned,
        )
        done = await pruner.prune(trees, self._retain.archive)
        if done.trees:
            hub.audit_log.note_pruned(done, before)
        pruned = f"{count_of(done.channels, 'channel')} of {count_of(len(done.trees), 'tree')}"
        told = (
            f"retention: pruned {pruned} that closed before {before:%Y-%m-%d %H:%M} UTC; "
            f"{count_of(len(kept) + len(done.kept), 'tree')} kept; "
            f"{'nothing is left' if is_all else 'more in the next round'}"
        )
        (self._retain.tell if done.trees or deleted else logger.info)(told)
        return done
