"""Files over a link: the bytes go before the line, and come through a line (Y6)."""

from __future__ import annotations

from collections.abc import AsyncIterable
from hashlib import sha256
from itertools import count
from typing import Protocol

from turnline.agent.files import File
from turnline.core.parts import FilePart, MessagePart, TextPart, check_file
from turnline.errors import CorruptRecord
from turnline.hub.seat import FileChunk


class FileSeat(Protocol):
    """What files need of a seat; see `Seat` in `link`."""

    async def add_file(self, channel_id: str, pieces: AsyncIterable[bytes]) -> tuple[str, int]: ...

    async def read_chunk(self, channel_id: str, seq: int, index: int, number: int) -> FileChunk: ...


async def add_part(seat: FileSeat, channel_id: str, part: str | File) -> MessagePart:
    """Return a part of a message; a file is at the hub then. Raises `BadDraft`."""
    if isinstance(part, str):
        return TextPart(part)
    found = FilePart(media_type=part.media_type, name=part.name, size=0, digest="0" * 64)
    check_file(found, "file")  # Before its bytes travel.
    digest, size = await seat.add_file(channel_id, part.pieces())
    return FilePart(media_type=part.media_type, name=part.name, size=size, digest=digest)


async def read_file(seat: FileSeat, channel_id: str, seq: int, index: int) -> File:
    """Return a file of a line. Raises `UnknownFile`, and `CorruptRecord` if its bytes are others."""
    data = bytearray()
    for number in count():
        chunk = await seat.read_chunk(channel_id, seq, index, number)
        data += chunk.data
        if len(data) >= chunk.file.size or not chunk.data:
            break
    if len(data) != chunk.file.size or sha256(data).hexdigest() != chunk.file.digest:
        raise CorruptRecord(channel_id, seq=seq, because=f"the bytes of its file {index} are not those sent")
    return File(bytes(data), chunk.file.name, chunk.file.media_type)
