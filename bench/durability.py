"""A flow of two pure steps with `durability: end`, beside the same flow with `durability: step`.

Both run in one process on SQLite files, in turn, five times each. The appends are counted; the CPU time is
that of the whole process, with the log's threads. The last line has the ratios.

    python bench/durability.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.flow.definition.flow import read
from turnline.flow.driver import Driver
from turnline.flow.node import node
from turnline.flow.runs import Runs
from turnline.flow.work import Services
from turnline.hub.hub import Hub
from turnline.log.sqlite import SqliteLog

RUNS: Final = 300
ROUNDS: Final = 5
CLIENTS: Final = (1, 32)
MODES: Final = ("step", "end")


class CountedLog(SqliteLog):
    """Counts the appends to runs."""

    appends = 0

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        self.appends += not channel_id.startswith("_")
        await super().append(channel_id, envelopes, after=after, row=row)


@node(pure=True)
async def save(ctx: dict[str, Any]) -> dict[str, Any]:
    return {"id": 7}


@node(pure=True)
async def score(ctx: dict[str, Any]) -> dict[str, Any]:
    return {"score": len(ctx["email"])}


async def measure(path: Path, durability: str, clients: int) -> tuple[float, float, float]:
    """Return the seconds, the seconds of CPU and the appends of one run."""
    steps = [{"id": "save", "runner": "save"}, {"id": "score", "runner": "score"}]
    flow = read({"durability": durability, "steps": steps}, name="lead")
    log = CountedLog(path)
    hub = await Hub.open(log)
    driver = Driver(hub, Services(flows={"lead": flow}, nodes={"save": save, "score": score}))
    await driver.start()
    runs = Runs(driver)

    async def ask(count: int) -> None:
        for _ in range(count):
            run_id = await runs.start(flow, {"email": "ada@example.com"}, held_id=runs.held_id(flow))
            await runs.wait(run_id)

    await ask(10)
    log.appends = 0
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(ask(RUNS // clients) for _ in range(clients)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    count, appends = RUNS // clients * clients, log.appends
    await driver.stop()
    await hub.close()
    return wall / count, cpu / count, appends / count


def main(folder: Path) -> None:
    for clients in CLIENTS:
        found: dict[str, list[tuple[float, float, float]]] = {mode: [] for mode in MODES}
        for number in range(ROUNDS):
            for mode in MODES:
                path = folder / f"{clients}-{number}-{mode}.db"
                found[mode].append(asyncio.run(measure(path, mode, clients)))
        middle = {mode: [statistics.median(one) for one in zip(*found[mode], strict=True)] for mode in MODES}
        for mode, (wall, cpu, appends) in middle.items():
            name = f"durability: {mode}, {clients} at once"
            print(f"{name:34}{1 / wall:10,.0f} runs/s{cpu * 1e3:8.2f} ms CPU{appends:8.2f} appends a run")
        (step_wall, step_cpu, _), (end_wall, end_cpu, _) = middle["step"], middle["end"]
        name = f"end beside step, {clients} at once"
        print(f"{name:34}{step_wall / end_wall:10.2f} x runs/s{end_cpu / step_cpu:7.2f} x CPU")


if __name__ == "__main__":
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        main(Path(temporary))
