"""The short way in: a graph, some agents, a message; back comes how it ended (O1).

result = await run(sequence(["writer", "editor"]), agents=[writer, editor], message="HTTPS")
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnline.agent.agent import Agent
from turnline.agent.messages import Usage
from turnline.agent.timeouts import within
from turnline.client.channel import Channel
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.link import LocalLink
from turnline.core.envelope import Basis, Envelope
from turnline.core.event_types import SUBSTANTIVE
from turnline.core.governance import Passport
from turnline.core.graph import TransitionGraph
from turnline.core.json import normalised
from turnline.core.packet import body_of
from turnline.core.study.spent import spent
from turnline.errors import BadSpec
from turnline.log.base import Log

logger = logging.getLogger(__name__)

USER: Final = "user"
"""Who says the message, as a graph may name it."""
_KEPT: Final = "; run it again with the same log and channel_id, and it goes on."
_NOT_KEPT: Final = "; give it a longer timeout, or a log and a channel_id with which it can go on later."


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
    error: str = ""
    """Why the turn failed that closed the channel; empty if none did."""

    def __str__(self) -> str:
        said = "\n".join(f"{line.speaker}: {line.text}" for line in self.transcript)
        return f"{said}\n(closed: {self.reason}{self.error and f'; {self.error}'})"


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
    where it stopped; a channel that was opened with another graph is refused. The agents have
    their own tools only, unless `attach_plugin` adds the network's. Raises `BadSpec`, and `TimeoutError`.
    """
    _check_given(graph, message)
    hub = await Hub.open(log)
    client = HubClient(LocalLink(hub), hub=hub)
    try:
        if channel_id is not None and await hub.lines.head(channel_id) is not None:
            await _check_same(hub, channel_id, graph, message)  # Before an agent resumes its turn.
        user = await client.register_human(Passport(name=USER, kind="human"))
        names = [(await client.register(one, attach_plugin=attach_plugin)).name for one in agents]
        knobs = {"graph": graph.to_dict(), "context_vars": dict(context_vars or {})}
        channel = await user.open("workflow", names, knobs, message=message, channel_id=channel_id)
        kept = _KEPT if channel_id is not None else _NOT_KEPT
        async with within(timeout, f"channel {channel.channel_id!r} has not closed", kept):
            await channel.result()
        return await _told(hub, channel)
    finally:
        await client.close()
        await hub.close()


def run_sync(graph: TransitionGraph, **options: Any) -> RunResult:
    """`run`, for a program without an event loop."""
    if _is_in_a_loop():
        raise RuntimeError(
            "run_sync was called where an event loop runs: in an async function or a notebook; "
            "expected a program without one. Use `await run(...)` there."
        )
    return asyncio.run(run(graph, **options))


def _check_given(graph: object, message: object) -> None:
    """Refuse what would fail far from here: without a message, everybody waits for the one who says it."""
    if not isinstance(graph, TransitionGraph):
        expected = "a TransitionGraph; `TransitionGraph.loads` makes one of a dict"
        raise BadSpec("graph", found=f"a {type(graph).__name__}", expected=expected)
    if not isinstance(message, str):
        raise BadSpec("message", found=f"a {type(message).__name__}", expected=f"the text that {USER!r} says")


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _check_same(hub: Hub, channel_id: str, graph: TransitionGraph, message: str) -> None:
    """Refuse another graph under an old id; warn of another message, whose answer would be the old one."""
    spec = (await hub.state(channel_id)).spec
    theirs, ours = spec.knobs.get("graph") or {}, normalised(graph.to_dict(), field="graph")
    parts = ", ".join(part for part in ours if ours[part] != theirs.get(part))
    if "flow" in spec.knobs or spec.type != "workflow":
        kind = "a run of a flow" if "flow" in spec.knobs else f"a {spec.type} channel"
        raise BadSpec("channel_id", found=f"{channel_id!r}, {kind}", expected="a new id, or that of a graph")
    if parts:
        found = f"another one than that of channel {channel_id!r}, which is on the log (different: {parts})"
        raise BadSpec("graph", found=found, expected="the graph of the channel, or a new channel_id")
    log = await hub.read_wal(channel_id)
    first = next((one for one in log if one.event_type in SUBSTANTIVE), None)
    if first is not None and body_of(first.event_type, first.event_data) != message:
        logger.warning(
            "channel %r began with another message, and goes on with that one; "
            "a conversation of its own needs a channel_id of its own",
            channel_id,
        )


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
        error=result.error,
    )


def _line(envelope: Envelope, names: Mapping[str, str]) -> Line:
    return Line(
        speaker=names.get(envelope.sender_id, envelope.sender_id),
        text=body_of(envelope.event_type, envelope.event_data),
        why=None if envelope.decision is None else envelope.decision.by,
    )
