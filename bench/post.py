"""What does a post cost, beside what it cannot do without?

    one sender, SQLite         posts a second, beside group commits of the same bytes through a thread
    64 channels, memory        CPU of a post, beside encoding and hashing its line
    a channel of 10,000 lines  reading it through a seat, beside reading it from the log
    a long channel             a post on 10,000 lines, beside one on 100

The two sides of a row are measured in turn, five times, so that what else the machine does happens to both.
Printed: both medians, and the ratio last.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from queue import SimpleQueue
from secrets import token_bytes
from statistics import median
from threading import Thread
from time import perf_counter, process_time
from typing import Final

from turnline.client.channel import Channel
from turnline.core.codec import NO_HASH, SALT_BYTES, Record, seal
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub, HubClient, HumanClient, LocalLink, Passport
from turnline.testing.lines import line
from turnline.threads import call_in

ROUNDS: Final = 5
POSTS: Final = 400
"""In each round."""
CHANNELS: Final = 64
SHORT, LONG = 100, 10_000
AT_ONCE: Final = 100
TEXT: Final = "what does this cost?"

Work = Callable[[], Awaitable[object]]


@asynccontextmanager
async def opened(log: Log) -> AsyncIterator[tuple[Hub, HumanClient]]:
    """Yield a hub on `log` and a person whose posts are measured."""
    hub = await Hub.open(log, ttl_sweep_interval=0)
    client = HubClient(LocalLink(hub))
    user = await client.register_human(Passport(name="user", kind="human"))
    await client.register(passport=Passport(name="other"))
    yield hub, user
    await client.close()
    await hub.close()


async def filled(user: HumanClient, length: int) -> Channel:
    """Return a channel with so many lines."""
    channel = await user.open("conversation", "other", {"context_vars": {"topic": "cost"}})
    while (missing := length - (await channel.info()).seq) > 0:
        await asyncio.gather(*(channel.send("filling up") for _ in range(min(missing, AT_ONCE))))
    return channel


async def in_turn(
    ours: Work, limit: Work, clock: Callable[[], float], *, rounds: int = ROUNDS
) -> tuple[float, float]:
    """Return the median time of each, measured in turn."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, times in zip((ours, limit), taken, strict=True):
            start = clock()
            await work()
            times.append(clock() - start)
    return median(taken[0]), median(taken[1])


def sealed(seq: int) -> Record:
    return seal(line("c", seq, data={"text": TEXT}), NO_HASH, salt=token_bytes(SALT_BYTES))


class GroupCommits:
    """One thread that commits what waits, with the pragmas of a log: the limit for one sender on a disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: SimpleQueue[tuple[Record, asyncio.AbstractEventLoop, asyncio.Future[None]] | None]
        self._queue = SimpleQueue()
        self._thread = Thread(target=self._run)
        self._thread.start()

    async def write(self, record: Record) -> None:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._queue.put((record, loop, answer))
        await answer

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("CREATE TABLE raw (seq INTEGER PRIMARY KEY, hash, head, payload)")
            while (first := self._queue.get()) is not None:
                record, loop, answer = first
                row = (record.hash, record.head, record.payload)
                connection.execute("INSERT INTO raw (hash, head, payload) VALUES (?, ?, ?)", row)
                call_in(loop, answer.set_result, None)


async def one_sender(folder: Path) -> None:
    commits = GroupCommits(folder / "raw.db")
    async with opened(SqliteLog(folder / "log.db")) as (_, user):
        channel = await filled(user, SHORT)

        async def post() -> None:
            for _ in range(POSTS):
                await channel.send(TEXT)

        async def write() -> None:
            for seq in range(1, POSTS + 1):
                await commits.write(sealed(seq))

        ours, limit = await in_turn(post, write, perf_counter)
    commits.close()
    print(
        f"one sender, SQLite: {POSTS / ours:,.0f} posts/s, group commit through a thread "
        f"{POSTS / limit:,.0f}/s, ratio {limit / ours:.2f} (aim: 0.75 or more)"
    )


async def many_channels() -> None:
    async with opened(MemoryLog()) as (_, user):
        channels = [await filled(user, 8) for _ in range(CHANNELS)]
        each = 2 * POSTS // CHANNELS

        async def send(channel: Channel) -> None:
            for _ in range(each):
                await channel.send(TEXT)

        async def post() -> None:
            await asyncio.gather(*map(send, channels))

        async def encode() -> None:
            for seq in range(1, each * CHANNELS + 1):
                sealed(seq)

        ours, limit = await in_turn(post, encode, process_time)
    posts = each * CHANNELS
    print(
        f"{CHANNELS} channels, memory: {ours / posts * 1e6:.0f} us of CPU a post (aim: 80), its line alone "
        f"{limit / posts * 1e6:.0f} us, ratio {ours / limit:.1f}"
    )


async def reading(folder: Path) -> None:
    log = SqliteLog(folder / "read.db")
    async with opened(log) as (_, user):
        channel = await filled(user, LONG)

        async def through_seat() -> None:
            after = 0
            while after < LONG:
                page = await user.seat.read(channel.channel_id, after)
                assert page.seq > after
                after = page.seq

        async def from_log() -> None:
            async for _ in log.read(channel.channel_id):
                pass

        ours, limit = await in_turn(through_seat, from_log, perf_counter)
    print(
        f"{LONG:,} lines through a seat: {ours * 1e3:.0f} ms, from the log {limit * 1e3:.0f} ms, "
        f"ratio {ours / limit:.2f} (aim: 1.5 or less)"
    )


async def long_channel(name: str, log: Log) -> None:
    async with opened(log) as (_, user):
        short, long = await filled(user, SHORT), await filled(user, LONG)
        ours, limit = await in_turn(
            lambda: long.send(TEXT), lambda: short.send(TEXT), perf_counter, rounds=POSTS
        )
    print(
        f"a post on {LONG:,} lines, {name}: {ours * 1e6:.0f} us, on {SHORT} lines {limit * 1e6:.0f} us, "
        f"ratio {ours / limit:.2f} (aim: 1.2 or less)"
    )


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await one_sender(folder)
        await many_channels()
        await reading(folder)
        await long_channel("memory", MemoryLog())
        await long_channel("SQLite", SqliteLog(folder / "long.db"))


if __name__ == "__main__":
    asyncio.run(main())
