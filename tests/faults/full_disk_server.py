"""A server whose disk is filled and freed. Run by `test_full_disk.py`.

    python -m tests.faults.full_disk_server FOLDER

FOLDER is the root of a file system of a few MB and of nobody else's. Each time the disk is filled until the
server refuses a run, and `/ready` and further runs are asked for side by side. Then there is room again. The
program prints what was answered, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.faults.full_disk import BLOCK, Disk
from tests.server.stage import Ctx, Server, served
from turnline.hub.timers import SystemClock
from turnline.log.sqlite import SqliteLog

WORK = "{trigger: {path: /work}, steps: [{id: it, runner: same}]}"
BODY = {"text": "x" * 50_000}
MAX_RUNS = 300
"""More than fit into the room that the log has of its own, in a write-ahead file that is used again."""
LOOKS = 5
SPARE = (0, 12 * BLOCK, 24 * BLOCK)
"""Bytes that are left on the full disk: room for a small write, and for no run."""
OK = 200


def same(ctx: Ctx) -> Ctx:
    return {}


async def is_refused(server: Server) -> bool:
    return (await server.post("/work", BODY, Prefer="respond-async")).status_code >= 500


async def ready(server: Server) -> int:
    return (await server.get("/ready", token="")).status_code


async def fill_and_free(server: Server, disk: Disk, spare: int) -> dict[str, Any]:
    disk.fill()
    for _ in range(MAX_RUNS):
        if await is_refused(server):
            break
    disk.leave(spare)
    looks = [(await ready(server), await is_refused(server)) for _ in range(LOOKS)]
    disk.free()
    freed = await ready(server)
    return {"looks": looks, "freed": freed, "refused_after": await is_refused(server)}


async def main(folder: Path) -> None:
    disk = Disk(folder)
    async with served(
        WORK, same=same, log=lambda: SqliteLog(folder / "log.db"), clock=SystemClock()
    ) as server:
        found = [await fill_and_free(server, disk, spare) for spare in SPARE]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
