"""Following the log: what other processes append reaches whoever is attached here (T1, T6).

Rule 1: the tail says how far a channel goes, never what happened; what is new is read, folded
and told as after an append of our own. What is known already costs a comparison.

Rule 2: a channel that is being posted to, or opened, by this hub is left alone meanwhile:
whoever posts meets what others appended, or has appended it. Then it is looked at: what was
written may have been answered with an error, so that nobody here has been told.

Rule 3: what goes wrong with one channel costs that channel; the others are followed on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from turnline.core.directory import DIRECTORY_CHANNEL
from turnline.errors import ChannelQuarantined, LogError, UnknownChannel
from turnline.hub.channels import Channels, Entry
from turnline.hub.directory import HubDirectory
from turnline.hub.opening import Opening
from turnline.hub.posting import Posting
from turnline.hub.retry import RETRY_SECONDS
from turnline.hub.timers import Clock, Timers
from turnline.log.base import Head, Log

logger = logging.getLogger(__name__)


class Following:
    """Reads a log's tail for a hub, until it is cancelled."""

    def __init__(
        self,
        log: Log,
        channels: Channels,
        posting: Posting,
        opening: Opening,
        directory: HubDirectory,
        *,
        timers: Timers,
        clock: Clock,
        found: Callable[[Entry], None],
        is_open: Callable[[str], bool],
        pruned: Callable[[str], None],
        erased: Callable[[str], None],
    ) -> None:
        self._log = log
        self._channels = channels
        self._posting = posting
        self._opening = opening
        self._directory = directory
        self._timers = timers
        self._clock = clock
        self._found = found
        """Told of a channel that was not in memory, or that nobody has been told of."""
        self._is_open = is_open
        """Says whether this hub knows a channel as open."""
        self._pruned = pruned
        """Forgets a channel that is not on the log any more."""
        self._erased = erased
        """Drops what is kept of a channel beside its entry, which is read again."""

    async def run(self, position: int) -> None:
        """Follow what stands behind `position`; while the log cannot be read, try again."""
        while True:
            try:
                async for head in self._log.tail(after=position):
                    await self._look_safely(head)
                    position = head.position
            except LogError as error:
                logger.warning("the log could not be followed; trying again: %s", error)
                # Nobody here could be told of anything: an outage expires nothing (R8).
                self._timers.wake()
                await self._clock.sleep(RETRY_SECONDS)
            else:
                return  # The log was closed.

    async def _look_safely(self, head: Head) -> None:
        try:
            await self._look(head)
        except LogError:
            raise  # Looked at again, once the log can be read.
        except Exception:  # A receiver's own, or a mistake of ours: the others are to be told.
            logger.exception("channel %s could not be followed", head.channel_id)

    async def _look(self, head: Head) -> None:
        if head.channel_id == DIRECTORY_CHANNEL:
            await self._directory.hydrate()
        elif head.is_pruned:
            self._pruned(head.channel_id)
        elif not head.channel_id.startswith("_"):
            await self._opening.settled(head.channel_id)
            entry = self._channels.cached(head.channel_id)
            if head.closed and not self._is_open(head.channel_id) and _goes_on(entry, head):
                self._erased(head.channel_id)
            if entry is not None and entry.told_seq < head.seq <= entry.state.seq:
                self._found(entry)  # Somebody has read it before we came.
            elif entry is not None:
                self._posting.follow(entry, head.seq)
            elif not head.closed or self._is_open(head.channel_id):
                # One that was opened and closed elsewhere meanwhile waits for nobody.
                with suppress(UnknownChannel, ChannelQuarantined):
                    entry = await self._channels.get(head.channel_id)
                    self._found(entry)
                    # The read may have begun for others, before this line was there.
                    self._posting.follow(entry, head.seq)


def _goes_on(entry: Entry | None, head: Head) -> bool:
    """Whether a channel that was closed before has a new line: one that says what was erased (Y1)."""
    return entry is None or (entry.is_over and head.seq > entry.state.seq)
