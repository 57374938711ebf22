"""The client of an agent: it acks invitations and takes its turns."""

from __future__ import annotations

from asyncio import Semaphore
from contextvars import ContextVar
from functools import partial
from typing import Final

from turnline.agent.agent import Agent
from turnline.agent.network_tools import NETWORK_TOOLS, tool_names
from turnline.client.agent_turn import AgentTurns
from turnline.client.link import Link
from turnline.client.participant import Accept, OnEnvelope, ParticipantClient
from turnline.client.plugin import NO_PLUGIN, NetworkPlugin
from turnline.client.retry import retried
from turnline.client.turn import NO_LIMIT, Room, TurnHandler, take_turn
from turnline.core.envelope import Envelope, gives_floor_to
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CHANNEL_OPENED
from turnline.core.governance import Registration

_NO_TURN: Final = ("", "")
_turn: Final = ContextVar("turn", default=_NO_TURN)
"""Whose turn this task works on, and on which channel: what is opened in it is below that (T7)."""


class AgentClient(ParticipantClient):
    """An attached agent: an `Agent`, or callbacks.

    `on_envelope` watches; `on_turn` works: its handler is called when the agent
    has the floor, under a claim, and what it returns is the packet.
    """

    def __init__(
        self,
        registration: Registration,
        agent: object = None,
        *,
        attach_plugin: bool = True,
        turns_at_once: int | None = None,
        accept: Accept | None = None,
    ) -> None:
        super().__init__(registration, auto_ack_invites=True, accept=accept)
        self._room: Room = NO_LIMIT if turns_at_once is None else Semaphore(turns_at_once)
        self.agent = agent
        self.attach_plugin = attach_plugin
        self._handler: TurnHandler | None = None
        self._agent_turns: AgentTurns | None = None
        self._floors: dict[str, Envelope] = {}
        """Channel -> the line that gave the floor, where no handler has taken it up."""

    def on_turn(self, handler: TurnHandler) -> TurnHandler:
        """Call `handler` for every turn of this agent, a waiting one included. Works as a decorator."""
        self._handler = handler
        floors, self._floors = self._floors, {}
        for envelope in floors.values():
            self._begin(self._take(envelope, handler), envelope)
        return handler

    def on_envelope(self, callback: OnEnvelope) -> OnEnvelope:
        """See `ParticipantClient.on_envelope`. The first callback is told of the floors that wait already."""
        is_first = not self._callbacks
        super().on_envelope(callback)
        for envelope in self._floors.values() if is_first else ():
            self._begin(super()._handle(envelope), envelope)
        return callback

    async def attach(self, link: Link) -> None:
        """See `ParticipantClient.attach`. An `Agent` takes its turns itself."""
        await super().attach(link)
        if isinstance(self.agent, Agent):
            plugin = NetworkPlugin() if self.attach_plugin else NO_PLUGIN
            self._agent_turns = AgentTurns(self.agent, self.seat, plugin)
            self.on_turn(self._agent_turns)

    def _tools(self) -> frozenset[str] | None:
        if not isinstance(self.agent, Agent):
            return None
        return tool_names(self.agent, *(NETWORK_TOOLS if self.attach_plugin else ()))

    def _turn_channel(self) -> str | None:
        agent_id, channel_id = _turn.get()
        return channel_id if agent_id == self.agent_id else None

    async def _handle(self, envelope: Envelope) -> None:
        _turn.set(_NO_TURN)  # This task may have been begun, by way of the hub, from within a turn.
        if envelope.event_type == EV_CHANNEL_CLOSED:
            self._floors.pop(envelope.channel_id, None)
            if self._agent_turns is not None:
                self._agent_turns.forget(envelope.channel_id)
        elif gives_floor_to(envelope) == self.agent_id:
            if self._handler is None:
                self._floors[envelope.channel_id] = envelope
            else:
                self._begin(self._take(envelope, self._handler), envelope)
        await super()._handle(envelope)

    async def _is_opener(self, channel_id: str) -> bool:
        read = partial(self.seat.metadata, channel_id)
        return (await retried(self.seat, read, f"{channel_id} is not read")).creator_id == self.agent_id

    async def _take(self, envelope: Envelope, handler: TurnHandler) -> None:
        # Whoever opens a channel and is its first speaker says the first word itself (W6).
        if envelope.event_type == EV_CHANNEL_OPENED and await self._is_opener(envelope.channel_id):
            return
        await self._work_on(envelope, handler)

    async def _work_on(self, envelope: Envelope, handler: TurnHandler) -> None:
        _turn.set((self.agent_id, envelope.channel_id))  # In this task, and those that are begun in it.
        await take_turn(self.seat, envelope, handler, at_work=self._at_work, room=self._room)
