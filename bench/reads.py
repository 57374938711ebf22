"""What two reads of a server cost: a page of the runs of one flow, and the usage of a long channel.

    runs       /runs?flow=x of 10,000 runs and of 100: CPU of the whole process, the least of `ROUNDS`
    usage      of a channel of 10,000 lines: CPU of the loop's thread, beside that of the whole process

The runs are rows of the index only, written by SQL: a page reads no others. One in ten has failed.

    python bench/reads.py
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))
import listing
import open as opening

from turnline.core.channel import ChannelFilter, ChannelRow, ChannelState
from turnline.flow.driver import Driver
from turnline.flow.runs import Runs
from turnline.flow.work import Services
from turnline.hub.hub import Hub
from turnline.log.sqlite import SqliteLog
from turnline.server.auth.principal import Principal
from turnline.server.channels.sight import Sight
from turnline.server.channels.usage import usage_of
from turnline.testing.lines import row

RUNS: Final = (100, 10_000)
LINES: Final = 10_000
ROUNDS: Final = 5
LIMIT_MS: Final = 10.0
DRIVER: Final = "driver"


def run_rows(count: int) -> Iterator[ChannelRow]:
    for n in range(count):
        yield row(
            f"channel-{n:09}",
            created_at=listing.at(n),
            status=ChannelState.CLOSED,
            seq=8,
            closed_at=listing.at(n + 60),
            close_code="completed" if n % 10 else "step_failed",
            creator_id=DRIVER,
            participants=[DRIVER],
            flow="x",
        )


async def page_of_runs(file: Path, count: int) -> float:
    """Return the milliseconds of CPU that a page of 50 takes."""
    log = SqliteLog(file, durability="process")
    listing.fill_sqlite(file, run_rows(count))
    hub = await Hub.open(log)
    driver = Driver(hub, Services())
    driver.agent_id = DRIVER
    spent = []
    for _ in range(ROUNDS):
        before = time.process_time()
        await Runs(driver).page(ChannelFilter(flow="x"), limit=50)
        spent.append((time.process_time() - before) * 1_000)
    await hub.close()
    return min(spent)


async def usage(file: Path) -> tuple[float, float]:
    """Return the milliseconds of CPU of the loop's thread, and of all threads."""
    await opening.write_first(SqliteLog(file, durability="process"), LINES)
    hub = await Hub.open(SqliteLog(file, durability="process"))
    state = await hub.state(opening.FIRST)
    sight = Sight(principal=Principal(user_id="root"), sees_all=True)
    spent = []
    for _ in range(ROUNDS):
        before, all_before = time.thread_time(), time.process_time()
        await usage_of(hub, state, sight)
        spent.append(((time.thread_time() - before) * 1_000, (time.process_time() - all_before) * 1_000))
    await hub.close()
    return min(spent)


async def main(folder: Path) -> None:
    found = [await page_of_runs(folder / f"{count}.db", count) for count in RUNS]
    for count, spent in zip(RUNS, found, strict=True):
        print(f"a page of the runs of a flow, of {count:>6,}: {spent:5.1f} ms of CPU   limit {LIMIT_MS:g}")
    print(f"{found[1] / found[0]:.2f} x")
    on_loop, in_all = await usage(folder / "long.db")
    print(f"usage of {LINES:,} lines: {on_loop:5.1f} ms on the loop, {in_all:5.1f} ms in all threads")
    print(f"{on_loop / in_all:.2f} x")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
