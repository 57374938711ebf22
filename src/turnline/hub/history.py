"""History: what a channel's log added up to at any of its lines, why it moved on, and another way to go on.

Rule 1: nothing here is stored. A state of the past is folded from the log; every so many lines one is
kept in memory, so that a slider folds a page, not the whole conversation.

Rule 2: what is asked of the past changes nothing. `fork` opens a channel of its own (`log.forks`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from msgspec.structs import replace

from turnline.core.adapter import AnyAdapter
from turnline.core.channel import ChannelSpec, ForkedFrom
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.governance import Registration
from turnline.core.graph import TransitionGraph
from turnline.core.state import State
from turnline.core.study.difference import Difference, Side, difference
from turnline.core.study.what_if import WhatIf, what_if
from turnline.core.study.why import Why, why
from turnline.errors import (
    BadSpec,
    ChannelQuarantined,
    LogUnavailable,
    NotParticipant,
    PastErased,
    UnknownChannel,
    UnknownName,
)
from turnline.hub.channels import Channels
from turnline.hub.opening import Opening
from turnline.hub.tree import Tree, child_of
from turnline.log.forks import SUFFIX, ForkingLog, reading
from turnline.log.origin import newest_name

EVERY: Final = 256
"""Lines between two states that are kept."""
KEPT: Final = 1024
"""How many states are kept, over all channels."""
OPERATOR: Final = "operator"
"""Who forks where nobody of the channel asks for it."""
MAX_DEPTH: Final = 32
"""How many forks of forks a fork may be above its first origin: reading it reads through them all."""

Folded = tuple[AnyAdapter, State]
MayOpen = Callable[[Registration, ChannelSpec], Awaitable[None]]
"""Raises `Denied`, or returns."""


class History:
    """The past of a hub's channels."""

    def __init__(
        self,
        lines: ForkingLog,
        channels: Channels,
        opening: Opening,
        tree: Tree,
        *,
        lookup: Callable[[str], Awaitable[Registration]],
        may_open: MayOpen,
        place: Callable[[Registration], AbstractContextManager[None]],
    ) -> None:
        self._lines = lines
        self._channels = channels
        self._opening = opening
        self._tree = tree
        self._lookup = lookup
        self._may_open = may_open
        self._place = place
        """Keeps a place among the open channels of a participant's user. Raises `Denied`."""
        self._kept: OrderedDict[tuple[str, int], State] = OrderedDict()

    async def state_at(self, channel_id: str, seq: int) -> State:
        """Return what the channel's log added up to after line `seq`. Read it; do not change what is in it.

        Raises `UnknownName` for a line the channel does not have.
        """
        await self._check(channel_id, seq)
        live = self._channels.cached(channel_id)
        if live is not None and live.state.seq == seq:
            return live.state
        return (await self._folded(channel_id, seq))[1]

    async def states(self, channel_id: str) -> AsyncIterator[tuple[Envelope, State]]:
        """Yield every line of the channel with the state after it, in one reading."""
        await self._check(channel_id, 1)
        folded: Folded | None = None
        with _quarantine(channel_id):
            async with reading(self._lines.read(channel_id)) as lines:
                async for line in lines:
                    folded = self._fold(folded, line)
                    yield line, folded[1]

    async def why(self, channel_id: str, seq: int) -> Why:
        """Say why line `seq` moved the floor, or why it did not, rule by rule."""
        await self._check(channel_id, seq)
        adapter, before = await self._before(channel_id, seq)
        async with reading(self._lines.read(channel_id, after=seq - 1)) as lines:
            line = await anext(lines)
        return await asyncio.to_thread(why, before, line, adapter)

    async def fork(
        self,
        channel_id: str,
        *,
        at: int,
        by: str | None = None,
        user: str = "",
        private: JsonObject | None = None,
    ) -> str:
        """Open a channel with the past that this one had after line `at`; return its id.

        `by` is a member's id or name; without it the fork is the operator's. It counts among the open
        channels of that participant's user, or of `user` if the project registered the participant.
        `private` replaces private keys of a run, such as its user.
        Raises `UnknownName` for a line the channel does not have, `NotParticipant` for another participant,
        `PastErased` if something of that past was erased.
        """
        await self._check(channel_id, at)
        origin = await self._origin(channel_id, at)
        fork_id, folded = self._opening.new_id() + SUFFIX, None
        with _quarantine(channel_id):
            async for line in self._lines.past(fork_id, origin):
                folded = self._fold(folded, line)
        assert folded is not None  # Line 1 is there: `at` is one of the channel's.
        if folded[1].is_incomplete:
            raise PastErased(channel_id, at=at)
        if by is None:
            await self._opening.fork(*folded, origin, by=OPERATOR, private=private)
            return fork_id
        who = await self._lookup(by)
        who = replace(who, user=who.user or user)
        _check_member(channel_id, folded[1].spec, who)
        await self._may_open(who, folded[1].spec)
        with self._place(who):
            await self._opening.fork(*folded, origin, by=who.agent_id, user=who.user, private=private)
        return fork_id

    async def diff(self, a: str, b: str) -> Difference:
        """Say where two channels part, and what is different in the end: context variables, turns, cost."""
        return difference(await self._side(a), await self._side(b))

    async def what_if(self, channel_id: str, graph: TransitionGraph | JsonObject | str) -> WhatIf:
        """Say where another graph would have moved the floor differently, turn by turn.

        Raises `PastErased` if content of the channel was erased.
        """
        graph = graph if isinstance(graph, TransitionGraph) else TransitionGraph.loads(graph)
        past = [one async for one in self.states(channel_id)]
        past[-1][1].check_complete()
        return what_if(past, graph)

    # Inside.

    async def _side(self, channel_id: str) -> Side:
        past = [one async for one in self.states(channel_id)]
        lines = [line for line, _ in past]
        below = await self._tree.below(filter(None, map(child_of, lines)))
        return Side(past[-1][1], lines, below.spent)

    async def _check(self, channel_id: str, seq: int) -> None:
        await self._channels.record(channel_id)
        head = None if channel_id.startswith("_") else await self._lines.head(channel_id)
        if head is None:
            await self._channels.get(channel_id)  # It says whether the channel was pruned.
            raise UnknownChannel(channel_id)
        if not 1 <= seq <= head.seq:
            raise UnknownName("line", str(seq), (f"1 to {head.seq}",), do=f"That is all of {channel_id!r}.")

    async def _origin(self, channel_id: str, at: int) -> ForkedFrom:
        """What the fork has its past from: where that is shared, the channel it is shared with."""
        above = await self._lines.origin(channel_id)
        while above is not None and at <= above.seq:
            channel_id = above.channel
            above = await self._lines.origin(channel_id)
        depth = 0
        while above is not None:
            above, depth = await self._lines.origin(above.channel), depth + 1
        if depth >= MAX_DEPTH:
            raise BadSpec("at", found=f"in a fork of a fork, {depth} deep", expected=f"less than {MAX_DEPTH}")
        return ForkedFrom(channel_id, at, await newest_name(self._lines))

    async def _before(self, channel_id: str, seq: int) -> Folded:
        """The state that line `seq` was decided on."""
        adapter, state = await self._folded(channel_id, max(seq - 1, 1))
        return adapter, adapter.initial(state.spec) if seq == 1 else state

    async def _folded(self, channel_id: str, seq: int) -> Folded:
        folded = self._nearest(channel_id, seq)
        if folded is None or folded[1].seq < seq:
            after = 0 if folded is None else folded[1].seq
            with _quarantine(channel_id):
                async with reading(self._lines.read(channel_id, after=after)) as lines:
                    async for line in lines:
                        folded = self._fold(folded, line)
                        self._keep(channel_id, folded[1])
                        if line.seq == seq:
                            break
        assert folded is not None  # The channel has line `seq`.
        return folded

    def _fold(self, folded: Folded | None, line: Envelope) -> Folded:
        if folded is None:
            return self._channels.begin(line)
        adapter, state = folded
        return adapter, adapter.fold(state, line)

    def _nearest(self, channel_id: str, seq: int) -> Folded | None:
        """The last state at or before `seq` that is kept."""
        for at in range(seq - seq % EVERY, 0, -EVERY):
            state = self._kept.get((channel_id, at))
            if state is not None:
                self._kept.move_to_end((channel_id, at))
                return self._channels.adapter(state.spec.type), state
        return None

    def forget(self, channel_id: str) -> None:
        """Forget the states of a channel whose content was erased, and of forks, which may have its lines."""
        for key, state in list(self._kept.items()):
            if key[0] == channel_id or state.spec.forked_from is not None:
                del self._kept[key]

    def _keep(self, channel_id: str, state: State) -> None:
        if state.seq % EVERY == 0:
            self._kept[channel_id, state.seq] = state
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def _check_member(channel_id: str, spec: ChannelSpec, who: Registration) -> None:
    if spec.participant(who.agent_id) is None:
        names = [one.name for one in spec.participants]
        raise NotParticipant(channel_id, sender=who.agent_id, participants=names)


@contextmanager
def _quarantine(channel_id: str) -> Iterator[None]:
    """What cannot be read or folded is told as whoever touches the channel is told (E5)."""
    try:
        yield
    except LogUnavailable:
        raise
    except Exception as error:
        raise ChannelQuarantined(channel_id, cause=error) from error
