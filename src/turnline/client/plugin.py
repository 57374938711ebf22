"""`NetworkPlugin`: the tools an agent on a network has beside its own.

    delegate   ask a peer and wait for its answer
    peers      who can be asked
    channels   the conversations the agent is in
    tasks      what is worked on in this conversation
    context    the context variables of a conversation

Rule 1: none of them speaks on the channel of the turn: the round's packet does.

Rule 2: a tool of the agent's own goes before the plugin's of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.tool import Tool, as_tool
from turnline.client.channel import Channel
from turnline.client.delegation import delegate, derived_id
from turnline.client.injection import SeatInject, TurnChannelInject
from turnline.client.tasks import tasks
from turnline.core.envelope import JsonObject
from turnline.core.event_types import EV_CONTEXT_SET
from turnline.errors import BadDraft, UnknownName
from turnline.hub.seat import SeatChannel


class NetworkPlugin:
    """The tools that are attached to an agent when it is registered; by default the five above."""

    def __init__(self, tools: Sequence[Callable[..., Any]] | None = None) -> None:
        self._given = tools

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        return network_tools() if self._given is None else tuple(map(as_tool, self._given))

    def tools_for(self, agent: Agent) -> tuple[Tool[..., Any], ...]:
        """Return the tools whose names the agent has not given to its own."""
        return tuple(tool for tool in self.tools if agent.tools.get(tool.name) is None)


NO_PLUGIN: Final = NetworkPlugin(())
"""Of an agent that was registered with `attach_plugin=False`."""


async def peers(seat: SeatInject) -> list[JsonObject]:
    """List who can be asked with `delegate`: their names, what they are good at, and who they are."""
    return [
        {"name": one.name, "kind": one.kind, "capabilities": one.capabilities, "summary": one.summary}
        for one in await seat.peers()
    ]


async def channels(seat: SeatInject, channel: TurnChannelInject) -> list[JsonObject]:
    """List the open conversations you are in: id, type, who else is there, and whose turn it is."""
    found = await seat.channels()
    return [_told(one, me=seat.agent_id, here=channel.channel_id) for one in found]


async def context(
    action: Annotated[Literal["read", "set", "delete"], Field(description="What to do.")],
    key: Annotated[str, Field(description="Which variable; read without one shows all of them.")] = "",
    value: Annotated[Any, Field(description="Any JSON; for set.")] = None,
    channel_id: Annotated[str, Field(description="Of a conversation you are in; this one if empty.")] = "",
    *,
    seat: SeatInject,
    channel: TurnChannelInject,
    call: Context,
) -> JsonObject:
    """Read, set or delete a context variable: what everybody in a conversation shares beside what is said."""
    is_here = channel_id in ("", channel.channel_id)
    where: Channel = channel if is_here else Channel(seat, channel_id)
    if action == "read":
        return _picked((await where.state()).context_vars, key)
    if not key:
        raise BadDraft("key", found="empty", expected="the name of a context variable")
    data: JsonObject = {"set": {key: value}} if action == "set" else {"delete": [key]}
    # Here a write is undone with its turn, and made again when the turn is taken up; elsewhere it stays.
    once = None if is_here else derived_id("context", call.idempotency_key)
    await where.send(event_type=EV_CONTEXT_SET, event_data=data, audience=[], envelope_id=once)
    return data


@cache
def network_tools() -> tuple[Tool[..., Any], ...]:
    """The five tools, made when they are first wanted: reading their signatures takes a while."""
    functions: tuple[Callable[..., Any], ...] = (delegate, peers, channels, tasks, context)
    return tuple(map(as_tool, functions))


def _told(one: SeatChannel, *, me: str, here: str) -> JsonObject:
    names = one.participants
    return {
        "channel_id": one.channel_id,
        "type": one.type,
        "others": [name for agent_id, name in names.items() if agent_id != me],
        "turn": "you" if one.speaker_id == me else names.get(one.speaker_id or ""),
        "here": one.channel_id == here,
    }


def _picked(variables: JsonObject, key: str) -> JsonObject:
    if not key:
        return variables
    if key not in variables:
        raise UnknownName("context variable", key, variables)
    return {key: variables[key]}
