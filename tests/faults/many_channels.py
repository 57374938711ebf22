"""Many channels of one file, open at once, in waves. Run by `test_many_channels.py`.

    python -m tests.faults.many_channels FILE AT_ONCE WAVES LEFT honest|tight|hoarding

A wave opens AT_ONCE channels, waits until an agent works on a turn of each, lets the models answer, and waits
for the end of all of them. LEFT channels of the last wave stay as they are, and the process ends as if it
were killed. What it says is one line of JSON: what the channels closed with, and what they cost.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from turnline import Agent
from turnline.agent.messages import ModelReply
from turnline.agent.model import ModelRequest, OnText
from turnline.hub.channels import ENTRY_BYTES
from turnline.hub.options import HubOptions
from turnline.log.sqlite import SqliteLog
from turnline.network import Channel, Envelope, Hub, HubClient, HumanClient, LocalLink, Passport, round_robin

AGENTS: Final = ("ada", "bob")
TURNS: Final = 2
OPENED_AT_ONCE: Final = 64
SAID: Final = "said " * 800
LEFT_ALONE: Final = "leave this alone"
FEW_TASKS: Final = 16
"""Of a hub with nothing to do: its timers, its tail, the audit."""
PATIENCE_SECONDS: Final = 10.0
LOOK_AGAIN_SECONDS: Final = 0.01
EVERYTHING: Final = 1 << 40
"""More bytes than the channels of any wave take."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Report:
    """What a process found out about itself."""

    reasons: dict[str, int] = field(default_factory=dict)
    """What the channels closed with, and how many of them."""
    in_progress: int = 0
    """Channels of the last wave on which an agent was at work at the same moment."""
    most_bytes: int = 0
    """By so much the process grew at most."""
    tasks: int = 0
    """Left after a wave of which all channels ended; the most of any."""
    cached: int = 0
    """Channels in memory in the end, and those that are open."""
    still_open: int = 0


class Gate:
    """See `turnline.agent.model.Model`: it answers once it is let, and to what is to be left alone never."""

    name = "gate"

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self.shut()

    def shut(self) -> None:
        self.asked = 0
        self.all_asked = asyncio.Event()
        self.let = asyncio.Event()

    def create(self) -> Gate:
        return self

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        self.asked += 1
        if self.asked == self._at_once:
            self.all_asked.set()
        await self.let.wait()
        if LEFT_ALONE in str(request.messages[-1]):
            await asyncio.Event().wait()
        return ModelReply(text=SAID)


class Wave:
    """Some channels, from their opening to their end."""

    def __init__(self, user: HumanClient, gate: Gate, *, number: int, at_once: int, left: int) -> None:
        self._user = user
        self._gate = gate
        self._number = number
        self._at_once = at_once
        self._left = left
        self._room = asyncio.Semaphore(OPENED_AT_ONCE)
        self._graph = round_robin(AGENTS, max_turns=TURNS).to_dict()

    async def run(self, report: Report) -> Counter[str]:
        """Return what the channels closed with."""
        self._gate.shut()
        channels = await asyncio.gather(*(self._open(number) for number in range(self._at_once)))
        await self._gate.all_asked.wait()
        report.in_progress = self._gate.asked
        self._gate.let.set()
        return Counter(await asyncio.gather(*(reason(channel) for channel in channels[self._left :])))

    async def _open(self, number: int) -> Channel:
        message = LEFT_ALONE if number < self._left else "go"
        async with self._room:
            return await self._user.open(
                "workflow",
                AGENTS,
                {"graph": self._graph},
                channel_id=name_of(self._number, number),
                message=message,
            )


def name_of(wave: int, number: int) -> str:
    return f"wave{wave}-{number}"


async def reason(channel: Channel) -> str:
    return (await channel.result()).reason


def used_bytes() -> int:
    """What the process has of the machine's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def most_bytes() -> int:
    """The most that it has had."""
    found = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return int(found.split()[1]) * 1024


async def tasks_left() -> int:
    """How many tasks there are once those have ended that end by themselves."""
    until = time.monotonic() + PATIENCE_SECONDS
    while len(asyncio.all_tasks()) > FEW_TASKS and time.monotonic() < until:  # noqa: ASYNC110  Tasks ring no bell.
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    return len(asyncio.all_tasks())


async def main(file: str, at_once: int, waves: int, left: int, kind: str) -> None:
    kept: list[Envelope] = []
    options = HubOptions()
    if kind == "tight":  # Not all that are open fit: they are forgotten and read again all the time.
        options = HubOptions(cache_bytes=at_once // 2 * ENTRY_BYTES)
    if kind == "hoarding":  # The twin: whatever there was stays in memory.
        options = HubOptions(cache_bytes=EVERYTHING, listeners=[kept.append])
    hub = await Hub.open(SqliteLog(file, durability="process"), **options)
    client, gate = HubClient(LocalLink(hub)), Gate(at_once)
    for name in AGENTS:
        await client.register(Agent(name, config=gate), attach_plugin=False)
    user = await client.register_human(Passport(name="user", kind="human"))
    report, reasons, before = Report(), Counter[str](), used_bytes()
    for number in range(waves):
        is_last = number == waves - 1
        wave = Wave(user, gate, number=number, at_once=at_once, left=left if is_last else 0)
        reasons += await wave.run(report)
        if not (is_last and left):  # Those that end hold their channels in memory.
            report.tasks = max(report.tasks, await tasks_left())
    report.most_bytes, report.reasons = most_bytes() - before, dict(reasons)
    report.cached, report.still_open = hub.health().cached_channels, hub.health().open_channels
    print(json.dumps(asdict(report)), flush=True)
    os._exit(0)  # Whatever is in progress stays as it is on the log.


if __name__ == "__main__":
    _, file, at_once, waves, left, kind = sys.argv
    asyncio.run(main(file, int(at_once), int(waves), int(left), kind))
