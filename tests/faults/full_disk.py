"""Fills a small disk under a `SqliteLog` and makes room again. Run by `test_full_disk.py`.

    python -m tests.faults.full_disk FOLDER TIMES honest|deaf

FOLDER is the root of a file system of a few MB and of nobody else's. Each time the log fills it
to the last block, is refused, is read, and goes on as soon as there is room.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from pathlib import Path
from typing import Final

from tests.faults.scribe import LOGS, Acknowledged, problems
from turnline.core.envelope import Envelope
from turnline.errors import LogUnavailable
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import line, lines

CHANNEL: Final = "_a"
BLOCK: Final = 4096
TEXT: Final = "x" * 50_000
MAX_APPENDS: Final = 200
"""More than fit into the room that the log has of its own, in a write-ahead file that is used again."""


class Disk:
    """What else is on the disk: ballast, in the place of other people's files."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * BLOCK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def leave(self, spare: int) -> None:
        """Make so much room again."""
        os.truncate(self._ballast, max(self._ballast.stat().st_size - spare, 0))

    def free(self) -> None:
        self._ballast.unlink()


def said(seq: int) -> Envelope:
    return line(CHANNEL, seq, data={"of": 1, "place": 1, "text": TEXT})


class Trial:
    def __init__(self, log: SqliteLog, disk: Disk) -> None:
        self.acknowledged = 0
        self.refused = 0
        self.wrong: list[str] = []
        self._log = log
        self._disk = disk

    async def once(self) -> None:
        await self._append()
        self._disk.fill()
        if not await self._is_refused():
            self.wrong.append(f"{MAX_APPENDS} appends to a full disk were acknowledged")
        elif not self._log.outage:
            self.wrong.append("it refused, and no outage is told")
        found = len(await lines(self._log, CHANNEL))
        if found != self.acknowledged:
            self.wrong.append(f"lost: {found} of {self.acknowledged} are read from a full disk")
        self._disk.free()
        await self._append()
        if self._log.outage:
            self.wrong.append(f"it wrote, and says that it cannot: {self._log.outage}")

    async def _is_refused(self) -> bool:
        for _ in range(MAX_APPENDS):
            try:
                await self._append()
            except LogUnavailable:
                self.refused += 1
                return True
        return False

    async def _append(self) -> None:
        await self._log.append(CHANNEL, [said(self.acknowledged + 1)], after=self.acknowledged)
        self.acknowledged += 1


async def main(folder: Path, times: int, kind: str) -> dict[str, object]:
    path = folder / "log.db"
    log = LOGS[kind](path)
    trial = Trial(log, Disk(folder))
    for _ in range(times):
        await trial.once()
    await log.close()
    promised: Acknowledged = {CHANNEL: trial.acknowledged}
    return {"refused": trial.refused, "problems": trial.wrong + await problems(path, promised)}


if __name__ == "__main__":
    where, count, which = sys.argv[1:]
    print(json.dumps(asyncio.run(main(Path(where), int(count), which))))
