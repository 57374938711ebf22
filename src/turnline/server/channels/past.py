"""The lines of a channel, so many at a time."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from turnline.core.envelope import Envelope
from turnline.hub.hub import Hub

PAGE_LINES: Final = 256


async def lines_behind(hub: Hub, channel_id: str, after: int, most: int = PAGE_LINES) -> list[Envelope]:
    """The first lines behind `after`, `most` at most. Reads no more than those."""
    if most <= 0:
        return []
    state = await hub.state(channel_id)
    if state.seq - after <= most:
        return await hub.read_recent(channel_id, after)
    found: list[Envelope] = []
    async with aclosing(hub.lines.read(channel_id, after=after)) as lines:  # type: ignore[type-var]
        async for line in lines:
            found.append(line)
            if len(found) == most:
                break
    return found
