"""Envelope <-> bytes, and the chain that makes damage visible.

    Record = the bytes of one envelope + H(previous hash, channel, seq, id, bytes)

Rule 1: the same envelope is the same bytes on every backend; what was written
is never encoded again, so moving a log keeps its hashes.

Rule 2: a line written by an older version is brought up to date while it is
read (`_UPCASTERS`); the bytes stay as they are. A line from a newer version is
not guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.errors import CorruptRecord

HASH_BYTES: Final = 16
NO_HASH: Final = bytes(HASH_BYTES)
"""What stands before a channel's first record."""

Upcaster = Callable[[JsonObject], JsonObject]
_UPCASTERS: dict[int, Upcaster] = {}
"""Version -> what turns a line of that version into one of the next. Never remove an entry."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Envelope)


class Record(Struct, frozen=True):
    """One envelope as a backend keeps it."""

    seq: int
    envelope_id: str
    body: bytes
    hash: bytes


class Kept(Envelope, frozen=True, kw_only=True):
    """An envelope that is on a log already, with its bytes: appended elsewhere, it keeps them."""

    body: bytes


class _Version(Struct):
    v: int


_version_decoder = msgspec.json.Decoder(_Version)


def encode(envelope: Envelope) -> bytes:
    return envelope.body if isinstance(envelope, Kept) else _encoder.encode(envelope)


def decode(body: bytes, *, upcasters: Mapping[int, Upcaster] = _UPCASTERS) -> Envelope:
    """Return the envelope in `body`, brought up to the current schema. Raises `ValueError`."""
    version = _version_decoder.decode(body).v
    if version == SCHEMA_VERSION:
        return _decoder.decode(body)
    if version > SCHEMA_VERSION:
        raise ValueError(
            f"schema version {version} is newer than this program's {SCHEMA_VERSION}; upgrade turnline"
        )
    line: JsonObject = msgspec.json.decode(body)
    for step in range(version, SCHEMA_VERSION):
        if step not in upcasters:
            raise ValueError(f"no upcaster from schema version {step}")
        line = upcasters[step](line)
    return msgspec.convert(line | {"v": SCHEMA_VERSION}, Envelope)


def seal(envelope: Envelope, previous: bytes) -> Record:
    """Return the record of `envelope` after the record whose hash is `previous`."""
    body = encode(envelope)
    return Record(
        seq=envelope.seq,
        envelope_id=envelope.envelope_id,
        body=body,
        hash=_hash(previous, envelope.channel_id, envelope.seq, envelope.envelope_id, body),
    )


def unseal(channel_id: str, record: Record, *, previous: bytes, seq: int) -> Envelope:
    """Return the envelope of the record that has to be at `seq`, or raise `CorruptRecord`."""
    if record.seq != seq:
        raise CorruptRecord(channel_id, seq=seq, because=f"it is missing; the next one found is {record.seq}")
    if _hash(previous, channel_id, seq, record.envelope_id, record.body) != record.hash:
        raise CorruptRecord(channel_id, seq=seq, because="its checksum does not match its bytes")
    try:
        return decode(record.body)
    except ValueError as error:  # msgspec's decoding errors are ValueErrors.
        raise CorruptRecord(channel_id, seq=seq, because=str(error)) from error


def _hash(previous: bytes, channel_id: str, seq: int, envelope_id: str, body: bytes) -> bytes:
    # Lengths are part of what is hashed, so no two records share an input.
    head = f"{len(channel_id)}:{channel_id}{seq}:{len(envelope_id)}:{envelope_id}"
    digest = blake2b(previous, digest_size=HASH_BYTES)
    digest.update(head.encode())
    digest.update(body)
    return digest.digest()
