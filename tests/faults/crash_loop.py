"""Many conversations in one process that dies again and again. Run by `test_crash_loop.py`.

    python -m tests.faults.crash_loop LOG COUNT POISON honest|crowded

Each conversation is one turn of `clerk`, which takes MODEL_SECONDS and records nothing before its packet.
The turn of the channel POISON kills the process (empty: none does). The program prints `begun` when all turns
are in flight, and how each channel ended. `crowded` is the twin: suspects claim to run alone and do not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from turnline.core.fold import SUSPECT_CLAIMS
from turnline.errors import TurnStuck
from turnline.hub.turns import Lane
from turnline.log.sqlite import SqliteLog
from turnline.network import Channel, Hub, HubClient, LocalLink, Passport, Turn, sequence

MODEL_SECONDS = 0.6
POISON_SECONDS = 0.1


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def answer(turn: Turn, poison: str) -> str:
    if turn.channel.channel_id == poison:
        await asyncio.sleep(POISON_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(MODEL_SECONDS)
    return "done"


async def end_of(channel: Channel) -> str:
    try:
        result = await channel.result()
    except TurnStuck:
        return f"{channel.channel_id} stuck"
    return f"{channel.channel_id} {result.reason}"


def crowd() -> None:
    """Take the guard away: every turn starts at once, and suspects say that they are alone."""

    def enter(self: Lane, channel_id: str, visit: str, unexplained: int) -> bool:
        return unexplained >= SUSPECT_CLAIMS

    Lane.enter = enter  # type: ignore[method-assign]


async def main(path: str, count: str, poison: str, kind: str) -> None:
    if kind == "crowded":
        crowd()
    hub = await Hub.open(SqliteLog(path))
    client = HubClient(LocalLink(hub))
    clerk = await client.register(passport=Passport(name="clerk"))
    clerk.on_turn(lambda turn: answer(turn, poison))
    user = await client.register_human(Passport(name="user", kind="human"))
    knobs = {"graph": sequence(["clerk"]).to_dict()}
    channels = await asyncio.gather(
        *(
            user.open("workflow", ["clerk"], knobs, channel_id=f"c{number}", message="go")
            for number in range(int(count))
        )
    )
    say("begun")
    for end in asyncio.as_completed([end_of(channel) for channel in channels]):
        say(await end)
    await client.close()
    await hub.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
