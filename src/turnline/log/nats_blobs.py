"""Files on a `NatsLog` (Y6): a stream beside the log.

    <stream>_blobs.<root>.<id>.blob.<user>  a header, encrypted digest and size; `-` for no user
    <stream>_blobs.<root>.<id>.<number>     a chunk

Each chunk is published and answered before the next one, so an append of a line waits for one at most.
A list of old blobs reads a header of every blob there is; the sweep asks for it.

Rule: all that follows from the bytes of a file is encrypted under a key of the blob (`nats_keys`), which is
destroyed with it (Y2). A purge leaves the bytes of messages in the files of the server, and a digest there
would prove to those who have the file that it was sent. Ids are random.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

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
        await self._put(self._head(blob), b"", _headers(blob))  # It has no digest yet.

    async def add_chunk(self, blob: Blob, number: int, data: bytes) -> None:
        ring = await self._keys.load(blob.root, _key_name(blob))
        if ring is not None and await self._reader.last(self._head(blob)) is not None:
            body = encrypt(ring.base, data, _place(blob, number))
            await self._put(f"{self._subject(blob)}.{number}", body, {})

    async def set(self, blob: Blob) -> None:
        subject = self._head(blob)
        last, ring = await self._reader.last(subject), await self._keys.load(blob.root, _key_name(blob))
        if last is not None and ring is not None:
            # Behind the message that was found: a blob that was deleted since stays deleted.
            headers = _headers(blob) | {EXPECTED_POSITION: str(last.position)}
            content = msgspec.json.encode((blob.digest, blob.size))
            body = encrypt(ring.base, content, _place(blob, "blob")) if blob.digest else b""
            with suppress(Refused):
                await self._connection.put(subject, body, headers)

    async def of_root(self, root: str) -> list[Blob]:
        return await self._list(f"{self._stream}.{token(root)}.*.blob.*")

    async def count(self, user_key: str, *, limit: int) -> tuple[int, int]:
        """Return how many blobs a user has, and their bytes. A header of each is read."""
        matching = f"{self._stream}.*.*.blob.{token(user_key)}"
        found = await self._list(matching, limit=limit) if user_key else []
        return len(found), sum(blob.size for blob in found)

    async def list_old(self, *, before: datetime, limit: int) -> list[Blob]:
        def is_old(blob: Blob) -> bool:
            return not blob.is_kept and blob.created_at < before

        return (await self._list(f"{self._stream}.*.*.blob.*", is_old))[:limit]

    async def list_complete(self, root: str | None = None) -> list[Blob]:
        """Return the complete files of a tree, or of all trees."""
        tree = "*" if root is None else token(root)
        return [blob for blob in await self._list(f"{self._stream}.{tree}.*.blob.*") if blob.digest]

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

    async def _list(
        self, matching: str, where: Callable[[Blob], bool] = lambda blob: True, limit: int | None = None
    ) -> list[Blob]:
        subjects, found = (await self._reader.subjects(matching))[:limit], list[Blob]()
        for first in range(0, len(subjects), AT_ONCE):
            some = (self._load(one, where) for one in subjects[first : first + AT_ONCE])
            found += [blob for blob in await asyncio.gather(*some) if blob is not None]
        return sorted(found, key=lambda blob: blob.created_at)

    async def _load(self, subject: str, where: Callable[[Blob], bool]) -> Blob | None:
        """Return a blob; without a digest if it is not complete, or if its key is gone."""
        message = await self._reader.last(subject)
        blob = None if message is None else _blob_of(message)
        if message is None or blob is None or not where(blob):
            return None
        ring = await self._keys.load(blob.root, _key_name(blob)) if message.payload else None
        content = None if ring is None else decrypt(ring.base, message.payload, _place(blob, "blob"))
        if content is None:
            return blob
        digest, size = msgspec.json.decode(content, type=tuple[str, int])
        return replace(blob, digest=digest, size=size)

    def _subject(self, blob: Blob) -> str:
        return f"{self._stream}.{token(blob.root)}.{token(blob.blob_id)}"

    def _head(self, blob: Blob) -> str:
        return f"{self._subject(blob)}.blob.{token(blob.user_key) if blob.user_key else '-'}"

    async def _put(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        try:
            await self._connection.put(subject, payload, headers)
        except Refused as refused:
            raise self._connection.unavailable(str(refused)) from refused


def _key_name(blob: Blob) -> str:
    return f"blob-{token(blob.blob_id)}"


def _place(blob: Blob, name: int | str) -> bytes:
    return f"{name}:{blob.blob_id}:{blob.root}".encode()


def _headers(blob: Blob) -> dict[str, str]:
    return {BLOB: msgspec.json.encode(replace(blob, digest="", size=0)).decode()}


def _blob_of(message: Message) -> Blob | None:
    try:
        return msgspec.json.decode(message.headers.get(BLOB, ""), type=Blob)
    except msgspec.DecodeError:
        return None
