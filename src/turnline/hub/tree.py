"""A channel and those below it: nested runs, conversations of steps, delegations.

    parent: channel.child {"child", "by"}                   before the child's first line
    top:    channel.child {"child", "by", "run", "parent"}  of a run of a flow further below: it counts there

Rule 1: a child is on its parent's log before it is opened. So the children of a channel are read from
its own lines, and a channel that has closed gets no new ones.

Rule 2: a channel that a turn has opened (its id says which) closes with that turn, and with its parent. Every
hub that sees the end closes what is left open, and a hub that starts closes what a crash has left. The opener
of a channel looks at its parent once more: the end may have come before the channel's first line.

Rule 3: a turn that is paused for its children is resumed by the hub, when the first of them has closed. The
line that closes the child and the line that pauses the turn are on two channels, so the hub looks after each
of them; the later one finds the other (N1).

Rule 4: a fork has its origin's past, not its origin's children.

Rule 5: the log says who waits. The creator of a channel waits for it while the turn it was opened from, on
the parent, has begun and has not ended: claimed, or paused for its children (N7b). The process that waited
may be gone; the next one resumes the same turn. An agent cannot ask, directly or through others, an agent
that waits for it (T7).

Rule 6: a question of a turn below goes up, to people or to the group of a flow's step (`core.questions`, rule
1b). While the turn above waits for its children the hub asks it there, under ids that follow from the
question, and copies down what it comes to: the answer, or that none came in time. Each hub looks after each
line of either channel, so a crash between two of them loses nothing. People who were asked late still have
`GRACE_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from turnline.core import event_types as ev, questions
from turnline.core.channel import ChannelSpec, is_child_id, turn_of
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.expectations import GRACE_SECONDS
from turnline.core.governance import Registration
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import Question, State
from turnline.core.study.spent import Counter, Spent
from turnline.errors import (
    ChannelQuarantined,
    CorruptRecord,
    DelegationCycle,
    Refused,
    TooManyQuestions,
    UnknownChannel,
)
from turnline.log.forks import reading

if TYPE_CHECKING:
    from turnline.hub.hub import Hub

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

    def to_dict(self) -> JsonObject:
        counted = {"channels": self.channels, "complete": self.is_complete}
        return {**counted, **msgspec.to_builtins(self.spent)}


class Tree:
    """The channels of a hub, by their parents."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.open_children: dict[str, dict[str, None]] = {}
        """Channel -> the open channels directly below it."""
        self._counted: OrderedDict[str, tuple[Spent, list[str]]] = OrderedDict()
        """Closed channel -> what it used itself, and its children."""

    async def note_child(self, spec: ChannelSpec) -> None:
        """Write that a channel is about to be opened, on its parent and, of a run, on the top channel.

        A second time changes nothing: the line has the id of the child. Raises `ChannelClosed` if a channel
        above has closed, `TooManyRuns`, and `Denied` for the id of a child of another one's turn.
        """
        if spec.parent_id is None:
            return
        data: JsonObject = {"child": spec.channel_id, "by": spec.creator_id}
        if spec.is_flow_run:
            top = await self.top(spec.parent_id)
            data["run"] = True
            if top != spec.parent_id:
                await self._note(top, data | {"parent": spec.parent_id})
                del data["run"]
        await self._note(spec.parent_id, data)

    def watch(self, channel_id: str, parent_id: str, *, is_fork: bool, is_over: bool) -> None:
        """Note an open channel below another; forget it when it is over."""
        if not parent_id or is_fork:
            return
        if not is_over:
            self.open_children.setdefault(parent_id, {})[channel_id] = None
        elif (below := self.open_children.get(parent_id)) is not None:
            below.pop(channel_id, None)
            if not below:
                del self.open_children[parent_id]

    def left_open(self, parent: State) -> list[str]:
        """Return the open channels directly below this one that nothing waits for any more."""
        below = self.open_children.get(parent.channel_id, ())
        return [one for one in below if _has_ended(one, parent)]

    async def look_at(self, channel_id: str, *, child: str = "") -> None:
        """Close what turns of the channel have left open; resume its turn if a child it waits for has closed.

        `child` is the one that has closed, if the caller knows.
        """
        with suppress(UnknownChannel, ChannelQuarantined):
            state = await self._hub.state(channel_id)
            await self.close(self.left_open(state))
            await self._relay(state, [child] if child else self.open_children.get(channel_id, ()))
            if (pause := state.pause) is None:
                return
            for awaited in pause.children:
                if child in ("", awaited) and await self._has_closed(awaited, channel_id):
                    with suppress(Refused):  # It was resumed already, or has closed.
                        data: JsonObject = {"pause": pause.seq}
                        await self._hub.write(channel_id, ev.EV_TURN_RESUMED, data, audience=[])
                    return

    def must_look(self, state: State) -> bool:
        """Return whether something is to be done for the channels below this one."""
        waits = state.pause is not None and bool(state.pause.children)
        relayed = any(is_child_id(one.call) for one in state.questions.values())
        return waits or relayed or bool(state.children and self.left_open(state))

    async def _relay(self, parent: State, children: Iterable[str]) -> None:
        """Ask what turns below ask, and copy down what came of it (rule 6)."""
        if parent.is_over or not questions.can_relay(parent):
            return
        for child in [one for one in children if turn_of(one, parent.channel_id) == parent.turn]:
            with suppress(UnknownChannel, ChannelQuarantined):
                below = await self._hub.state(child)
                for request_id, one in below.questions.items():
                    if one.goes_up and not one.answer_seq:
                        await self._relay_question(parent, below, request_id, one)
        relayed = [(key, one) for key, one in parent.questions.items() if is_child_id(one.call)]
        for request_id, one in relayed:  # Once the channel below has closed, no turn waits for the answer.
            if not one.answer_seq and await self._has_closed(one.call, parent.channel_id):
                await self._expire(parent, request_id)

    async def _relay_question(self, parent: State, below: State, request_id: str, one: Question) -> None:
        found = questions.find(parent, call=below.channel_id, position=one.seq)
        if found is None and parent.pause is not None and parent.pause.children:
            try:
                await self._ask_above(parent, below, request_id, one)
            except TooManyQuestions:
                await self._expire(below, request_id)
        elif found is not None and found[1].is_expired:
            await self._expire(below, request_id)
        elif found is not None and found[1].answer_seq:
            line = await self._line(parent, found[1].answer_seq)
            by = line.event_data.get("by") or line.sender_id
            data: JsonObject = {
                "request_id": request_id,
                "answer": line.event_data.get("answer", ""),
                "by": by,
            }
            data["above"] = parent.channel_id
            await self._write_once(below, ev.EV_HUMAN_ANSWERED, data, f"{request_id}-above"[:64])

    async def _ask_above(self, parent: State, below: State, request_id: str, one: Question) -> None:
        line = await self._line(below, one.seq)
        text, about = str(line.event_data.get("question", "")), line.event_data.get("about", {})
        if not is_child_id(one.call):  # It is asked here first: people are told by whom.
            asker = below.spec.name_of(one.asked_by)
            text, about = f"{asker} asks: {text}", {**about, "agent": asker}
        key = blake2b(f"{below.channel_id}\n{request_id}".encode(), digest_size=16).hexdigest()
        data: JsonObject = {"request_id": key, "question": text, "turn": parent.turn}
        data |= {"call": below.channel_id, "position": one.seq}
        limits = list[float]()
        if one.expires is not None:
            left = one.expires - self._hub.seconds_since(line)
            limits.append(max(left, min(one.expires, GRACE_SECONDS)))
        if group := questions.group_of(parent):
            step = parent.spec.participant(parent.expected_next_speaker or "")
            limits += [] if step is None or step.asks_seconds is None else [step.asks_seconds]
            data |= {"group": group, "about": about}
        elif not parent.spec.people:
            data["about"] = about
        if limits:
            data["expires"] = min(limits)
        await self._write_once(parent, ev.EV_HUMAN_REQUESTED, data, f"{key}-asked")

    async def _expire(self, state: State, request_id: str) -> None:
        await self._write_once(state, ev.EV_TIMER_FIRED, {"question": request_id}, "")

    async def _write_once(self, state: State, event_type: str, data: JsonObject, envelope_id: str) -> None:
        """Write a line, unless another hub has, or the channel has moved on."""
        try:
            await self._hub.write(state.channel_id, event_type, data, envelope_id=envelope_id)
        except TooManyQuestions:
            raise
        except Refused:
            return

    async def _line(self, state: State, seq: int) -> Envelope:
        return (await self._hub.read_recent(state.channel_id, seq - 1))[0]

    async def _has_closed(self, child: str, parent_id: str) -> bool:
        with suppress(UnknownChannel, ChannelQuarantined):
            found = await self._hub.state(child)
            return found.is_over and found.spec.parent_id == parent_id
        return False

    async def end(self, channel_id: str, *, reason: str, by: str) -> tuple[Envelope, ...]:
        """Close a channel, and what is open below it. Raises `ChannelClosed`. Return the lines that close it.

        The channel closes first, so nothing can be opened below it any more.
        """
        below = self.open_below(channel_id)
        lines = await self._hub.write(channel_id, ev.EV_CHANNEL_CLOSED, {"reason": reason, "by": by})
        await self.close(below)
        return lines

    async def close_if_cut_off(self, channel_id: str) -> bool:
        """Close the channel if one above has closed or the turn it is below has ended; return whether so."""
        state = await self._hub.state(channel_id)
        while state.spec.forked_from is None and (parent := await self.parent(state)) is not None:
            if parent.is_over or _has_ended(state.channel_id, parent):
                await self.close([channel_id])
                return True
            state = parent
        return False

    async def parent(self, state: State) -> State | None:
        """Return the channel above, if there is one.

        A channel is deeper than its parent. Raises `ChannelQuarantined` for one that is not: an import can
        bring a circle of channels, and walking up would never end.
        """
        if state.spec.parent_id is None:
            return None
        found = await self._hub.state(state.spec.parent_id)
        if found.spec.depth >= state.spec.depth:
            because = f"its parent {state.spec.parent_id!r} is not above it"
            raise ChannelQuarantined(
                state.channel_id, cause=CorruptRecord(state.channel_id, seq=1, because=because)
            )
        return found

    async def top(self, channel_id: str) -> str:
        """Return the channel above this one, or this one, that has no parent."""
        state = await self._hub.state(channel_id)
        while (parent := await self.parent(state)) is not None:
            state = parent
        return state.channel_id

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

    async def spent(self, state: State) -> tuple[Spent, Below]:
        """Return what a channel used itself, and what the channels below it used."""
        own, children = await self._count(state.channel_id, state)
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

    async def _count(self, channel_id: str, known: State | None = None) -> tuple[Spent, list[str]]:
        """Return what a channel used itself, and its children. A closed one is read once."""
        if channel_id in self._counted:
            self._counted.move_to_end(channel_id)
            return self._counted[channel_id]
        state = known or await self._hub.state(channel_id)
        counter, children = Counter(), list[str]()
        async for line in self.lines(channel_id):
            counter.take(line)
            children += [child] if (child := child_of(line)) else []
        if state.is_over:
            self._counted[channel_id] = counter.total, children
            if len(self._counted) > KEPT_COUNTS:
                self._counted.popitem(last=False)
        return counter.total, children

    def forget(self, channel_id: str) -> None:
        """Forget what was counted of a channel."""
        self._counted.pop(channel_id, None)

    def open_below(self, channel_id: str) -> list[str]:
        """Return every open channel below this one that the hub knows, from the top down."""
        found = list(self.open_children.get(channel_id, ()))
        return found + [one for child in found for one in self.open_below(child)]

    async def close(self, channel_ids: Sequence[str]) -> None:
        """Close these channels, unless they have closed."""
        for first in range(0, len(channel_ids), CLOSED_AT_ONCE):
            await asyncio.gather(*map(self._close_one, channel_ids[first : first + CLOSED_AT_ONCE]))

    async def _close_one(self, channel_id: str) -> None:
        with suppress(Refused, ChannelQuarantined):
            await self._hub.write(channel_id, ev.EV_CHANNEL_CLOSED, {"reason": CANCELLED})

    async def _note(self, channel_id: str, data: JsonObject) -> None:
        once: dict[str, Any] = {"audience": [], "envelope_id": data["child"]}
        await self._hub.write(channel_id, ev.EV_CHANNEL_CHILD, data, **once)


def _has_ended(child: str, parent: State) -> bool:
    """Return whether a channel ends because of its parent, whose turn is over: the channel's id names it.

    With an id of its own it ends with a run or a step's conversation only (`spec.log`): elsewhere it goes on.
    """
    turn = turn_of(child, parent.channel_id)
    return bool(turn or parent.spec.log) if parent.is_over else 0 < turn < parent.turn


def child_of(line: Envelope) -> str:
    """Return the channel that a line says was opened directly below; empty if it says nothing of that."""
    is_own = line.event_type == ev.EV_CHANNEL_CHILD and "parent" not in line.event_data
    return str(line.event_data.get("child", "")) if is_own else ""


ParentOf = Callable[[State], Awaitable[State | None]]
"""See `Tree.parent`."""


async def check_delegation(
    parent_of: ParentOf, parent: State, opener: Registration, asked: Iterable[Registration]
) -> None:
    """Refuse to open a channel below `parent` if one of those `asked` waits for it."""
    chain = [(opener.agent_id, opener.name), *await _waiting_for(parent_of, parent)]
    ids = [agent_id for agent_id, _ in chain]
    for one in asked:
        if one.agent_id in ids:
            waits = [name for _, name in chain[ids.index(one.agent_id) :: -1]]
            raise DelegationCycle([*waits, one.name])


async def _waiting_for(parent_of: ParentOf, channel: State) -> list[tuple[str, str]]:
    """Id and name of everybody who waits for the turn on `channel` to end, nearest first."""
    waiting = list[tuple[str, str]]()
    while (parent := await parent_of(channel)) is not None:
        speaker = parent.spec.participant(parent.expected_next_speaker or "")
        if speaker is None or not _waits(parent):
            break
        if speaker.agent_id == channel.creator_id:
            waiting.append((speaker.agent_id, speaker.name))
        elif not speaker.played_by:  # The wait of a step is not the wait of its player (N7b).
            break
        channel = parent
    return waiting


def has_begun(state: State) -> bool:
    """Return whether a worker has claimed the turn in progress, also if the turn is paused or resumed now."""
    return state.pause is not None or state.claims > 0 or state.floor_line != state.floor_seq


def _waits(state: State) -> bool:
    """Return whether the speaker waits for a channel below: its turn has begun, or waits for its children."""
    return has_begun(state) if state.pause is None else bool(state.pause.children)
