"""The one door to durable storage, and the bell that says that something was appended.

A log keeps, for each channel, a gapless sequence of envelopes. Nothing else in
the system is stored; everything else is folded from here.

`turnline.testing.LogContract` is this protocol's other half: a backend is done
when every test in it passes.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from threading import Lock
from typing import Final, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.codec import Record, erased_lines
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_PAYLOAD_ERASED
from turnline.errors import ArchiveDiffers, CorruptRecord
from turnline.log.joined import SharedDatabase, Transaction
from turnline.threads import call_in

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

    @property
    def is_pruned(self) -> bool:
        """Whether a tail says so that the channel was pruned. A list of channels has no such head."""
        return self.closed and self.seq == 0


class Tombstone(Struct, frozen=True, kw_only=True):
    """What is left of a channel that was pruned (Y3)."""

    channel_id: str
    seq: int
    """How many lines it had."""
    hash: bytes
    """The hash of the last one."""
    pruned_at: datetime
    erased: list[tuple[int, int]] = []
    """Lines whose content was erased before, as ranges. No import brings it back."""


class ChannelEnd(Struct, frozen=True, kw_only=True):
    """Where an append left a channel."""

    channel_id: str
    seq: int
    hash: bytes
    """Of the last line."""
    position: int


class Index(Protocol):
    """The channels of a log by what is known of them, without reading lines (Y7)."""

    async def rows(
        self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
    ) -> list[ChannelRow]:
        """Return the newest channels for which `where` holds, those created last first.

        `after` is the last row of the page before. Channels that were created at the same time come in an
        order of the log's own. In tables a page costs what it shows, not what is on the log, if one index
        orders the whole filter (`log.listing.leading`). `log.walks.read_page` bounds the others.
        """
        ...

    async def row(self, channel_id: str) -> ChannelRow | None:
        """Return what the index says of a channel; None for one that it does not list."""
        ...

    async def without_row(self, *, after: str = "", limit: int) -> list[str]:
        """Return ids after `after`, in order, of channels that have lines and no row.

        The hub's own channels have none and are left out. For the others `log.rows` makes them again.
        """
        ...


class Log(Index, Protocol):
    """An append-only sequence of envelopes per channel."""

    address: str
    """Where it is kept, for people: `memory:`, `sqlite:///path`, ..."""
    durability: str
    """What a returned append survives, for people: `none`, `process` (its crash), `power` (its loss), ..."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        """Write all of `envelopes`, durably, or none of them.

        `row` is what the index says of the channel from then on, in the same transaction (Y7). Without
        one, as for the hub's own channels, the channel is in no list of the index.

        `after` is the seq the caller believes is last; the envelopes carry the
        seqs that follow it. Raises `LogConflict` when it is not; the caller
        reads, folds and decides again. Raises `DuplicateEnvelope` when the
        channel has one of the ids already, at any seq. Raises `LogUnavailable`
        when the storage failed; sending the same ids again is safe. When this
        returns, the envelopes survive whatever `durability` promises. Without
        envelopes only the row is written, if there is one and the channel has lines.
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

    async def end(self) -> int:
        """Return the position from which `tail` tells what is appended from now on; 0 for an empty log."""
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


class Blob(Struct, frozen=True, kw_only=True):
    """A file of a tree of channels, without its bytes (Y6). Those are kept in chunks, numbered from 0."""

    root: str
    """The channel at the root of the tree."""
    blob_id: str
    """Drawn for each upload, so that two at once do not mix."""
    digest: str = ""
    """The SHA-256 of its bytes, in hexadecimal; empty: not all of them are there."""
    size: int = 0
    created_at: datetime
    is_kept: bool = False
    """Whether a line was found that refers to it. A cache: the lines decide."""
    user_key: str = ""
    """The user who uploaded it, as `user_key_of` names them; empty: it counts for none."""


class Chunks(Protocol):
    """Where the bytes of blobs can be read."""

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        """Return a chunk; None if it is not there."""
        ...


@runtime_checkable
class Blobs(Chunks, Protocol):
    """The optional ability to keep files beside the log. Every log of ours has it; see `log.blobs`."""

    address: str

    async def add_blob(self, blob: Blob) -> None:
        """Begin a blob."""
        ...

    async def add_chunk(self, blob: Blob, number: int, data: bytes) -> None:
        """Keep a chunk, durably. Appends of lines come first. A blob that is gone gets none."""
        ...

    async def set_blob(self, blob: Blob) -> None:
        """Write the digest, the size and `is_kept` of a blob. One that is gone stays so."""
        ...

    async def blobs(self, root: str) -> list[Blob]:
        """Return the blobs of a tree, the oldest first, also those that are not complete."""
        ...

    async def count_blobs(self, user_key: str, *, limit: int) -> tuple[int, int]:
        """Return how many blobs a user has in all trees, and their bytes. Counts up to `limit` of them."""
        ...

    async def old_blobs(self, *, before: datetime, limit: int) -> list[Blob]:
        """Return blobs of any tree that are older than `before` and are not kept, the oldest first."""
        ...

    async def delete_blobs(self, blobs: Sequence[Blob]) -> None:
        """Delete blobs and their chunks."""
        ...


@runtime_checkable
class Erases(Protocol):
    """The ability to erase content and keep the chain (Y2). Every log of ours has it."""

    async def erase(
        self,
        channel_id: str,
        note: Envelope,
        *,
        after: int,
        row: ChannelRow | None,
        blobs: Sequence[Blob] = (),
    ) -> None:
        """Append `note`, a `payload.erased`, and delete the content of the lines that it names.

        The channel's snapshot and `blobs` go with it. Raises what `append` raises. Where the two are not one
        transaction, the note comes first, and `finish_erasing` does what a crash left to do.
        """
        ...

    async def finish_erasing(self, channel_id: str) -> None:
        """Delete the content that lines on the log name as erased, if some is left, and the snapshot."""
        ...

    async def compact(self) -> None:
        """Make deleted bytes disappear from the storage's files. Raises `LogUnavailable` if it cannot."""
        ...


@runtime_checkable
class Prunes(Protocol):
    """The ability to remove closed channels and to remember their ids (Y3). Every log of ours has it.

    From its tombstone on, a channel is in no list and has no lines, and an append to it raises
    `ChannelPruned`. A tail tells of it once (`Head.is_pruned`). Its lines are deleted later, in steps.
    """

    async def prune(self, tombstones: Sequence[Tombstone]) -> None:
        """Write tombstones: all of them or, where there are no transactions, one after the other.

        A channel that never was here gets one as well; one that has a tombstone keeps it. Raises
        `LogConflict` for a channel that is open or does not end as its tombstone says, and `OriginInUse`
        for one that a fork reads which has no tombstone, and is not among these.
        """
        ...

    async def delete_pruned(self, *, limit: int) -> int:
        """Delete at most `limit` lines of pruned channels. Return how many; 0 when nothing is left.

        Where lines are deleted by the channel, a step may delete more than `limit`.
        """
        ...

    async def tombstone(self, channel_id: str) -> Tombstone | None:
        """Return the tombstone of a channel, or None."""
        ...

    async def tombstones(self, *, after: str = "", limit: int) -> list[Tombstone]:
        """Return tombstones of channels after `after`, by id."""
        ...

    async def restore(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        """Write lines of a pruned channel again, in parts. Nobody sees them before the last part.

        The part that ends as the tombstone says makes the channel visible and drops the tombstone.
        A part after line 0 begins again. Raises `LogConflict` if the parts so far end elsewhere, and
        `ArchiveDiffers` if the lines are not those that were pruned, or there is no tombstone.
        """
        ...


_tombstones: Final = msgspec.json.Decoder(Tombstone)


def write_tombstone(tombstone: Tombstone) -> bytes:
    """Return a tombstone as logs keep it."""
    return msgspec.json.encode(tombstone)


def read_tombstone(body: bytes) -> Tombstone:
    """Return what a log keeps of a pruned channel. Raises `CorruptRecord`."""
    try:
        return _tombstones.decode(body)
    except ValueError as error:  # msgspec's decoding errors are ValueErrors.
        raise CorruptRecord(
            "?", seq=0, because=f"the tombstone of a pruned channel is damaged: {error}"
        ) from error


def check_restored(tombstone: Tombstone | None, channel_id: str, last: Record) -> bool:
    """Return whether a part of a pruned channel is the last one. Raises `ArchiveDiffers`."""
    if tombstone is None:
        raise ArchiveDiffers(channel_id, seq=last.seq, found="no tombstone", expected="a pruned channel")
    if last.seq < tombstone.seq:
        return False
    if (last.seq, last.hash) != (tombstone.seq, tombstone.hash):
        found = f"{last.seq} lines that end with {last.hash.hex()}"
        expected = f"the {tombstone.seq} lines that were pruned, which end with {tombstone.hash.hex()}"
        raise ArchiveDiffers(channel_id, seq=last.seq, found=found, expected=expected)
    return True


@runtime_checkable
class Replaces(Protocol):
    """The ability to write a damaged channel again (Y5). Every log of ours has it."""

    async def replace(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        """Put `envelopes` in the place of all that the channel has; without any, the channel is gone.

        Lines that are `Kept` keep their bytes. In SQL it is one transaction. On NATS, where the old messages
        stay, a first message says that the channel begins again with it; there it is only for channels of the
        hub's own.
        """
        ...


@runtime_checkable
class ListsEnds(Protocol):
    """The ability to say where channels end, for seals (Y4). Every log of ours has it."""

    async def channel_end(self, channel_id: str) -> ChannelEnd | None:
        """Return where a channel ends now; None for an unknown one."""
        ...

    async def ends(self, *, after: int, limit: int) -> list[ChannelEnd]:
        """Return where appends after position `after` left their channels, by position.

        At most `limit` of them; several appends to a channel may be told as one, the newest. No append
        can come before the last of them any more, and it costs what was appended, not what is on the log.
        """
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
        self,
        transaction: Transaction,
        channel_id: str,
        envelopes: Sequence[Envelope],
        *,
        after: int,
        row: ChannelRow | None = None,
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


def closes(channel_id: str, event_type: str) -> bool:
    """Return whether a channel whose last line is of this type is closed.

    After `channel.closed` come only lines that say what was erased (Y1). A system channel goes on after them.
    """
    if event_type == EV_PAYLOAD_ERASED:
        return not channel_id.startswith("_")
    return event_type == EV_CHANNEL_CLOSED


class Erasures:
    """Lines without their content, and the lines that say that it was erased."""

    def __init__(self, channel_id: str) -> None:
        self._channel_id = channel_id
        self._missing: set[int] = set()

    def add(self, envelope: Envelope) -> None:
        if envelope.is_erased:
            self._missing.add(envelope.seq)
        elif envelope.event_type == EV_PAYLOAD_ERASED and self._missing:
            for first, last in erased_lines(envelope):
                self._missing = {seq for seq in self._missing if not first <= seq <= last}

    @property
    def is_missing_any(self) -> bool:
        """Whether content is missing, and no line so far says that it was erased."""
        return bool(self._missing)

    def check(self) -> None:
        """Raise `CorruptRecord` at the first line whose content is missing and was not erased."""
        if self._missing:
            because = "its content is missing, and no later line says that it was erased"
            raise CorruptRecord(self._channel_id, seq=min(self._missing), because=because)


class Bell:
    """A count that grows, and those who wait for it to grow, in any event loop and any thread.

        seen = bell.rung; look; await bell.wait(seen)

    A ring between the look and the wait is not missed, because the wait compares
    the count it is given. A bell says that something happened, never what.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[tuple[AbstractEventLoop, Future[None]]] = []
        self.rung = 0

    def ring(self) -> None:
        """Wake everyone who waits. Safe from any thread."""
        with self._lock:
            self.rung += 1
            waiting, self._waiting = self._waiting, []
        for loop in {loop for loop, _ in waiting}:
            call_in(loop, _wake, [future for owner, future in waiting if owner is loop])

    async def wait(self, seen: int, *, timeout_seconds: float | None = None) -> None:
        """Return when the bell has been rung more than `seen` times, or the time is up."""
        future = self._enter(seen)
        if future is None:
            return
        if timeout_seconds is not None:
            timer = future.get_loop().call_later(timeout_seconds, _wake, [future])
        try:
            await future
        finally:
            if timeout_seconds is not None:
                timer.cancel()
            self._leave(future)

    def _enter(self, seen: int) -> Future[None] | None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.rung != seen:
                return None
            future = loop.create_future()
            self._waiting.append((loop, future))
            return future

    def _leave(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting = [entry for entry in self._waiting if entry[1] is not future]


def _wake(futures: list[Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
