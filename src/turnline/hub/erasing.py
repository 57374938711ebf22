"""Erasing: the content of a conversation disappears, and its chain stays (Y2).

    payload.erased {"lines": [[4, 4], [7, 9]], "by": ..., "reason": ...}

Rule 1: only what is over is erased. A channel, the channels above and below it and its forks are closed;
so nobody works with what disappears, and no rule has to decide without it.

Rule 2: a whole channel takes the channels below it along, the lowest first. A crash in between leaves the
upper ones as they are, and erasing again goes on.

Rule 3: what was erased once is left alone, so erasing twice writes nothing. It finishes what an erase left
undone that was interrupted (`Erases`).

Rule 4: a person is forgotten in the directory and the audit, which go on. They are on no open channel, and
what they said on others is erased there.

Rule 5: a fork has lines of its origin. When those are erased, its snapshot and its row in the index go too.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import is_code, ranges, without_content
from turnline.core.directory import (
    DIRECTORY_CHANNEL,
    EV_PARTICIPANT_REGISTERED,
    EV_USER_SEEN,
    FORGOTTEN,
)
from turnline.core.envelope import SCHEMA_VERSION, Envelope
from turnline.core.governance import Registration
from turnline.core.parts import files_of
from turnline.core.state import State
from turnline.core.views import row_for
from turnline.errors import EraseRefused, ForgetRefused, LogConflict, UnknownParticipant
from turnline.hub.audit import AUDIT_CHANNEL
from turnline.hub.channels import Channels
from turnline.hub.posting import Posting
from turnline.log.base import Blob, Blobs
from turnline.log.blobs import count_uses, list_forks

if TYPE_CHECKING:
    from turnline.hub.hub import Hub

CONFLICTS: Final = 10
MAX_ERASED: Final = 10_000
"""Channels of one tree that are erased together, and forks that are looked at."""
_NAMED: Final = 3
"""Channels or participants that a refusal names."""

Range = tuple[int, int]
"""The first and the last line."""


class Erasure(Struct, frozen=True, kw_only=True):
    """What was erased."""

    channels: dict[str, int]
    """Channel -> how many of its lines lost their content."""


class Erasing:
    """Erases what is on the log of one hub."""

    def __init__(self, hub: Hub, channels: Channels, posting: Posting) -> None:
        self._hub = hub
        self._channels = channels
        self._posting = posting

    async def erase(
        self, channel_id: str, *, by: str, lines: Sequence[Range] | None = None, reason: str = "requested"
    ) -> Erasure:
        """Erase the content of a closed channel and of those below it, or of some of its lines.

        `reason` is a code, such as `requested`: it stays on the log. Raises `EraseRefused`.
        """
        if wrong := _wrong_reason(reason):
            raise EraseRefused(channel_id, because=wrong)
        if channel_id.startswith("_"):
            await self._hub.lines.finish_erasing(channel_id)
            because = "the system writes it; `turnline people forget NAME` erases a person from it"
            raise EraseRefused(channel_id, because=because)
        top = await self._hub.state(channel_id)
        await self._refuse_open_above(top)
        tree = await self._tree(channel_id)
        await self._refuse_open(channel_id, tree)
        if lines is not None:
            tree = [channel_id]
        uses = await self._count_uses(channel_id)
        if lines is None:
            await self._delete_uploads(channel_id, uses)
        done = dict[str, int]()
        for one in reversed(tree):
            done[one] = await self._erase(one, uses, by=by, reason=reason, lines=lines)
            await self._clean_forks(one)
        return Erasure(channels={name: count for name, count in done.items() if count})

    async def forget(self, name: str, *, by: str, reason: str = "requested") -> Erasure:
        """Erase a person from the directory and the audit, and free the name.

        Channels that they took part in are erased with `erase`. Raises `ForgetRefused`, and
        `UnknownParticipant` if no line names such a person.
        """
        if wrong := _wrong_reason(reason):
            raise ForgetRefused(name, because=wrong)
        about = _About(name)
        async for line in self._hub.lines.read(DIRECTORY_CHANNEL):
            about.read(line)
        if not about.lines:
            for channel_id in (AUDIT_CHANNEL, DIRECTORY_CHANNEL):  # Perhaps interrupted.
                await self._hub.lines.finish_erasing(channel_id)
            people = [one.name for one in self._hub.participants() if one.passport.kind == "human"]
            raise UnknownParticipant(name, people, what="person")
        await self._hub.learn(about.ids)
        await self._refuse_in_use(about)
        for one in self._hub.participants():
            if one.agent_id in about.ids:
                await self._hub.unregister(one.agent_id, reason=FORGOTTEN)
        await self._hub.audit_log.flush()
        # The directory comes last: its lines are what a second attempt finds the person by.
        done = {
            channel_id: await self._erase_own(channel_id, picks, by=by, reason=reason)
            for channel_id, picks in ((AUDIT_CHANNEL, about.is_named_in), (DIRECTORY_CHANNEL, about.owns))
        }
        await self._hub.learn([name])
        return Erasure(channels={channel_id: count for channel_id, count in done.items() if count})

    async def _refuse_in_use(self, about: _About) -> None:
        others = [one.name for one in self._hub.participants() if about.is_owner_of(one)]
        if others:
            named = ", ".join(map(repr, others[:_NAMED]))
            raise ForgetRefused(
                about.name, because=f"they own the participants {named}; unregister those first"
            )
        found = list[str]()
        for agent_id in about.ids:
            where = ChannelFilter(participants=[agent_id], is_closed=False)
            found += [row.channel_id for row in await self._hub.lines.rows(where, limit=_NAMED)]
        if found:
            named = ", ".join(map(repr, found[:_NAMED]))
            because = f"they are on channels that are open, such as {named}; close those first"
            raise ForgetRefused(about.name, because=because, channels=found[:_NAMED])

    async def _erase_own(
        self, channel_id: str, picks: Callable[[Envelope], bool], *, by: str, reason: str
    ) -> int:
        """Erase lines of a system channel, which goes on; return how many lost their content."""
        for _ in range(CONFLICTS):
            seqs, last = list[int](), None
            async for line in self._hub.lines.read(channel_id):
                last = line
                if not line.is_erased and picks(line) and without_content(line) is not line:
                    seqs.append(line.seq)
            if last is None or not seqs:
                await self._hub.lines.finish_erasing(channel_id)
                return 0
            note = self._note(last, seqs, by=by, reason=reason)
            with suppress(LogConflict):
                await self._hub.lines.erase(channel_id, note, after=last.seq, row=None)
                return len(seqs)
        raise EraseRefused(channel_id, because=f"others wrote to it {CONFLICTS} times meanwhile; try again")

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

    async def _delete_uploads(self, channel_id: str, uses: Counter[str]) -> None:
        """Delete the files of a tree that no line refers to, if this is its top.

        All of it is closed, so no message comes any more that they were uploaded for.
        """
        log = self._hub.log
        if isinstance(log, Blobs) and await self._hub.files.root(channel_id) == channel_id:
            await log.delete_blobs([one for one in await log.blobs(channel_id) if not uses[one.digest]])

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
                await self._hub.lines.finish_erasing(channel_id)
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
        row = self._row(left)
        await self._hub.lines.erase(channel_id, note, after=note.seq - 1, row=row, blobs=blobs)
        self.drop(channel_id)
        await self._read_again(channel_id, note.seq)
        self._hub.audit_log.note("erased", channel_id=channel_id, seq=note.seq)

    def forget_pruned(self, channel_id: str) -> None:
        """Forget what is in memory of a channel that was pruned (Y3)."""
        self._channels.forget(channel_id)
        self.drop(channel_id)

    def drop(self, channel_id: str) -> None:
        """Forget what this hub keeps beside the entry of a channel whose content was erased."""
        self._channels.forget_forks()
        self._hub.history.forget(channel_id)
        self._hub.tree.forget(channel_id)

    async def _read_again(self, channel_id: str, seq: int) -> None:
        """Bring the channel's entry up to line `seq`, and tell of that line."""
        entry = self._channels.cached(channel_id)
        if entry is not None:
            self._posting.follow(entry, seq)
            if entry.drain is not None:
                await asyncio.wait([entry.drain])

    async def _clean_forks(self, channel_id: str) -> None:
        """Drop what is kept of the channel's erased lines beside its forks."""
        pending = await list_forks(self._hub.lines, channel_id)
        while pending:
            one = pending.pop()
            left = [line async for line in self._hub.lines.read(one)]
            row = self._row(left)
            with suppress(LogConflict):  # Another one erases it: it writes the row.
                await self._hub.lines.append(one, [], after=left[-1].seq, row=row)
            await self._hub.lines.finish_erasing(one)
            pending += await list_forks(self._hub.lines, one)

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


class _About:
    """What the directory says of a person, and which lines name them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids: list[str] = []
        self.lines: list[int] = []
        self._word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")

    def read(self, line: Envelope) -> None:
        """Take note of a line of the directory."""
        passport = line.event_data.get("passport", {})
        if passport.get("name") == self.name and passport.get("kind") == "human":
            self.ids = list(dict.fromkeys([*self.ids, str(line.event_data.get("agent_id"))]))
        if self.owns(line):
            self.lines.append(line.seq)

    def owns(self, line: Envelope) -> bool:
        """Return whether a line of the directory is about them."""
        data = line.event_data
        if line.event_type == EV_PARTICIPANT_REGISTERED:
            is_theirs = data.get("agent_id") in self.ids or data.get("user") == self.name
            return not line.is_erased and (is_theirs or data["passport"].get("owner") == self.name)
        return line.event_type == EV_USER_SEEN and data.get("user") == self.name

    def is_owner_of(self, one: Registration) -> bool:
        return one.agent_id not in self.ids and self.name in (one.user, one.passport.owner)

    def is_named_in(self, line: Envelope) -> bool:
        """Return whether a text of an audit line names them."""
        return any(self._word.search(str(value)) is not None for value in line.event_data.values())


def _wrong_reason(reason: str) -> str:
    """Return what is wrong with a reason; empty if nothing is."""
    if is_code(reason):
        return ""
    return f"the reason is {reason[:40]!r}; expected a code of small letters, such as 'requested' or 'by_law'"


def _open(open_one: str, channel_id: str) -> str:
    which = "it" if open_one == channel_id else f"the channel {open_one!r}, which belongs to it,"
    return f"{which} is open; close it first"
