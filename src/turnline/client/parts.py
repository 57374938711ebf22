"""Parts: a frame that is larger than a message may be, in pieces.

Rule: the parts of one frame come in order and without parts of another in between; whole
frames may come in between. What is put together is bounded.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Final

from turnline.client.frames import Frame, Part, encode
from turnline.errors import BadFrame

_AROUND: Final = 160
"""Bytes of a part beside its data, with room to spare."""


def split(text: str, frame_bytes: int, part_id: str) -> Iterator[str]:
    """Yield `text`, or its parts, none of them larger than `frame_bytes`."""
    body = text.encode()
    if len(body) <= frame_bytes:
        yield text
        return
    size = (frame_bytes - _AROUND) // 4 * 3
    for start in range(0, len(body), size):
        data = b64encode(body[start : start + size]).decode()
        yield encode(Part(id=part_id, data=data, last=start + size >= len(body)))


class Joining:
    """Puts parts together again."""

    def __init__(self, payload_bytes: int) -> None:
        self._most = payload_bytes
        self._id = ""
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, part: Part) -> str | None:
        """Return the whole text once its last part is here. Raises `BadFrame`, and forgets what it has."""
        if self._pieces and part.id != self._id:
            raise self._refused("parts of two frames came at once")
        try:
            piece = b64decode(part.data, validate=True)
        except (binascii.Error, ValueError):
            raise self._refused("a part is not base64") from None
        self._id = part.id
        self._size += len(piece)
        if self._size > self._most or not piece:
            raise self._refused(f"its parts are empty, or more than {self._most} bytes together")
        self._pieces.append(piece)
        return self._whole() if part.last else None

    def _whole(self) -> str:
        body = b"".join(self._pieces)
        self._forget()
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise BadFrame("it is not UTF-8") from None

    def _refused(self, because: str) -> BadFrame:
        self._forget()
        return BadFrame(because)

    def _forget(self) -> None:
        self._pieces, self._size = [], 0


def check_size(frame: Frame, payload_bytes: int) -> str:
    """Return the frame's text. Raises `BadFrame` if the other side would not take it."""
    text = encode(frame)
    if len(text) > payload_bytes or len(text.encode()) > payload_bytes:
        raise BadFrame(f"it has more than {payload_bytes} bytes, which the other side does not take")
    return text
