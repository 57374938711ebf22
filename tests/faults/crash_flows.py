"""Many runs of a flow in a process that dies again and again. Run by `test_crash_loop.py`.

    python -m tests.faults.crash_flows LOG COUNT POISON alone|beside

Each run takes a quick step and then one of WORK_SECONDS. The second step of the run POISON kills the process
(empty: none does). With `beside` another process works on the same log. The program prints `begun` when the
runs are open, and how each one ended. A SIGTERM stops it as a deploy does: what is in progress is released.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from tests.faults.crash_loop import say
from tests.flow.stage import flows_of
from turnline.flow.driver import Driver
from turnline.flow.runs import Runs
from turnline.flow.work import Services
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub

WORK_SECONDS = 0.6
POISON_SECONDS = 0.1
LOOK_SECONDS = 0.1
FLOW = "steps: [{id: quick, runner: quick}, {id: work, runner: work}]"


def quick(ctx: dict[str, Any]) -> None:
    """Do nothing: the claim of the next step comes with its floor."""


async def work(ctx: dict[str, Any]) -> None:
    if ctx["poisonous"]:
        await asyncio.sleep(POISON_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(float(os.environ.get("WORK_SECONDS", WORK_SECONDS)))


async def settle(runs: Runs, count: int, poison: str) -> None:
    names = [f"r{number}" for number in range(count)]
    for name in names:
        await runs.start("main", {"poisonous": name == poison}, run_id=name)
    say("begun")
    for name in names:
        while (status := (await runs.verdict(name)).status) in ("running", "waiting"):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
        say(f"{name} {status}")


async def main(path: str, count: str, poison: str, kind: str) -> None:
    hub = await Hub.open(SqliteLog(path), follow=kind == "beside")
    driver = Driver(hub, Services(flows=flows_of(FLOW), nodes={"quick": quick, "work": work}))
    await driver.start()
    settling = asyncio.ensure_future(settle(Runs(driver), int(count), poison))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, settling.cancel)
    try:
        await asyncio.wait((settling,))
    finally:
        await driver.stop(grace_seconds=0)
        await hub.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
