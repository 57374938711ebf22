"""200 channels of three turns each on the disk, opened one after the other while the earlier ones go on.

    Turnline     `SqliteLog`: each append is synced
    AG2          `SqliteKnowledgeStore`, which does not sync

A unit is a channel: it is opened, gets its first message, and ends after three turns.

    python bench/channels.py [PYTHON]        PYTHON: an interpreter with `ag2`
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import peers
import turn

CHANNELS: Final = 200
WARM_UP: Final = 20
NAMES: Final = ("a", "b", "c")


def pass_on(net: Any, user: Any, agents: list[Any], channels: int) -> Any:
    """Return what opens `channels` channels and waits until all have ended."""
    ids = [one.agent_id for one in agents]
    graph = net.TransitionGraph.sequence([user.agent_id, *ids]).to_dict()

    async def read() -> None:
        ended = 0
        while ended < channels:
            ended += (await user.next_envelope()).event_type == net.EV_CHANNEL_CLOSED

    async def go() -> None:
        reading = asyncio.create_task(read())
        for _ in range(channels):
            channel = await user.open(type="workflow", target=ids, knobs={"graph": graph})
            await channel.send("go")
        await reading

    return go()


SIDES: Final = {
    "Turnline": turn.ours(turn.disk, NAMES, pass_on, units=CHANNELS, warm_up=WARM_UP),
    "AG2": turn.theirs(turn.ag2_disk, NAMES, pass_on, units=CHANNELS, warm_up=WARM_UP),
}

if __name__ == "__main__":
    peers.compare(__file__, SIDES, unit="channel", aim="aim: 30 times by CPU")
