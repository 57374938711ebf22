"""X20: SIGTERM under load. The server ends with 0 and releases what it could not end; another goes on.

Every run that was accepted comes to its end, every step is taken once, and no claim is left behind
that somebody has to find out about.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

import httpx2

from tests.faults.counts import DRAINS, DRAINS_OF_THE_TWIN, seed
from tests.server.test_serve import Served, serving
from turnline.flow.project import load_project
from turnline.server.runtime import Runtime, open_runtime

RUNS: Final = 12
STEPS: Final = ("one", "two", "three")
GRACE_SECONDS: Final = "0.05"
FLOWS: Final = """
kind: Workflow
metadata: {name: three}
spec:
  trigger: {path: /three, public: true}
  steps: [{id: one, runner: work}, {id: two, runner: work}, {id: three, runner: work}]
---
kind: Workflow
metadata: {name: ask}
spec: {steps: [{id: ask, kind: human, human: {title: "Sure?"}}]}
"""
NODES: Final = """
import asyncio
import random

from turnline.flow.node import node


@node("work")
async def work(ctx):
    await asyncio.sleep(random.random() * 0.2)
    return {"n": ctx.get("n", 0) + 1}
"""


@asynccontextmanager
async def survivor(folder: Path) -> AsyncIterator[Runtime]:
    """A second server's runtime, in this process, on the same log."""
    (folder / "workflows").mkdir()
    (folder / "workflows" / "all.yaml").write_text(FLOWS)
    (folder / "nodes").mkdir()
    (folder / "nodes" / "all.py").write_text(NODES)
    async with open_runtime(load_project(folder), grace_seconds=0) as runtime:
        yield runtime


async def accepted(served: Served, client: httpx2.AsyncClient, stop: signal.Signals, after: int) -> list[str]:
    """The runs that were accepted; after so many the server is told to stop."""
    found: list[str] = []

    async def start() -> None:
        try:
            answer = await client.post("/three", json={}, headers={"Prefer": "respond-async"})
        except httpx2.TransportError:
            return
        if answer.status_code == 202:
            found.append(answer.headers["x-run-id"])
            if len(found) == after:
                served.process.send_signal(stop)

    await asyncio.gather(*(start() for _ in range(RUNS)))
    return found


async def problems(
    folder: Path, runtime: Runtime, random: Random, stop: signal.Signals
) -> tuple[list[str], int]:
    """What is wrong after one stop, and how many steps were released."""
    async with serving(folder, "--grace", GRACE_SECONDS) as served, served.client() as client:
        found = await accepted(served, client, stop, random.randint(1, RUNS))
        code, _ = await served.ended()
    wrong = [] if code == 0 else [f"it ended with {code}"]
    released = 0
    for run_id in found:
        done = await runtime.runs.wait(run_id)
        lines = await runtime.hub.read_wal(run_id)
        taken = Counter(line.sender_id for line in lines if line.event_type == "packet")
        if done.status != "succeeded" or taken != Counter(STEPS):
            wrong.append(f"{run_id} came to {done.status} with {dict(taken)}")
        wrong += [f"{run_id} had to be taken over" for line in lines if "replaces" in line.event_data]
        released += sum(line.event_type == "turn.released" for line in lines)
    return wrong, released


async def torment(folder: Path, count: int, stop: signal.Signals) -> tuple[list[str], int]:
    wrong, released, random = list[str](), 0, Random(seed(20))
    async with survivor(folder) as runtime:
        for _ in range(count):
            found, freed = await problems(folder, runtime, random, stop)
            wrong += found
            released += freed
    return wrong, released


async def test_x20_sigterm_under_load_drains_and_another_process_ends_what_was_released(
    tmp_path: Path,
) -> None:
    wrong, released = await torment(tmp_path, DRAINS, signal.SIGTERM)

    assert wrong == []
    assert released > 0, "everything ended in time; nothing had to be released"


async def test_the_harness_notices_a_server_that_releases_nothing(tmp_path: Path) -> None:
    wrong, _ = await torment(tmp_path, DRAINS_OF_THE_TWIN, signal.SIGKILL)

    assert any("taken over" in one for one in wrong)
