"""Rows of the index that follow from lines (Y7).

    ChannelFold      folds a channel's lines and says what its row is
    rebuild_rows     writes the rows that are missing: of an index that was dropped, and of imported channels

Rule: a row is written only if the channel ends where it was read to. If another process appends meanwhile,
its row counts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from turnline.core.adapter import Adapters, AnyAdapter
from turnline.core.channel import ChannelRow, ChannelSpec, ChannelState
from turnline.core.codec import is_code
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CHANNEL_INVITE
from turnline.core.state import State
from turnline.core.views import row_for
from turnline.errors import CorruptRecord, LogConflict, UnknownName
from turnline.log.base import Log
from turnline.log.forks import ForkingLog, reading, with_forks

PAGE_CHANNELS: Final = 500


class ChannelFold:
    """A channel as its lines have it so far."""

    def __init__(self, adapters: Adapters) -> None:
        self._adapters = adapters
        self._begun: tuple[AnyAdapter, State] | None = None
        self._first: Envelope | None = None
        self._last: Envelope | None = None
        self._end: Envelope | None = None
        self._is_erased = False
        self.unknown_type = ""
        """The type of a channel that only its own program can fold."""

    @property
    def is_folded(self) -> bool:
        """Whether the state is known: the type is, and no line was erased."""
        return self._begun is not None and not self._is_erased

    def add(self, envelope: Envelope) -> None:
        """Fold the next line. Raises what a fold raises."""
        self._first, self._last = self._first or envelope, envelope
        if envelope.event_type == EV_CHANNEL_CLOSED:
            self._end = envelope
        self._is_erased = self._is_erased or envelope.is_erased
        if self.unknown_type or self._is_erased:  # What follows cannot be folded without it.
            return
        try:
            adapter, state = self._begun or self._begin(envelope)
        except UnknownName:
            self.unknown_type = str(envelope.event_data.get("type", ""))
        else:
            self._begun = (adapter, adapter.fold(state, envelope))

    def row(self) -> ChannelRow | None:
        """Return the channel's row; one from the structure of its lines if they cannot be folded."""
        if self._begun is not None and self.is_folded:
            return row_for(*self._begun)
        if self._first is None or self._last is None:
            return None
        return _row_of_structure(self._first, self._last, self._end)

    def _begin(self, first: Envelope) -> tuple[AnyAdapter, State]:
        if first.event_type != EV_CHANNEL_INVITE:
            raise ValueError(f"a {first.event_type!r} where an invite has to be")
        spec = msgspec.convert(first.event_data, ChannelSpec)
        adapter = self._adapters.get(spec.type)
        return adapter, adapter.initial(spec)


async def rebuild_rows(log: Log, adapters: Adapters, *, only_known: bool = False) -> int:
    """Write the rows that are missing and return how many. Raises `LogUnavailable`.

    `only_known` leaves channels of unknown types to a program that knows them. A channel that cannot be
    read or folded gets no row: it is quarantined where it is used, and `verify` says why.
    """
    lines = log if isinstance(log, ForkingLog) else with_forks(log)
    after, written = "", 0
    while missing := await log.without_row(after=after, limit=PAGE_CHANNELS):
        for channel_id in missing:
            written += await _rebuild(lines, channel_id, adapters, only_known)
        after = missing[-1]
    return written


async def _rebuild(log: ForkingLog, channel_id: str, adapters: Adapters, only_known: bool) -> int:
    fold, seq = ChannelFold(adapters), 0
    try:
        async with reading(log.read(channel_id)) as lines:
            async for line in lines:
                fold.add(line)
                seq = line.seq
        row = fold.row()
    except CorruptRecord:
        return 0
    except Exception:  # An adapter's own fault costs this channel only (E5).
        return 0
    if row is None or row.channel_id != channel_id or (only_known and fold.unknown_type):
        return 0  # A first line may name another channel, which has a row of its own.
    with suppress(LogConflict):
        await log.append(channel_id, [], after=seq, row=row)
        return 1
    return 0


def _row_of_structure(first: Envelope, last: Envelope, end: Envelope | None) -> ChannelRow:
    """Return the row of a channel that cannot be folded, from what is never erased."""
    said = first.event_data
    reason = "" if end is None else end.event_data.get("reason")
    return ChannelRow(
        channel_id=first.channel_id,
        type=str(said.get("type", "")),
        status=ChannelState.ACTIVE if end is None else ChannelState.CLOSED,
        seq=last.seq,
        created_at=first.created_at,
        updated_at=last.created_at,
        creator_id=str(said.get("creator_id", "")),
        participants=_ids(said.get("participants")),
        parent_id=str(said.get("parent_id") or ""),
        closed_at=None if end is None else end.created_at,
        close_code=str(reason) if is_code(reason) else "",
    )


def _ids(participants: Any) -> list[str]:
    found = participants if isinstance(participants, list) else []
    return [str(one["agent_id"]) for one in found if isinstance(one, dict) and "agent_id" in one]
