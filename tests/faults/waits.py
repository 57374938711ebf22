"""Channels that wait, in processes that are killed. Run by `test_waits.py`.

Each kind of wait has a log of its own. On it, the channel `wait` waits until the last process finishes it,
and the channels `r0`, `r1` and so on go to their end one after another: a person answers at once.

Every request to a model and every run of a tool is a line in a file, written by the operating system and by
nothing else, so the log can be held against it. A byte in the pipe says that a line has landed on the log.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tests.waits import begin, help_out, join
from turnline.client import turn
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.link import LocalLink
from turnline.core.envelope import Envelope
from turnline.log.address import open_log
from turnline.log.base import Log
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub

WAIT: Final = "wait"
NOTED: Final = "noted.txt"
MANY: Final = 10_000
WAIT_SECONDS, SHORT_SECONDS = 10.0, 0.02
"""How long handlers wait for a time."""


def open_at(address: str) -> Log:
    """Open a log. What is tested on a file does not depend on the power staying on."""
    if address.startswith("sqlite:///"):
        return SqliteLog(address.removeprefix("sqlite:///"), durability="process")
    return open_log(address)


def live(folder: str, addresses: Mapping[str, str], rounds: int, forgetful: bool, pipe: Connection) -> None:
    """Take so many channels of each kind to their end, one after another; then finish `wait` too."""
    if forgetful:  # The twin: what an earlier performance of the turn recorded is not looked at.
        turn.entries = lambda _: []  # type: ignore[attr-defined,assignment]
    asyncio.run(_live_all(Path(folder), addresses, rounds, pipe))


async def _live_all(folder: Path, addresses: Mapping[str, str], rounds: int, pipe: Connection) -> None:
    await asyncio.gather(*(_live(folder, kind, at, rounds, pipe) for kind, at in addresses.items()))


async def _live(folder: Path, kind: str, address: str, rounds: int, pipe: Connection) -> None:
    has_moved = asyncio.Event()

    def tell(line: Envelope) -> None:
        has_moved.set()
        os.write(pipe.fileno(), b".")

    is_shared = not address.startswith("sqlite:")
    hub = await Hub.open(open_at(address), listeners=[tell], follow=is_shared)
    client = HubClient(LocalLink(hub))
    people = await join(client, kind, partial(_note, folder, kind), seconds=_seconds_of)
    await begin(people["user"], kind, WAIT)
    for number in range(rounds):
        await _finish(hub, people, kind, f"r{number}", has_moved, but=WAIT)
    await _finish(hub, people, kind, WAIT, has_moved)
    await client.close()
    await hub.close()


async def _finish(
    hub: Hub,
    people: Mapping[str, HumanClient],
    kind: str,
    channel_id: str,
    has_moved: asyncio.Event,
    *,
    but: str = "",
) -> None:
    await begin(people["user"], kind, channel_id)
    while not (await hub.state(channel_id)).is_over:
        has_moved.clear()
        if not await help_out(hub, people.values(), but=but) and not await _retry_stuck(hub):
            await has_moved.wait()


async def _retry_stuck(hub: Hub) -> int:
    """Retry stuck turns, as an operator does: kills may hit one turn alone again and again."""
    states = [await hub.state(one.channel_id) for one in await hub.list_channels()]
    stuck = [one.channel_id for one in states if one.is_stuck]
    for channel_id in stuck:
        await hub.turns.retry(channel_id)
    return len(stuck)


def _seconds_of(channel_id: str) -> float:
    return WAIT_SECONDS if channel_id == WAIT else SHORT_SECONDS


def _note(folder: Path, kind: str, channel_id: str, what: str) -> None:
    file = os.open(folder / NOTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{kind}/{channel_id}/{what}\n".encode())
    os.close(file)
