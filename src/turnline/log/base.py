"""The one door to durable storage.

A log keeps, for each channel, a gapless sequence of envelopes. Nothing else in
the system is stored; everything else is folded from here.

`turnline.testing.LogContract` is this protocol's other half: a backend is done
when every test in it passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED
from turnline.log.joined import SharedDatabase, Transaction

DEFINITION_PREFIX: Final = "_flow-"
"""Ids of channels that hold a flow definition each; its digest follows."""
MARK_PREFIX: Final = "_mark-"
"""Ids of channels that count on their own log only. An export leaves them out, and an import ignores them."""


class Head(Struct, frozen=True, kw_only=True):
    """Where a channel's log ends, known without reading what is in it."""

    channel_id: str
    seq: int
    closed: bool
    """Whether the last envelope is `channel.closed`, after which nothing is ever appended."""
    position: int
    """Where the last append stands among all appends of this log; what `tail` goes on from."""


class Log(Protocol):
    """An append-only sequence of envelopes per channel."""

    address: str
    """Where it is kept, for people: `memory:`, `sqlite:///path`, ..."""
    durability: str
    """What a returned append survives, for people: `none`, `process` (its crash), `power` (its loss), ..."""

    async def append(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        """Write all of `envelopes`, durably, or none of them.

        `after` is the seq the caller believes is last; the envelopes carry the
        seqs that follow it. Raises `LogConflict` when it is not; the caller
        reads, folds and decides again. Raises `DuplicateEnvelope` when the
        channel has one of the ids already, at any seq. Raises `LogUnavailable`
        when the storage failed; sending the same ids again is safe. When this
        returns, the envelopes survive whatever `durability` promises. No
        envelopes is nothing to do.
        """
        ...

    def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        """Yield the channel's envelopes with `seq > after`, in order.

        An unknown channel is an empty one. Every yielded envelope is the
        caller's own copy. Raises `CorruptRecord` at the first record that is
        not what was written; what came before it has been yielded.
        """
        ...

    async def find(self, channel_id: str, envelope_id: str) -> Envelope | None:
        """Return the channel's envelope with this id, or None."""
        ...

    async def head(self, channel_id: str) -> Head | None:
        """Return where the channel's log ends, or None for an unknown channel."""
        ...

    async def channels(
        self, *, closed: bool | None = None, after: str = "", limit: int | None = None
    ) -> list[Head]:
        """List channels by id, starting behind `after`, without reading envelopes.

        `closed=False` lists only open ones and costs only those.
        """
        ...

    def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        """Yield a head for every append behind position `after`, by any process, and go on waiting.

        Appends of one channel come in order. Several appends may be told as
        one head, the newest: a head says how far to read, not what happened.
        """
        ...

    async def close(self) -> None:
        """Finish what is being written and let go of the storage. Closing twice is allowed."""
        ...


@runtime_checkable
class Snapshots(Protocol):
    """The optional ability to keep folded states beside the log.

    A cache: deleting it changes nothing but speed.
    """

    async def save_snapshot(self, channel_id: str, *, seq: int, body: bytes) -> None:
        """Keep `body` as the channel's state after `seq`; an older one is replaced."""
        ...

    async def load_snapshot(self, channel_id: str) -> tuple[int, bytes] | None:
        """Return the seq and body last saved, or None. A damaged one is None, never an error."""
        ...

    async def delete_snapshots(self) -> None:
        """Forget them all."""
        ...


@runtime_checkable
class JoinsTransactions(Protocol):
    """The optional ability to append inside a transaction on the log's own database (F7)."""

    @property
    def database(self) -> SharedDatabase:
        """Where that is. Whoever keeps tables there leaves the log's own alone."""
        ...

    async def append_within(
        self, transaction: Transaction, channel_id: str, envelopes: Sequence[Envelope], *, after: int
    ) -> None:
        """Do what `append` does and commit `transaction`, both or neither.

        Raises what `append` raises. After `LogConflict` and `DuplicateEnvelope` the transaction is
        still open, with all it holds. Also raises what the transaction itself cannot do.
        """
        ...


@runtime_checkable
class TellsOutage(Protocol):
    """The optional ability to say that nothing can be written; every durable log has it."""

    @property
    def outage(self) -> str:
        """Return why nothing was written when it was last tried; empty as soon as something was."""
        ...


def check_append(channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
    """Raise `ValueError` unless `envelopes` are what follows `after` on `channel_id`.

    Every backend asks this first. It is a mistake in the caller, not a conflict.
    """
    for seq, envelope in enumerate(envelopes, after + 1):
        if (envelope.channel_id, envelope.seq) != (channel_id, seq):
            raise ValueError(
                f"an append to channel {channel_id!r} after seq {after} holds seq {envelope.seq} of channel "
                f"{envelope.channel_id!r} where seq {seq} belongs"
            )


def closes(envelope: Envelope) -> bool:
    """Whether a channel whose last envelope is `envelope` is closed."""
    return envelope.event_type == EV_CHANNEL_CLOSED
