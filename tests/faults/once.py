"""Runs of five units each, one after another, in a process that is killed. Started by `test_once.py`.

A unit is a function that `once` runs. It writes a line into a file, by the operating system and by nothing
else, so what the log says about it can be held against it. The process writes a byte into its pipe for each
line that has landed on the log of a run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from tests.flow.stage import flows_of
from tests.turns.scenes import engaged
from turnline.core.envelope import Envelope
from turnline.flow.driver import Driver
from turnline.flow.runs import Runs
from turnline.flow.work import Services
from turnline.hub.timers import SystemClock
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub, Passport, Turn, sequence
from turnline.turns import work
from turnline.turns.journal import AddFile, Record, TurnJournal
from turnline.turns.work import Done, Work

KINDS: Final = ("async node", "sync node", "performer", "handler")
UNITS: Final = ("u1", "u2", "u3", "u4", "u5")
LOG, EFFECTS = "log.db", "effects.txt"
FLOW = "steps: [{id: only, runner: work}]"


class Forgetful(TurnJournal):
    """The twin: a journal that does not read what was recorded."""

    def __init__(self, lines: Iterable[Envelope], record: Record, add_file: AddFile | None = None) -> None:
        super().__init__((), record, add_file)


def live(folder: str, kind: str, runs: int, forgetful: bool, pipe: Connection) -> None:
    """Take the first so many runs to their end; those that have ended stay as they are."""
    journal: type[TurnJournal] = Forgetful if forgetful else TurnJournal
    work.TurnJournal = journal  # type: ignore[attr-defined]
    if kind == "handler":
        asyncio.run(_handle(Path(folder), runs, pipe))
    elif kind == "performer":
        asyncio.run(_perform(Path(folder), runs, journal, pipe))
    else:
        asyncio.run(_flow(Path(folder), runs, kind, pipe))


def effect(folder: Path, run: str, unit: str) -> int:
    """Do what must not be done twice."""
    file = os.open(folder / EFFECTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{run} {unit}\n".encode())
    os.close(file)
    return 1


def _tell(pipe: Connection, line: Envelope) -> None:
    if line.channel_id.startswith("r"):
        os.write(pipe.fileno(), b".")


def _log(folder: Path) -> SqliteLog:
    return SqliteLog(folder / LOG, durability="process")


async def _flow(folder: Path, runs: int, kind: str, pipe: Connection) -> None:
    async def on_loop(ctx: dict[str, Any]) -> dict[str, Any]:
        done = [await ctx["_once"](unit, partial(effect, folder, ctx["run"], unit)) for unit in UNITS]
        return {"total": sum(done)}

    def in_thread(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"total": sum(ctx["_once"](unit, partial(effect, folder, ctx["run"], unit)) for unit in UNITS)}

    hub = await Hub.open(_log(folder), listeners=[partial(_tell, pipe)])
    node = on_loop if kind == "async node" else in_thread
    taking = Driver(hub, Services(flows=flows_of(FLOW), nodes={"work": node}))
    await taking.start()
    for number in range(runs):
        run_id = await Runs(taking).start("main", {"run": f"r{number}"}, run_id=f"r{number}")
        while not (state := await hub.state(run_id)).is_over:
            await hub.wait_beyond(run_id, state.seq)
    await taking.stop()
    await hub.close()


async def _perform(folder: Path, runs: int, journal: type[TurnJournal], pipe: Connection) -> None:
    async def perform(work: Work) -> Done:
        units, run = journal(work.lines, work.record), f"{work.channel_id}-{work.speaker}"
        done = [await units.once(unit, partial(effect, folder, run, unit)) for unit in UNITS]
        return Done(data={"body": str(sum(done))})

    options: dict[str, Any] = {"clock": SystemClock(), "listeners": [partial(_tell, pipe)]}
    async with engaged(_log(folder), perform, **options) as scene:
        for number in range(runs):
            await scene.ended(await scene.open(channel_id=f"r{number}", target=[]))


async def _handle(folder: Path, runs: int, pipe: Connection) -> None:
    """A foreign agent written as a plain function: it resumes inside its turn."""
    hub = await Hub.open(_log(folder), listeners=[partial(_tell, pipe)])
    user, agent = (
        await hub.register(passport=Passport(name="user")),
        await hub.register(passport=Passport(name="agent")),
    )

    @agent.on_turn
    async def work(turn: Turn) -> str:
        run = f"{turn.channel.channel_id}-{turn.claim.agent_id}"
        return str(sum([await turn.once(unit, partial(effect, folder, run, unit)) for unit in UNITS]))

    knobs = {"graph": sequence(["user", "agent"]).to_dict()}
    for number in range(runs):
        channel = await user.open("workflow", "agent", knobs, message="go", channel_id=f"r{number}")
        await channel.result()
    await hub.close()
