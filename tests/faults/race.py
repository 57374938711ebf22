"""A worker that races another process for every turn of one agent. Run by `test_race.py`.

    python -m tests.faults.race LOG NAME honest|careless HOURS

It says `ready`, answers every question with its name until standard input ends, and then
says how many appends found that somebody else had been faster. Its clock is `HOURS` fast.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogConflict
from turnline.hub.timers import SystemClock
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub, HubClient, LocalLink, Passport, Turn

RACER = "racer"


class FastClock(SystemClock):
    """The time people read here is wrong."""

    def __init__(self, hours: float) -> None:
        self._ahead = timedelta(hours=hours)

    def now(self) -> datetime:
        return super().now() + self._ahead


class RaceLog(SqliteLog):
    """Counts conflicts."""

    conflicts = 0

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        try:
            await super().append(channel_id, envelopes, after=after, row=row)
        except LogConflict:
            self.conflicts += 1
            raise


class CarelessLog(RaceLog):
    """The twin: whatever was appended meanwhile, what is sent goes behind it."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        while True:
            try:
                return await super().append(channel_id, envelopes, after=after, row=row)
            except LogConflict as error:
                after = error.found
                envelopes = [replace(one, seq=after + n) for n, one in enumerate(envelopes, 1)]


async def main(path: str, name: str, kind: str, hours: str) -> None:
    log = (RaceLog if kind == "honest" else CarelessLog)(Path(path), durability="process", poll_seconds=0.005)
    hub = await Hub.open(log, follow=True, clock=FastClock(float(hours)))
    client = HubClient(LocalLink(hub))
    agent = await client.register(passport=Passport(name=RACER))

    async def answer(turn: Turn) -> str:
        return name

    agent.on_turn(answer)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await client.close()
    await hub.close()
    sys.stdout.write(f"conflicts {log.conflicts}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
