"""Does a post cost more on a long channel than on a short one?

Two channels, one with 100 envelopes and one with 10,000, are posted to in turn,
so that whatever else the machine is doing happens to both. Printed: the median
cost of a post on each, and their ratio. The aim is 1.2 or less.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from turnline.client.channel import Channel
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub, HubClient, HumanClient, LocalLink, Passport

SHORT, LONG = 100, 10_000
POSTS = 400
AT_ONCE = 100


async def filled(user: HumanClient, length: int) -> Channel:
    """A channel with so many envelopes."""
    channel = await user.open("conversation", "other", {"context_vars": {"topic": "cost"}})
    while (missing := length - (await channel.info()).seq) > 0:
        await asyncio.gather(*(channel.send("filling up") for _ in range(min(missing, AT_ONCE))))
    return channel


async def costs(channels: list[Channel]) -> list[float]:
    """The median seconds of a post on each channel, posted to in turn."""
    taken: list[list[float]] = [[] for _ in channels]
    for _ in range(POSTS):
        for channel, times in zip(channels, taken, strict=True):
            start = perf_counter()
            await channel.send("what does this cost?")
            times.append(perf_counter() - start)
    return [median(times) for times in taken]


async def measure(name: str, log: Log) -> None:
    hub = await Hub.open(log, ttl_sweep_interval=0)
    client = HubClient(LocalLink(hub))
    user = await client.register_human(Passport(name="user", kind="human"))
    await client.register(passport=Passport(name="other"))
    short, long = await costs([await filled(user, length) for length in (SHORT, LONG)])
    print(
        f"{name:<8} {SHORT} envelopes: {short * 1e6:7.0f} µs a post   "
        f"{LONG} envelopes: {long * 1e6:7.0f} µs a post   ratio {long / short:.2f} (aim: 1.2 or less)"
    )
    await client.close()
    await hub.close()


async def main() -> None:
    await measure("memory", MemoryLog())
    with tempfile.TemporaryDirectory() as folder:
        await measure("sqlite", SqliteLog(Path(folder) / "bench.db"))


if __name__ == "__main__":
    asyncio.run(main())
