"""The short way in: a graph, some agents, a message; back comes how it ended (O1).

result = await run(sequence(["writer", "editor"]), agents=[writer, editor], message="HTTPS")
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from turnline.agent.agent import Agent
from turnline.agent.timeouts import within
from turnline.client.channel import RunResult
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.link import LocalLink
from turnline.client.questions import OnQuestion, answer_questions
from turnline.core.event_types import SUBSTANTIVE, body_of
from turnline.core.governance import Passport
from turnline.core.graph import TransitionGraph
from turnline.core.json import normalised
from turnline.errors import BadSpec, TurnStuck
from turnline.log.address import from_anywhere, open_log
from turnline.log.base import Log
from turnline.log.memory import MemoryLog

logger = logging.getLogger(__name__)
T = TypeVar("T")

USER: Final = "user"
"""Who says the message, as a graph may name it."""
_KEPT: Final = "; run it again with the same log and channel_id, and it goes on."
_NOT_KEPT: Final = "; give it a longer timeout, or a log and a channel_id with which it can go on later."


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
    where it stopped; a channel that was opened with another graph is refused. The agents have
    their own tools only, unless `attach_plugin` adds the network's.

    `on_question` answers what an agent asks a person: it gets the question and returns a text, True or
    False. Without it the question is printed with the command that answers it in another terminal.
    Raises `BadSpec`, `TimeoutError`, `TurnStuck`, and what `on_question` raises.
    """
    members = list(agents)
    _check_given(graph, members, message, on_question)
    opened = open_log(log) if isinstance(log, str) else log
    # Other processes answer questions on this log: `turnline channels answer`.
    hub = await Hub.open(opened, follow=not isinstance(opened, MemoryLog))
    client = HubClient(LocalLink(hub), hub=hub)
    try:
        if channel_id is not None and await hub.lines.head(channel_id) is not None:
            await _check_same(hub, channel_id, graph, message)  # Before an agent resumes its turn.
        user = await client.register_human(Passport(name=USER, kind="human"))
        names = [(await client.register(one, attach_plugin=attach_plugin)).name for one in members]
        knobs = {"graph": graph.to_dict(), "context_vars": dict(context_vars or {})}
        channel = await user.open(
            "workflow", names, knobs, message=message, channel_id=channel_id, takes_turns=False
        )
        kept = _KEPT if channel_id is not None else _NOT_KEPT
        questions = answer_questions(user, channel.channel_id, opened, on_question)
        async with within(timeout, f"channel {channel.channel_id!r} has not closed", kept):
            return await _beside(channel.result(), questions)
    except TurnStuck as stuck:
        raise TurnStuck(stuck.channel_id, speaker=stuck.speaker, log=from_anywhere(opened.address)) from None
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


async def _beside(work: Coroutine[Any, Any, T], other: Coroutine[Any, Any, None]) -> T:
    """Return the result of `work`. `other` runs beside it, and ends it if it fails."""
    working, beside = asyncio.create_task(work), asyncio.create_task(other)
    try:
        await asyncio.wait((working, beside), return_when=asyncio.FIRST_COMPLETED)
        if beside.done():
            await beside
        return await working
    finally:
        for task in (working, beside):
            task.cancel()
        await asyncio.gather(working, beside, return_exceptions=True)


def _check_given(graph: object, agents: Sequence[Agent], message: object, on_question: object) -> None:
    """Refuse what would fail far from here: without a message, everybody waits for the one who says it."""
    if not isinstance(graph, TransitionGraph):
        expected = "a TransitionGraph; `TransitionGraph.loads` makes one of a dict"
        raise BadSpec("graph", found=f"a {type(graph).__name__}", expected=expected)
    if not isinstance(message, str):
        raise BadSpec("message", found=f"a {type(message).__name__}", expected=f"the text that {USER!r} says")
    if not agents:
        raise BadSpec("agents", found="none", expected="the agents that the graph names")
    if on_question is not None and not callable(on_question):
        expected = "a function that gets the question and returns the answer"
        raise BadSpec("on_question", found=f"a {type(on_question).__name__}", expected=expected)


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
