"""X14: many channels at once on one file: what they cost in memory, and what opening the file again costs.

Each has a turn in progress, and all close with the right reason. The memory follows from how many are open,
not from how many there have been. A hub that is opened on the file reads none of them; when the participants
attach, it reads the live ones only, and takes them up.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.faults.counts import (
    CHANNELS_AT_ONCE,
    CHANNELS_IN_WAVES,
    CHANNELS_LEFT,
    SOAK,
    WAVES_OF_CHANNELS,
)
from tests.faults.many_channels import AGENTS, FEW_TASKS, TURNS, Report, name_of
from tests.hub.scenes import CountingLog
from turnline import Agent
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub, HubClient, LocalLink, Passport
from turnline.testing import ScriptedModel

ROOT: Final = Path(__file__).parents[2]
BYTES_PER_OPEN_CHANNEL: Final = 64 * 1024
"""With a turn in progress: claims ride with the floor, so all channels have one at the same moment. 54 to
58 KiB were measured with 1,000 channels and the cache of the default size, in which all of them fit."""
BYTES_OF_A_HUB: Final = 13 * 1024 * 1024
"""Whatever it does: modules that are imported late, pages of the file, threads."""
PATIENCE_SECONDS: Final = 300.0 * SOAK
LINES_OF_A_LIVE_CHANNEL: Final = 20
"""At most."""


def run(file: Path, *, at_once: int, waves: int, left: int = 0, kind: str = "honest") -> Report:
    """Open and close channels in a process of its own; return what it says of itself.

    An `honest` process has a cache of the default size, a `tight` one room for half the channels.
    """
    numbers = [str(number) for number in (at_once, waves, left)]
    command = [sys.executable, "-m", "tests.faults.many_channels", str(file), *numbers, kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr.decode()[-3_000:]
    return Report(**json.loads(done.stdout))


def ceiling(at_once: int) -> int:
    return BYTES_OF_A_HUB + BYTES_PER_OPEN_CHANNEL * at_once


async def opened(log: CountingLog) -> tuple[Hub, HubClient]:
    hub = await Hub.open(log)
    return hub, HubClient(LocalLink(hub))


def channels_in(log: CountingLog) -> set[str]:
    """Those of which any line was read; the hub's own excepted."""
    return {name for name in log.read_of if not name.startswith("_")}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("many") / "log.db"


@pytest.fixture(scope="module")
def at_once(file: Path) -> Report:
    return run(file, at_once=CHANNELS_AT_ONCE, waves=1, left=CHANNELS_LEFT)


def test_x14_many_channels_at_once_all_close_under_a_ceiling_of_memory(at_once: Report) -> None:
    assert at_once.in_progress == CHANNELS_AT_ONCE
    assert at_once.reasons == {"max_turns": CHANNELS_AT_ONCE - CHANNELS_LEFT}
    assert at_once.still_open == CHANNELS_LEFT
    assert at_once.most_bytes < ceiling(CHANNELS_AT_ONCE)


def test_x14_memory_follows_from_what_is_open_not_from_what_was(tmp_path: Path) -> None:
    report = run(tmp_path / "log.db", at_once=CHANNELS_IN_WAVES, waves=WAVES_OF_CHANNELS, kind="tight")

    assert report.reasons == {"max_turns": CHANNELS_IN_WAVES * WAVES_OF_CHANNELS}
    assert (report.still_open, report.cached <= CHANNELS_IN_WAVES // 2) == (0, True)
    assert report.tasks <= FEW_TASKS
    assert report.most_bytes < ceiling(CHANNELS_IN_WAVES)


def test_the_harness_notices_a_process_that_keeps_every_channel_and_envelope(tmp_path: Path) -> None:
    """The twin."""
    report = run(tmp_path / "log.db", at_once=CHANNELS_IN_WAVES, waves=WAVES_OF_CHANNELS, kind="hoarding")

    assert report.most_bytes > ceiling(CHANNELS_IN_WAVES)


async def test_x14_a_cold_open_reads_no_channel_and_attaching_takes_the_live_ones_up(
    file: Path, at_once: Report
) -> None:
    live = {name_of(0, number) for number in range(CHANNELS_LEFT)}
    log = CountingLog(SqliteLog(file))
    hub, client = await opened(log)
    try:
        assert hub.health().open_channels == CHANNELS_LEFT
        assert channels_in(log) == set()

        for name in AGENTS:
            await client.register(Agent(name, config=ScriptedModel(lambda _: "said")), attach_plugin=False)
        user = await client.register_human(Passport(name="user", kind="human"))
        results = await asyncio.gather(*(user.channel(name).result() for name in live))
        assert {(one.reason, one.turns) for one in results} == {("max_turns", TURNS)}
        assert channels_in(log) == live
        assert max(log.read_of[name] for name in live) <= LINES_OF_A_LIVE_CHANNEL
    finally:
        await client.close()
        await hub.close()


async def test_the_harness_notices_an_opening_that_looks_at_every_channel(
    file: Path, at_once: Report
) -> None:
    """The twin: it wants to know of each channel what became of it, before it does anything."""
    log = CountingLog(SqliteLog(file))
    hub, _ = await opened(log)
    try:
        for one in await hub.list_channels():
            await hub.state(one.channel_id)
    finally:
        await hub.close()

    assert len(channels_in(log)) == sum(at_once.reasons.values()) + CHANNELS_LEFT
