"""A conversation killed with SIGKILL at random moments, and started again until it closes.

Nothing that was acknowledged is lost, nothing is half-written, every turn is
taken once, and what a killed turn had written into the context counts once.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.faults.conversation import CHANNEL, TURNS
from tests.faults.counts import CONVERSATION_KILLS, CONVERSATION_KILLS_OF_THE_TWIN, seed
from turnline.log.sqlite import SqliteLog
from turnline.network import ChannelState, Envelope, Hub, State

ROOT = Path(__file__).parents[2]
MOST_LINES = 25
MOMENT_SECONDS = 0.004
PATIENCE_SECONDS = 60.0


def start(path: Path, kind: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.faults.conversation", str(path), kind]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def said_until_killed(child: subprocess.Popen[bytes], random: Random) -> bytes:
    """Kill the child at a random moment; return everything it said."""
    assert child.stdout is not None
    pipe, said, enough = child.stdout.fileno(), b"", random.randint(0, MOST_LINES)
    while said.count(b"\n") < enough:
        ready, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
        more = os.read(pipe, 65536) if ready else b""
        if not more:
            break
        said += more
    select.select([], [], [], random.random() * MOMENT_SECONDS)
    child.send_signal(signal.SIGKILL)
    said += child.stdout.read()
    child.stdout.close()
    child.wait()
    return said


def acknowledgements(said: bytes) -> dict[int, str]:
    lines = [line.split() for line in said.decode().splitlines()]
    return {int(seq): envelope_id for seq, envelope_id in lines if seq.isdigit()}


async def look(path: Path) -> tuple[list[Envelope], State | None]:
    """What is on the log, and what it adds up to."""
    hub = await Hub.open(SqliteLog(path), ttl_sweep_interval=0)
    try:
        if await hub.log.head(CHANNEL) is None:
            return [], None
        return await hub.read_wal(CHANNEL), await hub.state(CHANNEL)
    finally:
        await hub.close()


def problems(envelopes: list[Envelope], state: State | None, acknowledged: dict[int, str]) -> list[str]:
    found = {envelope.seq: envelope.envelope_id for envelope in envelopes}
    wrong = [f"{seq} was acknowledged and is lost" for seq in acknowledged.keys() - found.keys()]
    wrong += [f"{seq} has changed" for seq, name in acknowledged.items() if found.get(seq, name) != name]
    if state is not None and state.pending_close_reason and state.status is not ChannelState.CLOSED:
        wrong.append("finished, and not closed")
    return wrong


def problems_at_the_end(envelopes: list[Envelope], state: State) -> list[str]:
    spoken = [one.event_data["body"] for one in envelopes if one.event_type == "packet"]
    wrong = [] if spoken == [f"turn {n}" for n in range(1, TURNS + 1)] else [f"packets: {spoken}"]
    if state.context_vars != {"turns": TURNS, "spoken": list(range(1, TURNS + 1))}:
        wrong.append(f"context: {state.context_vars}")
    if state.pending_close_reason != "max_turns":
        wrong.append(f"reason: {state.pending_close_reason}")
    return wrong


def torment(folder: Path, kind: str, kills: int, random: Random) -> list[str]:
    """Kill and start again, conversation after conversation; return everything that was wrong."""
    wrong: list[str] = []
    acknowledged: dict[int, str] = {}
    conversation = 0
    for _ in range(kills):
        path = folder / f"{conversation}.db"
        acknowledged |= acknowledgements(said_until_killed(start(path, kind), random))
        envelopes, state = asyncio.run(look(path))
        wrong += problems(envelopes, state, acknowledged)
        if state is not None and state.is_over:
            wrong += problems_at_the_end(envelopes, state)
            conversation, acknowledged = conversation + 1, {}
    assert conversation, "no conversation came to its end; the kills come too early"
    return wrong


@pytest.mark.parametrize("number", [1, 2])
def test_x10_a_killed_conversation_goes_on_and_loses_and_doubles_nothing(tmp_path: Path, number: int) -> None:
    assert torment(tmp_path, "honest", CONVERSATION_KILLS // 2, Random(seed(number))) == []


def test_the_harness_notices_writes_that_are_not_part_of_their_turn(tmp_path: Path) -> None:
    """The twin: its context writes are not undone with the turn they were made in."""
    assert torment(tmp_path, "loose", CONVERSATION_KILLS_OF_THE_TWIN, Random(3)) != []
