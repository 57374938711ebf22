"""The channels a hub has in memory: hydrated when touched, forgotten when idle.

Rule 1: opening a hub costs the open channels, not the history. A closed channel
is read when somebody asks for it, and never needs its custom classes (E5).

Rule 2: a channel that cannot be read is quarantined: touching it raises, and
every other channel works.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnline.core.adapter import Adapters, AnyAdapter
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_INVITE
from turnline.core.fold import FOLD_VERSION
from turnline.core.state import State
from turnline.errors import (
    BadSpec,
    ChannelQuarantined,
    CorruptRecord,
    LogUnavailable,
    UnknownChannel,
    UnknownName,
)
from turnline.hub.entry import RECENT_ENVELOPES, Entry
from turnline.log.base import Log, Snapshots

CACHED_CHANNELS: Final = 4096
LOOKS_PER_ENTRY: Final = 32
"""So many are looked at to find some to forget: where more are in use than fit, none pays for all of them."""
SNAPSHOT_EVERY: Final = 256
"""Envelopes between two snapshots of a channel: what hydrating it reads at most."""


class Snapshot(Struct, frozen=True):
    """A state as the log's snapshot store keeps it."""

    version: int
    """Which fold made it."""
    type: str
    state: msgspec.Raw


class Channels:
    """Channel id -> entry, at most so many at a time."""

    def __init__(self, log: Log, adapters: Adapters, *, cached: int = CACHED_CHANNELS) -> None:
        self.quarantined: dict[str, BaseException] = {}
        self._log = log
        self._snapshots = log if isinstance(log, Snapshots) else None
        self._adapters = adapters
        self._cached = cached
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._hydrating: dict[str, asyncio.Task[None]] = {}
        self._saving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def adapter(self, channel_type: str) -> AnyAdapter:
        return self._adapters.get(channel_type)

    def keep(self, entry: Entry) -> None:
        """Take in an entry, and forget the least used idle ones beyond the limit."""
        self._entries[entry.channel_id] = entry
        self._entries.move_to_end(entry.channel_id)
        for _ in range(LOOKS_PER_ENTRY):
            if len(self._entries) <= self._cached:
                return
            name, oldest = next(iter(self._entries.items()))
            if oldest.is_idle and oldest is not entry:
                del self._entries[name]
            else:
                self._entries.move_to_end(name)  # In use: its turn comes after all the others.

    def cached(self, channel_id: str) -> Entry | None:
        return self._entries.get(channel_id)

    async def get(self, channel_id: str) -> Entry:
        """Return the channel's entry, hydrated if it was not in memory.

        Raises `UnknownChannel`, or `ChannelQuarantined` if it cannot be read.
        """
        if channel_id.startswith("_"):  # The hub's own; nobody takes part in them.
            raise UnknownChannel(channel_id)
        while channel_id not in self._entries:  # It may be forgotten again before we are called.
            task = self._hydrating.get(channel_id)
            if task is None:
                task = self._hydrating[channel_id] = asyncio.create_task(self._hydrate(channel_id))
                task.add_done_callback(lambda _: self._hydrating.pop(channel_id, None))
            await asyncio.shield(task)
        self._entries.move_to_end(channel_id)
        return self._entries[channel_id]

    def begin(self, first: Envelope) -> tuple[AnyAdapter, State]:
        """Return the rules of the channel that `first` begins, and its state after that line."""
        if first.event_type != EV_CHANNEL_INVITE:
            raise CorruptRecord(
                first.channel_id, seq=1, because=f"a {first.event_type!r} where an invite has to be"
            )
        spec = msgspec.convert(first.event_data, ChannelSpec)
        if spec.channel_id != first.channel_id:
            because = f"it is the invite of the channel {spec.channel_id[:80]!r}"
            raise CorruptRecord(first.channel_id, seq=1, because=because)
        adapter = self.adapter(spec.type)
        return adapter, adapter.fold(adapter.initial(spec), first)

    async def catch_up(self, entry: Entry) -> list[Envelope]:
        """Fold what others have appended; return it."""
        new = [envelope async for envelope in self._log.read(entry.channel_id, after=entry.state.seq)]
        state = entry.state
        for envelope in new:
            state = entry.adapter.fold(state, envelope)
        entry.advance(state, new)
        return new

    def snapshot_if_due(self, entry: Entry) -> None:
        """Save the state in the background now and then, so that hydrating stays cheap."""
        if (
            self._snapshots is None
            or entry.state.seq - entry.snapshot_seq < SNAPSHOT_EVERY
            or entry.state.is_over
        ):
            return
        entry.snapshot_seq = entry.state.seq
        state = msgspec.Raw(msgspec.json.encode(entry.state))
        snapshot = Snapshot(FOLD_VERSION, entry.state.spec.type, state)
        body = msgspec.json.encode(snapshot)
        saving = asyncio.create_task(
            self._snapshots.save_snapshot(entry.channel_id, seq=entry.state.seq, body=body)
        )
        self._saving.add(saving)
        saving.add_done_callback(self._saved)

    def dismiss(self, because: Exception) -> None:
        """Answer whoever waits for a packet that will not come here, and wake whoever waits for news."""
        for entry in self._entries.values():
            for one in entry.parked:
                one.answer(because)
            entry.parked.clear()
            entry.bell.ring()

    async def settle(self) -> None:
        """Wait for the snapshots that are being saved."""
        while self._saving:
            await asyncio.wait(set(self._saving))

    def _saved(self, task: asyncio.Task[None]) -> None:
        self._saving.discard(task)
        if not task.cancelled():
            task.exception()  # A snapshot is a cache: failing to save one costs time later, nothing else.

    async def _hydrate(self, channel_id: str) -> None:
        try:
            entry = await self._read(channel_id)
        except (UnknownChannel, LogUnavailable):
            raise
        except Exception as error:  # Also what an adapter's own fold raises: it costs this channel (E5).
            self.quarantined[channel_id] = error
            raise ChannelQuarantined(channel_id, cause=error) from error
        self.quarantined.pop(channel_id, None)
        if channel_id not in self._entries:
            self.keep(entry)

    async def _read(self, channel_id: str) -> Entry:
        entry = await self._from_snapshot(channel_id)
        if entry is not None:
            await self.catch_up(entry)
            return entry
        envelopes = self._log.read(channel_id)
        first = await anext(envelopes, None)
        if first is None:
            raise UnknownChannel(channel_id)
        adapter, state = self.begin(first)
        entry = Entry(adapter, state)
        last = deque([first], maxlen=RECENT_ENVELOPES)
        async for envelope in envelopes:
            state = adapter.fold(state, envelope)
            last.append(envelope)
        entry.advance(state, last)
        return entry

    async def _from_snapshot(self, channel_id: str) -> Entry | None:
        found = await self._snapshots.load_snapshot(channel_id) if self._snapshots else None
        if found is None:
            return None
        seq, body = found
        head = await self._log.head(channel_id)
        try:
            snapshot = msgspec.json.decode(body, type=Snapshot)
            adapter = self.adapter(snapshot.type)
            state: Any = msgspec.json.decode(snapshot.state, type=adapter.state_type)
        except (msgspec.MsgspecError, UnknownName, BadSpec):
            return None  # From another version, or damaged: the log is the truth.
        is_stale = head is None or seq > head.seq or snapshot.version != FOLD_VERSION
        if is_stale or (state.channel_id, state.seq) != (channel_id, seq):
            return None
        entry = Entry(adapter, state)
        entry.snapshot_seq = seq
        return entry
