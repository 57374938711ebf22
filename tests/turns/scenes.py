"""An engine that plays the steps `one` and `two` of channels that its participant opens.

async with engaged(MemoryLog(), perform) as scene:
    channel_id = await scene.open()
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.hub.scenes import House, house, types
from turnline.core.channel import Participant
from turnline.core.envelope import Envelope
from turnline.core.governance import Passport
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.state import State
from turnline.core.transitions import AgentTarget, FromSpeaker, TerminateTarget
from turnline.hub.request import OpenRequest
from turnline.hub.seat import Seat
from turnline.log.base import Log
from turnline.turns.engine import Engine
from turnline.turns.work import Done, Perform, Work

ONE_TWO: Final = TransitionGraph(
    "one", [Transition(FromSpeaker("one"), AgentTarget("two"))], TerminateTarget("done")
)
STEPS: Final = [Participant("one", "one", "step"), Participant("two", "two", "step")]


class Scene:
    """A hub, a person on it, and an engine."""

    def __init__(self, home: House, seat: Seat, engine: Engine) -> None:
        self.home = home
        self.hub = home.hub
        self.seat = seat
        self.engine = engine

    async def open(self, graph: TransitionGraph = ONE_TWO, **given: Any) -> str:
        """Open a channel with the two steps, and with the person."""
        given.setdefault("target", ["ann"])
        request = OpenRequest(type="workflow", knobs={"graph": graph.to_dict()}, steps=STEPS, **given)
        return await self.hub.open_channel(request, self.seat.agent_id)

    async def ended(self, channel_id: str) -> State:
        """Wait until the channel has closed."""
        while not (state := await self.hub.state(channel_id)).is_over:
            await self.hub.wait_beyond(channel_id, state.seq)
        return state

    async def paused(self, channel_id: str) -> State:
        """Wait until the turn in progress has paused."""
        while (state := await self.hub.state(channel_id)).pause is None:
            assert not state.is_over, await self.types(channel_id)
            await self.hub.wait_beyond(channel_id, state.seq)
        return state

    async def lines(self, channel_id: str) -> list[Envelope]:
        return await self.hub.read_wal(channel_id)

    async def types(self, channel_id: str) -> list[str]:
        return types(await self.lines(channel_id))


@asynccontextmanager
async def engaged(
    log: Log,
    perform: Perform | None,
    *,
    places: int | None = None,
    seat_class: type[Seat] = Seat,
    **options: Any,
) -> AsyncIterator[Scene]:
    """An engine on a hub of its own; it stops with the block."""
    async with house(log, people=["ann"], **options) as home:
        registration = await home.hub.enrol(Passport(name="player"), None, None)
        seat = seat_class(home.hub, registration)
        engine = Engine(seat, seat.player, lambda speaker: perform, places=places)
        home.hub.attach(seat.agent_id, engine)
        try:
            yield Scene(home, seat, engine)
        finally:
            home.hub.detach(seat.agent_id)
            await engine.stop()
            seat.leave()


async def says(work: Work) -> Done:
    """Say the speaker's name."""
    return Done(data={"body": work.speaker})
