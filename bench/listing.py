"""A page of 50 from a log of many channels, against the same page from 1,000 (Y9); and what a row costs.

The index is filled with SQL, as appends would fill it; the channels have no lines, which no list reads. Each
page is asked of both logs in turn, and the fastest answer of each counts: a busy machine only adds.
A page of the large log may take LIMIT times as long. Below are pages of filters that no index orders: those
look at MAX_ROWS rows at most, so their small log has 20,000 channels.

    python bench/listing.py [--channels 1000000] [--postgres 1000000] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg

from turnline.core.channel import ChannelFilter, ChannelRow, ChannelState
from turnline.log.base import Log
from turnline.log.listing import COLUMNS, columns_of, tags_of
from turnline.log.postgres import PostgresLog
from turnline.log.sqlite import SqliteLog
from turnline.log.sqlite_work import Append
from turnline.log.walks import read_page, token_of
from turnline.testing.lines import NOON, line, row

ROOT: Final = Path(__file__).parents[1]
SMALL: Final = 1_000
MIDDLE: Final = 20_000
PAGE: Final = 50
LIMIT: Final = 2.0
ROUNDS: Final = 40
APPENDS: Final = 10_000
APPEND_ROUNDS: Final = 3
OPEN: Final = 100
"""Open channels of each log: they are few, however many there were. Every tenth of them is due."""
CASE: Final = 60
"""Channels of one case, and of one person, in each log."""
Pages = dict[str, tuple[ChannelFilter, ChannelRow | None]]
HEAD: Final = ("channel", "seq", "hash", "closed", "position")


def at(number: int) -> datetime:
    return NOON + timedelta(seconds=number)


def rows(count: int) -> Iterator[ChannelRow]:
    """Yield the channels of a log, the oldest first. Open ones are spread over all of it."""
    every = max(count // OPEN, 1)
    few = max(count // CASE, 1)
    for n in range(count):
        is_open = n % every == 0
        code = "" if is_open else ("turn_failed" if n % 10 == 3 else "done")
        yield row(
            f"channel-{n:09}",
            created_at=at(n),
            status=ChannelState.ACTIVE if is_open else ChannelState.CLOSED,
            seq=8,
            closed_at=None if is_open else at(n + 60),
            close_code=code,
            creator_id=f"person-{n % few}",
            participants=[f"person-{n % few}", f"agent-{n % 10}"],
            labels={"team": f"team-{n // few % 7}", "case": f"case-{n % few}"},
            flow=f"flow-{n % 5}",
            parent_id="" if n % 2 else f"channel-{n // 2:09}",
            speaker_id=f"agent-{n % 2}" if is_open else "",
            waiting_for="person" if is_open and n % 4 == 0 else "",
            deadline=at(n // every) if is_open and (n // every) % 10 == 0 else None,
        )


def pages(count: int) -> Pages:
    """Return the pages that are asked for: a filter, and the row that the page comes after."""
    middle = row(f"channel-{count // 2:09}", created_at=at(count // 2))
    return {
        "newest": (ChannelFilter(), None),
        "in the middle": (ChannelFilter(), middle),
        "by time": (ChannelFilter(since=at(count // 4), until=at(count // 2)), None),
        "open": (ChannelFilter(is_closed=False), None),
        "closed": (ChannelFilter(is_closed=True), None),
        "runs": (ChannelFilter(is_run=True), None),
        "flow": (ChannelFilter(flow="flow-3"), None),
        "open of a flow": (ChannelFilter(flow="flow-0", is_closed=False), None),
        "close code": (ChannelFilter(close_codes=["turn_failed"]), None),
        "close codes": (ChannelFilter(close_codes=["turn_failed", "done"]), None),
        "not done": (ChannelFilter(is_closed=True, but_close_codes=["done"]), None),
        "runs that failed": (ChannelFilter(is_run=True, is_closed=True, but_close_codes=["done"]), None),
        "runs that succeeded": (ChannelFilter(is_run=True, is_closed=True, close_codes=["done"]), None),
        "failed runs of a flow": (
            ChannelFilter(is_run=True, is_closed=True, but_close_codes=["done"], flow="flow-3"),
            None,
        ),
        "failed, of a flow with none": (
            ChannelFilter(is_run=True, is_closed=True, but_close_codes=["done"], flow="flow-1"),
            None,
        ),
        "runs of a flow": (ChannelFilter(is_run=True, flow="flow-3"), None),
        "runs at work": (ChannelFilter(is_run=True, is_closed=False, is_waiting=False), None),
        "label of many": (ChannelFilter(labels={"team": "team-3"}), None),
        "label of few": (ChannelFilter(labels={"case": "case-3"}), None),
        "two labels": (ChannelFilter(labels={"case": "case-3", "team": "team-3"}), None),
        "participant of many": (ChannelFilter(participants=["agent-3"]), None),
        "participant of few": (ChannelFilter(participants=["person-3"]), None),
        "two participants": (ChannelFilter(participants=["person-3", "agent-3"]), None),
        "open of a participant": (ChannelFilter(participants=["agent-0"], is_closed=False), None),
        "children": (ChannelFilter(parent_id=f"channel-{count // 4:09}"), None),
        "turns of an agent": (ChannelFilter(speaker_id="agent-0"), None),
        "waiting": (ChannelFilter(waiting_for=["person", "timer"]), None),
        "due": (ChannelFilter(due=at(count)), None),
    }


def bounded_pages() -> Pages:
    """Return the pages that no index orders, and that find next to nothing."""
    return {
        "labels, many first": (ChannelFilter(labels={"team": "team-3", "case": "case-3"}), None),
        "agent, label of few": (ChannelFilter(participants=["agent-3"], labels={"case": "case-3"}), None),
        "agent, another agent": (ChannelFilter(participants=["agent-3", "agent-4"]), None),
        "agent, another flow": (ChannelFilter(participants=["agent-3"], flow="flow-4"), None),
        "type": (ChannelFilter(type="discussion"), None),
    }


def heads(of: Iterable[ChannelRow]) -> Iterator[tuple[ChannelRow, tuple[Any, ...]]]:
    for n, one in enumerate(of, 1):
        yield one, (8, b"hash", one.is_closed, n, *columns_of(one))


def fill_sqlite(path: Path, of: Iterable[ChannelRow]) -> None:
    marks = ", ".join("?" * (len(HEAD) + len(COLUMNS)))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # Only here: nobody misses what a crash would lose.
        connection.execute("PRAGMA cache_size = -400000")
        connection.execute("BEGIN")
        for n, (one, columns) in enumerate(heads(of), 1):
            connection.execute(
                "INSERT INTO turnline_names (channel, id, mark) VALUES (?, ?, ?)", (n, one.channel_id, n)
            )
            connection.execute(
                f"INSERT INTO turnline_heads ({', '.join((*HEAD, *COLUMNS))}) VALUES ({marks})", (n, *columns)
            )
            places = [(tag, columns[4], n) for tag in tags_of(one)]
            connection.executemany("INSERT INTO turnline_tags VALUES (?, ?, ?)", places)
        connection.execute("COMMIT")


def fill_postgres(url: str, count: int) -> None:
    with psycopg.connect(url) as connection:
        with connection.cursor().copy(
            f"COPY turnline_heads ({', '.join((*HEAD, *COLUMNS))}) FROM STDIN"
        ) as copy:
            for one, columns in heads(rows(count)):
                copy.write_row((one.channel_id, *columns))
        with connection.cursor().copy("COPY turnline_tags FROM STDIN") as copy:
            for one, columns in heads(rows(count)):
                for tag in tags_of(one):
                    copy.write_row((tag, columns[4], one.channel_id))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")  # As the server does by itself, a little later.


@asynccontextmanager
async def sqlite_logs(folder: Path, *counts: int) -> AsyncIterator[list[Log]]:
    logs = [SqliteLog(folder / f"{count}.db") for count in counts]
    for log, count in zip(logs, counts, strict=True):
        fill_sqlite(log.path, rows(count))
    yield [*logs]
    for log in logs:
        await log.close()


@asynccontextmanager
async def postgres_logs(*counts: int) -> AsyncIterator[list[Log]]:
    sys.path.insert(0, str(ROOT))
    from tests.postgres import postgres_server  # noqa: PLC0415  Only here a server is needed.

    with postgres_server() as server:
        urls = [server.fresh() for _ in counts]
        logs = [PostgresLog(url) for url in urls]
        for log, url, count in zip(logs, urls, counts, strict=True):
            await log.channels(limit=1)
            fill_postgres(url, count)
        yield [*logs]
        for log in logs:
            await log.close()


async def seconds(log: Log, where: ChannelFilter, after: ChannelRow | None) -> tuple[float, int]:
    begun = time.perf_counter()
    page = await read_page(log, where, after=token_of(after) if after else "", limit=PAGE)
    return time.perf_counter() - begun, len(page.rows)


async def compare_all(name: str, logs: list[Log], counts: tuple[int, int, int]) -> bool:
    """Compare the pages that an index orders, then those that look at a bounded number of rows."""
    few, some, many = counts
    ordered = await compare(name, [logs[0], logs[2]], (few, many), (pages(few), pages(many)))
    bounded = await compare(name, [logs[1], logs[2]], (some, many), (bounded_pages(), bounded_pages()))
    return ordered and bounded


async def compare(name: str, logs: list[Log], counts: tuple[int, int], asked_of: tuple[Pages, Pages]) -> bool:
    """Print each page of both logs; return whether all are within the limit."""
    print(
        f"\n{name}: a page of {PAGE}, in microseconds\n{'':24}{counts[0]:>12,}{counts[1]:>12,}   ratio  rows"
    )
    is_good = True
    small, large = asked_of
    for page in small:
        best, sizes = [float("inf")] * 2, [0, 0]
        for _ in range(ROUNDS):
            for n, asked in enumerate((small[page], large[page])):
                took, sizes[n] = await seconds(logs[n], *asked)
                best[n] = min(best[n], took)
        ratio = best[1] / best[0]
        is_good = is_good and ratio <= LIMIT
        mark = "" if ratio <= LIMIT else f"   above {LIMIT:g}"
        print(
            f"{page:24}{best[0] * 1e6:12,.0f}{best[1] * 1e6:12,.0f}{ratio:8.2f}  {sizes[0]}, {sizes[1]}{mark}"
        )
    return is_good


def append_costs(folder: Path) -> None:
    """Print what SQLite does for an append, without a row and with one that changes each time."""
    best = dict.fromkeys(("without a row", "with a row"), float("inf"))
    for n in range(APPEND_ROUNDS):
        for name in sorted(best):
            path = folder / f"append-{n}-{name}.db"
            best[name] = min(best[name], append_seconds(path, has_row=name == "with a row"))
    print("\nSQLite: an append in a transaction of 100, in microseconds, without the sync")
    for name, took in best.items():
        print(f"{name:24}{took * 1e6:12,.0f}")


def append_seconds(path: Path, *, has_row: bool) -> float:
    """Append lines to 100 channels in turn; return what each took."""
    asyncio.run(SqliteLog(path).close())
    works = []
    for n in range(APPENDS):
        channel_id, seq = f"c{n % 100}", n // 100 + 1
        speaker = ("ann", "bob")[seq % 2]
        of = row(
            channel_id,
            seq=seq,
            labels={"team": "red"},
            participants=["ann", "bob"],
            speaker_id=speaker,
            deadline=at(seq),
        )
        said = [line(channel_id, seq)]
        works.append(Append(channel_id, said, after=seq - 1, row=of if has_row else None))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        begun = time.process_time()
        for first in range(0, APPENDS, 100):
            connection.execute("BEGIN")
            for work in works[first : first + 100]:
                work.write(connection)
            connection.execute("COMMIT")
        return (time.process_time() - begun) / APPENDS


async def main(arguments: argparse.Namespace) -> int:
    is_good = True
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        await asyncio.to_thread(append_costs, folder)
        counts = SMALL, MIDDLE, arguments.channels
        async with sqlite_logs(folder, *counts) as logs:
            is_good = await compare_all("SQLite", logs, counts) and is_good
    if arguments.postgres:
        counts = SMALL, MIDDLE, arguments.postgres
        async with postgres_logs(*counts) as logs:
            is_good = await compare_all("PostgreSQL", logs, counts) and is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Pages of a log with many channels, against one with few.")
    parser.add_argument("--channels", type=int, default=1_000_000, metavar="N", help="channels on SQLite")
    parser.add_argument(
        "--postgres", type=int, default=1_000_000, metavar="N", help="on PostgreSQL; 0: leave out"
    )
    parser.add_argument("--folder", help="where the logs are made; the system's temporary folder")
    sys.exit(asyncio.run(main(parser.parse_args())))
