"""A channel and those below it: nested runs, conversations of steps, delegations.

    parent: channel.child {"child"}                   before the child's first line
    top:    channel.child {"child", "run", "parent"}  of a run of a flow further below, which counts there

Rule 1: a child is on its parent's log before it is opened. So the children of a channel are read from
its own lines, and a channel that has closed gets no new ones.

Rule 2: a tree is closed from the top. What a closed channel has noted and not opened yet is closed by
its opener, which looks at the parent once more; `is_cut_off` finds what a crash left between.

Rule 3: a fork has its origin's past, not its origin's children.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from msgspec import Struct

from turnline.core import event_types as ev
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import State
from turnline.core.study.spent import Counter, Spent
from turnline.errors import ChannelQuarantined, CorruptRecord, Refused, UnknownChannel
from turnline.log.forks import ForkingLog, reading

CLOSED_AT_ONCE: Final = 64
"""Channels of a tree that are closed at the same time."""
MAX_COUNTED: Final = 10_000
"""Channels below one that are counted for its usage. What is below more of them is not complete."""
KEPT_COUNTS: Final = 20_000
"""Closed channels whose usage is kept in memory. One that was forgotten is read again."""


class Below(Struct, frozen=True, kw_only=True):
    """What the channels below one used, all together."""

    spent: Spent = Spent()
    channels: int = 0
    is_complete: bool = True
    """Whether all of them were counted."""


class Writer(Protocol):
    """The part of a hub that a tree needs."""

    lines: ForkingLog

    async def state(self, channel_id: str) -> State: ...

    async def write(
        self, channel_id: str, event_type: str, data: JsonObject, **fields: Any
    ) -> tuple[Envelope, ...]: ...


class Tree:
    """The channels of a hub, by their parents."""

    def __init__(self, hub: Writer) -> None:
        self._hub = hub
        self._counted: OrderedDict[str, tuple[Spent, list[str]]] = OrderedDict()
        """Closed channel -> what it used itself, and its children."""

    async def note_child(self, spec: ChannelSpec) -> None:
        """Write that a channel is about to be opened, on its parent and, of a run, on the top channel.

        A second time changes nothing: the line has the id of the child. Raises `ChannelClosed` if a channel
        above has closed, and `TooManyRuns`.
        """
        if spec.parent_id is None:
            return
        data: JsonObject = {"child": spec.channel_id}
        if spec.is_flow_run:
            top = await self.top(spec.parent_id)
            data["run"] = True
            if top != spec.parent_id:
                await self._note(top, data | {"parent": spec.parent_id})
                del data["run"]
        await self._note(spec.parent_id, data)

    async def close_if_cut_off(self, channel_id: str) -> bool:
        """Close the channel if a channel above it has closed; return whether that was so."""
        if not await self.is_cut_off(channel_id):
            return False
        await self._close([channel_id], by="")
        return True

    async def is_cut_off(self, channel_id: str) -> bool:
        """Whether a channel above this one has closed."""
        state = await self._hub.state(channel_id)
        while state.spec.parent_id is not None and state.spec.forked_from is None:
            state = await self._hub.state(state.spec.parent_id)
            if state.is_over:
                return True
        return False

    async def top(self, channel_id: str) -> str:
        """Return the channel above this one, or this one, that has no parent."""
        while (parent := (await self._hub.state(channel_id)).spec.parent_id) is not None:
            channel_id = parent  # At most `max_depth` times.
        return channel_id

    async def lines(self, channel_id: str) -> AsyncIterator[Envelope]:
        """Yield the channel's own lines: of a fork, those after the past it shares."""
        origin = await self._hub.lines.origin(channel_id)
        own = self._hub.lines.read(channel_id, after=0 if origin is None else origin.seq)
        async with reading(own) as lines:
            async for line in lines:
                yield line

    async def children(self, channel_id: str) -> list[str]:
        """Return the channels that were opened directly below this one, in their order."""
        return [child async for line in self.lines(channel_id) if (child := child_of(line))]

    async def spent(self, channel_id: str) -> tuple[Spent, Below]:
        """Return what a channel used itself, and what the channels below it used."""
        own, children = await self._count(channel_id)
        return own, await self.below(children)

    async def below(self, children: Iterable[str], *, most: int = MAX_COUNTED) -> Below:
        """Return what these channels and all below them used. Each is counted once, and `most` of them."""
        total, seen, pending = Spent(), set[str](), list(children)
        while pending and len(seen) < most:
            channel_id = pending.pop()
            if channel_id in seen:
                continue
            with suppress(UnknownChannel, ChannelQuarantined, CorruptRecord):
                used, more = await self._count(channel_id)
                seen.add(channel_id)
                total += used
                pending += more
        return Below(spent=total, channels=len(seen), is_complete=not pending)

    async def _count(self, channel_id: str) -> tuple[Spent, list[str]]:
        """Return what a channel used itself, and its children. A closed one is read once."""
        if channel_id in self._counted:
            self._counted.move_to_end(channel_id)
            return self._counted[channel_id]
        is_over = (await self._hub.state(channel_id)).is_over
        counter, children = Counter(), list[str]()
        async for line in self.lines(channel_id):
            counter.take(line)
            children += [child] if (child := child_of(line)) else []
        if is_over:
            self._counted[channel_id] = counter.total, children
            if len(self._counted) > KEPT_COUNTS:
                self._counted.popitem(last=False)
        return counter.total, children

    async def close_below(self, channel_id: str, *, by: str) -> None:
        """Close every open channel below this one, from the top down. The others stay as they are."""
        level = [channel_id]
        while level:
            below = [child for one in level for child in await self.children(one)]
            # Others may close the tree at the same time: what they have cancelled is looked into as well.
            level = [child for child in below if await self._is_to_close(child)]
            await self._close(level, by=by)

    async def _close(self, channel_ids: Sequence[str], *, by: str) -> None:
        data: JsonObject = {"reason": CANCELLED, **({"by": by} if by else {})}
        for first in range(0, len(channel_ids), CLOSED_AT_ONCE):
            some = channel_ids[first : first + CLOSED_AT_ONCE]
            await asyncio.gather(*(self._close_one(one, data) for one in some))

    async def _close_one(self, channel_id: str, data: JsonObject) -> None:
        with suppress(Refused, ChannelQuarantined):
            await self._hub.write(channel_id, ev.EV_CHANNEL_CLOSED, data)

    async def _is_to_close(self, channel_id: str) -> bool:
        try:
            state = await self._hub.state(channel_id)
        except (UnknownChannel, ChannelQuarantined):  # Noted, and not opened: its opener closes it.
            return False
        return not state.is_over or state.pending_close_reason == CANCELLED

    async def _note(self, channel_id: str, data: JsonObject) -> None:
        once: dict[str, Any] = {"audience": [], "envelope_id": data["child"]}
        await self._hub.write(channel_id, ev.EV_CHANNEL_CHILD, data, **once)


def child_of(line: Envelope) -> str:
    """Return the channel that a line says was opened directly below; empty if it says nothing of that."""
    is_own = line.event_type == ev.EV_CHANNEL_CHILD and "parent" not in line.event_data
    return str(line.event_data.get("child", "")) if is_own else ""
