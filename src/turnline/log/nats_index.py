"""Which channels of a `NatsLog` are open, and folded states: a stream beside the log.

    <stream>_index.open.<channel>        there before the channel's first append, gone after its last
    <stream>_index.snapshot.<channel>    a cache with checksums of its own
    <stream>_index.row.<channel>         the channel's row, if it was not written with an append
    <stream>_index.pruned.<channel>      its tombstone, before that on the log; gone after it was restored
    <stream>_index.undeleted.<channel>   lines of a pruned channel may be left, or not all restored
    <stream>_index.whole                 every open channel is in the index

Rule: whatever is open is in the index, so a list of open channels costs only
those. More may be in it: a channel that closed a moment ago, or one whose first
append never came. Whoever lists looks at each channel's head.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from turnline.core.channel import ChannelRow
from turnline.errors import LogUnavailable
from turnline.log.base import Tombstone, read_tombstone, write_tombstone
from turnline.log.nats_connection import Answer, Connection, Refused
from turnline.log.nats_message import SEQ, channel_of, head_of, row_alone_of, token
from turnline.log.nats_reader import Reader
from turnline.log.nats_stream import index_of
from turnline.log.sqlite_work import snapshot_checksum

CHECKSUM: Final = "Turnline-Checksum"
HEADER_BYTES: Final = 1_024
"""What a snapshot's message takes besides its body, at most."""


class Index:
    """The second stream."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stream = index_of(connection.address.stream)
        self.reader = Reader(connection, self._stream)

    async def complete(self, log: Reader) -> None:
        """Make the index whole, if it was made after channels were: once in a log's life."""
        whole = f"{self._stream}.whole"
        if await self.reader.last(whole) is not None:
            return
        subjects = await log.subjects(f"{log.stream}.*")
        for message in await log.last_of_each(subjects):
            if not head_of(message).closed:
                await self.open(channel_of(message.subject))
        await self._put(whole, b"", {})

    async def open(self, channel_id: str) -> None:
        await self._put(f"{self._stream}.open.{token(channel_id)}", b"", {})

    async def close(self, channel_id: str) -> None:
        """Forget that a channel was open. If it fails, whoever lists next does it."""
        with suppress(LogUnavailable):
            await self._purge(f"{self._stream}.open.{token(channel_id)}")

    async def open_channels(self) -> list[str]:
        """Return every open channel, and perhaps some that are not."""
        return [channel_of(subject) for subject in await self.reader.subjects(f"{self._stream}.open.*")]

    async def save_snapshot(self, channel_id: str, *, seq: int, body: bytes) -> None:
        if len(body) + HEADER_BYTES > await self._connection.max_payload():
            return  # A cache may forget.
        headers = {SEQ: str(seq), CHECKSUM: snapshot_checksum(channel_id, seq, body).hex()}
        await self._put(self._snapshot(channel_id), body, headers)

    async def load_snapshot(self, channel_id: str) -> tuple[int, bytes] | None:
        message = await self.reader.last(self._snapshot(channel_id))
        if message is None or not message.headers.get(SEQ, "").isdecimal():
            return None
        seq = int(message.headers[SEQ])
        checksum = snapshot_checksum(channel_id, seq, message.payload).hex()
        return (seq, message.payload) if message.headers.get(CHECKSUM) == checksum else None

    async def save_row(self, row: ChannelRow, channel_id: str, *, seq: int) -> None:
        """Keep a row for the append that ended at `seq`. One that is too large is not kept."""
        payload, headers = row_alone_of(row, seq)
        if len(payload) + HEADER_BYTES <= await self._connection.max_payload():
            await self._put(f"{self._stream}.row.{token(channel_id)}", payload, headers)

    async def save_tombstone(self, tombstone: Tombstone) -> None:
        await self._put(self._pruned(tombstone.channel_id), write_tombstone(tombstone), {})

    async def tombstone(self, channel_id: str) -> Tombstone | None:
        """Return the tombstone of a channel that may have been pruned."""
        message = await self.reader.last(self._pruned(channel_id))
        return None if message is None else read_tombstone(message.payload)

    async def drop_tombstone(self, channel_id: str) -> None:
        await self._purge(self._pruned(channel_id))

    async def pruned_channels(self) -> list[str]:
        """Return every pruned channel, and perhaps some that are not, by id."""
        return sorted(map(channel_of, await self.reader.subjects(f"{self._stream}.pruned.*")))

    async def note_undeleted(self, channel_id: str) -> None:
        await self._put(f"{self._stream}.undeleted.{token(channel_id)}", b"", {})

    async def note_deleted(self, channel_id: str) -> None:
        await self._purge(f"{self._stream}.undeleted.{token(channel_id)}")

    async def undeleted_channels(self) -> list[str]:
        return [channel_of(subject) for subject in await self.reader.subjects(f"{self._stream}.undeleted.*")]

    async def forget(self, channel_id: str) -> None:
        """Forget a channel that was pruned: its snapshot, and its row."""
        await self.close(channel_id)
        await self._purge(self._snapshot(channel_id))
        row = f"{self._stream}.row.{token(channel_id)}"
        if await self.reader.last(row) is not None:
            await self._put(row, b"", {})  # A reader that looks for the last row finds one.

    async def delete_snapshots(self) -> None:
        await self._purge(f"{self._stream}.snapshot.*")

    def _pruned(self, channel_id: str) -> str:
        return f"{self._stream}.pruned.{token(channel_id)}"

    def _snapshot(self, channel_id: str) -> str:
        return f"{self._stream}.snapshot.{token(channel_id)}"

    async def _put(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        try:
            await self._connection.put(subject, payload, headers)
        except Refused as refused:
            raise self._connection.unavailable(str(refused)) from refused

    async def _purge(self, subject: str) -> None:
        try:
            await self._connection.ask(f"STREAM.PURGE.{self._stream}", {"filter": subject}, Answer)
        except Refused as refused:
            raise self._connection.unavailable(str(refused)) from refused
