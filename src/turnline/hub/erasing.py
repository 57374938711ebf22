"""Erasing: the content of a conversation disappears, and its chain stays (Y2).

    payload.erased {"lines": [[4, 4], [7, 9]], "by": ..., "reason": ...}

Rule 1: only what is over is erased. A channel, the channels above and below it and its forks are closed;
so nobody works with what disappears, and no rule has to decide without it.

Rule 2: a whole channel takes the channels below it along, the lowest first. A crash in between leaves the
upper ones as they are, and erasing again goes on.

Rule 3: what was erased once is left alone, so erasing twice writes nothing. It finishes what an erase left
undone that was interrupted (`Erases`).

Rule 4: a fork has lines of its origin. When those are erased, its snapshot and its row in the index go too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from turnline.core import event_types as ev
from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import is_code, without_content
from turnline.core.envelope import SCHEMA_VERSION, Envelope
from turnline.core.state import State
from turnline.core.views import row_for
from turnline.errors import EraseRefused, LogConflict
from turnline.hub.channels import Channels

if TYPE_CHECKING:
    from turnline.hub.hub import Hub

CONFLICTS: Final = 10
MAX_ERASED: Final = 10_000
"""Channels of one tree that are erased together, and forks that are looked at."""
_PAGE: Final = 256

Range = tuple[int, int]
"""The first and the last line."""


class Erasure(Struct, frozen=True, kw_only=True):
    """What was erased."""

    channels: dict[str, int]
    """Channel -> how many of its lines lost their content."""


class Erasing:
    """Erases what is on the log of one hub."""

    def __init__(self, hub: Hub, channels: Channels) -> None:
        self._hub = hub
        self._channels = channels

    async def erase(
        self, channel_id: str, *, by: str, lines: Sequence[Range] | None = None, reason: str = "requested"
    ) -> Erasure:
        """Erase the content of a closed channel and of those below it, or of some of its lines.

        `reason` is a code, such as `requested`: it stays on the log. Raises `EraseRefused`.
        """
        if not is_code(reason):
            because = f"the reason is {reason[:40]!r}; expected a code of small letters, such as 'requested'"
            raise EraseRefused(channel_id, because=because)
        top = await self._hub.state(channel_id)
        await self._refuse_open_above(top)
        tree = await self._tree(channel_id)
        await self._refuse_open(channel_id, tree)
        if lines is not None:
            tree = [channel_id]
        done = dict[str, int]()
        for one in reversed(tree):
            done[one] = await self._erase(one, by=by, reason=reason, lines=lines)
            await self._clean_forks(one)
        return Erasure(channels={name: count for name, count in done.items() if count})

    async def _refuse_open_above(self, state: State) -> None:
        below = state
        while True:
            if not state.is_over:
                raise EraseRefused(below.channel_id, because=_open(state.channel_id, below.channel_id))
            above = await self._hub.tree.parent(state)
            if above is None:
                return
            state = above

    async def _tree(self, channel_id: str) -> list[str]:
        """Return the channel and all below it, the upper ones first."""
        found, pending = dict[str, None](), [channel_id]
        while pending:
            one = pending.pop(0)
            if one in found:
                continue
            found[one] = None
            if len(found) > MAX_ERASED:
                because = f"more than {MAX_ERASED} channels are below it; erase those first"
                raise EraseRefused(channel_id, because=because)
            pending += [child for child in await self._hub.tree.children(one) if await self._exists(child)]
        return list(found)

    async def _exists(self, channel_id: str) -> bool:
        return await self._hub.lines.head(channel_id) is not None

    async def _refuse_open(self, channel_id: str, tree: Iterable[str]) -> None:
        pending, seen = list(tree), set[str]()
        while pending:
            one = pending.pop()
            if one in seen:
                continue
            seen.add(one)
            if len(seen) > MAX_ERASED:
                because = f"more than {MAX_ERASED} forks and channels hang together with it"
                raise EraseRefused(channel_id, because=because)
            if not (await self._hub.state(one)).is_over:
                raise EraseRefused(channel_id, because=_open(one, channel_id))
            pending += await self._forks(one)

    async def _forks(self, channel_id: str) -> list[str]:
        found, last = list[str](), None
        where = ChannelFilter(origin=channel_id)
        while page := await self._hub.lines.rows(where, after=last, limit=_PAGE):
            found += [row.channel_id for row in page]
            last = page[-1]
        return found

    async def _erase(self, channel_id: str, *, by: str, reason: str, lines: Sequence[Range] | None) -> int:
        """Erase one channel; return how many lines lost their content."""
        for _ in range(CONFLICTS):
            origin = await self._hub.lines.origin(channel_id)
            inherited = 0 if origin is None else origin.seq
            whole = [line async for line in self._hub.lines.read(channel_id)]
            wanted = [(inherited + 1, whole[-1].seq)] if lines is None else list(lines)
            self._check_lines(channel_id, wanted, inherited, whole[-1].seq)
            erased = {
                line.seq: left
                for line in whole
                if any(first <= line.seq <= last for first, last in wanted)
                and (left := without_content(line)) is not line
                and not line.is_erased
            }
            if not erased:
                await self._hub.lines.finish_erasing(channel_id)
                return 0
            note = self._note(whole[-1], list(erased), by=by, reason=reason)
            kept = [erased.get(line.seq, line) for line in whole]
            try:
                await self._write(channel_id, note, [*kept, note])
            except LogConflict:  # Another one erased at the same time.
                continue
            return len(erased)
        raise EraseRefused(channel_id, because=f"others wrote to it {CONFLICTS} times meanwhile; try again")

    async def _write(self, channel_id: str, note: Envelope, left: Sequence[Envelope]) -> None:
        await self._hub.lines.erase(channel_id, note, after=note.seq - 1, row=self._row(left))
        self._channels.forget(channel_id)
        self._hub.tree.forget(channel_id)
        self._hub.audit_log.note("erased", channel_id=channel_id, seq=note.seq)

    async def _clean_forks(self, channel_id: str) -> None:
        """Drop what is kept of the channel's erased lines beside its forks."""
        pending = await self._forks(channel_id)
        while pending:
            one = pending.pop()
            left = [line async for line in self._hub.lines.read(one)]
            row = self._row(left)
            with suppress(LogConflict):  # Another one erases it: it writes the row.
                await self._hub.lines.append(one, [], after=left[-1].seq, row=row)
            await self._hub.lines.finish_erasing(one)
            self._channels.forget(one)
            pending += await self._forks(one)

    def _row(self, left: Sequence[Envelope]) -> ChannelRow:
        adapter, state = self._channels.begin(left[0])
        return row_for(adapter, reduce(adapter.fold, left[1:], state))

    def _note(self, last: Envelope, seqs: list[int], *, by: str, reason: str) -> Envelope:
        return Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=self._hub.new_id(),
            channel_id=last.channel_id,
            seq=last.seq + 1,
            sender_id=ev.HUB,
            event_type=ev.EV_PAYLOAD_ERASED,
            event_data={"lines": [list(one) for one in ranges(seqs)], "by": by, "reason": reason},
            audience=[],
            created_at=max(self._hub.clock.now(), last.created_at),
        )

    def _check_lines(self, channel_id: str, wanted: Sequence[Range], inherited: int, end: int) -> None:
        for first, last in wanted:
            if not 1 <= first <= last <= end:
                raise EraseRefused(channel_id, because=f"it has the lines 1 to {end}, not {first} to {last}")
            if first <= inherited:
                because = f"its first {inherited} lines are those of the channel it is a fork of; erase those"
                raise EraseRefused(channel_id, because=because)


def ranges(seqs: Sequence[int]) -> list[Range]:
    """Return ascending numbers as ranges: 4, 7, 8, 9 is (4, 4), (7, 9)."""
    found = list[Range]()
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def _open(open_one: str, channel_id: str) -> str:
    which = "it" if open_one == channel_id else f"the channel {open_one!r}, which belongs to it,"
    return f"{which} is open; close it first"
