"""A run with `durability: end` in a process that is killed in one of its steps. Run by `test_durability.py`.

Each node notes its call in a file, synced, before it does anything else.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.flow.stage import flows_of
from turnline.client.embedded import Hub
from turnline.flow.driver import Driver
from turnline.flow.node import node
from turnline.flow.runs import Runs
from turnline.flow.work import Services
from turnline.log.sqlite import SqliteLog

STEPS: Final = ("one", "two", "outside", "four", "five")
"""All but `outside` are pure."""
_LIST: Final = ", ".join(f"{{id: {name}, runner: {name}}}" for name in STEPS)
FLOW: Final = f"{{durability: DURABILITY, steps: [{_LIST}]}}"
RUN: Final = "run-1"


def nodes_of(folder: Path, kill_in: str, kill_call: int) -> dict[str, Callable[..., Any]]:
    """Return the nodes; the call `kill_call` of the step `kill_in` kills the process."""

    def work(name: str, ctx: dict[str, Any]) -> dict[str, Any]:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{name}\n")
            ledger.flush()
            os.fsync(ledger.fileno())
        calls = (folder / "ledger").read_text().splitlines().count(name)
        if name == kill_in and calls <= kill_call:
            os.kill(os.getpid(), signal.SIGKILL)
        return {name: True}

    def node_of(name: str) -> Callable[..., Any]:
        def function(ctx: dict[str, Any]) -> dict[str, Any]:
            return work(name, ctx)

        return node(name, pure=name != "outside")(function)

    return {name: node_of(name) for name in STEPS}


def take(folder: str, durability: str, kill_in: str, kill_call: int, is_held: bool) -> None:
    """Start the run, or find it, and wait for its end. With `is_held` its opening is not recorded first."""
    asyncio.run(_take(Path(folder), durability, nodes_of(Path(folder), kill_in, kill_call), is_held))


async def _take(folder: Path, durability: str, nodes: dict[str, Callable[..., Any]], is_held: bool) -> None:
    hub = await Hub.open(SqliteLog(folder / "log.db"))
    flows = flows_of(FLOW.replace("DURABILITY", durability))
    driver = Driver(hub, Services(flows=flows, nodes=nodes))
    await driver.start()
    runs = Runs(driver)
    if is_held:
        await runs.wait(await runs.start("main", {}, held_id=runs.held_id(flows["main"])))
    else:
        await runs.start("main", {}, run_id=RUN)
        await runs.wait(RUN)
    (folder / "answer").write_text("answered")
    await driver.stop()
    await hub.close()
