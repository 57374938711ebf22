"""Memory that a process has grown by after many turns with large replies, with no channel open (Y8).

Two agents talk on each of CHANNELS channels of one SQLite file, AT_ONCE at a time, until it closes. Then the
growth is what the hub keeps: its cache of closed channels at the default size, and what the allocator has not
given back. "at most" is the highest that the process was at.

    python bench/memory.py [--channels 1000] [--turns 100] [--at-once 50] [FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Final

from turnline import Agent
from turnline.agent.messages import ModelReply
from turnline.agent.model import ModelRequest, OnText
from turnline.hub.channels import GIVE_BACK_SECONDS
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub, HubClient, HumanClient, LocalLink, Passport, round_robin

CHANNELS: Final = 1_000
TURNS: Final = 100
AT_ONCE: Final = 50
REPLY_BYTES: Final = 20_000
LIMIT_MB: Final = 120.0
AGENTS: Final = ("writer", "editor")
MB: Final = 1024.0 * 1024.0


class LongModel:
    """See `turnline.agent.model.Model`: each reply is another long text. It keeps nothing."""

    name = "long"

    def __init__(self) -> None:
        self._replies = 0

    def create(self) -> LongModel:
        return self

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        self._replies += 1
        return ModelReply(text=f"{self._replies:09d} ".ljust(REPLY_BYTES, "x"))


def read_status(name: str) -> float:
    """Return a size of this process in MB, by its name in /proc."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) / 1024.0


async def talk(user: HumanClient, number: int, turns: int, room: asyncio.Semaphore) -> None:
    """Hold one conversation to its end."""
    async with room:
        graph = round_robin(AGENTS, max_turns=turns).to_dict()
        channel = await user.open("workflow", AGENTS, {"graph": graph}, message=f"Begin {number}.")
        await channel.result()


async def grow(path: Path, *, channels: int, turns: int, at_once: int) -> tuple[float, int]:
    """Return the growth in MB, and how many channels the hub has in memory."""
    hub = await Hub.open(SqliteLog(path, durability="process"))
    client, model = HubClient(LocalLink(hub)), LongModel()
    for name in AGENTS:
        await client.register(Agent(name, config=model), attach_plugin=False)
    user = await client.register_human(Passport(name="user", kind="human"))
    room = asyncio.Semaphore(at_once)
    await talk(user, 0, 2, room)  # What is imported late is not counted.
    before = read_status("VmRSS")
    await asyncio.gather(*(talk(user, number, turns, room) for number in range(channels)))
    await asyncio.sleep(3 * GIVE_BACK_SECONDS)  # What is free goes back to the system now and then.
    grown, cached = read_status("VmRSS") - before, hub.health().cached_channels
    await client.close()
    await hub.close()
    return grown, cached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--channels", type=int, default=CHANNELS)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        growth = grow(
            Path(folder) / "log.db", channels=asked.channels, turns=asked.turns, at_once=asked.at_once
        )
        grown, cached = asyncio.run(growth)
    said = f"{asked.channels * asked.turns:,} turns with {REPLY_BYTES:,} bytes on {asked.channels:,} channels"
    print(f"{said}: grown by {grown:,.0f} MB   limit {LIMIT_MB:,.0f}")
    print(f"  {cached:,} closed channels in memory; at most {read_status('VmHWM'):,.0f} MB in all")


if __name__ == "__main__":
    main()
