"""1,000 and 10,000 channels at once, each with an agent whose model takes one second.

    python bench/at_once.py [CHANNELS ...]

All channels are opened at once on a log in memory, and each has one turn. Printed for each count, in a
process of its own: channels a second, and how much the process grew for each channel at its largest.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from typing import Final

from walk import open_hub
from workers import SlowModel

from turnline import Agent
from turnline.agent.messages import ModelReply
from turnline.agent.model import ModelRequest, OnText
from turnline.network import HumanClient, Passport, sequence

COUNTS: Final = (1_000, 10_000)
WARM_UP: Final = 100
MODEL_SECONDS: Final = 1.0
AIM: Final = "aim: all end, at most 60 KB a channel, at most 20 % fewer a second than with the first count"


class OneSecondModel(SlowModel):
    """See `turnline.agent.model.Model`: says the same after a second."""

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        await asyncio.sleep(MODEL_SECONDS)
        return ModelReply(text="done")

    def create(self) -> OneSecondModel:
        return self


async def converse(user: HumanClient, channels: int) -> None:
    knobs = {"graph": sequence(["user", "clerk"]).to_dict()}

    async def one() -> None:
        channel = await user.open("workflow", ["clerk"], knobs, message="go")
        reason = (await channel.result()).reason
        if reason != "sequence_complete":
            raise RuntimeError(f"a channel ended with {reason}")

    await asyncio.gather(*(one() for _ in range(channels)))


async def measure(channels: int) -> None:
    async with open_hub() as (hub, client):
        user = await client.register_human(Passport(name="user", kind="human"))
        agent = Agent("clerk", config=OneSecondModel())
        await hub.register(agent, attach_plugin=False, turns_at_once=channels)
        await converse(user, WARM_UP)
        before, start = largest_kilobytes(), time.perf_counter()
        await converse(user, channels)
        seconds = time.perf_counter() - start
    print(channels / seconds, (largest_kilobytes() - before) / channels)


def largest_kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(counts: tuple[int, ...]) -> None:
    first = 0.0
    for channels in counts:
        command = [sys.executable, __file__, "--measure", str(channels)]
        rate, kilobytes = map(float, subprocess.check_output(command, text=True).split())
        first = first or rate
        print(
            f"{channels:7,} channels{rate:10,.0f} /s{kilobytes:8.1f} KB a channel   "
            f"{rate / first:5.2f} x the first count",
            flush=True,
        )
    print(AIM)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        asyncio.run(measure(int(sys.argv[2])))
    else:
        main(tuple(map(int, sys.argv[1:])) or COUNTS)
