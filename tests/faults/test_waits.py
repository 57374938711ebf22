"""N1: channels that wait, in processes that are killed with SIGKILL at random moments and started again.

Nothing is asked, paid or run again that is on the log. A wait that no process finishes survives them all. In
the end every channel has come to what it comes to when no process is killed. Nothing is paced: a turn that
was in flight at three deaths in a row becomes a suspect and runs alone.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import select
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Final

from tests.faults.counts import WAIT_KILLS, WAIT_KILLS_OF_THE_TWIN, WAIT_KILLS_ON_SERVERS, seed
from tests.faults.waits import MANY, NOTED, WAIT, live, open_at
from tests.nats_servers import NatsServer
from tests.postgres import Postgres
from tests.waits import WAITS
from turnline.core import event_types as ev
from turnline.core.envelope import Envelope, JsonObject
from turnline.network import Hub, State

MOST_LINES: Final = 16
"""A process writes so many lines for each kind, at most, until it is killed."""
MOMENT_SECONDS: Final = 0.004
PATIENCE_SECONDS: Final = 120.0
QUESTIONS: Final = {"approval": 1, "two approvals": 2, "question": 1, "peer's approval": 2}
"""How many lines ask. A question that goes up is asked on two channels."""

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.faults.waits"])


@dataclass
class Found:
    """The logs as a process left them. What is noted, and what is on a log, is `kind/channel/what`."""

    noted: Counter[str] = field(default_factory=Counter)
    recorded: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    """kind/channel -> questions."""
    came_to: dict[str, tuple[str, str]] = field(default_factory=dict)
    """kind/channel -> why it closed, and what was said last; the reason is empty while it is open."""
    failures: list[str] = field(default_factory=list)


Addresses = Mapping[str, str]
"""Kind -> where its log is."""


def start(folder: Path, addresses: Addresses, rounds: int, *, forgetful: bool) -> tuple[BaseProcess, int]:
    """Start a process; return it and the end of the pipe that it writes to."""
    ours, theirs = _processes.Pipe(duplex=False)
    given = (str(folder), dict(addresses), rounds, forgetful, theirs)
    child = _processes.Process(target=live, args=given, daemon=True)
    child.start()
    theirs.close()
    reading = os.dup(ours.fileno())
    ours.close()
    return child, reading


def kill(folder: Path, addresses: Addresses, random: Random, *, forgetful: bool = False) -> None:
    """Start a process, and kill it a moment after it has written so many lines."""
    child, pipe = start(folder, addresses, MANY, forgetful=forgetful)
    said, wanted = 0, random.randint(0, MOST_LINES * len(addresses))
    while said < wanted:
        ready, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
        more = os.read(pipe, 65536) if ready else b""
        assert more, f"the process wrote {said} lines in {PATIENCE_SECONDS} s, or ended by itself"
        said += len(more)
    select.select([], [], [], random.random() * MOMENT_SECONDS)
    child.kill()
    child.join()
    os.close(pipe)


def finish(folder: Path, addresses: Addresses, rounds: int) -> None:
    """Let a process take the channels to their end."""
    child, pipe = start(folder, addresses, rounds, forgetful=False)
    while select.select([pipe], [], [], PATIENCE_SECONDS)[0] and os.read(pipe, 65536):
        pass
    child.join(PATIENCE_SECONDS)
    os.close(pipe)
    assert child.exitcode == 0


async def look(folder: Path, addresses: Addresses) -> Found:
    path = folder / NOTED
    found = Found(noted=Counter(path.read_text().splitlines() if path.exists() else []))
    for kind, address in addresses.items():
        hub = await Hub.open(open_at(address), ttl_sweep_interval=0)
        try:
            for one in await hub.list_channels():
                _look_at(kind, await hub.state(one.channel_id), await hub.read_wal(one.channel_id), found)
        finally:
            await hub.close()
    return found


def _look_at(kind: str, state: State, lines: list[Envelope], found: Found) -> None:
    # A channel below another one is opened with the other's id.
    channel = f"{kind}/{state.spec.message}"
    found.recorded |= {f"{channel}/{what}" for what in _recorded(state, lines)}
    found.asked[channel] += sum(one.event_type == ev.EV_HUMAN_REQUESTED for one in lines)
    found.failures += [f"{channel}: {one}" for one in lines if one.event_type == ev.EV_TURN_FAILED]
    if state.spec.parent_id is None:
        said = [str(one.event_data.get("body")) for one in lines if one.event_type == ev.EV_PACKET]
        found.came_to[channel] = state.pending_close_reason, said[-1] if said else ""


def _recorded(state: State, lines: list[Envelope]) -> Iterator[str]:
    speaker, replies = "", 0
    for one in lines:
        entry: JsonObject = one.event_data.get("entry", {})
        if one.event_type == ev.EV_TURN_CLAIMED:
            speaker = state.spec.name_of(one.event_data["agent_id"])
        elif one.event_type in (ev.EV_TURN_MODEL, ev.EV_PACKET):
            yield f"{speaker} {replies}"
            replies += 1
        elif one.event_type == ev.EV_TURN_TOOL and entry["tool"] == "pay":
            yield str(entry["text"]).replace("paid", "pay")
        elif one.event_type == ev.EV_TURN_TOOL and entry["tool"] == "sure":
            yield from ("sure began", "sure ended")


def problems(before: Found, now: Found) -> list[str]:
    """What a process did that it should not have done."""
    ran = now.noted - before.noted
    wrong = [f"{what} was recorded and ran again" for what in before.recorded & ran.keys()]
    wrong += [
        f"{what} ran {n} times in one process" for what, n in ran.items() if n > 1 and "began" not in what
    ]
    return wrong + now.failures


def torment(
    folder: Path, addresses: Addresses, kills: int, random: Random, *, forgetful: bool = False
) -> list[str]:
    """Kill and start again; return everything that was wrong."""
    wrong, before = list[str](), Found()
    for _ in range(kills):
        kill(folder, addresses, random, forgetful=forgetful)
        now = asyncio.run(look(folder, addresses))
        wrong += problems(before, now)
        before = now
    return wrong


def check_the_end(folder: Path, addresses: Addresses, wrong: list[str]) -> None:
    """Let a process finish everything. Each channel comes to what it comes to without kills."""
    before = asyncio.run(look(folder, addresses))
    opened = Counter(channel.partition("/")[0] for channel in before.came_to)
    finish(folder, addresses, max(opened.values()) - 1)
    after = asyncio.run(look(folder, addresses))

    assert wrong + problems(before, after) == []
    assert {channel for channel in after.came_to if channel.endswith(f"/{WAIT}")} == {
        f"{kind}/{WAIT}" for kind in addresses
    }
    for channel, came_to in after.came_to.items():
        kind = channel.partition("/")[0]
        assert came_to == (WAITS[kind].reason, WAITS[kind].text), channel
        assert after.asked[channel] == QUESTIONS.get(kind, 0), channel


def test_n1_waits_of_every_kind_survive_fifty_kills_and_then_end(tmp_path: Path) -> None:
    addresses = {kind: f"sqlite:///{tmp_path / kind}.db" for kind in WAITS}
    wrong = torment(tmp_path, addresses, WAIT_KILLS, Random(seed(1)))

    check_the_end(tmp_path, addresses, wrong)


def test_n1_an_approval_survives_kills_on_postgresql(tmp_path: Path, postgres: Postgres) -> None:
    addresses = {"approval": postgres.fresh()}
    wrong = torment(tmp_path, addresses, WAIT_KILLS_ON_SERVERS, Random(seed(2)))

    check_the_end(tmp_path, addresses, wrong)


def test_n1_an_approval_survives_kills_on_nats(tmp_path: Path, nats_server: NatsServer) -> None:
    addresses = {"approval": nats_server.fresh()}
    wrong = torment(tmp_path, addresses, WAIT_KILLS_ON_SERVERS, Random(seed(3)))

    check_the_end(tmp_path, addresses, wrong)


def test_the_harness_notices_a_turn_that_does_not_read_what_it_recorded(tmp_path: Path) -> None:
    addresses = {"approval": f"sqlite:///{tmp_path}/log.db"}
    wrong = torment(tmp_path, addresses, WAIT_KILLS_OF_THE_TWIN, Random(9), forgetful=True)

    assert wrong != []
