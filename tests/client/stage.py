"""Agents with scripted models on channels: a house with `Agent`s in it, and a user who opens.

async with stage(Agent("ada", config=ScriptedModel("hi"))) as home:
    channel = await played(home, sequence(["user", "ada"]))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.hub.scenes import House, closed, house
from tests.logs import new_log
from turnline.agent.agent import Agent
from turnline.agent.messages import ModelReply, ToolMessage
from turnline.client.channel import Channel
from turnline.core.envelope import Envelope
from turnline.core.graph import TransitionGraph, sequence
from turnline.log.base import Log
from turnline.testing import ScriptedModel

USER_ADA: Final = sequence(["user", "ada"])


@asynccontextmanager
async def stage(
    *agents: Agent, log: Log | None = None, people: Iterable[str] = ("user",), **options: Any
) -> AsyncIterator[House]:
    """A house on `log` with these agents; started again on the same log, it goes on (L6)."""
    async with house(log or new_log(), people=people, **options) as home:
        for agent in agents:
            home.agents[agent.name] = await home.door.register(agent)
        yield home


async def begun(home: House, graph: TransitionGraph = USER_ADA, **given: Any) -> Channel:
    """The user says "go"."""
    return await home.open(graph, by="user", message="go", **given)


async def played(home: House, graph: TransitionGraph = USER_ADA, **given: Any) -> Channel:
    """The user says "go"; return the channel once it has closed."""
    channel = await begun(home, graph, **given)
    await closed(channel)
    return channel


async def packets(home: House, channel: Channel) -> list[Envelope]:
    return [one for one in await home.wal(channel) if one.event_type == "packet"]


async def speakers(home: House, channel: Channel) -> list[str]:
    """Who had a turn, in order."""
    names = {one.agent_id: one.name for one in (await channel.info()).participants}
    return [names[one.sender_id] for one in await home.wal(channel) if one.event_type in ("text", "packet")]


def told(model: ScriptedModel, request: int = -1) -> list[str]:
    """What the tools answered, as the model was told it."""
    return [one.text for one in model.requests[request].messages if isinstance(one, ToolMessage)]


def heard(model: ScriptedModel, request: int = -1) -> list[tuple[str, str]]:
    """What the model was shown: who said what, its own lines as `me`."""
    return [
        ("me" if isinstance(one, ModelReply) else getattr(one, "name", ""), one.text)
        for one in model.requests[request].messages
    ]
