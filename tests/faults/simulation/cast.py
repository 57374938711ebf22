"""The agents. Their packets name the process and the claim, so that the log can be checked against them.

ada   a handler
bob   a model, a tool that leaves a mark, and a context variable
cyd   a model alone, which is away at times
dan   a handler that always fails
eve   a handler that pauses for a while, and records results with `once`
fay   a handler that asks ada on a channel below, and pauses until she has answered
gil   a model, and two calls of a tool that a person has to approve
hal   a model that delegates to gil, whose questions go up; ivy   to hal; joy   to roy
kim   a handler that kills its process, until the operator has repaired it
lou   a handler that takes long and records nothing: it is innocent when its process is killed
sly   a handler that pauses for longer than anybody waits
rae   like eve, rob   like bob, and roy   like gil: in a process of their own, over a link
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from tests.faults.simulation.store import Store
from turnline import Agent, Context, tool
from turnline.agent.messages import Message, ModelReply, ToolCall, UserMessage
from turnline.agent.model import ModelRequest, OnText
from turnline.client.channel import Channel
from turnline.client.hub_client import HubClient
from turnline.client.participant import AgentClient, _turn
from turnline.client.turn import Turn
from turnline.core.claims import Paused
from turnline.core.governance import Passport
from turnline.errors import LogError, ModelError
from turnline.hub.request import OpenRequest
from turnline.network import ChannelInject
from turnline.network.workflow_helpers import set_context
from turnline.turns.children import Children

AGENTS: Final = ("ada", "bob", "cyd", "dan", "eve", "fay", "gil", "hal", "ivy", "joy", "lou", "sly")
SUSPECT: Final = "kim"
REMOTE: Final = ("rae", "rob", "roy")
DELEGATES: Final = {"hal": "gil", "ivy": "hal", "joy": "roy"}
THINKING_SECONDS: Final = 1.5
LONG_SECONDS: Final = 8.0
"""Longer than a lease: only its heartbeat keeps such a turn."""
PAUSE_SECONDS: Final = 4.0
NEVER_SECONDS: Final = 3_000.0
RETRY_SECONDS: Final = 0.5
ROUTE: Final = "route"


@dataclass(frozen=True)
class Mark:
    """Something was done that a turn records: a model answered, a tool or a function of `once` ran."""

    kind: str
    """`model`, `tool` or `once`."""
    key: str
    """The number of the reply in its turn, the id of the call, or the key of `once`."""
    process: str
    channel_id: str
    seq: int
    """The channel's last line when it was done."""


class Cast:
    """The agents of one process."""

    def __init__(
        self,
        process: str,
        random: Random,
        store: Store,
        marks: list[Mark],
        *,
        kill: Callable[[], None],
        repaired: set[str],
    ) -> None:
        """`kill` kills the process. On `repaired` channels kim does not call it."""
        self.process = process
        self.random = random
        self._store = store
        self._marks = marks
        self.kill = kill
        self._repaired = repaired

    async def enter(self, name: str, client: HubClient) -> None:
        """Register and attach one of them."""
        at_once = self.random.choice((None, 1))
        if (calls := _calls_of(name)) is not None:
            tools = [tool for tool in (mark, pay) if tool.name in [one.tool for one in calls]]
            agent = Agent(name, config=Thinking(self, calls), tools=tools, dependencies={"cast": self})
            await client.register(agent, attach_plugin=name in DELEGATES, turns_at_once=at_once)
            return
        agent_client = await client.register(None, Passport(name=name), turns_at_once=at_once)
        handlers: dict[str, Callable[[Turn], Awaitable[str | Paused]]] = {
            "ada": self._ada,
            "dan": _dan,
            "eve": self._eve,
            "rae": self._eve,
            "fay": partial(self._fay, agent_client),
            "kim": self._kim,
            "lou": self._lou,
            "sly": _sly,
        }
        agent_client.on_turn(handlers[name])

    def mark(self, kind: str, key: str, channel_id: str) -> None:
        """Note that something was done."""
        seq = len(self._store.log.records.get(channel_id, ()))
        self._marks.append(Mark(kind, key, self.process, channel_id, seq))

    def sign(self, turn: Turn) -> str:
        """Return a body that says who worked on the turn."""
        return f"{self.process} {turn.claim.seq}"

    # Handlers.

    async def _ada(self, turn: Turn) -> str:
        await think(self.random)
        if self.random.random() < 0.2:
            await set_context(turn.channel, "seen", turn.number)
        return self.sign(turn)

    async def _eve(self, turn: Turn) -> str | Paused:
        await turn.once("begin", partial(self._do, "begin", turn.channel.channel_id))
        if not any(one.event_type == "turn.paused" for one in turn.lines):
            return Paused(reason="time", seconds=PAUSE_SECONDS * self.random.random())
        await turn.once("end", partial(self._do, "end", turn.channel.channel_id))
        return self.sign(turn)

    async def _do(self, key: str, channel_id: str) -> int:
        self.mark("once", key, channel_id)
        await think(self.random)
        return 1

    async def _fay(self, client: AgentClient, turn: Turn) -> str | Paused:
        children = Children(client.seat, turn.channel.channel_id, turn.number)
        state = await children.state("0")
        if state is None:
            await children.open("0", OpenRequest(type="consulting", target=["ada"], message="Well?"))
            state = await children.state("0")
        assert state is not None
        if not state.is_over:
            return Paused(reason="children", children=[children.id_of("0")])
        return self.sign(turn)

    async def _kim(self, turn: Turn) -> str:
        await asyncio.sleep(THINKING_SECONDS * self.random.random())
        if turn.channel.channel_id not in self._repaired:
            self.kill()
            await asyncio.Event().wait()
        return self.sign(turn)

    async def _lou(self, turn: Turn) -> str:
        await asyncio.sleep(LONG_SECONDS * (0.5 + self.random.random() / 2))
        return self.sign(turn)

    async def run_tool(self, call: str, channel: Channel) -> str:
        self.mark("tool", call, channel.channel_id)
        await think(self.random)
        while True:
            try:
                await set_context(channel, ROUTE, "left")
            except LogError:  # What a tool raises is shown to the model; this one tries again instead.
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return "marked"


@tool
async def mark(context: Context, channel: ChannelInject) -> str:
    """Leave a mark."""
    assert channel is not None
    cast: Cast = context.dependencies["cast"]
    return await cast.run_tool(call_of(context), channel)


@tool(approval=True)
async def pay(context: Context, channel: ChannelInject) -> str:
    """Pay, once a person has approved it."""
    assert channel is not None
    cast: Cast = context.dependencies["cast"]
    cast.mark("tool", call_of(context), channel.channel_id)
    await think(cast.random)
    return "paid"


def _calls_of(name: str) -> list[ToolCall] | None:
    """Return the calls of an agent's first reply; None for one that has a handler."""
    match name:
        case "cyd":
            return []
        case "bob" | "rob":
            return [ToolCall(call_id="c1", tool="mark", arguments={})]
        case "gil" | "roy":
            return [ToolCall(call_id=one, tool="pay", arguments={}) for one in ("c1", "c2")]
    if name not in DELEGATES:
        return None
    return [ToolCall(call_id="c1", tool="delegate", arguments={"to": DELEGATES[name], "task": "Pay."})]


def call_of(context: Context) -> str:
    """Return the id of the call that a tool runs in."""
    return context.idempotency_key.split(":")[2]


async def _dan(turn: Turn) -> str:
    raise ValueError("never")


async def _sly(turn: Turn) -> Paused:
    return Paused(reason="time", seconds=NEVER_SECONDS)


class Thinking:
    """See `turnline.agent.model.Model`: it takes its time, calls a tool once, and says where it is."""

    name = "thinking"

    def __init__(self, cast: Cast, calls: list[ToolCall], says: str | None = None) -> None:
        self._cast = cast
        self._calls = calls
        self._says = says or cast.process
        self._is_away = False

    def create(self) -> Thinking:
        return self

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        random = self._cast.random
        await think(random)
        self._is_away = not self._is_away and random.random() < 0.05
        if self._is_away:  # And there the next time: what is tried again succeeds.
            raise ModelError("thinking", because="it is away", transient=True)
        # Replies of earlier turns are shown without their calls. An interjection may be the last message.
        replies = sum(isinstance(one, ModelReply) and bool(one.calls) for one in request.messages)
        is_step = any(one.tool == "stamp" for one in self._calls)
        channel_id = _run_of(request.messages) if is_step else _turn.get()[1]
        self._cast.mark("model", str(replies), channel_id)
        if self._calls and not replies:
            return ModelReply(calls=self._calls)
        return ModelReply(text=self._says)


def _run_of(messages: tuple[Message, ...]) -> str:
    """Return the run whose step is asked: its prompt ends with the id."""
    text = next(one.text for one in messages if isinstance(one, UserMessage))
    return text.split()[-1]


async def think(random: Random) -> None:
    chance = random.random()
    most = LONG_SECONDS if chance < 0.05 else THINKING_SECONDS
    await asyncio.sleep(most * random.random() ** 2)
