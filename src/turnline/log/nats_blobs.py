"""Files on a `NatsLog` (Y6): a stream beside the log.

    <stream>_blobs.<root>.<id>.blob      what the blob is, as a header
    <stream>_blobs.<root>.<id>.<number>  a chunk

Each chunk is published and answered before the next one, so an append of a line waits for one at most.
A list of old blobs reads a header of every blob there is; the sweep asks for it.

Chunks are encrypted under a key of the blob (`nats_keys`), which is destroyed with it (Y2): a purge leaves
the bytes of messages in the files of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from turnline.log.base import Blob
from turnline.log.nats_connection import Answer, Connection, Refused
from turnline.log.nats_keys import Keys, decrypt, encrypt
from turnline.log.nats_message import EXPECTED_POSITION, Message, token
from turnline.log.nats_reader import Reader
from turnline.log.nats_stream import blobs_of

BLOB: Final = "Turnline-Blob"
AT_ONCE: Final = 32
"""Headers that are asked for together."""


class NatsBlobs:
    """The stream of files. See `Blobs`."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._stream = blobs_of(connection.address.stream)
        self._reader = Reader(connection, self._stream)

    async def add(self, blob: Blob) -> None:
        await self._keys.make(blob.root, _key_name(blob))
        await self._put(f"{self._subject(blob)}.blob", b"", _headers(blob))

    async def add_chunk(self, blob: Blob, number: int, data: bytes) -> None:
        ring = await self._keys.load(blob.root, _key_name(blob))
        if ring is not None and await self._reader.last(f"{self._subject(blob)}.blob") is not None:
            body = encrypt(ring.base, data, _place(blob, number))
            await self._put(f"{self._subject(blob)}.{number}", body, {})

    async def set(self, blob: Blob) -> None:
        subject = f"{self._subject(blob)}.blob"
        last = await self._reader.last(subject)
        if last is not None:
            # Behind the message that was found: a blob that was deleted since stays deleted.
            headers = _headers(blob) | {EXPECTED_POSITION: str(last.position)}
            with suppress(Refused):
                await self._connection.put(subject, b"", headers)

    async def of_root(self, root: str) -> list[Blob]:
        return await self._list(f"{self._stream}.{token(root)}.*.blob")

    async def list_old(self, *, before: datetime, limit: int) -> list[Blob]:
        every = await self._list(f"{self._stream}.*.*.blob")
        return [blob for blob in every if not blob.is_kept and blob.created_at < before][:limit]

    async def list_complete(self) -> list[Blob]:
        return [blob for blob in await self._list(f"{self._stream}.*.*.blob") if blob.digest]

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        found = await self._reader.last(f"{self._subject(blob)}.{number}")
        ring = None if found is None else await self._keys.load(blob.root, _key_name(blob))
        if found is None or ring is None:
            return None
        return decrypt(ring.base, found.payload, _place(blob, number))

    async def delete(self, blobs: Sequence[Blob]) -> None:
        for blob in blobs:
            await self._keys.destroy_one(blob.root, _key_name(blob))
            try:
                request = {"filter": f"{self._subject(blob)}.>"}
                await self._connection.ask(f"STREAM.PURGE.{self._stream}", request, Answer)
            except Refused as refused:
                raise self._connection.unavailable(str(refused)) from refused

    async def _list(self, matching: str) -> list[Blob]:
        subjects, found = await self._reader.subjects(matching), list[Blob]()
        for first in range(0, len(subjects), AT_ONCE):
            some = await asyncio.gather(*map(self._reader.last, subjects[first : first + AT_ONCE]))
            found += [blob for blob in map(_blob_of, some) if blob is not None]
        return sorted(found, key=lambda blob: blob.created_at)

    def _subject(self, blob: Blob) -> str:
        return f"{self._stream}.{token(blob.root)}.{token(blob.blob_id)}"

    async def _put(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        try:
            await self._connection.put(subject, payload, headers)
        except Refused as refused:
            raise self._connection.unavailable(str(refused)) from refused


def _key_name(blob: Blob) -> str:
    return f"blob-{token(blob.blob_id)}"


def _place(blob: Blob, number: int) -> bytes:
    return f"{number}:{blob.blob_id}:{blob.root}".encode()


def _headers(blob: Blob) -> dict[str, str]:
    return {BLOB: msgspec.json.encode(blob).decode()}


def _blob_of(message: Message | None) -> Blob | None:
    if message is None:
        return None
    try:
        return msgspec.json.decode(message.headers.get(BLOB, ""), type=Blob)
    except msgspec.DecodeError:
        return None
