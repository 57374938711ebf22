"""Erasing: the content of a conversation disappears, and its chain stays (Y2).

    payload.erased {"lines": [[4, 4], [7, 9]], "by": ..., "reason": ...}

Rule 1: only what is over is erased. A channel, the channels above and below it and its forks are closed;
so nobody works with what disappears, and no rule has to decide without it.

Rule 2: a whole channel takes the channels below it along, the lowest first. A crash in between leaves the
upper ones as they are, and erasing again goes on.

Rule 3: what was erased once is left alone, so erasing twice writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.codec import is_code, ranges, without_content
from turnline.core.envelope import SCHEMA_VERSION, Envelope
from turnline.core.parts import files_of
from turnline.core.state import State
from turnline.core.views import row_for
from turnline.errors import EraseRefused, LogConflict
from turnline.hub.channels import Channels
from turnline.log.base import Blob, Blobs
from turnline.log.blobs import count_uses, list_forks

if TYPE_CHECKING:
    from turnline.hub.hub import Hub

CONFLICTS: Final = 10
MAX_ERASED: Final = 10_000
"""Channels of one tree that are erased together, and forks that are looked at."""

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
        uses = await self._count_uses(channel_id)
        done = dict[str, int]()
        for one in reversed(tree):
            done[one] = await self._erase(one, uses, by=by, reason=reason, lines=lines)
        return Erasure(channels={name: count for name, count in done.items() if count})

    def forget(self, channel_id: str) -> None:
        """Forget what is in memory of a channel that was erased, or pruned (Y3)."""
        self._channels.forget(channel_id)
        self._hub.tree.forget(channel_id)

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
            pending += await list_forks(self._hub.lines, one)

    async def _count_uses(self, channel_id: str) -> Counter[str]:
        """Return how often the lines of the tree refer to each file; nothing if it has no files."""
        log, root = self._hub.log, await self._hub.files.root(channel_id)
        has_files = isinstance(log, Blobs) and bool(await log.blobs(root))
        return await count_uses(log, root) if has_files else Counter()

    async def _unused(self, channel_id: str, uses: Counter[str], erased: Iterable[Envelope]) -> list[Blob]:
        """Return the files that no line refers to without these. `uses` counts the others then."""
        used = Counter(file.digest for line in erased for file in files_of(line.event_type, line.event_data))
        if not used:
            return []
        uses.subtract(used)
        log, root = self._hub.files.log, await self._hub.files.root(channel_id)
        found = [one for one in await log.blobs(root) if one.digest in used and uses[one.digest] <= 0]
        for one in found:  # Where line and deletion are not one transaction, the sweep finishes it.
            await log.set_blob(replace(one, is_kept=False))
        return found

    async def _erase(
        self, channel_id: str, uses: Counter[str], *, by: str, reason: str, lines: Sequence[Range] | None
    ) -> int:
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
                return 0
            note = self._note(whole[-1], list(erased), by=by, reason=reason)
            kept = [erased.get(line.seq, line) for line in whole]
            others = Counter(uses)
            blobs = await self._unused(channel_id, others, (one for one in whole if one.seq in erased))
            try:
                await self._write(channel_id, note, [*kept, note], blobs)
            except LogConflict:  # Another one erased at the same time.
                continue
            uses.clear()
            uses.update(others)
            return len(erased)
        raise EraseRefused(channel_id, because=f"others wrote to it {CONFLICTS} times meanwhile; try again")

    async def _write(
        self, channel_id: str, note: Envelope, left: Sequence[Envelope], blobs: Sequence[Blob]
    ) -> None:
        adapter, state = self._channels.begin(left[0])
        state = reduce(adapter.fold, left[1:], state)
        row = row_for(adapter, state)
        await self._hub.lines.erase(channel_id, note, after=note.seq - 1, row=row, blobs=blobs)
        self.forget(channel_id)
        self._hub.audit_log.note("erased", channel_id=channel_id, seq=note.seq)

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


def _open(open_one: str, channel_id: str) -> str:
    which = "it" if open_one == channel_id else f"the channel {open_one!r}, which belongs to it,"
    return f"{which} is open; close it first"
