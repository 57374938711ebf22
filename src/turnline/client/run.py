"""The short way in: a graph, some agents, a message; back comes how it ended (O1).

result = await run(sequence(["writer", "editor"]), agents=[writer, editor], message="HTTPS")
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnline.agent.agent import Agent
from turnline.agent.messages import Usage
from turnline.client.channel import Channel
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.link import LocalLink
from turnline.client.questions import OnQuestion, answer_questions
from turnline.core.envelope import Basis, Envelope
from turnline.core.event_types import SUBSTANTIVE
from turnline.core.governance import Passport
from turnline.core.graph import TransitionGraph
from turnline.core.packet import body_of
from turnline.core.study.spent import spent
from turnline.errors import BadSpec
from turnline.log.address import open_log
from turnline.log.base import Log
from turnline.log.memory import MemoryLog

logger = logging.getLogger(__name__)

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
    on_question: OnQuestion | None = None,
) -> RunResult:
    """Run a conversation from its message to its end.

    The graph names agents by their names, and whoever says the message `"user"`.
    With a log (`"sqlite:///story.db"`) and a channel id, starting it again goes on
    where it stopped. The agents have their own tools only, unless `attach_plugin` adds
    the network's.

    `on_question` answers what an agent asks a person: it gets the question and returns a text, True or
    False. Without it the question is printed with the command that answers it in another terminal.
    Raises `BadSpec`, `TimeoutError`, and what `on_question` raises.
    """
    _check_given(graph, message, on_question)
    opened = open_log(log) if isinstance(log, str) else log
    # Other processes answer questions on this log: `turnline channels answer`.
    hub = await Hub.open(opened, follow=not isinstance(opened, MemoryLog))
    client = HubClient(LocalLink(hub), hub=hub)
    try:
        user = await client.register_human(Passport(name=USER, kind="human"))
        names = [(await client.register(one, attach_plugin=attach_plugin)).name for one in agents]
        knobs = {"graph": graph.to_dict(), "context_vars": dict(context_vars or {})}
        channel = await user.open(
            "workflow", names, knobs, message=message, channel_id=channel_id, takes_turns=False
        )
        if channel_id is not None:
            await _check_message(hub, channel_id, message)
        questions = answer_questions(user, channel.channel_id, opened, on_question)
        await _beside(channel.result(timeout), questions)
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


async def _beside(work: Coroutine[Any, Any, object], other: Coroutine[Any, Any, None]) -> None:
    """Return when `work` has ended; `other` goes on beside it, and ends it if it fails."""
    tasks = [asyncio.create_task(work), asyncio.create_task(other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[1].done():
            await tasks[1]
        await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _check_given(graph: object, message: object, on_question: object) -> None:
    """Refuse what would fail far from here: without a message, everybody waits for the one who says it."""
    if not isinstance(graph, TransitionGraph):
        expected = "a TransitionGraph; `TransitionGraph.loads` makes one of a dict"
        raise BadSpec("graph", found=f"a {type(graph).__name__}", expected=expected)
    if not isinstance(message, str):
        raise BadSpec("message", found=f"a {type(message).__name__}", expected=f"the text that {USER!r} says")
    if on_question is not None and not callable(on_question):
        expected = "a function that gets the question and returns the answer"
        raise BadSpec("on_question", found=f"a {type(on_question).__name__}", expected=expected)


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _check_message(hub: Hub, channel_id: str, message: str) -> None:
    """Tell somebody who asks something new under an old id, and would take the old answer for the new one."""
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
