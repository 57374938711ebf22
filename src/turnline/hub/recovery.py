"""Recovery: what a hub takes up from its log when it opens, and what it does on other channels later.

Rule 1: a hub opens from the index of open channels (Y8). It reads a channel's lines when somebody posts or
reads, when a participant attaches that the channel waits for, or when something falls due.

Rule 2: whatever is done here is done again until the log has taken it, or the hub closes. Nothing of it is
kept: the next hub finds the same in the index.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from turnline.core.channel import ChannelFilter, ChannelRow, age
from turnline.core.state import State
from turnline.core.views import Notice, row_for
from turnline.errors import ChannelQuarantined, HubClosed, LogError, UnknownChannel
from turnline.hub.channels import Channels
from turnline.hub.delivery import Delivery
from turnline.hub.retry import retry
from turnline.log.base import Head
from turnline.log.walks import list_rows

if TYPE_CHECKING:
    from turnline.hub.hub import Hub

READ_AT_ONCE: Final = 16
"""Channels that are read together for a participant that attaches."""


class Recovery:
    """What a hub has to do that nobody waits for."""

    def __init__(self, hub: Hub, channels: Channels, delivery: Delivery) -> None:
        self._hub = hub
        self._channels = channels
        self._delivery = delivery
        self._paused: list[str] = []
        """The channels that waited for their children when the hub was opened."""
        self._errands: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stop what is under way; the next hub takes it up."""
        for task in self._errands:
            task.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)

    async def list_open(self, heads: Sequence[Head]) -> list[ChannelRow]:
        """Return the rows of the open channels, the oldest first. One that has no row is read."""
        listed = await list_rows(self._hub.lines, ChannelFilter(is_closed=False))
        rows = {row.channel_id: row for row in listed}
        for head in heads:
            if not _is_current(rows.get(head.channel_id), head):
                with suppress(UnknownChannel, ChannelQuarantined):
                    entry = await self._channels.get(head.channel_id)
                    if not entry.is_over:  # It may have closed since its head was read.
                        rows[head.channel_id] = row_for(entry.adapter, entry.state)
        found = sorted(rows.values(), key=age)
        self._paused = [row.channel_id for row in found if row.waits_for_children]
        return found

    def look_at_tree(self, state: State) -> None:
        """Look below a channel that waits for children or left some open; above one that is over or asks."""
        tree, spec = self._hub.tree, state.spec
        if tree.must_look(state):
            self._start(self._repeat(partial(tree.look_at, spec.channel_id)))
        asks_above = any(one.goes_up and not one.answer_seq for one in state.questions.values())
        if (state.is_over or asks_above) and spec.parent_id is not None:
            self._start(self._repeat(partial(tree.look_at, spec.parent_id, child=spec.channel_id)))

    def look_at_found(self, state: State) -> None:
        """Do the same for a channel that others wrote: the turn that opened it may have ended before."""
        self.look_at_tree(state)
        if not state.is_over and (parent_id := state.spec.parent_id):
            self._start(self._repeat(partial(self._hub.tree.look_at, parent_id, child=state.channel_id)))

    def look_at_all(self) -> None:
        """Look at what happened while no hub looked: children that closed, and those that a crash left."""
        channels, self._paused = self._paused, []
        self._start(self._look_at_all(sorted({*channels, *self._hub.tree.open_children})))

    def remind(self, agent_id: str, channels: Sequence[str]) -> None:
        """Read the channels that waited for a participant before it attached, and wake it."""
        self._start(self._remind(agent_id, channels))

    async def _look_at_all(self, channels: Sequence[str]) -> None:
        for channel_id in channels:
            await self._repeat(partial(self._hub.tree.look_at, channel_id))

    async def _remind(self, agent_id: str, channels: Sequence[str]) -> None:
        suspects = list[Notice]()
        for first in range(0, len(channels), READ_AT_ONCE):
            if not self._delivery.is_attached(agent_id):
                return
            found = await asyncio.gather(*map(self._read, channels[first : first + READ_AT_ONCE]))
            suspects += self._delivery.remind(agent_id, [state for state in found if state is not None])
        self._delivery.wake_suspects(agent_id, suspects)

    async def _read(self, channel_id: str) -> State | None:
        """Return the channel's state as soon as the log can be read; None if the channel cannot be used."""
        found = list[State]()

        async def read() -> None:
            with suppress(UnknownChannel, ChannelQuarantined):  # It costs this channel, not the others.
                found.append(await self._hub.state(channel_id))

        await self._repeat(read)
        return found[0] if found else None

    def _start(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _repeat(self, look: Callable[[], Awaitable[None]]) -> None:
        """Call `look` until the log has taken what it writes, or the hub closes."""
        with suppress(HubClosed):
            await retry(self._hub.clock, look, "what waits at a channel is not resumed yet", on=LogError)


def _is_current(row: ChannelRow | None, head: Head) -> bool:
    """Return whether the index knows the channel's last line. The hub's own channels have no row.

    A fork counts its lines on from its origin, so only its row says how many it has.
    """
    if head.channel_id.startswith("_"):
        return True
    return row is not None and (bool(row.origin) or row.seq >= head.seq)
