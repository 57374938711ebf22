"""A world: a few processes and a log, all that happens to them, and the verdict. One seed, one world.

    World(seed).run() -> what went wrong; empty if nothing did

First there is trouble: processes are killed, paused, stopped and cut off, the network is bad. Then it is
over, everybody is there, and every conversation and every run has to come to its end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from hashlib import blake2b
from random import Random
from typing import Final

from tests.faults.simulation import cast, plot
from tests.faults.simulation.clock import SimulatedClock
from tests.faults.simulation.flows import Story, draw
from tests.faults.simulation.loop import Place, SeededLoop, TooLong, context_of
from tests.faults.simulation.memory import busy_with, engines_of, left_over
from tests.faults.simulation.plot import Plot
from tests.faults.simulation.process import Host, SimulatedProcess
from tests.faults.simulation.program import Program
from tests.faults.simulation.remote import Remote
from tests.faults.simulation.store import FAIR, Reach, Store, Weather, done
from tests.faults.simulation.told import Told
from tests.faults.simulation.verdict import faults, folded, lost
from tests.faults.simulation.wire import Network
from turnline.client.link import Link, LocalLink
from turnline.core.codec import read_structure
from turnline.core.event_types import EV_TURN_PAUSED
from turnline.errors import LogError, NameTaken, TurnlineError
from turnline.flow.trusted_runs import TrustedRuns
from turnline.hub.channels import CACHE_BYTES
from turnline.hub.hub import Hub
from turnline.hub.timers import secret_id
from turnline.server.ws_door import WsDoor
from turnline.turns import people

TROUBLE_SECONDS: Final = 12.0
PEACE_SECONDS: Final = 600.0
"""So long, at most, until everything has ended once there is no trouble any more."""
LATE_SECONDS: Final = 10.0
"""Until everybody has heard of everything."""
SETTLED_SECONDS: Final = 8.0
"""A turn that has been paused for so long has no task anywhere."""
LONGEST_PAUSE_SECONDS: Final = 8.0
LONG_AWAKE_SECONDS: Final = 100.0
"""Some conversations begin when everybody has been there for so long."""
CHAIRS: Final = 3
INNOCENT: Final = 2
"""Conversations that die beside a suspect."""


class Chair:
    """Where a process runs, and then the next one in its place."""

    def __init__(self, number: int, host: Host, agents: list[str], clock: SimulatedClock) -> None:
        self.number = number
        self.host = host
        self.agents = agents
        self.clock = clock
        self.plots: dict[str, Plot] = {}
        self.begins_at: dict[str, float] = {}
        self.runs: dict[str, Story] = {}
        self.starts = 0
        self.program: Program | None = None
        self.cache_bytes = CACHE_BYTES


class Outpost:
    """Where the linked process runs, and then the next one in its place."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.plots: dict[str, Plot] = {}
        self.begins_at: dict[str, float] = {}
        self.starts = 0
        self.remote: Remote | None = None


class World:
    """Everything that a seed decides."""

    def __init__(
        self, seed: int, *, reach: type[Reach] = Reach, link: Callable[[Hub], Link] = LocalLink
    ) -> None:
        self._random = Random(f"{seed} world")
        self._work = Random(f"{seed} work")
        self._secrets = Random(f"{seed} secrets")
        self._reach = reach
        self._link = link
        self.loop = SeededLoop(Random(f"{seed} loop"))  # type: ignore[abstract]  # It needs no files.
        self.store = Store(self.loop, Random(f"{seed} network"), Random(f"{seed} salts"))
        self.told = Told()
        self.figures: Counter[str] = Counter()
        """How often each thing happened."""
        self._place = Place("world")
        self._problems: list[str] = []
        self._stories: list[Story] = []
        self._outpost: Outpost | None = None
        self._chairs = self._furnish()
        self._network = Network(self.loop, Random(f"{seed} wire"), self._doors)
        bad, worse = (self._kill, self._stop, self._cut, self._set_back), (self._pause, self._storm)
        self._blows: tuple[Callable[[Chair], None], ...] = (*bad, *worse, *worse)
        if self._outpost is not None:
            self._blows += (self._kill_remote, self._pause_remote, self._stop_remote, *[self._cut_wires] * 3)
        self._gone: list[tuple[Place, Program | Remote]] = []
        """Those that have ended; what is left of them is cleared away in the end."""
        self._name_log()

    @property
    def digest(self) -> str:
        """Of every byte on the log."""
        hashed = blake2b(digest_size=16)
        for name, records in sorted(self.store.log.records.items()):
            for one in records:
                hashed.update(f"{name} {one.seq} {one.envelope_id} ".encode() + one.head)
                hashed.update(one.hash + (one.payload or b""))
        return hashed.hexdigest()

    def run(self) -> list[str]:
        """Let it happen; return what went wrong."""
        logging.disable(logging.CRITICAL)
        collecting = gc.isenabled()
        gc.disable()  # When garbage is found is chance.
        gc.freeze()  # What there was before is not looked through in the end.
        secrets = self._secrets
        setattr(people, "secret_id", lambda: f"{secrets.getrandbits(128):032x}")  # noqa: B010
        try:
            self.loop.run(self._happen(), place=self._place, until=TROUBLE_SECONDS + PEACE_SECONDS)
        except TooLong as error:
            self._problems += [f"no end to it: {error}", *self._unfinished()]
        else:
            self._problems += self._faults()
        finally:
            setattr(people, "secret_id", secret_id)  # noqa: B010
            self._count()
            self._clear_away()
            logging.disable(logging.NOTSET)
            gc.unfreeze()
            if collecting:
                gc.enable()
        return self._problems

    # What there is.

    def _furnish(self) -> list[Chair]:
        random = self._random
        is_suspect = random.random() < 0.2
        names = (*cast.AGENTS, cast.SUSPECT) if is_suspect else cast.AGENTS
        is_shared = is_suspect and random.random() < 0.7  # Then kim and lou are in one process only.
        hosts = [Host("north"), Host("south")]
        chairs = []
        for number in range(random.choice((2, 2, CHAIRS))):
            agents = [name for name in names if number < 2 or random.random() < 0.5]
            if number == 1:
                agents = [name for name in agents if random.random() < 0.7]
            if is_shared and number:
                agents = [name for name in agents if name not in (cast.SUSPECT, "lou")]
            ahead = timedelta(seconds=random.choice((0.0, -3600.0, 3600.0, 0.4, -5.0)))
            clock = SimulatedClock(self.loop, ahead=ahead)
            chairs.append(Chair(number, random.choice(hosts), agents, clock))
            chairs[-1].cache_bytes = random.choice((1, CACHE_BYTES))
        self._draw_talks(chairs)
        if is_suspect:
            self._draw_suspects(chairs)
        for number in range(random.choice((0, 1, 1, 2))):
            self._draw_run(random.choice(chairs), f"run{number}", is_suspect=is_suspect and number == 0)
        return chairs

    def _draw_talks(self, chairs: Sequence[Chair]) -> None:
        random = self._random
        plots = plot.PLOTS + plot.PAUSING + plot.ASKING
        if random.random() < 0.4:
            self._outpost = Outpost(SimulatedClock(self.loop, ahead=timedelta()))
            places: list[Chair | Outpost] = [*chairs, self._outpost]
            self._begin(random.choice(places), "link", random.choice(plot.LINKED))
        for number in range(random.choice((1, 1, 2, 2))):
            where: Chair | Outpost = random.choice(chairs)
            if self._outpost is not None and random.random() < 0.3:
                where = self._outpost
            self._begin(where, f"talk{number}", random.choice(plots))

    def _draw_suspects(self, chairs: Sequence[Chair]) -> None:
        self._begin(self._random.choice(chairs), "kill", self._random.choice(plot.SUSPECT))
        for number in range(INNOCENT):
            self._begin(self._random.choice(chairs), f"innocent{number}", plot.INNOCENT)
        for chair in chairs:
            chair.begins_at.update((name, 1.0) for name in chair.plots if name.startswith(("kill", "inno")))

    def _draw_run(self, chair: Chair, run_id: str, *, is_suspect: bool) -> None:
        story = draw(self._random, f"flow-{run_id}", is_suspect=is_suspect)
        self._stories.append(story)
        chair.runs[run_id] = story
        chair.begins_at[run_id] = self._random.random() * 6.0

    def _begin(self, where: Chair | Outpost, name: str, one: Plot) -> None:
        where.plots[name] = one
        late = self._random.random() < 0.1
        where.begins_at[name] = LONG_AWAKE_SECONDS if late else self._random.random() * 4.0

    def _name_log(self) -> None:
        """Give the log its name before anybody starts: drivers would draw it from the system's randomness."""
        log, clock, names = self.store.log, self._chairs[0].clock, iter(("simulated", "line"))
        done(TrustedRuns(log, clock, lambda: next(names), key=None, new_name=lambda: "simulated").start())
        self.store.note_appends(log)

    def _doors(self) -> list[tuple[Place, WsDoor]]:
        return [
            (chair.program.process.place, chair.program.door)
            for chair in self._chairs
            if chair.program is not None and chair.program.door is not None
        ]

    # What happens.

    async def _happen(self) -> None:
        for chair in self._chairs:
            self._start(chair)
        if self._outpost is not None:
            self._start_remote(self._outpost)
        await self._trouble()
        self._calm()
        while not self._is_done():
            await asyncio.sleep(0.5)
            self._check_pauses()
        await asyncio.sleep(LATE_SECONDS)
        await self._compare()
        self._check_memory()

    def _is_done(self) -> bool:
        programs = [chair.program for chair in self._chairs]
        remote = None if self._outpost is None else self._outpost.remote
        return all(one is None or one.is_done for one in (*programs, remote))

    async def _trouble(self) -> None:
        until = self._random.random() * TROUBLE_SECONDS
        while self.loop.time() < until:
            await asyncio.sleep(self._random.random() ** 2 * 2.0)
            blow = self._random.choice(self._blows)
            blow(self._random.choice(self._chairs))

    def _calm(self) -> None:
        self.store.weather = FAIR
        for chair in self._chairs:
            self._resume(chair)
        self._resume_remote()

    def _start(self, chair: Chair) -> None:
        chair.starts += 1
        process = SimulatedProcess(chair.host, chair.number, chair.starts)
        chair.program = Program(
            process=process,
            reach=self._reach(self.store, process.place),
            clock=chair.clock,
            random=self._work,
            agents=chair.agents,
            user=f"user{chair.number}",
            other=f"user{(chair.number + 1) % len(self._chairs)}",
            plots=chair.plots,
            begins_at=chair.begins_at,
            stories=self._stories,
            runs=chair.runs,
            told=self.told,
            kill=lambda: self._suicide(chair, process),
            link=self._link,
            cache_bytes=chair.cache_bytes,
        )
        self.loop.create_task(self._watch(chair, chair.program))

    async def _watch(self, chair: Chair, program: Program) -> None:
        """As whoever keeps processes going does: one that ends is started again."""
        context = context_of(program.process.place)
        running = self.loop.create_task(program.run(), context=context)
        try:
            await running
        except LogError:
            await asyncio.sleep(self._random.random() * 2.0)
            if chair.program is program:
                self._replace(chair)
        except Exception as error:
            if not program.is_stopping:
                self._problems.append(f"a program ended with {type(error).__name__}: {error}")

    def _replace(self, chair: Chair) -> None:
        program = chair.program
        assert program is not None
        program.process.end()
        self._network.cut_off(program.process.place)
        self._gone.append((program.process.place, program))
        self._start(chair)

    def _suicide(self, chair: Chair, process: SimulatedProcess) -> None:
        """Kill a process from within. It is restarted a moment later."""

        def kill() -> None:
            if chair.program is not None and chair.program.process is process:
                self.figures["suspects' kills"] += 1
                self._replace(chair)

        process.place.is_held = True  # It does nothing more.
        self.loop.call_later(0.01, kill, context=context_of(self._place))

    def _start_remote(self, outpost: Outpost) -> None:
        outpost.starts += 1
        place = Place(f"remote:0:{outpost.starts}")
        outpost.remote = remote = Remote(
            place=place,
            network=self._network,
            store=self.store,
            clock=outpost.clock,
            random=self._work,
            user="una",
            other="user0",
            plots=outpost.plots,
            begins_at=outpost.begins_at,
            told=self.told,
        )
        self.loop.create_task(self._watch_remote(remote))

    async def _watch_remote(self, remote: Remote) -> None:
        try:
            await self.loop.create_task(remote.run(), context=context_of(remote.place))
        except (LogError, NameTaken):  # A cut was not noticed, and its seats are those of an earlier client.
            await asyncio.sleep(self._random.random() * 2.0)
            if self._outpost is not None and self._outpost.remote is remote:
                self.figures["lost seats"] += 1
                self._replace_remote()
        except Exception as error:
            if not remote.is_stopping:
                self._problems.append(f"the linked program ended with {type(error).__name__}: {error}")

    def _replace_remote(self) -> None:
        outpost = self._outpost
        assert outpost is not None
        assert outpost.remote is not None
        outpost.remote.place.end()
        self._network.cut_off(outpost.remote.place)
        self._gone.append((outpost.remote.place, outpost.remote))
        self._start_remote(outpost)

    # Blows.

    def _kill(self, chair: Chair) -> None:
        self.figures["kills"] += 1
        self._replace(chair)

    def _kill_remote(self, chair: Chair) -> None:
        self.figures["kills of links"] += 1
        self._replace_remote()

    def _cut_wires(self, chair: Chair) -> None:
        self.figures["cuts of links"] += len([one for one in self._network.cables if not one.is_cut])
        self._network.cut()

    def _pause_remote(self, chair: Chair) -> None:
        assert self._outpost is not None
        assert self._outpost.remote is not None
        self._outpost.remote.place.is_held = True
        seconds = self._random.random() ** 2 * LONGEST_PAUSE_SECONDS
        self.loop.call_later(seconds, self._resume_remote)

    def _resume_remote(self) -> None:
        if self._outpost is not None and self._outpost.remote is not None:
            self.loop.release(self._outpost.remote.place)

    def _stop_remote(self, chair: Chair) -> None:
        assert self._outpost is not None
        remote = self._outpost.remote
        if remote is not None and remote.is_ready and not remote.is_stopping:
            self.figures["stops"] += 1
            self.loop.create_task(self._end_remote(self._outpost, remote))

    async def _end_remote(self, outpost: Outpost, remote: Remote) -> None:
        stopping = self.loop.create_task(remote.stop(), context=context_of(remote.place))
        await asyncio.wait([stopping], timeout=5.0)
        if stopping.done() and not stopping.cancelled() and (error := stopping.exception()) is not None:
            self._problems.append(f"stopping a link ended with {error!r}")
        if outpost.remote is remote:
            self._replace_remote()

    def _pause(self, chair: Chair) -> None:
        if chair.program is not None:
            chair.program.process.place.is_held = True
            seconds = self._random.random() ** 2 * LONGEST_PAUSE_SECONDS
            self.loop.call_later(seconds, self._resume, chair)

    def _resume(self, chair: Chair) -> None:
        if chair.program is not None:
            chair.program.reach.is_cut = False
            self.loop.release(chair.program.process.place)

    def _stop(self, chair: Chair) -> None:
        program = chair.program
        if program is not None and program.is_ready and not program.is_stopping:
            self.figures["stops"] += 1
            self.loop.create_task(self._stopped(chair, program))

    async def _stopped(self, chair: Chair, program: Program) -> None:
        context = context_of(program.process.place)
        stopping = self.loop.create_task(program.stop(), context=context)
        await asyncio.wait([stopping], timeout=5.0)
        if stopping.done() and not stopping.cancelled():
            error = stopping.exception()
            if error is not None and not isinstance(error, LogError):
                self._problems.append(f"stopping ended with {error!r}")
        if chair.program is program:
            self._replace(chair)

    def _cut(self, chair: Chair) -> None:
        if chair.program is not None:
            self.figures["cuts"] += 1
            chair.program.reach.is_cut = True
            seconds = self._random.random() ** 2 * LONGEST_PAUSE_SECONDS
            self.loop.call_later(seconds, self._resume, chair)

    def _set_back(self, chair: Chair) -> None:
        chair.clock.ahead -= timedelta(seconds=self._random.random() * 20.0)

    def _storm(self, chair: Chair) -> None:
        chance = self._random.random
        self.store.weather = Weather(
            slow_seconds=chance() ** 2,
            late_seconds=chance() ** 2 * 2,
            refused=chance() * 0.3,
            lost=chance() * 0.3,
        )
        self.loop.call_later(chance() * 3.0, self._clear_up)

    def _clear_up(self) -> None:
        self.store.weather = FAIR

    # The verdict.

    async def _compare(self) -> None:
        """What the hubs have in memory is what is on the log."""
        for chair in self._chairs:
            for channel_id in self._channels():
                assert chair.program is not None
                assert chair.program.hub is not None
                try:
                    known = await chair.program.hub.state(channel_id)
                except TurnlineError as error:
                    self._problems.append(f"{channel_id} at {chair.number}: {error}")
                else:
                    if known != folded(self.store, channel_id):
                        self._problems.append(f"{channel_id} at {chair.number} is not what is on the log")

    def _check_pauses(self) -> None:
        """N1: nobody has a task for a turn that has been paused for a while."""
        programs = [one.program for one in self._chairs if one.program is not None]
        if any(one.hub is None or not one.is_ready or one.process.place.is_held for one in programs):
            return
        busy = {
            name
            for one in programs
            if one.hub
            for _, engine, _ in engines_of(one.hub)
            for name in busy_with(engine)
        }
        for channel_id in sorted(busy):
            last = self.store.log.records[channel_id][-1]
            is_old = self.loop.time() - self.store.landed_at[channel_id][-1] > SETTLED_SECONDS
            if is_old and read_structure(last.head).type == EV_TURN_PAUSED:
                self._problems.append(f"{channel_id}: a task for a turn that waits at {last.seq}")

    def _check_memory(self) -> None:
        for chair in self._chairs:
            assert chair.program is not None
            assert chair.program.hub is not None
            for problem in left_over(chair.program.hub, chair.program.driver):
                self._problems.append(f"in the memory of {chair.program.process.name}: {problem}")

    def _channels(self) -> list[str]:
        return sorted(name for name in self.store.log.records if not name.startswith("_"))

    def _plots(self) -> dict[str, Plot | Story]:
        found: dict[str, Plot | Story] = {}
        for chair in self._chairs:
            found.update(chair.plots)
            found.update(chair.runs)
        return found | ({} if self._outpost is None else self._outpost.plots)

    def _faults(self) -> Iterator[str]:
        yield from lost(self.store, self.told)
        plots = self._plots()
        for channel_id in self._channels():
            yield from faults(self.store, self.told, channel_id, plots.pop(channel_id, None))
        yield from (f"{channel_id} was never opened" for channel_id in plots)

    def _unfinished(self) -> Iterator[str]:
        for channel_id in [*self._plots(), *self._channels()]:
            lines = self.store.read(channel_id)
            types = " ".join(one.event_type for one in lines[-12:])
            if not lines or lines[-1].event_type != "channel.closed":
                yield f"{channel_id} is at {len(lines)}: {types}"

    def _count(self) -> None:
        channels = self._channels()
        self.figures["channels"] += len(channels)
        self.figures["runs"] += len(self._stories)
        self.figures["links"] += len(self._network.cables)
        self.figures["appends"] += self.store.append_count
        types = Counter(line.event_type for one in channels for line in self.store.read(one))
        self.figures["pauses"] += types["turn.paused"]
        self.figures["questions"] += types["human.requested"]
        self.figures["delegations"] += sum("ask-" in one for one in channels)

    def _clear_away(self) -> None:
        """Let everything end, so that nothing of this world is found in the next; hear what nobody heard."""
        live: list[tuple[Place, Program | Remote]] = [
            (chair.program.process.place, chair.program)
            for chair in self._chairs
            if chair.program is not None
        ]
        if self._outpost is not None and self._outpost.remote is not None:
            live.append((self._outpost.remote.place, self._outpost.remote))
        ending = [*self._gone, *live]
        for _, one in ending:
            if isinstance(one, Program):
                one.reach.is_cut = True
        self.store.weather = FAIR
        self.loop.run(self._end([place for place, _ in ending]))
        ending.clear()
        live.clear()
        self._gone.clear()
        self._chairs.clear()
        self._outpost = None
        self._network.cables.clear()
        gc.collect()
        self.loop.close()
        self._problems += [f"nobody was told: {one}" for one in self.loop.complaints]

    async def _end(self, places: list[Place]) -> None:
        self._place.is_held = True  # Nobody starts them again.
        for place in (*places, self._place):
            await self.loop.end_tasks(place)
        await self.loop.end_generators()
