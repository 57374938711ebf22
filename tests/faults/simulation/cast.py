"""The agents. What they say names the process that says it, so that the log can be held against it.

ada   a handler; says under which claim
bob   a model and a tool that leaves a mark, and a context variable
cyd   a model alone, which is away at times
dan   a handler that always fails
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.faults.simulation.store import Store
from turnline import Agent, Context, tool
from turnline.agent.messages import Message, ModelReply, ToolCall, UserMessage
from turnline.agent.model import ModelRequest, OnText
from turnline.client.channel import Channel
from turnline.client.hub_client import HubClient
from turnline.client.turn import Turn
from turnline.core.governance import Passport
from turnline.errors import LogError, ModelError
from turnline.network import ChannelInject
from turnline.network.workflow_helpers import set_context

AGENTS: Final = ("ada", "bob", "cyd", "dan")
THINKING_SECONDS: Final = 1.5
LONG_SECONDS: Final = 8.0
"""Longer than a lease: only its heartbeat keeps such a turn."""
RETRY_SECONDS: Final = 0.5
ROUTE: Final = "route"


@dataclass(frozen=True)
class Mark:
    """A tool was run."""

    key: str
    """Of the call, the same whoever makes it."""
    process: str
    channel_id: str
    seq: int
    """How far the channel went when it was run."""


class Cast:
    """The agents of one process."""

    def __init__(self, process: str, random: Random, store: Store, marks: list[Mark]) -> None:
        self._process = process
        self._random = random
        self._store = store
        self._marks = marks

    async def enter(self, name: str, client: HubClient) -> None:
        """Register and attach one of them."""
        if name in ("ada", "dan"):
            (await client.register(None, Passport(name=name))).on_turn(self._ada if name == "ada" else _dan)
        else:
            tools = [mark] if name == "bob" else []
            model = Thinking(self._process, self._random, calls=bool(tools))
            agent = Agent(name, config=model, tools=tools, dependencies={"cast": self})
            at_once = self._random.choice((None, 1))
            await client.register(agent, attach_plugin=False, turns_at_once=at_once)

    async def _ada(self, turn: Turn) -> str:
        await think(self._random)
        if self._random.random() < 0.2:
            await set_context(turn.channel, "seen", turn.number)
        return f"{self._process} {turn.claim.seq}"

    async def mark(self, key: str, channel: Channel) -> str:
        seq = len(self._store.log.records[channel.channel_id])
        self._marks.append(Mark(key, self._process, channel.channel_id, seq))
        await think(self._random)
        while True:
            try:
                await set_context(channel, ROUTE, "left")
            except LogError:  # What a tool raises is told to the model; this one tries again instead.
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return "marked"


@tool
async def mark(context: Context, channel: ChannelInject) -> str:
    """Leave a mark."""
    assert channel is not None
    cast: Cast = context.dependencies["cast"]
    return await cast.mark(context.idempotency_key, channel)


async def _dan(turn: Turn) -> str:
    raise ValueError("never")


class Thinking:
    """See `turnline.agent.model.Model`: it takes its time, calls the tool once, and says where it is."""

    name = "thinking"

    def __init__(self, process: str, random: Random, *, calls: bool) -> None:
        self._process = process
        self._random = random
        self._calls = calls
        self._is_away = False

    def create(self) -> Thinking:
        return self

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        await think(self._random)
        self._is_away = not self._is_away and self._random.random() < 0.05
        if self._is_away:  # And there the next time: what is tried again succeeds.
            raise ModelError("thinking", because="it is away", transient=True)
        if self._calls and _since_asked(request.messages) == 0:
            return ModelReply(calls=[ToolCall(call_id="c1", tool="mark", arguments={})])
        return ModelReply(text=self._process)


def _since_asked(messages: tuple[Message, ...]) -> int:
    asked = max(number for number, one in enumerate(messages) if isinstance(one, UserMessage))
    return len(messages) - asked - 1


async def think(random: Random) -> None:
    chance = random.random()
    most = LONG_SECONDS if chance < 0.05 else THINKING_SECONDS
    await asyncio.sleep(most * random.random() ** 2)
