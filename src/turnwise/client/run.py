"""The short way in: a graph, some agents, a message; back comes how it ended (O1).

result = await run(sequence(["writer", "editor"]), agents=[writer, editor], message="HTTPS")
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnwise.agent.agent import Agent
from turnwise.agent.messages import Usage
from turnwise.client.channel import Channel
from turnwise.client.embedded import Hub
from turnwise.client.hub_client import HubClient
from turnwise.client.link import LocalLink
from turnwise.core.envelope import Basis, Envelope
from turnwise.core.event_types import SUBSTANTIVE
from turnwise.core.governance import Passport
from turnwise.core.graph import TransitionGraph
from turnwise.core.packet import body_of
from turnwise.core.study.spent import spent
from turnwise.log.address import open_log
from turnwise.log.base import Log

USER: Final = "user"
"""Who says the message, as a graph may name it."""


class Line(Struct, frozen=True, kw_only=True):
    """Something that was said."""

    speaker: str
    text: str
    why: Basis | None
    """What decided who was next; None for what was not a turn."""


class RunResult(Struct, frozen=True, kw_only=True):
    """How a conversation ended, and what was said."""

    channel_id: str
    reason: str
    text: str
    """The last thing said."""
    transcript: list[Line]
    context_vars: dict[str, Any]
    turns: int
    usage: Usage

    def __str__(self) -> str:
        said = "\n".join(f"{line.speaker}: {line.text}" for line in self.transcript)
        return f"{said}\n(closed: {self.reason})"


async def run(
    graph: TransitionGraph,
    *,
    agents: Iterable[Agent],
    message: str,
    context_vars: Mapping[str, Any] | None = None,
    log: Log | str = "memory:",
    channel_id: str | None = None,
    timeout: float | None = None,
    attach_plugin: bool = False,
) -> RunResult:
    """Run a conversation from its message to its end.

    The graph names agents by their names, and whoever says the message `"user"`.
    With a log (`"sqlite:///story.db"`) and a channel id, starting it again goes on
    where it stopped. The agents have their own tools only, unless `attach_plugin` adds
    the network's. Raises `TimeoutError`.
    """
    hub = await Hub.open(open_log(log) if isinstance(log, str) else log)
    client = HubClient(LocalLink(hub), hub=hub)
    try:
        user = await client.register_human(Passport(name=USER, kind="human"))
        names = [(await client.register(one, attach_plugin=attach_plugin)).name for one in agents]
        knobs = {"graph": graph.to_dict(), "context_vars": dict(context_vars or {})}
        channel = await user.open("workflow", names, knobs, message=message, channel_id=channel_id)
        await channel.result(timeout)
        return await _told(hub, channel)
    finally:
        await client.close()
        await hub.close()


def run_sync(graph: TransitionGraph, **options: Any) -> RunResult:
    """`run`, for a program without an event loop."""
    return asyncio.run(run(graph, **options))


async def _told(hub: Hub, channel: Channel) -> RunResult:
    info, result = await channel.info(), await channel.result()
    names = {one.agent_id: one.name for one in info.participants}
    log = await hub.read_wal(channel.channel_id)
    return RunResult(
        channel_id=channel.channel_id,
        reason=result.reason,
        text=result.text,
        transcript=[_line(one, names) for one in log if one.event_type in SUBSTANTIVE],
        context_vars=result.context_vars,
        turns=result.turns,
        usage=Usage(**msgspec.to_builtins(spent(log))),
    )


def _line(envelope: Envelope, names: Mapping[str, str]) -> Line:
    return Line(
        speaker=names.get(envelope.sender_id, envelope.sender_id),
        text=body_of(envelope.event_type, envelope.event_data),
        why=None if envelope.decision is None else envelope.decision.by,
    )
