"""Hubs and workers of one log that are killed and paused at random. Run by `test_cluster.py`.

    python -m tests.faults.cluster SEED SECONDS FOLDER ADDRESS CONVERSATIONS honest|careless|hasty

A hub opens its share of the conversations and waits for their ends; a worker has the agents. Their clocks are
an hour apart. A process that is killed is started again, one that is paused goes on after a while, which may
be longer than its lease. A line on standard input lets another part of the conversations begin, and its end
all of them. When there has been enough of it, and standard input has ended, everybody is left alone until
every conversation has been closed. Whatever a process was told is on the log, it notes in the
folder first; what is in the notes at the end has to be on the log.

This process forks and stays single-threaded: logs live in the children only.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn, cast

from msgspec.structs import replace

from turnline import Agent
from turnline.agent.messages import ModelReply
from turnline.agent.model import ModelRequest, OnText
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogConflict, LogError, LogUnavailable, UnknownName
from turnline.hub.timers import SystemClock
from turnline.log.address import open_log
from turnline.log.base import Log
from turnline.network import (
    Hub,
    HubClient,
    HumanClient,
    LocalLink,
    Passport,
    TransitionGraph,
    round_robin,
    sequence,
)

HUBS: Final = 3
WORKERS: Final = 4
AGENTS: Final = ("ada", "bob")
TURNS: Final = 3
"""Of the agents, in each conversation."""
AT_ONCE: Final = 8
"""Conversations of one hub that are open at the same time."""
LEASE_SECONDS: Final = 3.0
MODEL_SECONDS: Final = 0.15
MOMENT_SECONDS: Final = 0.3
"""Between two blows, at most."""
LONGEST_PAUSE_SECONDS: Final = 1.5 * LEASE_SECONDS
WORK_SECONDS: Final = 0.1
"""Of processor time, which everybody together had before the next blow: on a busy machine they come slower. A
turn that is claimed five times without a packet is given up (rule 10), and nobody is to be that slow."""
KILLS: Final = 24
PAUSES: Final = 12
"""As many there are at least."""
STOP: Final = "stop"
"""Once there is a file of that name, the trial is over."""
PARTS: Final = 4
"""The conversations are opened in so many parts: there are some at every stage of the trial."""


class OtherClock(SystemClock):
    """The time people read here is not that of the others."""

    def __init__(self, hours: float) -> None:
        self._ahead = timedelta(hours=hours)

    def now(self) -> datetime:
        return super().now() + self._ahead


class NotedLog:
    """A log around another one: what it says is written, it has noted."""

    def __init__(self, inner: Log, notes: Path) -> None:
        self._inner = inner
        self._notes = os.open(notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        await self._append(channel_id, envelopes, after=after, row=row)
        self._note(channel_id, envelopes)

    async def _append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None
    ) -> None:
        await self._inner.append(channel_id, envelopes, after=after, row=row)

    def _note(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        # Killed processes lose nothing that the system has taken: there is no need to sync.
        lines = (f"{channel_id} {one.envelope_id}\n" for one in envelopes)
        os.write(self._notes, "".join(lines).encode())


class CarelessLog(NotedLog):
    """A twin: whatever was appended to a conversation meanwhile, what is sent goes behind it."""

    async def _append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None
    ) -> None:
        while True:
            try:
                return await super()._append(channel_id, envelopes, after=after, row=row)
            except LogConflict as error:
                if channel_id.startswith("_"):
                    raise
                after = error.found
                envelopes = [replace(one, seq=after + n) for n, one in enumerate(envelopes, 1)]


class HastyLog(NotedLog):
    """A twin: it says so before it has written."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        self._note(channel_id, envelopes)
        await self._append(channel_id, envelopes, after=after, row=row)


LOGS: Final = {"honest": NotedLog, "careless": CarelessLog, "hasty": HastyLog}


class SlowModel:
    """See `turnline.agent.model.Model`: it takes a moment, so that turns are in flight."""

    name = "slow"

    def create(self) -> SlowModel:
        return self

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        await asyncio.sleep(MODEL_SECONDS)
        return ModelReply(text="said")


def graph_of(number: int, opener: str) -> TransitionGraph:
    """What a conversation is like."""
    if number % 2:
        return round_robin(AGENTS, max_turns=TURNS)
    return sequence([opener, *(AGENTS[n % len(AGENTS)] for n in range(TURNS))])


def reason_of(number: int) -> str:
    """What a conversation closes with."""
    return "max_turns" if number % 2 else "sequence_complete"


def name_of(hub: int, number: int) -> str:
    return f"hub{hub}-{number}"


@dataclass(frozen=True)
class Setting:
    """What every process of a trial is told."""

    folder: Path
    address: str
    conversations: int
    kind: str

    def log(self, who: str) -> Log:
        return cast(Log, LOGS[self.kind](open_log(self.address), self.folder / f"{who}.notes"))

    def ready(self, who: str) -> Path:
        """There once the process is at work."""
        return self.folder / f"{who}.ready"

    def part(self, number: int) -> Path:
        """There once the conversations of this part may be opened."""
        return self.folder / f"part{number}"

    def done(self, hub: int) -> Path:
        return self.folder / f"hub{hub}.done"


# The processes.


async def be_worker(setting: Setting, number: int) -> None:
    hub = await Hub.open(
        setting.log(f"worker{number}"), follow=True, clock=OtherClock(-number), lease_seconds=LEASE_SECONDS
    )
    for name in AGENTS:
        await hub.register(Agent(name, config=SlowModel()), attach_plugin=False)
    setting.ready(f"worker{number}").touch()
    await asyncio.Event().wait()


async def be_hub(setting: Setting, number: int) -> None:
    hub = await Hub.open(
        setting.log(f"hub{number}"), follow=True, clock=OtherClock(number), lease_seconds=LEASE_SECONDS
    )
    user = await HubClient(LocalLink(hub)).register_human(Passport(name=f"user{number}", kind="human"))
    await _known(hub)
    setting.ready(f"hub{number}").touch()
    mine = range(number, setting.conversations, HUBS)
    room = asyncio.Semaphore(AT_ONCE)

    async def converse(place: int, conversation: int) -> None:
        while not setting.part(PARTS * place // len(mine)).exists():  # noqa: ASYNC110  It is a file.
            await asyncio.sleep(MOMENT_SECONDS)
        async with room:
            await _converse(user, number, conversation)

    await asyncio.gather(*(converse(place, one) for place, one in enumerate(mine)))
    setting.done(number).touch()
    await asyncio.Event().wait()


async def _converse(user: HumanClient, hub: int, conversation: int) -> None:
    """Open a conversation, or find it, and wait for its end."""
    graph = graph_of(conversation, user.name)
    while True:
        try:
            channel = await user.open(
                "workflow",
                AGENTS,
                {"graph": graph.to_dict()},
                channel_id=name_of(hub, conversation),
                message="go",
            )
            await channel.result()
        except LogError:
            await asyncio.sleep(MOMENT_SECONDS)
        else:
            return


async def _known(hub: Hub) -> None:
    """Wait until some worker has registered the agents."""
    while True:
        try:
            for name in AGENTS:
                hub.participant(name)
        except UnknownName:
            await asyncio.sleep(MOMENT_SECONDS)
        else:
            return


# Whoever torments them.


@dataclass
class Trial:
    """The processes of a trial, by name, and what was done to them."""

    setting: Setting
    random: Random
    pids: dict[str, int] = field(default_factory=dict)
    paused: dict[str, float] = field(default_factory=dict)
    """Who -> when it goes on."""
    kills: int = 0
    pauses: int = 0
    worked: dict[int, float] = field(default_factory=dict)
    """Process -> the processor time it had had at the last blow."""

    def has_worked(self) -> bool:
        """Whether there was some work since the last blow."""
        now = {pid: processor_seconds(pid) for pid in self.pids.values()}
        if sum(seconds - self.worked.get(pid, 0.0) for pid, seconds in now.items()) < WORK_SECONDS:
            return False
        self.worked = now
        return True

    def start(self, who: str) -> None:
        self.setting.ready(who).unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            _be(self.setting, who)
        self.pids[who] = pid

    def kill(self, who: str) -> None:
        pid = self.pids.pop(who)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)  # Nobody is gone before it is waited for.
        self.paused.pop(who, None)

    def strike(self) -> None:
        """Kill somebody who is at work, or pause it for a while."""
        who = self.random.choice(sorted(self.pids.keys() - self.paused.keys()))
        if not self.setting.ready(who).exists():
            return
        if self.random.random() < 0.6:
            self.kill(who)
            self.start(who)
            self.kills += 1
        else:
            os.kill(self.pids[who], signal.SIGSTOP)
            self.paused[who] = time.monotonic() + self.random.random() * LONGEST_PAUSE_SECONDS
            self.pauses += 1

    def wake(self, *, all_of_them: bool = False) -> None:
        for who, until in list(self.paused.items()):
            if all_of_them or time.monotonic() >= until:
                os.kill(self.pids[who], signal.SIGCONT)
                del self.paused[who]

    def begin_parts(self, most: int) -> None:
        """Let parts begin, not all of them before there was enough of it."""
        for number in range(min(most, 1 + (PARTS - 1) * self.kills // KILLS)):
            self.setting.part(number).touch()

    def is_done(self) -> bool:
        return all(self.setting.done(number).exists() for number in range(HUBS))

    def gone(self) -> list[str]:
        """Who has ended by itself, which nobody does."""
        found = [who for who, pid in self.pids.items() if os.waitpid(pid, os.WNOHANG)[0]]
        for who in found:
            del self.pids[who]
        return found


def processor_seconds(pid: int) -> float:
    """The processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _be(setting: Setting, who: str) -> NoReturn:
    number = int(who[-1])
    log = os.open(setting.folder / f"{who}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    while True:
        try:
            asyncio.run(be_hub(setting, number) if who.startswith("hub") else be_worker(setting, number))
        except LogUnavailable:  # It began while nobody led: as whoever keeps processes going does, once more.
            continue
        except BaseException as error:
            os.write(2, f"{who}: {type(error).__name__}: {error}\n".encode())
        os._exit(1)


def torment(trial: Trial, *, seconds: float) -> str:
    """Strike until there was enough of it, then wait for the end; return what went wrong."""
    everybody = [f"hub{n}" for n in range(HUBS)] + [f"worker{n}" for n in range(WORKERS)]
    for who in everybody:
        trial.start(who)
    until, lines, ended, calm = time.monotonic() + seconds, 0, False, False
    while not trial.is_done():
        if time.monotonic() > until or (trial.setting.folder / STOP).exists():
            return "they are not done"
        if gone := trial.gone():
            return f"ended by itself: {gone}"
        select.select([], [], [], trial.random.random() * MOMENT_SECONDS)
        if not ended and select.select([0], [], [], 0)[0]:
            heard = os.read(0, 100)
            lines, ended = lines + len(heard), not heard
        trial.begin_parts(PARTS if ended else lines)
        calm = ended and trial.kills >= KILLS and trial.pauses >= PAUSES
        trial.wake(all_of_them=calm)
        if not calm and len(trial.paused) < len(everybody) // 2 and trial.has_worked():
            trial.strike()
    return ""


def main(seed: str, seconds: str, *setting: str) -> dict[str, object]:
    folder, address, conversations, kind = setting
    trial = Trial(Setting(Path(folder), address, int(conversations), kind), Random(int(seed)))
    try:
        problem = torment(trial, seconds=float(seconds))
    finally:
        for who in list(trial.pids):
            trial.kill(who)
    return {"problem": problem, "kills": trial.kills, "pauses": trial.pauses}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
