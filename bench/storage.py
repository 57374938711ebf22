"""Bytes that a turn takes on a disk: a chat of two agents on a workflow channel, kept by SQLite.

The file is measured after a checkpoint, so its write-ahead file is empty. Beside the whole stands the limit
of Y9, and below it where the bytes are: tables and indexes (`dbstat`, if this SQLite has it), and the columns
of the records. A busy machine makes more lines a turn: some claims are released.

    python bench/storage.py
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from turnline import Agent, run
from turnline.log.sqlite import SqliteLog
from turnline.network import round_robin
from turnline.testing import ScriptedModel

TURNS: Final = 200
LIMIT_BYTES: Final = 1_100
"""A turn takes at most so much (Y9)."""
WORDS: Final = (
    "I have looked at it, and the second version reads better than the first one did. What is next?"
)
"""What an agent says in each turn: 95 characters."""
_PLACES: Final = "SELECT name, sum(pgsize), sum(unused) FROM dbstat GROUP BY name ORDER BY 2 DESC"


async def chat(path: Path, turns: int = TURNS) -> None:
    """Let two agents talk for so many turns."""
    agents = [Agent(name, config=ScriptedModel(*[WORDS] * turns)) for name in ("writer", "editor")]
    graph = round_robin([agent.name for agent in agents], max_turns=turns)
    log = SqliteLog(path, durability="process")
    await run(graph, agents=agents, message="Begin.", log=log)
    await log.close()


def size(path: Path) -> int:
    """Return the bytes of the file with all that was written to it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return path.stat().st_size


def places(path: Path) -> list[tuple[str, int, int]]:
    """Return the tables and indexes, their bytes, and how many of these are unused; none without `dbstat`."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            return connection.execute(_PLACES).fetchall()
        except sqlite3.OperationalError:
            return []


def columns(path: Path) -> dict[str, int]:
    """Return the bytes in the columns of the records."""
    query = (
        "SELECT count(*), sum(length(envelope_id)), sum(length(hash)), sum(length(head)), "
        "sum(length(payload)) FROM turnline_records LEFT JOIN turnline_contents USING (position)"
    )
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(query).fetchone()
    return dict(zip(("lines", "ids", "hashes", "heads", "payloads"), found, strict=True))


def main(folder: Path) -> None:
    path = folder / "log.db"
    asyncio.run(chat(path))
    whole = size(path)
    print(f"{TURNS} turns: {whole / TURNS:,.0f} bytes a turn   limit {LIMIT_BYTES:,}")
    for name, used, unused in places(path):
        print(f"  {name:30}{used / TURNS:8,.0f} bytes a turn   {unused / used:4.0%} unused")
    print("in the columns of the records:")
    for name, found in columns(path).items():
        print(f"  {name:30}{found / TURNS:8,.1f} a turn")


if __name__ == "__main__":
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as temporary:
        main(Path(temporary))
