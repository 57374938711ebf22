"""An entry: one channel as a hub has it in memory.

Everything here is computed from the log. Forgetting an entry costs a read.
"""

from __future__ import annotations

from asyncio import Future, Task
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from turnline.core import codec
from turnline.core.adapter import AnyAdapter
from turnline.core.envelope import Draft, Envelope
from turnline.core.state import State
from turnline.log.bell import Bell
from turnline.log.joined import Transaction

RECENT_ENVELOPES: Final = 64
"""So many of a channel's last envelopes are handed out without asking the log."""
RECENT_BYTES: Final = 256 * 1024


class Waiting:
    """A draft on its way, and whoever waits for what becomes of it."""

    __slots__ = ("draft", "future", "within")

    def __init__(
        self, draft: Draft, future: Future[tuple[Envelope, ...]], within: Transaction | None = None
    ) -> None:
        self.draft = draft
        self.future = future
        self.within = within
        """What is committed with the draft, or rolled back before its sender is told that it is refused."""

    def answer(self, outcome: tuple[Envelope, ...] | BaseException) -> None:
        if self.future.done():  # Whoever sent it has gone away.
            return
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class Entry:
    """A channel's state, its last envelopes, and the drafts that wait for it."""

    def __init__(self, adapter: AnyAdapter, state: State) -> None:
        self.adapter = adapter
        self.state = state
        self.waiting: deque[Waiting] = deque()
        self.parked: list[Waiting] = []
        """Interjections that wait for the packet in flight (W9)."""
        self.drain: Task[None] | None = None
        """What settles the waiting drafts, or did so last."""
        self.known_seq = 0
        """How far the channel goes, as its log's tail has told."""
        self.told_seq = 0
        """How far those who are attached have been told; behind the state where somebody only read it."""
        self.pins = 0
        """How many rely on this very object: while there are any, it is not forgotten."""
        self.snapshot_seq = 0
        self.bell = Bell()
        self._recent: deque[tuple[int, bytes]] = deque()
        self._recent_bytes = 0

    @property
    def channel_id(self) -> str:
        return self.state.channel_id

    @property
    def is_draining(self) -> bool:
        return self.drain is not None and not self.drain.done()

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.parked or self.is_draining or self.pins)

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
        batch = [self.waiting.popleft()]
        while self.waiting and len(batch) < most and batch[0].within is self.waiting[0].within is None:
            batch.append(self.waiting.popleft())
        return batch

    def advance(self, state: State, envelopes: Iterable[Envelope]) -> None:
        """Take over what is on the log now, and wake whoever waits for it."""
        self.state = state
        for envelope in envelopes:
            self._remember(envelope)
        self.bell.ring()

    def recent(self, after: int) -> list[Envelope] | None:
        """The envelopes behind `after`, each a copy; None if the log has to be asked."""
        if after >= self.state.seq:
            return []
        if not self._recent or self._recent[0][0] > after + 1:
            return None
        return [codec.decode(body) for seq, body in self._recent if seq > after]

    def _remember(self, envelope: Envelope) -> None:
        body = codec.encode(envelope)
        self._recent.append((envelope.seq, body))
        self._recent_bytes += len(body)
        while len(self._recent) > RECENT_ENVELOPES or self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= len(self._recent.popleft()[1])
