"""CPU until a hub is open on a log that is in use, and has accepted its first post (Y8).

    open channels      1,000 open conversations of 100 lines
    closed channels    the same conversation beside 1,000,000 closed ones

A hub reads the index of the open channels. So neither the lines of open channels nor the number of closed
channels counts. The closed channels are rows of the index only, written by SQL. CPU is that of the whole
process, threads included. The least of `ROUNDS` is printed: whatever else the machine does only adds to it.
A hub on another log was opened before, so no import counts.

    python bench/open.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from turnline.core.adapters import built_in
from turnline.core.channel import ChannelRow, ChannelSpec, ChannelState
from turnline.core.envelope import Draft, Envelope
from turnline.core.event_types import EV_TEXT
from turnline.core.views import row_for
from turnline.hub.hub import Hub as InnerHub
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub, HubClient, LocalLink, Passport, round_robin

OPEN_CHANNELS: Final = 1_000
LINES: Final = 100
CLOSED_CHANNELS: Final = 1_000_000
LIMIT_MS: Final = 50.0
ROUNDS: Final = 5
PEOPLE: Final = ("ada", "bob")
FIRST: Final = "open-0"
NUMBERS: Final = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2)"
_NAMES: Final = (
    f"INSERT INTO turnline_names (channel, id, mark) {NUMBERS} SELECT ?1 + n, 'closed-' || n, n FROM numbers"
)
_HEADS: Final = f"""
INSERT INTO turnline_heads (channel, seq, hash, closed, position, created, type, flow, parent, origin,
    speaker, waiting, code, row)
{NUMBERS}
SELECT ?1 + n, 12, x'00', 1, 0, ?3 + n, 'workflow', '', '', '', '', '', 'max_turns',
    CAST(replace(?4, 'closed-0', 'closed-' || n) AS BLOB)
FROM numbers
"""


async def write_first(log: Log, count: int = LINES) -> list[Envelope]:
    """Hold one conversation of `count` lines, leave it open, and return its lines."""
    hub = await Hub.open(log, ttl_sweep_interval=0)
    client = HubClient(LocalLink(hub))
    people = [await client.register_human(Passport(name=name, kind="human")) for name in PEOPLE]
    graph = round_robin(list(PEOPLE), max_turns=10 * count).to_dict()
    channel = await people[0].open("workflow", ["bob"], {"graph": graph}, channel_id=FIRST)
    speaking = [channel, people[1].channel(FIRST)]
    turn = 0
    while (await hub.state(FIRST)).seq < count:
        await speaking[turn % 2].send(f"This is turn {turn}. " * 10)
        turn += 1
    lines = await hub.read_wal(FIRST)
    await client.close()
    await hub.close()
    return lines


async def write_open(file: Path, lines: Sequence[Envelope]) -> None:
    """Write the other open channels: the same lines under other ids."""
    adapter, log = built_in().get("workflow"), SqliteLog(file, durability="process")
    for number in range(1, OPEN_CHANNELS):
        name = f"open-{number}"
        own = [replace(one, channel_id=name) for one in lines]
        own[0] = replace(own[0], event_data={**own[0].event_data, "channel_id": name})
        state = reduce(adapter.fold, own, adapter.initial(msgspec.convert(own[0].event_data, ChannelSpec)))
        await log.append(name, own, after=0, row=row_for(adapter, state))
    await log.close()


def write_closed(file: Path) -> None:
    """Write the rows of the closed channels into the index."""
    now = datetime.now(UTC)
    row = ChannelRow(
        channel_id="closed-0",
        type="workflow",
        status=ChannelState.CLOSED,
        seq=12,
        created_at=now,
        updated_at=now,
        participants=list(PEOPLE),
        closed_at=now,
        close_code="max_turns",
    )
    with closing(sqlite3.connect(file)) as connection, connection:
        (last,) = connection.execute("SELECT max(channel) FROM turnline_names").fetchone()
        connection.execute(_NAMES, (last, CLOSED_CHANNELS))
        values = (last, CLOSED_CHANNELS, int(now.timestamp() * 1e6), msgspec.json.encode(row).decode())
        connection.execute(_HEADS, values)


async def open_and_post(log: Log, number: int) -> tuple[float, int]:
    """Return the milliseconds of CPU until the first post is accepted, and how many channels are open."""
    before = time.process_time()
    hub = await InnerHub.open(log)
    speaker = hub.participant(PEOPLE[number % 2]).agent_id
    said = Draft(
        envelope_id=hub.new_id(),
        sender_id=speaker,
        event_type=EV_TEXT,
        event_data={"text": "Hello again."},
        interject=True,
    )
    await hub.post(FIRST, said)
    spent = (time.process_time() - before) * 1_000
    found = hub.health().open_channels
    await hub.close()
    return spent, found


async def measure(file: Path) -> tuple[float, int]:
    """Return the least that opening the file costs, and how many channels are open."""
    found = [await open_and_post(SqliteLog(file, durability="process"), number) for number in range(ROUNDS)]
    return min(found)


def report(what: str, found: tuple[float, int]) -> None:
    spent, channels = found
    print(
        f"{what:<45} {channels:>5} open {spent:>8.1f} ms of CPU   "
        f"limit {LIMIT_MS:g}   {spent / LIMIT_MS:.2f} x"
    )


async def main(folder: Path) -> None:
    memory = MemoryLog()
    await write_first(memory)
    await open_and_post(memory, 0)  # So that nothing is imported later.
    file = folder / "open.db"
    lines = await write_first(SqliteLog(file, durability="process"))
    await write_open(file, lines)
    report(f"{OPEN_CHANNELS:,} open channels, {OPEN_CHANNELS * len(lines):,} lines", await measure(file))
    file = folder / "closed.db"
    await write_first(SqliteLog(file, durability="process"))
    write_closed(file)
    report(f"{CLOSED_CHANNELS:,} closed channels", await measure(file))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as found:
            asyncio.run(main(Path(found)))
