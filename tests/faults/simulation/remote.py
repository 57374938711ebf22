"""A process without a hub: agents and a person that are linked to any server that is up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.faults.simulation.cast import REMOTE, Cast
from tests.faults.simulation.clock import SimulatedClock
from tests.faults.simulation.loop import Place
from tests.faults.simulation.person import MOMENT_SECONDS, Person
from tests.faults.simulation.plot import Plot
from tests.faults.simulation.store import Store
from tests.faults.simulation.told import Told
from tests.faults.simulation.wire import Network
from turnline.client.hub_client import HubClient
from turnline.client.ws_link import WsLink
from turnline.core.governance import Passport
from turnline.errors import LinkLost, LogError, NameTaken

LOOK_SECONDS: Final = 5.0


@dataclass(kw_only=True)
class Remote:
    """One run of it."""

    place: Place
    network: Network
    store: Store
    clock: SimulatedClock
    random: Random
    user: str
    other: str
    plots: Mapping[str, Plot]
    begins_at: Mapping[str, float]
    told: Told
    is_ready: bool = False
    is_done: bool = False
    is_stopping: bool = False
    client: HubClient | None = None
    link: WsLink | None = None
    _background: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            self.link = WsLink(
                "ws://127.0.0.1:1",
                clock=self.clock,
                chance=self.random.random,
                connect=self.network.connector(self.place),
                new_id=self._new_id,
            )
            self.client = HubClient(self.link)
            try:
                person = await self._enter(self.client)
            except (LogError, LinkLost, NameTaken):  # The server may not know yet that the last one is gone.
                await self.link.close()
                await asyncio.sleep(MOMENT_SECONDS)
            else:
                break
        self.is_ready = True
        self._background.append(asyncio.create_task(person.answer_others()))
        await person.converse()
        self.is_done = True
        while True:  # A program whose seats another client has taken is told when it asks.
            await asyncio.sleep(LOOK_SECONDS)
            await person.client.seat.channels()

    async def stop(self) -> None:
        """As on SIGTERM."""
        self.is_stopping = True
        assert self.client is not None
        assert self.link is not None
        await self.client.close()
        await self.link.close()

    async def _enter(self, client: HubClient) -> Person:
        cast = Cast(
            self.place.name,
            self.random,
            self.store,
            self.told.marks,
            kill=lambda: None,
            repaired=self.told.repaired,
        )
        for name in REMOTE:
            await cast.enter(name, client)
        return Person(
            client=await client.register_human(Passport(name=self.user, kind="human")),
            other=self.other,
            clock=self.clock,
            random=self.random,
            told=self.told,
            plots=self.plots,
            begins_at=self.begins_at,
        )

    def _new_id(self) -> str:
        return f"{int(self.clock.monotonic() * 1000):08x}{self.random.getrandbits(64):016x}"
