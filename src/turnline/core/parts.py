"""Parts: what a message consists of (Y6).

    {"text": "..."}                                                       one text, and nothing else
    {"parts": [{"type": "text", "text": "..."},
               {"type": "file", "media_type", "name", "size", "digest"}]}  everything else

A line has no bytes of a file, only its digest: the log keeps them as a blob (`log.blobs`).
Files that a channel begins with, such as those of a flow's input, are on its first line.

Rule: all of a part is content. A digest in the head of a line would stay when the line is erased, and would
prove to those who have the file that it was sent here. What is to be deleted is found in the lines before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from turnline.core.envelope import JsonObject
from turnline.errors import BadDraft

MAX_PARTS: Final = 64
"""Of one message."""
MAX_FILE_NAME_CHARACTERS: Final = 255

_MESSAGES: Final = ("text", "packet")
_TOOL: Final = "turn.tool"
_INVITE: Final = "channel.invite"
_WITH_FILES: Final = (*_MESSAGES, _INVITE)
_MEDIA_NAME: Final = "[a-z0-9][a-z0-9!#$&^_.+-]{0,126}"
_MEDIA_TYPE: Final = re.compile(f"{_MEDIA_NAME}/{_MEDIA_NAME}")
_DIGEST: Final = re.compile("[0-9a-f]{64}")


class FilePart(Struct, frozen=True, kw_only=True, tag="file", forbid_unknown_fields=True):
    """A file of a message, without its bytes."""

    media_type: str
    """Of small letters, without parameters: `image/png`."""
    name: str
    size: int
    digest: str
    """The SHA-256 of its bytes, in hexadecimal."""


class TextPart(Struct, frozen=True, tag="text", forbid_unknown_fields=True):
    """A text of a message."""

    text: str


MessagePart = TextPart | FilePart


def message_data(parts: Sequence[MessagePart]) -> JsonObject:
    """Return the data of a message: `text` for one text, `parts` for everything else."""
    match parts:
        case [TextPart(text=text)]:
            return {"text": text}
    return {"parts": msgspec.to_builtins(list(parts))}


def check_parts(found: object) -> None:
    """Refuse what is not a list of parts. Raises `BadDraft`."""
    if not isinstance(found, list) or not 0 < len(found) <= MAX_PARTS:
        size = f"{len(found)} parts" if isinstance(found, list) else f"a {type(found).__name__}"
        raise BadDraft("event_data.parts", found=size, expected=f"a list of 1 to {MAX_PARTS} parts")
    parts = [_convert(one, f"event_data.parts[{index}]") for index, one in enumerate(found)]
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        raise BadDraft("event_data.parts", found="one text", expected="`text` instead of `parts`")
    for index, part in enumerate(parts):
        if isinstance(part, FilePart):
            check_file(part, f"event_data.parts[{index}]")


def check_file(file: FilePart, field: str) -> None:
    """Refuse a file whose media type, name, size or digest is not one. Raises `BadDraft`."""
    if _MEDIA_TYPE.fullmatch(file.media_type) is None:
        expected = "a media type of small letters, such as image/png"
        raise BadDraft(f"{field}.media_type", found=repr(file.media_type[:80]), expected=expected)
    name = file.name
    is_path = not {"/", "\\"}.isdisjoint(name) or name in (".", "..")
    if not 0 < len(name) <= MAX_FILE_NAME_CHARACTERS or not name.isprintable() or is_path:
        expected = f"1 to {MAX_FILE_NAME_CHARACTERS} printable characters without / and \\"
        raise BadDraft(f"{field}.name", found=repr(name[:80]), expected=expected)
    if file.size < 0:
        raise BadDraft(f"{field}.size", found=str(file.size), expected="a number of bytes")
    if _DIGEST.fullmatch(file.digest) is None:
        expected = "a SHA-256 of 64 small hexadecimal digits"
        raise BadDraft(f"{field}.digest", found=repr(file.digest[:80]), expected=expected)


def text_of(data: JsonObject) -> str:
    """Return the texts among the parts of a message, one below the other."""
    parts = data.get("parts")
    found = [one.get("text") for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in found if isinstance(text, str))


def files_of(event_type: str, data: JsonObject) -> list[FilePart]:
    """Return the files of a message, of what a tool returned, or those a channel begins with."""
    place = data.get("entry") if event_type == _TOOL else data if event_type in _WITH_FILES else None
    key = "files" if event_type == _INVITE else "parts"
    parts = place.get(key) if isinstance(place, dict) else None
    if not isinstance(parts, list):
        return []
    found = list[FilePart]()
    for one in parts[:MAX_PARTS]:
        with suppress(msgspec.ValidationError):  # A text, or what no hub has checked: an import may have it.
            found.append(msgspec.convert(one, FilePart))
    return found


def _convert(found: object, field: str) -> MessagePart:
    try:
        part: MessagePart = msgspec.convert(found, MessagePart)
    except msgspec.ValidationError as error:
        raise BadDraft(field, found=str(error)[:200], expected="a text or a file") from error
    return part
