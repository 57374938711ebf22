"""Lets every single call by which a log changes its files fail, and looks at what is left.

    python -m tests.faults.syscalls FOLDER FAULT SEED KIND COMMITS EVERY    run by `test_syscalls.py`

FAULT is `kill`, or the name of an error; COMMITS says which thread commits; of the calls, the first of
every EVERY is tried. They are those of three parts of a log's life: a file is made, a file is written to
and closed, a file that a killed process left is opened. A log that commits in the loop is made and opened
as any other, so only the second part of its life is tried. Each part is traced once to count its calls;
then a process is started for each of them. This one forks and must stay single-threaded: logs live in the
children, and here when all of them have ended.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, convert

from tests.faults import scribe, strace
from tests.faults.scribe import Acknowledged, Commits, Orders
from tests.faults.strace import Call, Told, Trace

GATES: Final = {"make": range(1), "write": range(1, 2), "recover": range(1)}
"""A part of a log's life -> the gates it begins with."""
NAME: Final = "log.db"
FORMAT_VERSIONS: Final = slice(18, 20)
"""Of a SQLite file's header: what may write it, and what may read it."""
WAL_MODE: Final = b"\x02\x02"


class Trial(Struct, frozen=True, kw_only=True):
    """A call that failed, and what it left."""

    name: str
    path: Path
    promised: Acknowledged
    told: Told
    hit: bool

    @property
    def wrong(self) -> list[str]:
        """What its scribe met, or did in a file that readers and writers keep each other from."""
        in_wal_mode = self.path.read_bytes()[FORMAT_VERSIONS] == WAL_MODE
        return self.told.wrong + ["! written to without WAL mode"] * bool(self.promised and not in_wal_mode)


class Harness:
    def __init__(self, folder: Path, fault: str, seed: int, kind: str, commits: Commits) -> None:
        self._folder = folder
        self._inject = "signal=SIGKILL" if fault == "kill" else f"error={fault}"
        self._fault = fault
        self._seed = seed
        self._kind = kind
        self._commits: Commits = commits
        self._left, self._promised = self._leave()

    def trials(self, every: int) -> list[Trial]:
        parts = ("write",) if self._commits == "loop" else GATES
        return [self._trial(part, call) for part in parts for call in self._calls(part)[::every]]

    def _leave(self) -> tuple[Path, Acknowledged]:
        """Let a scribe die with its log open; return what is left of it."""
        path = self._place("left")
        told = strace.run(Orders(path=str(path), seed=self._seed, commits=self._commits, closes=False))
        Path(f"{path}-shm").unlink()
        return path.parent, scribe.acknowledged(told.said)

    def _calls(self, part: str) -> list[Call]:
        path = self._place(f"{part}-count", part)
        out = path.with_suffix(".calls")
        told = strace.run(self._orders(path, part), Trace(out, _watch(path), gates=GATES[part]))
        assert told.said[-1] == "done", told
        return strace.calls(out, told)

    def _trial(self, part: str, call: Call) -> Trial:
        name = f"{part}-{call.thread}-{call.name}-{call.number}"
        path = self._place(name, part)
        out = path.with_suffix(".calls")
        inject = f"inject={call.name}:{self._inject}:when={call.number}"
        orders = self._orders(path, part)
        options = [*_watch(path), "-e", inject]
        told = strace.run(orders, Trace(out, options, gates=GATES[part], thread=call.thread))
        promised = orders.ends | scribe.acknowledged(told.said)
        hit = told.killed if self._fault == "kill" else "(INJECTED)" in out.read_text()
        return Trial(name=name, path=path, promised=promised, told=told, hit=hit)

    def _orders(self, path: Path, part: str) -> Orders:
        ends = self._promised if part == "recover" else {}
        return Orders(path=str(path), seed=self._seed, kind=self._kind, commits=self._commits, ends=ends)

    def _place(self, name: str, part: str = "make") -> Path:
        place = self._folder / name
        if part == "recover":
            shutil.copytree(self._left, place)
        else:
            place.mkdir()
        return place / NAME


def _watch(path: Path) -> list[str]:
    return [*strace.files(path), "-e", f"trace={','.join(strace.WRITES)}"]


async def look(trials: Sequence[Trial]) -> list[str]:
    """Return what is wrong with what the trials left, and with what their scribes met."""
    found: list[str] = []
    for trial in trials:
        wrong = trial.wrong + await scribe.problems(trial.path, trial.promised)
        found += [f"{trial.name}: {text}" for text in wrong]
    return found


def main(harness: Harness, every: int) -> dict[str, object]:
    trials = harness.trials(every)
    return {
        "calls": len(trials),
        "in_loop": sum(trial.name.startswith("write-loop-") for trial in trials),
        "missed": [trial.name for trial in trials if not trial.hit],
        "refused": sum("refused" in trial.told.said for trial in trials),
        "unfinished": [trial.name for trial in trials if trial.told.said[-1:] != ["done"]],
        "problems": asyncio.run(look(trials)),
    }


if __name__ == "__main__":
    where, which, number, what, who, step = sys.argv[1:]
    tried = Harness(Path(where), which, int(number), what, convert(who, Commits))
    print(json.dumps(main(tried, int(step))))
