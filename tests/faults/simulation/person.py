"""A person: opens conversations, takes part in them, and answers what others ask.

As every program on an unreliable log or link: what fails is tried again, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.faults.simulation.clock import SimulatedClock
from tests.faults.simulation.plot import OTHER, Plot
from tests.faults.simulation.told import Told
from turnline.client.channel import Channel
from turnline.client.human_client import HumanClient
from turnline.core.envelope import Envelope, gives_floor_to
from turnline.errors import (
    AlreadyAnswered,
    ChannelClosed,
    ClientClosed,
    HubClosed,
    LinkLost,
    LogError,
    NameTaken,
    OutOfTurn,
    UnknownName,
    UnknownQuestion,
)

MOMENT_SECONDS: Final = 0.3
ANSWER_SECONDS: Final = 6.0
"""How long, at most, a person lets others wait."""

Operate = Callable[[str], Awaitable[None]]
"""Repairs what a stuck turn fails of, and retries it."""


@dataclass(kw_only=True)
class Person:
    """A person in one process."""

    client: HumanClient
    other: str
    """The name of a person in another process."""
    clock: SimulatedClock
    random: Random
    told: Told
    plots: Mapping[str, Plot]
    """Channel -> what it is like."""
    begins_at: Mapping[str, float]
    """Channel -> when it is opened, in the loop's time."""
    operate: Operate | None = None

    async def converse(self) -> None:
        """Hold every conversation of this person, until its end."""
        await asyncio.gather(*(self._converse(*one) for one in self.plots.items()))

    async def answer_others(self) -> None:
        """Answer those who ask on channels that this person has not opened, until the seat is lost."""
        with suppress(NameTaken):
            await self._answer_others()

    async def _answer_others(self) -> None:
        async for envelope in self.client.envelopes():
            is_first = envelope.event_type == "channel.opened"  # Its step says the first word.
            is_asked = gives_floor_to(envelope) == self.client.agent_id and not is_first
            if is_asked and envelope.channel_id not in self.plots:
                await asyncio.sleep(ANSWER_SECONDS * self.random.random())
                await self._answer(envelope)

    async def _answer(self, floor: Envelope) -> None:
        while True:
            try:
                await self._say(self.client.channel(floor.channel_id), floor)
            except LogError:
                await asyncio.sleep(MOMENT_SECONDS)
            except (ClientClosed, HubClosed, LinkLost, NameTaken):
                return
            else:
                return

    async def _converse(self, channel_id: str, plot: Plot) -> None:
        """Open a conversation, or find it, take part, and wait for its end."""
        await asyncio.sleep(max(self.begins_at[channel_id] - self.clock.monotonic(), 0.0))
        graph = plot.graph(self.client.name, self.other).to_dict()
        while True:
            try:
                channel = await self.client.open(
                    "workflow",
                    [self.other if name == OTHER else name for name in plot.agents],
                    {"graph": graph},
                    channel_id=channel_id,
                    message=plot.message,
                    ttl=plot.ttl,
                    expectations=plot.expectations,
                    ack_timeout=1_000.0,
                )
                self.told.reasons[channel_id] = await self._take_part(channel, plot)
            except (HubClosed, ClientClosed):
                return
            except (LogError, UnknownName):  # Some process will have registered them.
                await asyncio.sleep(MOMENT_SECONDS)
            else:
                return

    async def _take_part(self, channel: Channel, plot: Plot) -> str:
        async for envelope in channel.stream():
            if plot.answers and gives_floor_to(envelope) == self.client.agent_id:
                await self._say(channel, envelope)
            elif envelope.event_type == "human.requested":
                await self._approve(channel, envelope)
            elif envelope.event_type == "packet" and self.random.random() < 0.1:
                await self._interject(channel, envelope)
            elif envelope.event_data.get("reason") == "stuck" and self.operate is not None:
                await self.operate(channel.channel_id)
        return (await channel.result()).reason

    async def _say(self, channel: Channel, floor: Envelope) -> None:
        try:
            said = await channel.send("yes", envelope_id=f"say-{floor.seq}")
        except (OutOfTurn, ChannelClosed):
            return  # It was said in an earlier life.
        self._note(said)

    async def _approve(self, channel: Channel, asked: Envelope) -> None:
        """Answer a question, unless the other person or an earlier life has."""
        await asyncio.sleep(ANSWER_SECONDS * self.random.random() ** 2)
        request_id = asked.event_data["request_id"]
        data = {"request_id": request_id, "answer": "yes"}
        try:
            said = await channel.send(
                event_type="human.answered", event_data=data, envelope_id=f"answer-{request_id}"
            )
        except (AlreadyAnswered, UnknownQuestion, ChannelClosed):
            return
        self._note(said)

    async def _interject(self, channel: Channel, after: Envelope) -> None:
        try:
            said = await channel.send("by the way", interject=True, envelope_id=f"aside-{after.seq}")
        except ChannelClosed:
            return
        self._note(said)

    def _note(self, said: Envelope) -> None:
        self.told.sent[said.channel_id, said.envelope_id] = said.seq
