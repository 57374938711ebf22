"""Y6: a process that is killed between a file and its line: the line has a whole file, or is not there."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from typing import Final

import pytest

from tests.faults.counts import FILE_KILLS
from tests.faults.files import POINTS, Point, content, live
from tests.hub.scenes import House, house
from tests.logs import KINDS, LogPlace
from turnline.core.adapters import built_in
from turnline.core.event_types import EV_TEXT
from turnline.core.parts import files_of
from turnline.hub.files import SWEEP_SECONDS
from turnline.log.base import Blobs
from turnline.log.blobs import UNUSED_SECONDS
from turnline.log.records import open_records
from turnline.log.verify import verify

PATIENCE_SECONDS: Final = 60.0

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.faults.files"])


async def kill_at(where: str, number: int, point: Point) -> None:
    process = _processes.Process(target=live, args=(where, number, point))
    process.start()
    await asyncio.to_thread(process.join, PATIENCE_SECONDS)
    assert process.exitcode == -signal.SIGKILL


async def sent(home: House, number: int) -> list[bytes]:
    """The files of the channel's lines, as its people read them."""
    channel = home["alice"].channel(f"story-{number}")
    lines = [one for one in await home.wal(channel) if one.event_type == EV_TEXT]
    return [(await channel.read_file(one)).read() for one in lines if files_of(EV_TEXT, one.event_data)]


async def kept(home: House, number: int) -> int:
    assert isinstance(home.hub.log, Blobs)
    return len(await home.hub.log.blobs(f"story-{number}"))


@pytest.mark.parametrize("log_place", KINDS[1:], indirect=True)
async def test_y6_a_kill_between_file_and_line_leaves_a_whole_file_or_no_line(log_place: LogPlace) -> None:
    where, points = log_place.where, POINTS * FILE_KILLS
    for number, point in enumerate(points):
        await kill_at(where, number, point)

    records = await open_records(where)
    verdict = await verify(records, built_in())
    await records.close()
    assert verdict.is_good, verdict
    async with house(log_place.open(), "alice", "bob") as home:
        found = {number: await sent(home, number) for number in range(len(points))}
        for number, files in found.items():
            assert files in (
                [b"first of " + content(number)],
                [b"first of " + content(number), content(number)],
            )
        ends = {points[number]: len(files) for number, files in found.items()}
        assert ends["append", 1, "after"] == 2, "what was acknowledged is there"
        assert {ends[point] for point in POINTS[:6]} == {1}, "a line comes after its file"
        assert sum([await kept(home, number) for number in found]) > sum(map(len, found.values()))

        await home.pass_time(UNUSED_SECONDS + SWEEP_SECONDS)

        assert {n: await kept(home, n) for n in found} == {n: len(files) for n, files in found.items()}
        assert {number: await sent(home, number) for number in found} == found
