"""The past of a channel: its lines, in pages, and as it stood at any of them."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import msgspec

from turnwise.core.envelope import Envelope, JsonObject
from turnwise.core.state import State
from turnwise.hub.hub import Hub

PAGE_LINES: Final = 256


async def lines_behind(hub: Hub, channel_id: str, after: int, most: int = PAGE_LINES) -> list[Envelope]:
    """The first lines behind `after`, `most` at most. Reads no more than those."""
    if most <= 0:
        return []
    state = await hub.state(channel_id)
    if state.seq - after <= most:
        return await hub.read_recent(channel_id, after)
    found: list[Envelope] = []
    async with aclosing(hub.log.read(channel_id, after=after)) as lines:  # type: ignore[type-var]
        async for line in lines:
            found.append(line)
            if len(found) == most:
                break
    return found


async def state_at(hub: Hub, channel_id: str, seq: int) -> State:
    state = await hub.state(channel_id)
    adapter = hub.adapter(state.spec.type)
    then: State = adapter.initial(state.spec)
    async with aclosing(hub.log.read(channel_id)) as lines:  # type: ignore[type-var]
        async for line in lines:
            if line.seq > seq:
                break
            then = adapter.fold(then, line)
    return then


def why(line: Envelope) -> JsonObject:
    decision = msgspec.to_builtins(line.decision)
    return {"seq": line.seq, "decision": decision, "rules": []}
