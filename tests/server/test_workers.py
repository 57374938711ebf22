"""`turnline serve --workers N`: real processes on one port and one log, some of which are killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from turnline.errors import LogUnavailable
from turnline.server.workers import check_shared

from .test_serve import Served, invoke, project, refused, serving

FLOWS = """
kind: Workflow
metadata: {name: slow}
spec:
  trigger: {path: /slow, public: true}
  steps: [{id: wait, runner: wait_for_go}, {id: who, runner: who}]
---
kind: Workflow
metadata: {name: ask}
spec: {steps: [{id: ask, kind: human, human: {title: "Sure?", group: sales}}]}
"""
NODES = """
import asyncio
import os

from turnline.flow.node import node


@node("wait_for_go")
async def wait_for_go(ctx):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["GO_PORT"]))
    try:
        writer.write(f"{os.getpid()}\\n".encode())
        return {"go": (await reader.readline()).decode()}
    finally:
        writer.close()


@node("who")
async def who(ctx):
    return {"pid": os.getpid()}
"""

Inside = tuple[int, asyncio.StreamWriter]
"""The process a step is performed in, and the way to let it go on."""


class Door:
    """Where the steps knock."""

    def __init__(self) -> None:
        self.knocked: asyncio.Queue[Inside] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []

    async def knock(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        said = await reader.readline()
        if said:
            self.knocked.put_nowait((int(said), writer))


@asynccontextmanager
async def two_workers(tmp_path: Path, *options: str) -> AsyncIterator[tuple[Served, Door]]:
    project(tmp_path, FLOWS)
    (tmp_path / "nodes" / "all.py").write_text(NODES)
    door = Door()
    listening = await asyncio.start_server(door.knock, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, serving(tmp_path, "--workers", "2", *options, go_port=port) as served:
        yield served, door
        for writer in door.writers:
            writer.close()


async def begun(served: Served, door: Door, client: httpx2.AsyncClient) -> tuple[str, Inside]:
    """A run whose first step is being performed: where it is found, and where it is performed."""
    answer = await client.post("/slow", json={}, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202, answer.text
    return answer.headers["location"], await door.knocked.get()


async def ended(served: Served, location: str, token: str) -> dict[str, object]:
    async with served.client(Authorization=f"Bearer {token}") as client:
        while True:
            run: dict[str, object] = (await client.get(location)).json()["data"]
            if run["status"] in ("succeeded", "failed"):
                return run


async def test_a_worker_that_is_killed_is_replaced_and_another_ends_its_run(tmp_path: Path) -> None:
    async with two_workers(tmp_path, "--dev") as (served, door), served.client() as client:
        location, (killed, _) = await begun(served, door, client)
        os.kill(killed, signal.SIGKILL)
        other, writer = await door.knocked.get()
        writer.write(b"now\n")
        run = await ended(served, location, served.key)
        while len(set(children(served)) - {killed}) < 2:  # noqa: ASYNC110  Nobody is told.
            await asyncio.sleep(0)
        served.process.send_signal(signal.SIGTERM)
        code, rest = await served.ended()

    assert other != killed
    assert (run["status"], run["data"]) == ("succeeded", {"go": "now\n", "pid": run["data"]["pid"]})  # type: ignore[index]
    assert (code, rest) == (0, "stopped.\n")


async def test_x20_sigterm_ends_all_of_them_and_answers_what_is_in_flight(tmp_path: Path) -> None:
    # What is not answered within the grace is answered 202; a busy machine may need more than the usual one.
    async with two_workers(tmp_path, "--grace", "60") as (served, door), served.client() as client:
        asking = [asyncio.create_task(client.post("/slow", json={})) for _ in range(4)]
        inside = [await door.knocked.get() for _ in asking]
        served.process.send_signal(signal.SIGTERM)
        await refused(served.address)
        for _, writer in inside:
            writer.write(b"now\n")
        answers = [await one for one in asking]
        code, _ = await served.ended()

    assert [answer.status_code for answer in answers] == [200] * 4
    assert code == 0
    for pid, _ in inside:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def children(served: Served) -> list[int]:
    """The workers that the parent has now."""
    pid = served.process.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    async with two_workers(tmp_path, "--grace", "0") as (served, door), served.client() as client:
        _, (worker, _) = await begun(served, door, client)
        served.process.kill()
        await refused(served.address)

        while is_alive(worker):  # noqa: ASYNC110  Nobody is told.
            await asyncio.sleep(0)


def test_a_log_that_ends_with_its_process_is_refused(tmp_path: Path) -> None:
    _, told, error = invoke(str(project(tmp_path)), "--port", "0", "--workers", "2", "--log", "memory:")

    assert isinstance(error, LogUnavailable)
    assert "sqlite:///path" in str(error)
    assert "Serving" not in told


@pytest.mark.parametrize(
    "address", ["sqlite:///log.db", "log.db", "postgresql://db/name", "nats://a:4222/name"]
)
def test_every_other_log_can_be_shared(address: str) -> None:
    check_shared(address)


async def test_a_project_that_cannot_be_served_ends_at_once(tmp_path: Path) -> None:
    code, told, _ = invoke(str(project(tmp_path, "kind: Workflow\nspec: {steps: []}\n")), "--workers", "2")

    assert code == 1
    assert "steps" in told
