"""Agents at work, killed with SIGKILL at random moments and started again until they are done (X10).

No recorded reply is asked for again and no recorded tool runs again: only what
was in flight when the process died does. What it all comes to is what it comes
to when nobody is killed.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.agents import CHANNEL, LOG, MODELS, TOOLS, TURNS
from tests.faults.counts import AGENT_KILLS, AGENT_KILLS_OF_THE_TWIN, seed
from turnline.log.sqlite import SqliteLog
from turnline.network import Envelope, Hub, State

ROOT = Path(__file__).parents[2]
MOST_LINES = 24
LINES_OF_A_TURN = 12
"""At most. A process that lives for so many takes a turn to its end, so that no turn is claimed too often."""
MOMENT_SECONDS = 0.004
PATIENCE_SECONDS = 60.0


@dataclass
class Found:
    """A folder as a killed process left it."""

    envelopes: list[Envelope] = field(default_factory=list)
    state: State | None = None
    tools: Counter[str] = field(default_factory=Counter)
    """Idempotency key -> how often that call ran."""
    models: Counter[str] = field(default_factory=Counter)
    """turn.step -> how often the model was asked."""

    @property
    def is_over(self) -> bool:
        return self.state is not None and self.state.is_over

    @property
    def packets(self) -> int:
        return sum(one.event_type == "packet" for one in self.envelopes)

    def recorded(self) -> tuple[set[str], set[str]]:
        """The calls and the replies that are on the log."""
        calls, replies = set(self._calls()), set(self._replies())
        return calls, replies

    def _calls(self) -> Iterator[str]:
        turn = 1
        for one in self.envelopes:
            turn += one.event_type == "packet"
            if one.event_type == "turn.tool":
                entry = one.event_data["entry"]
                yield f"{CHANNEL}:{turn}:{entry['call_id']}:{entry['tool']}"

    def _replies(self) -> Iterator[str]:
        turn, step = 1, 0
        for one in self.envelopes:
            if one.event_type in ("turn.model", "packet"):
                yield f"{turn}.{step}"
                step += 1
            if one.event_type == "packet":
                turn, step = turn + 1, 0


def start(folder: Path, kind: str) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.faults.agents", str(folder), kind]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def kill(child: subprocess.Popen[bytes], after_lines: int, random: Random) -> None:
    """Kill the child a moment after it has said so many lines."""
    assert child.stdout is not None
    pipe, said = child.stdout.fileno(), 0
    while said < after_lines:
        ready, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
        more = os.read(pipe, 65536) if ready else b""
        if not more:
            break
        said += more.count(b"\n")
    select.select([], [], [], random.random() * MOMENT_SECONDS)
    child.send_signal(signal.SIGKILL)
    child.stdout.close()
    child.wait()


async def look(folder: Path) -> Found:
    found = Found(tools=lines(folder / TOOLS), models=lines(folder / MODELS))
    hub = await Hub.open(SqliteLog(folder / LOG), ttl_sweep_interval=0)
    try:
        if await hub.log.head(CHANNEL) is not None:
            found.envelopes, found.state = await hub.read_wal(CHANNEL), await hub.state(CHANNEL)
    finally:
        await hub.close()
    return found


def lines(path: Path) -> Counter[str]:
    return Counter(path.read_text().splitlines() if path.exists() else [])


def problems(before: Found, now: Found) -> list[str]:
    """What a process did that it should not have done."""
    calls, replies = before.recorded()
    ran, asked = now.tools - before.tools, now.models - before.models
    wrong = [f"{key} was recorded and ran again" for key in calls & ran.keys()]
    wrong += [f"reply {key} was recorded and asked for again" for key in replies & asked.keys()]
    wrong += [f"{key} was done {n} times by one process" for key, n in (ran + asked).items() if n > 1]
    calls, replies = now.recorded()
    wrong += [f"{key} is recorded and never ran" for key in calls - now.tools.keys()]
    wrong += [f"reply {key} is recorded and was never asked for" for key in replies - now.models.keys()]
    return wrong


def came_to(found: Found) -> Any:
    """What everybody sees in the end: who said what, the context, the reason."""
    assert found.state is not None
    names = {one.agent_id: one.name for one in found.state.spec.participants}
    said = [(names[one.sender_id], one.event_data) for one in found.envelopes if one.event_type == "packet"]
    return said, found.state.context_vars, found.state.pending_close_reason


def torment(folder: Path, kind: str, kills: int, random: Random, expected: Any) -> list[str]:
    """Kill and start again, one piece of work after another; return everything that was wrong."""
    wrong: list[str] = []
    piece, before, least = 0, Found(), 0
    for _ in range(kills):
        kill(start(folder / str(piece), kind), random.randint(least, MOST_LINES), random)
        now = asyncio.run(look(folder / str(piece)))
        wrong += problems(before, now)
        least = 0 if now.packets > before.packets else LINES_OF_A_TURN
        before = now
        if now.is_over:
            wrong += [] if came_to(now) == expected else [f"it came to {came_to(now)}"]
            piece, before, least = piece + 1, Found(), 0
    assert piece, "nothing came to its end; the kills come too early"
    return wrong


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert start(folder, "honest").communicate(timeout=PATIENCE_SECONDS)[0].endswith(b"channel.closed\n")
    return asyncio.run(look(folder))


def test_undisturbed_everything_is_done_once(undisturbed: Found) -> None:
    said, context, reason = came_to(undisturbed)

    assert [data["body"] for _, data in said] == [str(turn) for turn in range(1, TURNS + 1)]
    assert [name for name, _ in said] == ["ada", "bob", "cyd"] * 2
    assert context == {"totals": TURNS, "turns": list(range(1, TURNS + 1)), "last": TURNS}
    assert reason == "max_turns"
    assert set(undisturbed.tools.values()) == set(undisturbed.models.values()) == {1}
    assert (undisturbed.tools.total(), undisturbed.models.total()) == (3 * TURNS, 3 * TURNS)
    assert problems(Found(), undisturbed) == []


@pytest.mark.parametrize("number", [1, 2])
def test_x10_killed_agents_go_on_and_do_nothing_twice_that_was_recorded(
    tmp_path: Path, number: int, undisturbed: Found
) -> None:
    assert torment(tmp_path, "honest", AGENT_KILLS // 2, Random(seed(number)), came_to(undisturbed)) == []


def test_the_harness_notices_a_round_that_does_not_read_its_journal(
    tmp_path: Path, undisturbed: Found
) -> None:
    """The twin: every attempt of a turn begins at its beginning."""
    assert torment(tmp_path, "forgetful", AGENT_KILLS_OF_THE_TWIN, Random(3), came_to(undisturbed)) != []
