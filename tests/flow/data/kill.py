"""Kills processes that commit steps, and looks at what they leave. Run by `test_kill.py`.

    python -m tests.flow.data.kill FOLDER statements|moments KILLS together|apart

A step of this harness writes `ROWS` rows and a packet that names them. `statements`: a
process is killed before its first statement, another before its second, and so on until one
gets to the end. `moments`: processes that do step after step are killed at any moment.
This process forks and must stay single-threaded: databases live in the children only.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn

from sqlalchemy import event

from turnline.core.codec import unpack_id
from turnline.flow.data.database import Database, open_data
from turnline.flow.data.unit_of_work import SqlUnitOfWork
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line

from .stage import model, uses

ROWS: Final = 3
ROW: Final = model("Row", {"packet": {"type": "string", "required": True}})
CHANNEL: Final = "run"
MAX_STATEMENTS: Final = 100
MAX_STEPS_BEFORE_THE_KILL: Final = 6
MOMENT_SECONDS: Final = 0.03
PATIENCE_SECONDS: Final = 60.0
SEED: Final = 20300101

Commit = Callable[[SqliteLog, SqlUnitOfWork, int], Any]


async def together(log: SqliteLog, work: SqlUnitOfWork, seq: int) -> None:
    await log.append_within(work, CHANNEL, [line(CHANNEL, seq)], after=seq - 1)


async def apart(log: SqliteLog, work: SqlUnitOfWork, seq: int) -> None:
    """The twin: two commits, as near to each other as can be."""
    await work.commit_alone()
    await log.append(CHANNEL, [line(CHANNEL, seq)], after=seq - 1)


WAYS: Final[dict[str, Commit]] = {"together": together, "apart": apart}


async def step(log: SqliteLog, data: Database, commit: Commit) -> None:
    head = await log.head(CHANNEL)
    seq = head.seq + 1 if head else 1
    work = data.begin(uses("Row"), {})
    for _ in range(ROWS):
        await work.db["Row"].add(packet=f"{CHANNEL}-{seq}")
    await commit(log, work, seq)
    await work.close()


class Killer:
    """Kills this process before the statement of a number, of those that are sent to the database."""

    def __init__(self, number: int) -> None:
        self.left = number

    def watch(self, data: Database) -> None:
        def connected(raw: Any, _: object) -> None:
            raw.run_async(lambda driver: driver.set_trace_callback(self.note))

        event.listen(data.engine.sync_engine, "connect", connected)

    def note(self, _: str) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def one_step(path: Path, commit: Commit, number: int) -> None:
    """Do a step and be killed before its statement of this number, if it has so many."""
    log = SqliteLog(path)
    data = await open_data([ROW], log=log)
    await data.engine.dispose()  # So that the connections to come are watched.
    Killer(number).watch(data)
    await step(log, data, commit)


async def step_by_step(path: Path, commit: Commit, pipe: int) -> None:
    log = SqliteLog(path)
    data = await open_data([ROW], log=log)
    while True:
        await step(log, data, commit)
        os.write(pipe, b".")


def child(work: Callable[[], Any]) -> NoReturn:
    status = 0
    try:
        asyncio.run(work())
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        status = 1
    os._exit(status)


def torn(path: Path) -> list[str]:
    """The packets whose rows are not all there, and the rows whose packet is not."""
    with closing(sqlite3.connect(path)) as connection:
        packets = {
            unpack_id(cell) if isinstance(cell, bytes) else cell
            for (cell,) in connection.execute("SELECT envelope_id FROM turnline_records")
        }
        rows = dict(connection.execute("SELECT packet, count(*) FROM row GROUP BY packet"))
    return sorted(name for name in packets | rows.keys() if rows.get(name) != ROWS or name not in packets)


def packets(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM turnline_records").fetchone()[0])


def at_every_statement(folder: Path, way: str) -> dict[str, object]:
    found: list[str] = []
    landed = 0
    for number in range(1, MAX_STATEMENTS):
        path = folder / f"{way}-{number}.db"
        pid = os.fork()
        if pid == 0:
            child(lambda path=path, number=number: one_step(path, WAYS[way], number))  # type: ignore[misc]
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a child failed by itself"
        found += [f"{number}: {name}" for name in torn(path)]
        landed += packets(path)
        if not os.WIFSIGNALED(status):
            return {"kills": number - 1, "landed": landed, "torn": found}
    raise AssertionError("a step has no end")


def at_any_moment(folder: Path, way: str, kills: int) -> dict[str, object]:
    random = Random(SEED)
    path = folder / f"{way}.db"
    for _ in range(kills):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(lambda writing=writing: step_by_step(path, WAYS[way], writing))  # type: ignore[misc]
        os.close(writing)
        for _ in range(random.randint(1, MAX_STEPS_BEFORE_THE_KILL)):
            ready, _, _ = select.select([reading], [], [], PATIENCE_SECONDS)
            assert ready, "a child hung"
            assert os.read(reading, 1), "a child ended by itself"
        select.select([], [], [], random.random() * MOMENT_SECONDS)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
    return {"kills": kills, "landed": packets(path), "torn": torn(path)}


if __name__ == "__main__":
    where, kind, count, which = sys.argv[1:]
    if kind == "statements":
        print(json.dumps(at_every_statement(Path(where), which)))
    else:
        print(json.dumps(at_any_moment(Path(where), which, int(count))))
