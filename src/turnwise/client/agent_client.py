"""The client of an agent: it acks invitations and takes its turns."""

from __future__ import annotations

import asyncio

from turnwise.client.participant import ParticipantClient
from turnwise.client.turn import TurnHandler, take_turn
from turnwise.core.envelope import Envelope, gives_floor_to
from turnwise.core.event_types import EV_CHANNEL_OPENED
from turnwise.core.governance import Registration


class AgentClient(ParticipantClient):
    """An attached agent, driven by callbacks.

    `on_envelope` watches; `on_turn` works: its handler is called when the agent
    has the floor, under a claim, and what it returns is the packet.
    """

    def __init__(
        self, registration: Registration, agent: object = None, *, attach_plugin: bool = True
    ) -> None:
        super().__init__(registration, auto_ack_invites=True)
        self.agent = agent
        self.attach_plugin = attach_plugin
        self._handler: TurnHandler | None = None
        self._turns: set[asyncio.Task[None]] = set()

    def on_turn(self, handler: TurnHandler) -> TurnHandler:
        """Call `handler` for every turn of this agent. Works as a decorator."""
        self._handler = handler
        return handler

    async def close(self) -> None:
        for task in list(self._turns):
            task.cancel()
        await asyncio.gather(*self._turns, return_exceptions=True)
        await super().close()

    async def _handle(self, envelope: Envelope) -> None:
        if self._handler is not None and await self._is_asked(envelope):
            task = asyncio.create_task(take_turn(self.seat, envelope, self._handler))
            self._turns.add(task)
            task.add_done_callback(self._turns.discard)
        await super()._handle(envelope)

    async def _is_asked(self, envelope: Envelope) -> bool:
        if gives_floor_to(envelope) != self.agent_id:
            return False
        # Whoever opens a channel and is its first speaker says the first word itself (W6).
        is_opening = envelope.event_type == EV_CHANNEL_OPENED
        return not (
            is_opening and (await self.seat.metadata(envelope.channel_id)).creator_id == self.agent_id
        )
