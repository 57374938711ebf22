"""Files over a link: the bytes go before the line, and come through a line (Y6)."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Final, Protocol

from msgspec.structs import replace

from turnline.agent.files import File
from turnline.agent.messages import MessageFile
from turnline.agent.storable import cut
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_TURN_TOOL
from turnline.core.parts import FilePart, MessagePart, TextPart, check_file, message_data
from turnline.core.views import Message
from turnline.errors import CorruptRecord, UnknownFile
from turnline.hub.seat import Claimed, FileChunk

MODEL_BYTES: Final = 20 * 1024 * 1024
"""Of the files that a model is shown in one turn."""
MODEL_TYPES: Final = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"}
)
"""What models take. Of any other file they are told the name, the type and the size."""


class FileSeat(Protocol):
    """What files need of a seat; see `Seat` in `link`."""

    async def add_file(self, channel_id: str, pieces: AsyncIterable[bytes]) -> tuple[str, int]: ...

    async def read_chunk(self, channel_id: str, seq: int, index: int, number: int) -> FileChunk: ...


async def add_part(seat: FileSeat, channel_id: str, part: str | File) -> MessagePart:
    """Return a part of a message; a file is at the hub then. Raises `BadDraft`."""
    return TextPart(part) if isinstance(part, str) else await add_file(seat, channel_id, part)


async def add_file(seat: FileSeat, channel_id: str, file: File) -> FilePart:
    """Keep a file at the hub. Raises `BadDraft`."""
    part = describe(file)
    digest, size = await seat.add_file(channel_id, file.pieces())
    return replace(part, size=size, digest=digest)


def describe(file: File, field: str = "file") -> FilePart:
    """Return the part of a file before its bytes. Raises `BadDraft` for its name or media type."""
    found = FilePart(media_type=file.media_type, name=file.name, size=0, digest="0" * 64)
    check_file(found, field)
    return found


async def load_files(seat: FileSeat, channel_id: str, messages: Sequence[Message]) -> list[list[MessageFile]]:
    """Return the files of each message that a model is shown, the newest first as far as there is room."""
    room, found = MODEL_BYTES, [list[MessageFile]() for _ in messages]
    for message, files in zip(reversed(messages), reversed(found), strict=True):
        if message.files and message.role == "other":
            read = partial(read_file, seat, channel_id, message.seq)
            files.extend(await load_shown(read, enumerate(message.files), room=room))
            room -= sum(len(one.data) for one in files)
    return found


async def load_shown(
    read: Callable[[int], Awaitable[File]], files: Iterable[tuple[int, FilePart]], *, room: int = MODEL_BYTES
) -> list[MessageFile]:
    """Return those of the files that a model is shown, as far as there is room. `read` takes their places."""
    loaded = list[MessageFile]()
    for index, file in files:
        if file.media_type not in MODEL_TYPES or file.size > room:
            continue
        with suppress(UnknownFile, CorruptRecord):  # The text names it all the same.
            data = (await read(index)).read()
            room -= file.size
            loaded.append(MessageFile(name=file.name, media_type=file.media_type, data=data))
    return loaded


def attach_files(packet: JsonObject, files: Sequence[FilePart]) -> JsonObject:
    """Return the data of a packet with files: they and the text are its parts then."""
    if not files:
        return packet
    text = str(packet.get("body", ""))
    said = {key: value for key, value in packet.items() if key != "body"}
    return said | message_data([*([TextPart(text)] if text else []), *files])


def name_files(text: str, files: Sequence[FilePart]) -> str:
    """Return a text with the names of the files that came with it."""
    if not files:
        return text
    named = (f"[file {one.name} ({one.media_type}, {one.size} bytes)]" for one in files)
    return "\n".join(filter(None, (text, *named)))


async def with_whole_texts(seat: FileSeat, claimed: Claimed, channel_id: str) -> Claimed:
    """Return a turn whose tool results have the text that is in a file, as the model was told it."""
    lines = list[Envelope]()
    for line in claimed.lines:
        entry = line.event_data.get("entry")
        is_long = line.event_type == EV_TURN_TOOL and isinstance(entry, dict) and entry.get("in_file")
        lines.append(await _with_whole_text(seat, channel_id, line) if is_long else line)
    return replace(claimed, lines=lines)


async def _with_whole_text(seat: FileSeat, channel_id: str, line: Envelope) -> Envelope:
    with suppress(UnknownFile, CorruptRecord):  # Then the model has the beginning.
        file = await read_file(seat, channel_id, line.seq, 0)
        entry = {**line.event_data["entry"], "text": cut(file.read().decode(errors="replace"))}
        return replace(line, event_data={**line.event_data, "entry": entry})
    return line


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
