"""`turnline serve --retain`: a real process prunes while its runs go on, and is killed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.hub.scenes import A_B, house
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelState
from turnline.errors import ChannelPruned
from turnline.log.base import Log
from turnline.log.records import open_records
from turnline.log.sqlite import SqliteLog
from turnline.log.verify import Verdict, verify
from turnline.testing.lines import closing_line, first_line, line, row
from turnline.testing.manual_clock import ManualClock

from .test_serve import project, serving

OLD_TREES = 30
LINES = 300
"""Of each old tree, so that a round lasts while runs go on."""
OLD = datetime.now(UTC) - timedelta(days=200)
GONE = "SELECT count(*) FROM turnline_tombstones"
UNDELETED = "SELECT count(*) FROM turnline_tombstones WHERE channel IS NOT NULL"


async def add_old_tree(log: Log, name: str) -> None:
    """Append a channel with many lines, and one below it, which closed long ago."""
    for channel_id, parent, length in ((name, "", LINES), (f"{name}-child", name, 2)):
        closed = row(
            channel_id,
            seq=length,
            type="custom",
            created_at=OLD,
            closed_at=OLD,
            status=ChannelState.CLOSED,
            parent_id=parent,
        )
        said = [first_line(closed), *(line(channel_id, seq) for seq in range(2, length))]
        said.append(closing_line(channel_id, length))
        await log.append(channel_id, [replace(one, created_at=OLD) for one in said], after=0, row=closed)


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A project whose log has old trees, an old open conversation, and one that closed now."""
    project(tmp_path)
    (tmp_path / ".turnline").mkdir()
    (tmp_path / "archive").mkdir()
    log = SqliteLog(log_of(tmp_path), durability="process")
    for number in range(OLD_TREES):
        await add_old_tree(log, f"old-{number}")
    await log.close()
    for start, name in ((OLD, "open"), (datetime.now(UTC), "young")):
        async with house(SqliteLog(log_of(tmp_path)), "alice", "bob", clock=ManualClock(start)) as home:
            channel = await home.open(A_B, channel_id=name, message="hello")
            if name == "young":
                await home.handle("bob", channel).send("good bye")
    return tmp_path


def log_of(folder: Path) -> Path:
    return folder / ".turnline" / "log.db"


def retaining(folder: Path) -> tuple[str, ...]:
    return "--dev", "--retain", "90d", "--retain-archive", str(folder / "archive")


async def check(folder: Path) -> Verdict:
    records = await open_records(f"sqlite:///{log_of(folder)}")
    try:
        return await verify(records, built_in())
    finally:
        await records.close()


@contextmanager
def holding_the_log(folder: Path) -> Iterator[sqlite3.Connection]:
    """Let no other process write.

    It asks for the lock in a loop: the wait of SQLite sleeps, and the server commits many times meanwhile.
    """
    with closing(sqlite3.connect(log_of(folder), isolation_level=None, timeout=0)) as connection:
        while not connection.in_transaction:
            with suppress(sqlite3.OperationalError):
                connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("ROLLBACK")


async def until(folder: Path, query: str, number: int) -> None:
    while True:
        with closing(sqlite3.connect(log_of(folder), timeout=60)) as connection:
            if connection.execute(query).fetchone() == (number,):
                return
        await asyncio.sleep(0)


async def continue_open(folder: Path) -> None:
    """The old conversation that was open ends, and the young one is there."""
    clock = ManualClock(datetime.now(UTC))
    async with house(SqliteLog(log_of(folder)), "alice", "bob", clock=clock) as home:
        await home["bob"].channel("open").send("good bye")
        assert (await home.hub.state("open")).is_over
        assert (await home.hub.state("young")).is_over
        with pytest.raises(ChannelPruned):
            await home.hub.state("old-0")


async def test_a_server_prunes_old_trees_while_its_runs_go_on(folder: Path) -> None:
    inside: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    door = await asyncio.start_server(lambda _, writer: inside.put_nowait(writer), "127.0.0.1", 0)
    port = door.sockets[0].getsockname()[1]
    async with (
        door,
        serving(folder, *retaining(folder), go_port=port) as served,
        served.client(Authorization=f"Bearer {served.key}") as client,
    ):
        slow = asyncio.create_task(client.post("/slow", json={}))
        asked = (await client.post("/flows/ask/runs", json={})).headers["location"]
        answers = await asyncio.gather(*(client.post("/hello", json={"name": "Ann"}) for _ in range(10)))
        found = await check(folder)  # While lines are deleted, perhaps.
        await until(folder, GONE, 2 * OLD_TREES)
        node = await inside.get()
        node.write(b"now\n")
        answers.append(await slow)
        node.close()
        while not (tasks := (await client.get("/tasks")).json()["data"]["tasks"]):
            pass
        await client.post(f"/tasks/{tasks[0]['task_id']}/answer", json={"answer": {}})
        while (run := (await client.get(asked)).json()["data"])["status"] != "succeeded":
            assert run["status"] in ("running", "waiting", "paused"), run
        assert (await client.get("/channels/old-0")).status_code == 404
        listed = (await client.get("/channels?limit=100")).json()["data"]["channels"]

    assert (found.bad, found.storage) == ([], [])
    assert [answer.status_code for answer in answers] == [200] * 11
    assert {"open", "young"} <= {one["channel_id"] for one in listed}
    assert not [one for one in listed if one["channel_id"].startswith("old-")]
    found = await check(folder)
    assert (found.bad, found.pruned, len(found.pruned_since)) == ([], 2 * OLD_TREES, 2 * OLD_TREES)
    await continue_open(folder)


async def test_a_server_that_is_killed_while_it_prunes_finishes_after_a_restart(folder: Path) -> None:
    async with serving(folder, *retaining(folder)) as served:
        gone = undeleted = 0
        while not gone:
            with holding_the_log(folder) as connection:
                gone = connection.execute(GONE).fetchone()[0]
                if gone:
                    undeleted = connection.execute(UNDELETED).fetchone()[0]
                    served.process.kill()
                    await served.process.wait()
            await asyncio.sleep(0)
    assert undeleted, "it was killed after it had pruned"
    found = await check(folder)
    assert (found.bad, found.storage, found.pruned) == ([], [], gone)

    async with serving(folder, *retaining(folder)) as served:
        await until(folder, GONE, 2 * OLD_TREES)
        await until(folder, UNDELETED, 0)
        async with served.client(Authorization=f"Bearer {served.key}") as client:
            assert (await client.post("/hello", json={"name": "Ann"})).status_code == 200
    found = await check(folder)
    assert (found.bad, found.pruned, len(found.pruned_since)) == ([], 2 * OLD_TREES, 2 * OLD_TREES)
    await continue_open(folder)
