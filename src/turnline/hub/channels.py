"""The channels a hub has in memory: hydrated when touched, forgotten when idle.

Rule 1: opening a hub costs the rows of the open channels in the index, not their lines (Y8). A channel is
read when it is needed, and a closed one never needs its custom classes (E5).

Rule 2: a channel that cannot be read is quarantined: touching it raises, and
every other channel works. The first touch finds out.

Rule 3: everything in an entry is computed from the log. Forgetting one costs a read.

Rule 4: lines that are decided and not recorded (`Held`) are nobody's but the worker's. `Entry.state` has none
of them, and whoever gets an entry with `get` has them recorded first.

Rule 5: memory that turns have used and freed goes back to the system. The allocator of glibc keeps it by
itself: a small thing that stays in use above it is enough.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from turnline.core import codec
from turnline.core.adapter import Adapters, AnyAdapter
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Draft, Envelope
from turnline.core.event_types import EV_CHANNEL_INVITE, EV_PAYLOAD_ERASED
from turnline.core.fold import FOLD_VERSION
from turnline.core.state import State
from turnline.errors import (
    BadSpec,
    ChannelPruned,
    ChannelQuarantined,
    CorruptRecord,
    LogUnavailable,
    UnknownChannel,
    UnknownName,
)
from turnline.log.base import Bell, Log, Prunes, Snapshots
from turnline.log.joined import Transaction

RECENT_ENVELOPES: Final = 64
"""So many of a channel's last envelopes are handed out without asking the log."""
RECENT_BYTES: Final = 256 * 1024
ENTRY_BYTES: Final = 8 * 1024
"""What an entry takes beside its state and its last envelopes."""
MEASURED_BYTES: Final = 4 * 1024
"""A state is measured again after so many bytes of lines, or after as many as it had itself."""


class Waiting:
    """A draft on its way, and whoever waits for what becomes of it."""

    __slots__ = ("can_hold", "draft", "future", "within")

    def __init__(
        self,
        draft: Draft,
        future: Future[tuple[Envelope, ...]],
        within: Transaction | None = None,
        *,
        can_hold: bool = False,
    ) -> None:
        self.draft = draft
        self.future = future
        self.within = within
        """What is committed with the draft, or rolled back before its sender is told that it is refused."""
        self.can_hold = can_hold
        """Whether its sender is answered before the draft is recorded (`hub.posting`, rule 6)."""

    def answer(self, outcome: tuple[Envelope, ...] | BaseException) -> None:
        if self.future.done():  # Whoever sent it has gone away.
            return
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class Held:
    """Lines of a channel that are decided and not recorded, and the state after them."""

    __slots__ = ("encoded", "is_sent", "lines", "since", "size", "state")

    def __init__(self, before: Held | None, state: State, lines: Sequence[Envelope], now: float) -> None:
        encoded = codec.encode_all(lines)
        self.state = state
        self.lines: list[Envelope] = [*(before.lines if before else ()), *lines]
        self.encoded: list[tuple[int, bytes]] = [*(before.encoded if before else ()), *encoded]
        self.size: int = (before.size if before else 0) + sum(len(body) for _, body in encoded)
        self.since: float = before.since if before else now
        """When the first of them was decided, by the monotonic clock."""
        self.is_sent = False
        """Whether an append was tried: they may be on the log, so no more are held after them."""


class Entry:
    """A channel's state, its last envelopes, and the drafts that wait for it."""

    def __init__(self, adapter: AnyAdapter, state: State) -> None:
        self.adapter = adapter
        self.channel_id = state.channel_id
        self.state = state
        """What is on the log adds up to this."""
        self.held: Held | None = None
        self.is_over = state.is_over
        self.waiting: list[Waiting] = []  # An empty deque takes 600 bytes more.
        self.parked: list[Waiting] = []
        """Interjections that wait for the packet in flight (W9)."""
        self.drain: Task[None] | None = None
        """What settles the waiting drafts, or did so last."""
        self.known_seq = 0
        """How far the channel goes, as its log's tail has told."""
        self.told_seq = 0
        """The last line that this hub has acted on: woken participants, set timers. Older than the state
        where somebody only read it. It outlives the entry (`Channels._told`)."""
        self.pins = 0
        """How many rely on this very object: while there are any, it is not forgotten."""
        self.snapshot_seq = 0
        self.bell = Bell()
        self.counted_bytes = 0
        """What the cache counts for it."""
        self.passed_bytes = 0
        """Of lines that came since the cache looked last."""
        self._recent: list[tuple[int, bytes]] = []
        self._recent_bytes = 0
        self._state_bytes = 0
        self._new_bytes = 0
        """Lines since the state was measured: by at most so much it has grown."""

    @property
    def tip(self) -> State:
        """What the next draft is decided on: the state, with the lines that are held."""
        return self.state if self.held is None else self.held.state

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return ENTRY_BYTES + self._recent_bytes + self._state_bytes + self._new_bytes

    @property
    def is_draining(self) -> bool:
        return self.drain is not None and not self.drain.done()

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.parked or self.is_draining or self.pins or self.held)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep this very object in memory for as long as somebody relies on it."""
        self.pins += 1
        try:
            yield
        finally:
            self.pins -= 1

    def take(self, most: int) -> list[Waiting]:
        """The drafts to settle together: the next ones, or one that has a transaction of its own."""
        count = 1
        if self.waiting[0].within is None:
            while count < min(most, len(self.waiting)) and self.waiting[count].within is None:
                count += 1
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        return batch

    def unpark(self, most: int) -> list[Waiting]:
        """Return interjections that waited for the packet in flight; they wait no longer."""
        taken, self.parked = self.parked[:most], self.parked[most:]
        return [one for one in taken if not one.future.done()]

    def send_held(self) -> Sequence[Envelope]:
        """Return the lines that are held, to be appended."""
        if self.held is None:
            return ()
        self.held.is_sent = True
        return self.held.lines

    def advance(
        self, state: State, envelopes: Sequence[Envelope], encoded: Sequence[tuple[int, bytes]] = ()
    ) -> None:
        """Take over what is on the log now, and wake whoever waits for it. The first may be `encoded`."""
        self.state, self.is_over = state, state.is_over
        self._remember([*encoded, *codec.encode_all(envelopes[len(encoded) :])])
        if self._new_bytes > max(self._state_bytes, MEASURED_BYTES):
            self.measure(len(msgspec.json.encode(state)))
        self.bell.ring()

    def measure(self, state_bytes: int) -> None:
        """Note how large the state is, as it is encoded."""
        self._state_bytes, self._new_bytes = state_bytes, 0

    def recent(self, after: int) -> list[Envelope] | None:
        """The envelopes behind `after`, each a copy; None if the log has to be asked."""
        if after >= self.state.seq:
            return []
        if not self._recent or self._recent[0][0] > after + 1:
            return None
        return codec.decode_all([body for seq, body in self._recent if seq > after])

    def forget_recent(self) -> None:
        """Forget the last envelopes; the log is asked for them."""
        self._recent.clear()
        self._recent_bytes = 0

    def _remember(self, lines: Iterable[tuple[int, bytes]]) -> None:
        for seq, encoded in lines:
            body = bytes(memoryview(encoded))  # A copy: the encoder's own has up to 1.5 times the memory.
            self._recent.append((seq, body))
            self._recent_bytes += len(body)
            self._new_bytes += len(body)
            self.passed_bytes += len(body)
        while len(self._recent) > RECENT_ENVELOPES or self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= len(self._recent.pop(0)[1])


CACHE_BYTES: Final = 64 * 1024 * 1024
GIVE_BACK_BYTES: Final = 16 * 1024 * 1024
"""Lines that pass before memory is given back. A turn uses several times the bytes of the lines it reads."""
GIVE_BACK_SECONDS: Final = 5.0
"""Between two times at least: giving back 100 MB takes 20 ms."""
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
    """Channel id -> entry. Idle ones are kept up to so many bytes; those of closed channels leave first."""

    def __init__(
        self,
        log: Log,
        adapters: Adapters,
        *,
        cache_bytes: int = CACHE_BYTES,
        on_quarantine: Callable[[str, Exception], None] | None = None,
        trim: Callable[[], None] | None = None,
    ) -> None:
        self.record_held: Callable[[Entry], Awaitable[object]] | None = None
        """Records what an entry holds. The poster sets it."""
        self.quarantined: dict[str, Exception] = {}
        """The channels that are known to be damaged; one that was not touched is not among them."""
        self._on_quarantine = on_quarantine
        self._log = log
        self._snapshots = log if isinstance(log, Snapshots) else None
        self.adapters = adapters
        self._cache_bytes = cache_bytes
        self._trim = trim or trim_heap
        self._bytes = 0
        """Of all entries, as they were counted when they were last used."""
        self._open: OrderedDict[str, Entry] = OrderedDict()
        self._over: OrderedDict[str, Entry] = OrderedDict()
        """The entries of open channels and of closed ones, each the least used first."""
        self._forks: set[str] = set()
        """Those of them that are forks."""
        self._hydrating: dict[str, asyncio.Task[None]] = {}
        self._wanted: Counter[str] = Counter()
        """Channel -> how many wait until it is read. Until they have it, it is not forgotten again."""
        self._saving: set[asyncio.Task[None]] = set()
        self._passed_bytes = 0
        """Of lines since memory was given back."""
        self._giving_back: asyncio.TimerHandle | None = None
        self._told: dict[str, int] = {}
        """Open channel that is not in memory -> the `told_seq` that its entry gets."""

    def __len__(self) -> int:
        return len(self._open) + len(self._over)

    def adapter(self, channel_type: str) -> AnyAdapter:
        return self.adapters.get(channel_type)

    def keep(self, entry: Entry) -> None:
        """Take in an entry, or note its use, and forget the least used idle ones beyond the limit."""
        self._remove(entry.channel_id)
        (self._over if entry.is_over else self._open)[entry.channel_id] = entry
        if entry.state.spec.forked_from is not None:
            self._forks.add(entry.channel_id)
        entry.counted_bytes = entry.size
        self._bytes += entry.counted_bytes
        for entries in (self._over, self._open):
            self._forget_idle(entries, entry.channel_id)
        self._passed_bytes += entry.passed_bytes
        entry.passed_bytes = 0
        if self._passed_bytes >= GIVE_BACK_BYTES and self._giving_back is None:
            self._give_back_later()

    def _forget_idle(self, entries: OrderedDict[str, Entry], but: str) -> None:
        for _ in range(min(LOOKS_PER_ENTRY, len(entries))):
            if self._bytes <= self._cache_bytes:
                return
            name, oldest = next(iter(entries.items()))
            if not oldest.is_idle or name == but or name in self._wanted:
                entries.move_to_end(name)  # In use: its turn comes after all the others.
                continue
            self._remove(name)
            if not oldest.is_over:
                self._told[name] = oldest.told_seq

    def _give_back_later(self) -> None:
        self._passed_bytes = 0
        self._giving_back = asyncio.get_running_loop().call_later(GIVE_BACK_SECONDS, self._give_back)

    def _give_back(self) -> None:
        self._giving_back = None
        self._trim()
        if self._passed_bytes:  # The last time comes when it is quiet.
            self._give_back_later()

    def _remove(self, channel_id: str) -> None:
        entry = self._open.pop(channel_id, None) or self._over.pop(channel_id, None)
        if entry is not None:
            self._bytes -= entry.counted_bytes
            self._forks.discard(channel_id)

    def note_told(self, channel_id: str, seq: int) -> None:
        """Note that this hub has acted on the channel up to line `seq`, by what the index said."""
        if (entry := self.cached(channel_id)) is not None:
            entry.told_seq = seq
        else:
            self._told[channel_id] = seq

    def quarantine(self, channel_id: str, error: Exception) -> None:
        """Note that a channel cannot be used."""
        is_new = channel_id not in self.quarantined
        self.quarantined[channel_id] = error
        if is_new and self._on_quarantine is not None:
            self._on_quarantine(channel_id, error)

    def cached(self, channel_id: str) -> Entry | None:
        return self._open.get(channel_id) or self._over.get(channel_id)

    def _use(self, channel_id: str) -> Entry | None:
        """Return the channel's entry, and note its use. Its size is counted when it grows (`keep`)."""
        for entries in (self._open, self._over):
            if (entry := entries.get(channel_id)) is not None:
                entries.move_to_end(channel_id)
                return entry
        return None

    async def get(self, channel_id: str) -> Entry:
        """Return the channel's entry, hydrated if it was not in memory. What it holds is recorded first.

        Raises `UnknownChannel`, or `ChannelQuarantined` if it cannot be read.
        """
        await self.record(channel_id)
        return await self.get_for_work(channel_id)

    def is_held(self, channel_id: str) -> bool:
        """Return whether lines of the channel are held, and not recorded yet."""
        entry = self.cached(channel_id)
        return entry is not None and entry.held is not None

    async def record(self, channel_id: str) -> None:
        """Record what is held of a channel, if anything is. Raises what an append raises."""
        entry = self.cached(channel_id)
        if entry is not None and entry.held is not None and self.record_held is not None:
            await self.record_held(entry)

    async def get_for_work(self, channel_id: str) -> Entry:
        """`get`, for those who work on the channel's turn: what it holds stays held (`Entry.tip`)."""
        if channel_id.startswith("_"):  # The hub's own; nobody takes part in them.
            raise UnknownChannel(channel_id)
        while (entry := self._use(channel_id)) is None:
            task = self._hydrating.get(channel_id)
            if task is None or task.done():  # It was read, and forgotten again.
                task = self._hydrating[channel_id] = asyncio.create_task(self._hydrate(channel_id))
                task.add_done_callback(partial(self._hydrated, channel_id))
            self._wanted[channel_id] += 1
            try:
                await asyncio.shield(task)
            finally:
                self._wanted[channel_id] -= 1
                if not self._wanted[channel_id]:
                    del self._wanted[channel_id]
        return entry

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
        if any(envelope.event_type == EV_PAYLOAD_ERASED for envelope in new):
            await self._read_again(entry)
            return new
        state = entry.state
        for envelope in new:
            state = entry.adapter.fold(state, envelope)
        entry.advance(state, new)
        return new

    async def _read_again(self, entry: Entry) -> None:
        """Replace what the entry knows: content of its lines was erased (Y2)."""
        fresh = await self._read(entry.channel_id)
        entry.forget_recent()
        entry.advance(fresh.state, ())

    def forget(self, channel_id: str) -> None:
        """Forget a channel, if it is not in use; else its last envelopes."""
        entry = self.cached(channel_id)
        if entry is not None:
            entry.forget_recent()
            if entry.is_idle:
                self._remove(channel_id)

    def forget_forks(self) -> None:
        """Forget forks that are not in use: lines that they have from another channel were erased."""
        for channel_id in tuple(self._forks):
            self.forget(channel_id)

    def snapshot_if_due(self, entry: Entry) -> None:
        """Save the state in the background now and then, so that hydrating stays cheap."""
        if self._snapshots is None or entry.state.seq - entry.snapshot_seq < SNAPSHOT_EVERY or entry.is_over:
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
        for entry in (*self._open.values(), *self._over.values()):
            for one in entry.parked:
                one.answer(because)
            entry.parked.clear()
            entry.bell.ring()

    async def settle(self) -> None:
        """Wait for the snapshots that are being saved."""
        if self._giving_back is not None:
            self._giving_back.cancel()
        while self._saving:
            await asyncio.wait(set(self._saving))

    def _saved(self, task: asyncio.Task[None]) -> None:
        self._saving.discard(task)
        if not task.cancelled():
            task.exception()  # A snapshot is a cache: failing to save one costs time later, nothing else.

    def _hydrated(self, channel_id: str, task: asyncio.Task[None]) -> None:
        if self._hydrating.get(channel_id) is task:
            del self._hydrating[channel_id]
        if not task.cancelled():
            task.exception()  # If everyone who waited was cancelled, asyncio would log it as never retrieved.

    async def _hydrate(self, channel_id: str) -> None:
        try:
            entry = await self._read(channel_id)
        except (UnknownChannel, LogUnavailable):
            raise
        except Exception as error:  # Also what an adapter's own fold raises: it costs this channel (E5).
            self.quarantine(channel_id, error)
            raise ChannelQuarantined(channel_id, cause=error) from error
        self.quarantined.pop(channel_id, None)
        if self.cached(channel_id) is None:
            entry.told_seq = self._told.pop(channel_id, 0)
            self.keep(entry)

    async def _read(self, channel_id: str) -> Entry:
        entry = await self._from_snapshot(channel_id)
        if entry is not None:
            await self.catch_up(entry)
            return entry
        envelopes = self._log.read(channel_id)
        first = await anext(envelopes, None)
        if first is None:
            if isinstance(self._log, Prunes) and await self._log.tombstone(channel_id) is not None:
                raise ChannelPruned(channel_id)
            raise UnknownChannel(channel_id)
        adapter, state = self.begin(first)
        entry = Entry(adapter, state)
        last = deque([first], maxlen=RECENT_ENVELOPES)
        async for envelope in envelopes:
            state = adapter.fold(state, envelope)
            last.append(envelope)
        entry.advance(state, list(last))
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
        entry.measure(len(snapshot.state))
        return entry


def trim_heap() -> None:
    """Give free memory back to the system, where the allocator can be asked to (glibc)."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], int] | None:
    import ctypes  # noqa: PLC0415  Few programs come here.

    try:
        return cast("Callable[[int], int]", ctypes.CDLL(None).malloc_trim)
    except (OSError, AttributeError):
        return None
