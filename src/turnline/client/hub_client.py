"""A program's connection to a hub: registers participants and gives their clients."""

from __future__ import annotations

import asyncio
from typing import Any

from turnline.agent.agent import Agent
from turnline.agent.output import Output
from turnline.client.human_client import HumanClient
from turnline.client.link import Link
from turnline.client.participant import Accept, AgentClient, ParticipantClient
from turnline.core.governance import Passport, Resume, Rule
from turnline.errors import BadDraft, UnknownParticipant
from turnline.hub.hub import Hub


class HubClient:
    """Registers agents and people over one link."""

    def __init__(self, link: Link, *, hub: Hub | None = None) -> None:
        self._link = link
        self.hub = hub
        self._clients: list[ParticipantClient] = []
        self._outputs: dict[str, Output[Any]] = {}
        """Shared by every client of this program: any of them may read a channel's result."""

    async def register(
        self,
        agent: object = None,
        passport: Passport | None = None,
        resume: Resume | None = None,
        *,
        rule: Rule | None = None,
        attach_plugin: bool = True,
        turns_at_once: int | None = None,
        accept: Accept | None = None,
    ) -> AgentClient:
        """Register an agent, or find the one of that name, and attach it (L6).

        `accept` decides on each invitation: True accepts, False or a reason rejects; without it the agent
        accepts all. It may be async, and has to answer within the opener's `ack_timeout`.

        With `attach_plugin=False` it gets none of the network's own tools. With `turns_at_once` this process
        claims no more turns of it at once, so that others with the same agent take the rest. A turn that is
        paused, for a person or for another agent, keeps no place.
        """
        passport = passport or Passport(name=str(getattr(agent, "name", "")))
        if passport.kind == "human":
            raise BadDraft(
                "passport.kind", found="'human'", expected="an agent's; use `register_human` for a person"
            )
        if accept is not None and not callable(accept):
            raise BadDraft(
                "accept", found=f"a {type(accept).__name__}", expected="a function that gets the invitation"
            )
        registration = await self._link.register(passport, resume, rule)
        client = AgentClient(
            registration, agent, attach_plugin=attach_plugin, turns_at_once=turns_at_once, accept=accept
        )
        await self._attach(client)
        if isinstance(agent, Agent) and agent.output is not None:
            self._outputs[client.agent_id] = agent.output
        return client

    async def register_human(
        self,
        passport: Passport,
        *,
        resume: Resume | None = None,
        rule: Rule | None = None,
        auto_ack_invites: bool = True,
    ) -> HumanClient:
        """Register a person, or find the one of that name, and attach it."""
        if passport.kind != "human":
            raise BadDraft("passport.kind", found=repr(passport.kind), expected="'human'")
        registration = await self._link.register(passport, resume, rule)
        client = HumanClient(registration, auto_ack_invites=auto_ack_invites)
        await self._attach(client)
        return client

    async def unregister(self, name: str) -> None:
        """Remove a participant that this client has registered. See `ParticipantClient.unregister`."""
        found = next((one for one in self._clients if name in (one.name, one.agent_id)), None)
        if found is None:
            raise UnknownParticipant(name, (one.name for one in self._clients))
        await found.unregister()
        self._outputs.pop(found.agent_id, None)
        self._clients.remove(found)

    async def close(self, *, grace_seconds: float = 0.0) -> None:
        """Give up every seat. What is open stays open, on the log; see `ParticipantClient.close`."""
        clients, self._clients = self._clients, []
        await asyncio.gather(*(client.close(grace_seconds=grace_seconds) for client in clients))
        await self._link.settle()

    async def _attach(self, client: ParticipantClient) -> None:
        await client.attach(self._link)
        client.outputs = self._outputs
        self._clients.append(client)
