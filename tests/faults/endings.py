"""A program whose main ends with turns in flight, and that closes nothing. Run by `test_endings.py`.

    python -m tests.faults.endings LOG return|raise|interrupt SECONDS

Conversations go back and forth without a pause, others wait for a slow model. One is in a tool that blocks
its thread, and the step of a flow blocks another thread. SECONDS later its main returns or raises, or the
program sends itself the signal of Ctrl-C. When its loop is closed it prints the seconds of `Ending`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from selectors import DefaultSelector, SelectorKey
from threading import Timer
from typing import Any

from tests.flow.stage import flows_of
from turnline.agent.agent import Agent
from turnline.agent.scripted import ScriptedModel, call
from turnline.agent.tool import tool
from turnline.flow.driver import Driver
from turnline.flow.runs import Runs
from turnline.flow.work import Services
from turnline.log.address import open_log
from turnline.network import Hub, HubClient, LocalLink, Passport, Turn, round_robin, sequence

BUSY = 8
SLOW = 4
FOR_EVER_SECONDS = 3600.0
FLOW = "steps: [{id: sleep, runner: sleep}]"


@tool
def block() -> str:
    """Block the thread of this call."""
    time.sleep(FOR_EVER_SECONDS)
    return "never"


def sleep(ctx: dict[str, Any]) -> None:
    time.sleep(FOR_EVER_SECONDS)


async def answer_at_once(turn: Turn) -> str:
    return "and you?"


async def answer_late(turn: Turn) -> str:
    await asyncio.sleep(FOR_EVER_SECONDS)
    return "never"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def begin(address: str) -> None:
    hub = await Hub.open(open_log(address), follow=True)
    client = HubClient(LocalLink(hub))
    user = await client.register_human(Passport(name="user", kind="human"))
    for name, handler in (("ann", answer_at_once), ("ben", answer_at_once), ("slow", answer_late)):
        (await client.register(passport=Passport(name=name))).on_turn(handler)
    model = ScriptedModel(*[call("block") for _ in range(9)])
    await client.register(Agent("blocker", config=model, tools=[block]), Passport(name="blocker"))
    busy = {"graph": round_robin(["ann", "ben"], max_turns=1_000_000).to_dict()}
    for _ in range(BUSY):
        await user.open("workflow", ["ann", "ben"], busy, message="go")
    for name in ("slow",) * SLOW + ("blocker",):
        await user.open("workflow", [name], {"graph": sequence([name]).to_dict()}, message="go")
    driver = Driver(hub, Services(flows=flows_of(FLOW), nodes={"sleep": sleep}))
    await driver.start()
    await Runs(driver).start("main", {})


class Ending(DefaultSelector):
    """A selector that counts what the process itself spends after its main has ended.

    These are the timeouts that it let pass and its CPU time. Other processes on the machine change neither.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self.waited = 0.0
        self.worked_before = time.process_time()

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        ready = super().select(timeout)
        if not ready and timeout is not None:
            self.waited += max(timeout, 0.0)
        return ready

    @property
    def seconds(self) -> float:
        return self.waited + time.process_time() - self.worked_before


async def main(address: str, how: str, seconds: str, ending: Ending) -> None:
    await begin(address)
    if how == "interrupt":
        Timer(float(seconds), os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        await asyncio.sleep(FOR_EVER_SECONDS if how == "interrupt" else float(seconds))
        if how == "raise":
            raise RuntimeError("main ends here")
    finally:
        ending.begin()


def run(address: str, how: str, seconds: str) -> None:
    ending = Ending()
    try:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(ending)) as runner:
            runner.run(main(address, how, seconds, ending))
    finally:
        say(str(ending.seconds))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
    run(*sys.argv[1:])
