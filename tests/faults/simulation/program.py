"""What a process runs: a hub, agents, a person, and the conversations that this person opens.

As every program on an unreliable log: what fails is tried again, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.faults.simulation.cast import Cast, Mark
from tests.faults.simulation.clock import SimulatedClock
from tests.faults.simulation.plot import Plot
from tests.faults.simulation.process import SimulatedProcess
from tests.faults.simulation.store import Reach
from turnline.client.channel import Channel
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.link import Link, LocalLink
from turnline.core.envelope import Envelope, gives_floor_to
from turnline.core.governance import Passport
from turnline.errors import ChannelClosed, HubClosed, LogError, OutOfTurn, UnknownName
from turnline.hub.hub import Hub

LEASE_SECONDS = 3.0
MOMENT_SECONDS = 0.3


@dataclass
class Told:
    """What the people of all processes were told; none of it may turn out not to be so."""

    sent: dict[tuple[str, str], int] = field(default_factory=dict)
    """Channel and id of what was sent -> the seq it was said to have."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Channel -> why it was said to have closed."""
    marks: list[Mark] = field(default_factory=list)


@dataclass(kw_only=True)
class Program:
    """One run of it, in one process."""

    process: SimulatedProcess
    reach: Reach
    clock: SimulatedClock
    random: Random
    agents: Sequence[str]
    user: str
    plots: Mapping[str, Plot]
    """Channel -> what it is like."""
    begins_at: Mapping[str, float]
    """Channel -> when it is opened, in the loop's time."""
    told: Told
    link: Callable[[Hub], Link] = LocalLink
    cached_channels: int = 4096
    hub: Hub | None = None
    is_ready: bool = False
    """Whether everybody it has is attached."""
    is_stopping: bool = False
    is_done: bool = False

    async def run(self) -> None:
        self.hub = hub = await Hub.open(
            self.reach,
            ttl_sweep_interval=30.0,
            follow=True,
            clock=self.clock,
            new_id=self._new_id,
            lease_seconds=LEASE_SECONDS,
            process=self.process,
            cached_channels=self.cached_channels,
        )
        self._client = HubClient(self.link(hub), hub=hub)
        cast = Cast(self.process.name, self.random, self.reach.store, self.told.marks)
        for name in self.agents:
            await cast.enter(name, self._client)
        user = await self._client.register_human(Passport(name=self.user, kind="human"))
        self.is_ready = True
        await asyncio.gather(*(self._converse(user, *one) for one in self.plots.items()))
        self.is_done = True
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """As on SIGTERM."""
        self.is_stopping = True
        await self._client.close()
        assert self.hub is not None
        await self.hub.close()

    def _new_id(self) -> str:
        return f"{int(self.clock.monotonic() * 1000):08x}{self.random.getrandbits(64):016x}"

    async def _converse(self, user: HumanClient, channel_id: str, plot: Plot) -> None:
        """Open a conversation, or find it, take part, and wait for its end."""
        await asyncio.sleep(max(self.begins_at[channel_id] - self.clock.monotonic(), 0.0))
        while True:
            try:
                channel = await user.open(
                    "workflow",
                    plot.agents,
                    {"graph": plot.graph(self.user).to_dict()},
                    channel_id=channel_id,
                    message=plot.message,
                    ttl=plot.ttl,
                    expectations=plot.expectations,
                    ack_timeout=1_000.0,
                )
                self.told.reasons[channel_id] = await self._take_part(user, channel, plot)
            except HubClosed:
                return
            except (LogError, UnknownName):  # Some process will have registered them.
                await asyncio.sleep(MOMENT_SECONDS)
            else:
                return

    async def _take_part(self, user: HumanClient, channel: Channel, plot: Plot) -> str:
        async for envelope in channel.stream():
            if plot.answers and gives_floor_to(envelope) == user.agent_id:
                await self._say(channel, envelope)
            elif envelope.event_type == "packet" and self.random.random() < 0.1:
                await self._interject(channel, envelope)
        return (await channel.result()).reason

    async def _say(self, channel: Channel, floor: Envelope) -> None:
        try:
            said = await channel.send("yes", envelope_id=f"say-{floor.seq}")
        except (OutOfTurn, ChannelClosed):
            return  # It was said in an earlier life.
        self._note(said)

    async def _interject(self, channel: Channel, after: Envelope) -> None:
        try:
            said = await channel.send("by the way", interject=True, envelope_id=f"aside-{after.seq}")
        except ChannelClosed:
            return
        self._note(said)

    def _note(self, said: Envelope) -> None:
        self.told.sent[said.channel_id, said.envelope_id] = said.seq
