"""The keys of a `NatsLog`: the content of lines is encrypted, and erasing destroys the key (Y2).

    <stream>_keys.<channel>.<note>-<part>    the key of the lines after a note, PART_LINES at a time
    <stream>_keys.<channel>.snapshot         the key of the channel's snapshots
    <stream>_keys.<root>.blob-<id>           the key of a file (`nats_blobs`)

A line's key follows from the key of its part. A part of which some lines were erased has the keys of the
other lines instead. `<note>` is the last `payload.erased` before the line, 0 if there is none: so no line
can be added to a part whose key is about to be destroyed.

Rule 1: the key of a part is on its stream before the first line that needs it. Two writers agree: the
server takes a key only if there is none.

Rule 2: a key is destroyed by a delete that overwrites its bytes. The keys of lines that stay come first.

Rule 3: the keys protect erased content from later readers, and nothing else. They are as readable as the
log is: who may read both streams may read all that was not erased.
"""

from __future__ import annotations

import hmac
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from secrets import token_bytes
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct
from msgspec.structs import replace

from turnline.core.codec import Record
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_PAYLOAD_ERASED
from turnline.log.nats_connection import NATS_RAISES, Answer, Connection, Refused, reason
from turnline.log.nats_message import EXPECTED_POSITION, Message, token
from turnline.log.nats_reader import Reader
from turnline.log.nats_stream import keys_of

PART_LINES: Final = 4_096
"""Lines that share a key. What stays of a part after an erase fits into one message."""
SNAPSHOT: Final = "snapshot"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
NOTE_BYTES: Final = 8
CIPHER_BYTES: Final = NOTE_BYTES + NONCE_BYTES + 16
"""What encrypting adds to the content of a line."""
REPAIRED: Final = 1 << 56
"""Names of parts of repaired channels begin here: no line has such a number."""
MAX_CONFLICTS: Final = 100
MAX_KEPT: Final = 64
"""Messages that are read of one part: one, or two while an erase is unfinished."""
NOT_FOUND: Final = 10057
"""What JetStream answers to the deletion of a message that is gone."""


class Ring(Struct, array_like=True, frozen=True):
    """What is left of the keys of a part."""

    base: bytes = b""
    """Empty: some of its lines were erased."""
    lines: dict[int, bytes] = {}

    def line_key(self, seq: int) -> bytes | None:
        if self.base:
            return hmac.digest(self.base, b"line" + seq.to_bytes(8), "sha256")
        return self.lines.get(seq)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Ring)


class Keys:
    """The third stream."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stream = keys_of(connection.address.stream)
        self.reader = Reader(connection, self._stream)

    async def load(self, channel_id: str, name: str) -> Ring | None:
        message = await self.reader.last(self._subject(channel_id, name))
        return None if message is None else _ring_in(message)

    async def load_every(self, channel_id: str, name: str) -> Ring | None:
        """Return all that can still be read with the keys of a part, also of an unfinished erase."""
        rings = [_ring_in(one) for one in await self._messages(self._subject(channel_id, name))]
        if not rings:
            return None
        lines = {seq: key for ring in rings for seq, key in ring.lines.items()}
        return Ring(next((ring.base for ring in rings if ring.base), b""), lines)

    async def make(self, channel_id: str, name: str) -> Ring:
        """Return the keys of a part; make them if there are none. Raises `LogUnavailable`."""
        subject, new = self._subject(channel_id, name), Ring(token_bytes(KEY_BYTES))
        patience = self._connection.patience()
        while True:
            try:
                await self._publish(subject, new, after=0)
            except Refused as refused:
                because = str(refused)
            except NATS_RAISES as error:
                because = reason(error)
            else:
                return new
            if (found := await self.load(channel_id, name)) is not None:
                return found
            await patience.pause(because)

    async def destroy(self, channel_id: str, parts: Mapping[str, Sequence[int]]) -> None:
        """Destroy the keys of these parts but for the lines that stay, and that of the snapshots."""
        await self._shrink(self._subject(channel_id, SNAPSHOT), ())
        for name, staying in parts.items():
            await self._shrink(self._subject(channel_id, name), staying)

    async def destroy_one(self, channel_id: str, name: str) -> None:
        """Destroy the key of a part, or of a file."""
        await self._shrink(self._subject(channel_id, name), ())

    async def destroy_all(self, channel_id: str) -> None:
        """Destroy every key of a channel that was pruned."""
        for subject in await self.reader.subjects(self._subject(channel_id, "*")):
            await self._shrink(subject, ())

    async def _shrink(self, subject: str, staying: Sequence[int]) -> None:
        patience = self._connection.patience()
        for _ in range(MAX_CONFLICTS):
            messages = await self._messages(subject)
            if not messages:
                return
            last = _ring_in(messages[-1])
            left = {seq: key for seq in staying if (key := last.line_key(seq)) is not None}
            if last.base or last.lines != left:
                try:
                    if left:
                        await self._publish(subject, Ring(b"", left), after=messages[-1].position)
                except (Refused, *NATS_RAISES) as error:  # Another one erases, or nobody knows: look again.
                    await patience.pause(reason(error))
                    continue
            else:
                messages.pop()
            for message in messages:
                await self._delete(message.position)
            return
        raise self._connection.unavailable(f"others erased at the same time {MAX_CONFLICTS} times; try again")

    async def _messages(self, subject: str) -> list[Message]:
        found, position = list[Message](), 0
        while len(found) < MAX_KEPT:
            message = await self.reader.following(subject, after=position)
            if message is None:
                break
            found.append(message)
            position = message.position
        return found

    async def _publish(self, subject: str, ring: Ring, *, after: int) -> None:
        await self._connection.publish(subject, _encoder.encode(ring), {EXPECTED_POSITION: str(after)})

    async def _delete(self, position: int) -> None:
        try:
            request = {"seq": position, "no_erase": False}
            await self._connection.ask(f"STREAM.MSG.DELETE.{self._stream}", request, Answer)
        except Refused as refused:
            if refused.err_code != NOT_FOUND:
                raise self._connection.unavailable(str(refused)) from refused

    def _subject(self, channel_id: str, name: str) -> str:
        return f"{self._stream}.{token(channel_id)}.{name}"


class ChannelKeys:
    """The keys of one channel, as far as they were needed."""

    def __init__(self, keys: Keys, channel_id: str, *, with_every: bool = False) -> None:
        """`with_every` reads also what an unfinished erase should have destroyed."""
        self.channel_id = channel_id
        self._keys = keys
        self._load = keys.load_every if with_every else keys.load
        self._rings: dict[str, Ring | None] = {}
        self._notes: list[int] = []
        """The lines that say what was erased, in their order."""
        self._erased_parts: set[str] = set()
        """Parts with erased lines. Until their keys are destroyed, none of them is kept in memory."""

    def forget(self) -> None:
        """Forget all of them: some may be destroyed."""
        self._rings.clear()

    def note_erased(self, note: int, first: int, last: int) -> None:
        """Forget the keys: line `note` says that the content of these lines was erased."""
        if not self._notes or note > self._notes[-1]:
            self._notes.append(note)
        for seq in range(first, last + 1):
            before = bisect_left(self._notes, seq)
            self._erased_parts.add(part_of(self._notes[before - 1] if before else 0, seq))
        self._erased_parts.add(SNAPSHOT)
        self.forget()

    async def begin(self) -> None:
        """Make the key of a channel that has no lines yet."""
        await self._ring_to_write(part_of(0, 1))

    async def encrypt(
        self, envelopes: Sequence[Envelope], records: Sequence[Record], *, note: int
    ) -> list[Record] | None:
        """Return the records with encrypted content; `note` is the last `payload.erased` before them.

        None: the key is destroyed, so the channel has gone on, or is damaged.
        """
        encrypted = list[Record]()
        for envelope, record in zip(envelopes, records, strict=True):
            found = await self._encrypt(record, note)
            if found is None:
                return None
            if envelope.event_type == EV_PAYLOAD_ERASED:
                note = record.seq
            encrypted.append(found)
        return encrypted

    async def encrypt_again(self, records: Sequence[Record], *, position: int) -> list[Record]:
        """Return the records of a repaired channel with encrypted content, under keys of their own.

        `position` is where the channel ended before: its old keys may be destroyed in part.
        """
        found = [await self._encrypt(one, REPAIRED + position) for one in records]
        return [one for one in found if one is not None]

    async def _encrypt(self, record: Record, note: int) -> Record | None:
        if record.payload is None:
            return record
        ring = await self._ring_to_write(part_of(note, record.seq))
        key = None if ring is None else ring.line_key(record.seq)
        if key is None:
            return None
        body = note.to_bytes(NOTE_BYTES) + encrypt(key, record.payload, self._place(record.seq))
        return replace(record, payload=body)

    async def decrypt(self, record: Record) -> Record:
        """Return the record with its content; without it if the key is gone.

        A record that its key does not open comes back as it is: its digest does not match.
        """
        if record.payload is None:
            return record
        ring = await self._ring(part_in(record))
        key = None if ring is None else ring.line_key(record.seq)
        if key is None:
            return replace(record, payload=None)
        plain = decrypt(key, record.payload[NOTE_BYTES:], self._place(record.seq))
        return record if plain is None else replace(record, payload=plain)

    async def encrypt_snapshot(self, body: bytes) -> bytes | None:
        """Return an encrypted snapshot; None if its key cannot be had."""
        ring = await self._ring_to_write(SNAPSHOT)
        return None if ring is None or not ring.base else encrypt(ring.base, body, self._place(0))

    async def decrypt_snapshot(self, body: bytes) -> bytes | None:
        ring = await self._ring(SNAPSHOT)
        return None if ring is None or not ring.base else decrypt(ring.base, body, self._place(0))

    async def _ring(self, name: str) -> Ring | None:
        if name in self._rings:
            return self._rings[name]
        ring = await self._load(self.channel_id, name)
        if ring is None or not ring.base or name not in self._erased_parts:
            self._rings[name] = ring
        return ring

    async def _ring_to_write(self, name: str) -> Ring | None:
        ring = self._rings.get(name)
        if ring is None:
            ring = self._rings[name] = await self._keys.make(self.channel_id, name)
        return ring

    def _place(self, seq: int) -> bytes:
        return f"{seq}:{self.channel_id}".encode()


def part_of(note: int, seq: int) -> str:
    """Return the name of the part that a line belongs to."""
    return f"{note}-{seq // PART_LINES}"


def part_in(record: Record) -> str:
    """Return the name of the part of a record with encrypted content."""
    return part_of(int.from_bytes((record.payload or b"")[:NOTE_BYTES]), record.seq)


def _ring_in(message: Message) -> Ring:
    try:
        return _decoder.decode(message.payload)
    except ValueError:
        return Ring()  # Damaged: the lines that needed it say so where they are read.


def encrypt(key: bytes, plain: bytes, place: bytes) -> bytes:
    """Return content that only the key and the place open."""
    # A number of its own for each attempt: an append that failed may have been seen with the same key.
    nonce = token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, place)


def decrypt(key: bytes, body: bytes, place: bytes) -> bytes | None:
    """Return what `encrypt` was given; None for another key or place."""
    try:
        return AESGCM(key).decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], place)
    except (InvalidTag, ValueError):
        return None
