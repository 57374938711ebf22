"""What a turn takes on a disk: the chat of `bench/storage.py`, whose pages no machine and no clock change."""

from __future__ import annotations

from pathlib import Path

import storage

from turnline.hub.worker import this_host

SHORT_HOST = 16
"""Each claim has the name of its machine. What is longer is not the format's."""


async def test_a_turn_of_a_chat_takes_at_most_1100_bytes_on_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    await storage.chat(path)

    name_bytes = storage.TURNS * max(0, len(this_host()) - SHORT_HOST)
    assert (storage.size(path) - name_bytes) / storage.TURNS <= storage.LIMIT_BYTES
