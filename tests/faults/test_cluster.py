"""X8: three hubs and four workers on one log, killed and paused at random, their clocks an hour apart.

Every conversation closes with the right reason, every turn has one packet, nothing that was acknowledged is
lost. On PostgreSQL, and on three NATS servers whose leader is killed meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from tests.faults.cluster import HUBS, KILLS, PARTS, PAUSES, STOP, TURNS, name_of, reason_of
from tests.faults.counts import (
    CLUSTER_CONVERSATIONS,
    CLUSTER_CONVERSATIONS_OF_A_TWIN,
    CLUSTER_CONVERSATIONS_ON_NATS,
    LEADER_KILLS,
    SOAK,
    seed,
)
from tests.log.nats_stage import leader_of
from tests.nats_servers import NatsCluster
from tests.postgres import Postgres
from turnline.core.envelope import Envelope
from turnline.log.address import open_log
from turnline.log.nats_connection import NATS_RAISES

ROOT: Final = Path(__file__).parents[2]
SEED: Final = seed(20300101)
PATIENCE_SECONDS: Final = 300.0 * SOAK
"""Far more than it takes; machines are busy at times."""
LOOK_AGAIN_SECONDS: Final = 0.2

T = TypeVar("T")
BeginPart = Callable[[], object]
"""Lets another part of the conversations begin."""


def tormented(
    folder: Path,
    address: str,
    conversations: int,
    *,
    kind: str = "honest",
    meanwhile: Callable[[BeginPart], None] = lambda begin_part: None,
) -> dict[str, Any]:
    """Run a trial in a process of its own, because it forks; return what it says."""
    arguments = [str(SEED), str(PATIENCE_SECONDS), str(folder), address, str(conversations), kind]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.cluster", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        pipe = process.stdin.fileno()
        try:
            meanwhile(partial(os.write, pipe, b"+"))
            said, _ = process.communicate(timeout=2 * PATIENCE_SECONDS)
        finally:
            (folder / STOP).touch()  # It ends its children itself.
    report: dict[str, Any] = json.loads(said)
    return report


def led_by(address: str) -> str:
    """The server that leads the log's stream; empty while nobody does."""
    try:
        return asyncio.run(leader_of(address))
    except NATS_RAISES:
        return ""


def wait_for(found: Callable[[], T]) -> T:
    """Return what is looked for, once it is there."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (answer := found()):
        assert time.monotonic() < until
        time.sleep(LOOK_AGAIN_SECONDS)
    return answer


def problems(folder: Path, address: str, conversations: int) -> list[str]:
    """What is wrong with what the trial left behind."""
    wrong, acknowledged = [], noted(folder)
    numbers = {name_of(number % HUBS, number): number for number in range(conversations)}
    for name, envelopes in asyncio.run(read(address, {*numbers, *acknowledged})).items():
        found = Counter(one.envelope_id for one in envelopes)
        wrong += [f"{name}: {one!r} is lost" for one in acknowledged[name] - found.keys()]
        wrong += [f"{name}: {one!r} is there {n} times" for one, n in found.items() if n > 1]
        if [one.seq for one in envelopes] != list(range(1, len(envelopes) + 1)):
            wrong.append(f"{name}: there are gaps")
        if name in numbers:
            wrong += [f"{name}: {one}" for one in problems_of(numbers[name], envelopes)]
    return wrong


async def read(address: str, names: set[str]) -> dict[str, list[Envelope]]:
    log = open_log(address)
    try:
        return {name: [one async for one in log.read(name)] for name in sorted(names)}
    finally:
        await log.close()


def problems_of(number: int, envelopes: list[Envelope]) -> list[str]:
    """What is wrong with one conversation."""
    wrong = []
    ends = [one.event_data.get("reason") for one in envelopes if one.event_type == "channel.closed"]
    if ends != [reason_of(number)]:
        wrong.append(f"closed with {ends}, expected {reason_of(number)}")
    senders = [one.sender_id for one in envelopes if one.event_type == "packet"]
    if len(senders) != TURNS:
        wrong.append(f"{len(senders)} packets for {TURNS} turns")
    elif len(set(senders[::2])) != 1 or set(senders[::2]) & set(senders[1::2]):
        wrong.append(f"{senders} did not take turns")
    return wrong


def noted(folder: Path) -> dict[str, set[str]]:
    """Channel -> the envelopes that some process was told are on the log."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in folder.glob("*.notes"):
        for line in file.read_text().splitlines():
            channel_id, _, envelope_id = line.partition(" ")
            found[channel_id].add(envelope_id)
    return found


def told(folder: Path) -> str:
    """What the processes said of themselves, for whoever looks into a failure."""
    said = [f"{file.name}: {file.read_text()[-600:]}" for file in sorted(folder.glob("*.log"))]
    return "\n".join([f"seed {SEED}", *said])


def test_x8_hubs_and_workers_are_killed_and_paused_on_postgresql(tmp_path: Path, postgres: Postgres) -> None:
    address = postgres.fresh()
    report = tormented(tmp_path, address, CLUSTER_CONVERSATIONS)

    assert report["problem"] == "", told(tmp_path)
    assert problems(tmp_path, address, CLUSTER_CONVERSATIONS) == [], told(tmp_path)
    assert (report["kills"] >= KILLS, report["pauses"] >= PAUSES) == (True, True)
    assert len(noted(tmp_path)) > CLUSTER_CONVERSATIONS


def test_x8_the_same_on_three_nats_servers_whose_leader_is_killed(
    tmp_path: Path, nats_cluster: NatsCluster
) -> None:
    address = nats_cluster.fresh()
    killed: list[str] = []

    def kill_leaders(begin_part: BeginPart) -> None:
        begin_part()
        wait_for(lambda: all((tmp_path / f"{who}.notes").exists() for who in ("hub0", "hub1", "hub2")))
        for _ in range(LEADER_KILLS):
            leader = nats_cluster.named(wait_for(lambda: led_by(address)))
            begin_part()  # So that there is something in the air.
            leader.kill()
            killed.append(leader.name)
            wait_for(lambda: led_by(address) not in ("", killed[-1]))
            leader.start()
            leader.wait()

    report = tormented(tmp_path, address, CLUSTER_CONVERSATIONS_ON_NATS, meanwhile=kill_leaders)

    assert report["problem"] == "", told(tmp_path)
    assert problems(tmp_path, address, CLUSTER_CONVERSATIONS_ON_NATS) == [], told(tmp_path)
    assert len(killed) == LEADER_KILLS


@pytest.mark.parametrize(("kind", "sign"), [("careless", r"[4-9] packets for 3 turns"), ("hasty", "is lost")])
def test_twin_a_log_that_does_not_compare_or_acknowledges_too_soon_is_caught(
    tmp_path: Path, postgres: Postgres, kind: str, sign: str
) -> None:
    address = postgres.fresh()

    def is_caught() -> bool:
        found = problems(tmp_path, address, CLUSTER_CONVERSATIONS_OF_A_TWIN)
        return re.search(sign, "\n".join(found)) is not None

    def wait_for_it(begin_part: BeginPart) -> None:
        for _ in range(PARTS):
            begin_part()
        wait_for(is_caught)
        (tmp_path / STOP).touch()

    tormented(tmp_path, address, CLUSTER_CONVERSATIONS_OF_A_TWIN, kind=kind, meanwhile=wait_for_it)

    assert is_caught()
