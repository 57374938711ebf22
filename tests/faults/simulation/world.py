"""A world: a few processes and a log, all that happens to them, and the verdict. One seed, one world.

    World(seed).run() -> what went wrong, and nothing did if it is empty

First there is trouble: processes are killed, paused, stopped and cut off, the network is bad. Then it is
over, everybody is there, and every conversation has to come to its end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from hashlib import blake2b
from random import Random
from typing import Final

from tests.faults.simulation.cast import AGENTS
from tests.faults.simulation.clock import SimulatedClock
from tests.faults.simulation.loop import Place, SeededLoop, TooLong, context_of
from tests.faults.simulation.plot import PLOTS, Plot
from tests.faults.simulation.process import Host, SimulatedProcess
from tests.faults.simulation.program import Program, Told
from tests.faults.simulation.store import FAIR, Reach, Store, Weather
from tests.faults.simulation.verdict import faults, folded, lost
from turnline.client.link import Link, LocalLink
from turnline.errors import LogError, TurnlineError
from turnline.hub.hub import Hub

TROUBLE_SECONDS: Final = 12.0
PEACE_SECONDS: Final = 340.0
"""So long, at most, until everything has ended once there is no trouble any more."""
LATE_SECONDS: Final = 5.0
"""Until everybody has heard of everything."""
LONGEST_PAUSE_SECONDS: Final = 8.0
LONG_AWAKE_SECONDS: Final = 100.0
"""Some conversations begin when everybody has been there for so long."""
CHAIRS: Final = 3


class Chair:
    """Where a process runs, and then the next one in its place."""

    def __init__(self, number: int, host: Host, agents: list[str], clock: SimulatedClock) -> None:
        self.number = number
        self.host = host
        self.agents = agents
        self.clock = clock
        self.plots: dict[str, Plot] = {}
        self.begins_at: dict[str, float] = {}
        self.starts = 0
        self.program: Program | None = None
        self.cached_channels = 4096


class World:
    """Everything that a seed decides."""

    def __init__(
        self, seed: int, *, reach: type[Reach] = Reach, link: Callable[[Hub], Link] = LocalLink
    ) -> None:
        self._random = Random(f"{seed} world")
        self._work = Random(f"{seed} work")
        self._reach = reach
        self._link = link
        self.loop = SeededLoop(Random(f"{seed} loop"))  # type: ignore[abstract]  # It needs no files.
        self.store = Store(self.loop, Random(f"{seed} network"))
        self.told = Told()
        self._place = Place("world")
        self._problems: list[str] = []
        self._chairs = self._furnished()
        bad, worse = (self._kill, self._stop, self._cut, self._set_back), (self._pause, self._storm)
        self._blows = (*bad, *worse, *worse)
        self._gone: list[Program] = []
        """Those that have ended; what is left of them is cleared away in the end."""

    @property
    def digest(self) -> str:
        """Of every byte on the log."""
        hashed = blake2b(digest_size=16)
        for name, records in sorted(self.store.log.records.items()):
            for one in records:
                hashed.update(f"{name} {one.seq} {one.envelope_id} ".encode() + one.body + one.hash)
        return hashed.hexdigest()

    def run(self) -> list[str]:
        """Let it happen; return what went wrong."""
        logging.disable(logging.CRITICAL)
        collecting = gc.isenabled()
        gc.disable()  # When garbage is found is chance.
        gc.freeze()  # What there was before is not looked through in the end.
        try:
            self.loop.run(self._happen(), place=self._place, until=TROUBLE_SECONDS + PEACE_SECONDS)
        except TooLong as error:
            self._problems += [f"no end to it: {error}", *self._unfinished()]
        else:
            self._problems += self._faults()
        finally:
            self._clear_away()
            logging.disable(logging.NOTSET)
            gc.unfreeze()
            if collecting:
                gc.enable()
        return self._problems

    # What there is.

    def _furnished(self) -> list[Chair]:
        random = self._random
        hosts = [Host("north"), Host("south")]
        chairs = []
        for number in range(random.choice((2, 2, CHAIRS))):
            agents = [name for name in AGENTS if number < 2 or random.random() < 0.5]
            if number == 1:
                agents = [name for name in agents if random.random() < 0.7]
            ahead = timedelta(seconds=random.choice((0.0, -3600.0, 3600.0, 0.4, -5.0)))
            clock = SimulatedClock(self.loop, ahead=ahead)
            chairs.append(Chair(number, random.choice(hosts), agents, clock))
            chairs[-1].cached_channels = random.choice((1, 4096))
        for number in range(random.choice((1, 1, 2, 2))):
            chair, name = random.choice(chairs), f"talk{number}"
            chair.plots[name] = random.choice(PLOTS)
            chair.begins_at[name] = LONG_AWAKE_SECONDS if random.random() < 0.2 else random.random() * 4.0
        return chairs

    # What happens.

    async def _happen(self) -> None:
        for chair in self._chairs:
            self._start(chair)
        await self._trouble()
        self._calm()
        while not all(chair.program.is_done for chair in self._chairs if chair.program):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        await asyncio.sleep(LATE_SECONDS)
        await self._compare()

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
            plots=chair.plots,
            begins_at=chair.begins_at,
            told=self.told,
            link=self._link,
            cached_channels=chair.cached_channels,
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
        self._gone.append(program)
        self._start(chair)

    # Blows.

    def _kill(self, chair: Chair) -> None:
        self._replace(chair)

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
        if program is not None and program.is_ready:
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
            for channel_id in self._plots():
                assert chair.program is not None
                assert chair.program.hub is not None
                try:
                    known = await chair.program.hub.state(channel_id)
                except TurnlineError as error:
                    self._problems.append(f"{channel_id} at {chair.number}: {error}")
                else:
                    if known != folded(self.store, channel_id):
                        self._problems.append(f"{channel_id} at {chair.number} is not what is on the log")

    def _plots(self) -> dict[str, Plot]:
        return {name: plot for chair in self._chairs for name, plot in chair.plots.items()}

    def _faults(self) -> Iterator[str]:
        yield from lost(self.store, self.told)
        for channel_id, plot in self._plots().items():
            yield from faults(self.store, self.told, channel_id, plot)

    def _unfinished(self) -> Iterator[str]:
        for channel_id in self._plots():
            lines = self.store.read(channel_id)
            types = " ".join(one.event_type for one in lines[-12:])
            if not lines or lines[-1].event_type != "channel.closed":
                yield f"{channel_id} is at {len(lines)}: {types}"

    def _clear_away(self) -> None:
        """Let everything end, so that nothing of this world is found in the next; hear what nobody heard."""
        programs = [*self._gone, *(chair.program for chair in self._chairs if chair.program is not None)]
        for program in programs:
            program.reach.is_cut = True
        self.store.weather = FAIR
        self.loop.run(self._end(programs))
        programs.clear()
        self._gone.clear()
        self._chairs.clear()
        gc.collect()
        self.loop.close()
        self._problems += [f"nobody was told: {one}" for one in self.loop.complaints]

    async def _end(self, programs: list[Program]) -> None:
        self._place.is_held = True  # Nobody starts them again.
        for program in programs:
            await self.loop.end_tasks(program.process.place)
        await self.loop.end_tasks(self._place)
        await self.loop.end_generators()
