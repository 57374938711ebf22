"""A server with a conversation on it: an agent that follows a script, and people who take part.

async with scene("hello") as stage:
    channel = await stage.open("Can you help?")
    answer = await stage.server.get(f"/channels/{channel}", token="carol")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.server.stage import Server, served
from turnline.agent.agent import Agent
from turnline.agent.scripted import ScriptedModel, ScriptItem
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.link import LocalLink
from turnline.core.envelope import JsonObject
from turnline.core.governance import Passport
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.transitions import AgentTarget, FromSpeaker, TerminateTarget
from turnline.log.base import Log
from turnline.log.memory import MemoryLog

HELP_DESK = TransitionGraph(
    "carol",
    [
        Transition(FromSpeaker("carol"), AgentTarget("helper")),
        Transition(FromSpeaker("helper"), AgentTarget("carol")),
    ],
    TerminateTarget("nobody"),
)
"""carol and the helper in turn."""


class Scene:
    """A server, and the people and agents on its hub."""

    def __init__(self, server: Server, people: dict[str, HumanClient]) -> None:
        self.server = server
        self.people = people
        self.hub = server.runtime.hub

    async def open(self, message: str | None = None, *, by: str = "carol", **given: Any) -> str:
        """Open the help desk; with a message the helper answers, and the floor is carol's again."""
        knobs = {"graph": HELP_DESK.to_dict(), **given.pop("knobs", {})}
        target = given.pop("target", ["helper"])
        channel = await self.people[by].open(
            type="workflow", target=target, knobs=knobs, message=message, **given
        )
        if message is not None:
            await self.until(channel.channel_id, lambda state: state.turn_count >= 2)
        return channel.channel_id

    async def until(self, channel_id: str, holds: Callable[[Any], bool]) -> None:
        while not holds(state := await self.hub.state(channel_id)):
            await self.hub.wait_beyond(channel_id, state.seq)

    async def data(self, path: str, *, token: str = "root") -> JsonObject:
        answer = await self.server.get(path, token=token)
        assert answer.status_code == 200, answer.text
        found: JsonObject = answer.json()["data"]
        return found

    async def lines(
        self, channel_id: str, *, token: str = "root", query: str = "limit=200"
    ) -> list[JsonObject]:
        found: list[JsonObject] = (await self.data(f"/channels/{channel_id}/envelopes?{query}", token=token))[
            "envelopes"
        ]
        return found


@asynccontextmanager
async def scene(
    *script: ScriptItem,
    flows: str = "",
    log: Callable[[], Log] = MemoryLog,
    tools: Any = (),
    **given: Any,
) -> AsyncIterator[Scene]:
    """A server whose hub has the agent `helper` and the people carol and dave."""
    async with served(*([flows] if flows else []), log=log, **given) as server:
        hub = server.runtime.hub
        door = HubClient(LocalLink(hub), hub=hub)
        try:
            await door.register(
                Agent("helper", "You help.", config=ScriptedModel(*script), tools=list(tools))
            )
            people = {
                name: await door.register_human(Passport(name=name, kind="human"))
                for name in ("carol", "dave")
            }
            yield Scene(server, people)
        finally:
            await door.close()
