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
from collections.abc import Callable
from contextvars import Context
from threading import Timer
from typing import Any, TypeVarTuple

from tests.flow.stage import flows_of
from turnline.agent.agent import Agent
from turnline.agent.scripted import ScriptedModel, call
from turnline.agent.tool import tool
from turnline.flow.driver import Driver
from turnline.flow.runs import Runs
from turnline.flow.work import Services
from turnline.log.address import open_log
from turnline.network import Hub, HubClient, LocalLink, Passport, Turn, round_robin, sequence

Ts = TypeVarTuple("Ts")

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


class Ending(asyncio.SelectorEventLoop):
    """A loop that counts the seconds the process itself spends after its main has ended.

    These are the times that its timers ran, each moment once, and its CPU time. Other processes on the
    machine change neither.
    """

    def begin(self) -> None:
        """Count from now on: main has ended."""
        self.worked_before = time.process_time()
        self.began = self.time()
        self.waits: list[tuple[float, float]] = []

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        began = self.time()

        def fire() -> None:
            self.waits.append((began, when))
            callback(*args)

        return super().call_at(when, fire, context=context)

    def seconds(self) -> float:
        waited, until = 0.0, self.began
        for begin, end in sorted(self.waits):
            waited += max(end - max(begin, until), 0.0)
            until = max(until, end)
        return waited + time.process_time() - self.worked_before


async def main(address: str, how: str, seconds: str, loop: Ending) -> None:
    await begin(address)
    if how == "interrupt":
        Timer(float(seconds), os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        await asyncio.sleep(FOR_EVER_SECONDS if how == "interrupt" else float(seconds))
        if how == "raise":
            raise RuntimeError("main ends here")
    finally:
        loop.begin()


def run(address: str, how: str, seconds: str) -> None:
    loop = Ending()
    loop.begin()
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(main(address, how, seconds, loop))
    finally:
        say(str(loop.seconds()))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background jobs ignore it.
    run(*sys.argv[1:])
