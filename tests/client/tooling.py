"""The network's tools in tests: agents that have them, and calls of one tool by hand.

output = await use(home, "ada", channel, "peers")
"""

from __future__ import annotations

from typing import Any

from tests.client.stage import begun
from tests.hub.scenes import House
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.tool_result import CallPaused, ToolOutput
from turnline.client.channel import Channel
from turnline.client.participant import AgentClient
from turnline.client.plugin import network_tools
from turnline.core.governance import Resume, Rule
from turnline.testing import ScriptedModel
from turnline.turns.children import Children


def actor(name: str, *script: Any, **given: Any) -> tuple[Agent, ScriptedModel]:
    """An agent that follows a script, and its model."""
    model = ScriptedModel(*script)
    return Agent(name, config=model, **given), model


async def join(
    home: House, agent: Agent, *, resume: Resume | None = None, rule: Rule | None = None, plugin: bool = True
) -> AgentClient:
    """Register `agent` where `stage` would, with what `stage` does not give."""
    client = await home.door.register(agent, None, resume, rule=rule, attach_plugin=plugin)
    home.agents[agent.name] = client
    return client


async def ask_ada(home: House, **given: Any) -> Channel:
    """The user says "go" to ada alone."""
    return await begun(home, target=["ada"], **given)


async def use(
    home: House,
    name: str,
    where: Channel,
    tool: str,
    *,
    again: str = "",
    claim: int | None = None,
    **arguments: Any,
) -> ToolOutput:
    """Call a tool of the network by hand, as in a turn of `name`; the same `again` makes it the same call."""
    seat = home[name].seat
    state = await seat.state(where.channel_id)
    children = Children(seat, where.channel_id, state.turn)
    channel = Channel(seat, where.channel_id, claim=claim)
    extras = {"seat": seat, "channel": channel, "state": state, "children": children}
    found = next(one for one in network_tools() if one.name == tool)
    context = Context(idempotency_key=again or home.hub.new_id(), extras=extras)
    while True:
        try:
            return await found.call(arguments, context)
        except CallPaused as waits:
            for child in waits.paused.children:
                await Channel(seat, child).result()
