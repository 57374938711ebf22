"""A file, as programs and tools give and get one."""

from __future__ import annotations

import asyncio
import mimetypes
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PIECE_BYTES: Final = 256 * 1024
"""What is read of a file at once."""
UNKNOWN_TYPE: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message: its bytes, or the path where they are.

    `File(Path("plan.png"))` takes the name from the path and the media type from the name.
    """

    data: bytes | os.PathLike[str]
    name: str = ""
    media_type: str = ""

    def __post_init__(self) -> None:
        path = None if isinstance(self.data, bytes) else Path(self.data)
        name = self.name or ("file" if path is None else path.name)
        guessed = mimetypes.guess_type(name)[0] or UNKNOWN_TYPE
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "media_type", (self.media_type or guessed).lower())

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes. Raises `OSError` if the path cannot be read."""
        if isinstance(self.data, bytes):
            for start in range(0, len(self.data), PIECE_BYTES):
                yield self.data[start : start + PIECE_BYTES]
            return
        file = await asyncio.to_thread(Path(self.data).open, "rb")
        try:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                yield piece
        finally:
            file.close()

    def read(self) -> bytes:
        """Return all of the bytes."""
        return self.data if isinstance(self.data, bytes) else Path(self.data).read_bytes()
