"""Recorded tools: in a replay, tool calls are answered from the original conversation.

Rule 1: no tool of an agent runs. A call of the same agent, tool and arguments gets the recorded result, with
the context variables that it wrote. Of several such results each answers once, in their order; the last one
answers every further call. A call that was not recorded is refused: the model reads why.

Rule 2: the network's tools work, because they act on the fork and below it. One that would act elsewhere
(`delegate` to an agent outside of the replay, `context` of another channel) is treated like any other tool.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import ModelReply, ToolCall
from turnline.agent.round import ToolAnswer
from turnline.agent.tool import Tool
from turnline.agent.tool_result import ToolOutput
from turnline.client.channel import Channel, update_context
from turnline.client.delegation import asked_place, delegate
from turnline.client.plugin import network_tools
from turnline.core.channel import child_id
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_CONTEXT_SET
from turnline.core.state import State
from turnline.hub.hub import Hub
from turnline.turns.journal import entries

logger = logging.getLogger(__name__)

MAX_CHANNELS: Final = 1_000
"""Channels below the original that are read for results."""
_REFUSED: Final = "this is a replay, and {!r} was not run: no call of it was recorded with these arguments."
_DELEGATE: Final = delegate.__name__
_CONTEXT: Final = "context"

Key = tuple[str, str, bytes]
"""The name of an agent, a tool, and the arguments as JSON."""
IsInside = Callable[[JsonObject, Context], bool]
"""Says whether a call of a network's tool acts within the replay."""


class Result(Struct, frozen=True, kw_only=True):
    """The result of a recorded call."""

    output: ToolOutput
    writes: tuple[JsonObject, ...]
    """The updates of context variables that were made in the call."""


class Recordings:
    """The results of the original conversation, by agent, tool and arguments."""

    def __init__(self) -> None:
        self._results: dict[Key, deque[Result]] = {}

    def add(self, agent: str, call: ToolCall, result: Result) -> None:
        self._results.setdefault(_key(agent, call.tool, call.arguments), deque()).append(result)

    def take(self, agent: str, tool: str, arguments: JsonObject) -> Result | None:
        """Return the next result of this call. The last one stays."""
        results = self._results.get(_key(agent, tool, arguments))
        if not results:
            return None
        return results.popleft() if len(results) > 1 else results[0]


def recorded_agent(agent: Agent, recordings: Recordings, cast: Collection[str]) -> Agent:
    """Return the same agent, whose tool calls are answered from `recordings`.

    `cast` are the names of the participants that act in the replay.
    """
    inside: dict[str, IsInside] = {
        _DELEGATE: lambda arguments, _: arguments.get("to") in cast,
        _CONTEXT: lambda arguments, context: arguments.get("channel_id", "") in ("", _channel_of(context)),
    }
    own = [RecordedTool(one, agent.name, recordings) for one in agent.tools]
    names = {one.name for one in own}
    network = [
        RecordedTool(one, agent.name, recordings, is_inside=inside[one.name])
        for one in network_tools()
        if one.name in inside and one.name not in names
    ]
    return agent.but(tools=[*own, *network])


class RecordedTool(Tool[..., Any]):
    """A tool that looks like another one to the model, and answers from the record."""

    def __init__(
        self, tool: Tool[..., Any], agent: str, recordings: Recordings, *, is_inside: IsInside | None = None
    ) -> None:
        self.__dict__.update(vars(tool))  # Its name and description, whatever it was made of.
        self.approval = False
        self._tool = tool
        self._agent = agent
        self._recordings = recordings
        self._is_inside = is_inside

    @property
    def schema(self) -> JsonObject:
        return self._tool.schema

    async def call(self, arguments: JsonObject, context: Context) -> ToolOutput:
        """Answer from the record, or refuse; a network's tool runs where it acts within the replay."""
        if self._is_inside is not None and self._is_inside(arguments, context):
            return await self._tool.call(arguments, context)
        result = self._recordings.take(self._agent, self.name, arguments)
        if result is None:
            logger.warning(
                "A replay refused a call of %r by %r: none was recorded with these arguments. "
                'tools="live" would run it.',
                self.name,
                self._agent,
            )
            return ToolOutput(text=_REFUSED.format(self.name), failed=True)
        channel = context.extras.get("channel")
        if isinstance(channel, Channel):
            for write in result.writes:
                await update_context(channel, **write)
        return result.output


async def recordings_of(hub: Hub, channel_id: str, *, after: int) -> Recordings:
    """Read the results of a channel after line `after`, and of the channels below those turns."""
    found, waiting, count = Recordings(), deque([(channel_id, after)]), 0
    while waiting and count < MAX_CHANNELS:
        one, since = waiting.popleft()
        waiting.extend((child, 0) for child in await _read(hub, one, since, found))
        count += 1
    return found


async def _read(hub: Hub, channel_id: str, after: int, found: Recordings) -> list[str]:
    """Add the results of one channel; return the channels that its turns opened."""
    children, turn, lines = list[str](), (0, "", False), list[Envelope]()

    async def end_turn() -> None:
        for call in _add_turn(found, turn[1], lines):
            if call.tool == _DELEGATE:
                key = f"{channel_id}:{turn[0]}:{call.call_id}:{call.tool}"
                children.extend(await _present(hub, [child_id(channel_id, turn[0], asked_place(key))]))
        if turn[2]:
            children.extend(
                await _present(hub, (child_id(channel_id, turn[0], str(n)) for n in range(MAX_CHANNELS)))
            )
        lines.clear()

    async for line, state in hub.history.states(channel_id):
        if line.seq <= after:
            continue
        if (state.turn, *_speaker(state)) != turn:
            await end_turn()
            turn = (state.turn, *_speaker(state))
        lines.append(line)
    await end_turn()
    return children


def _add_turn(found: Recordings, agent: str, lines: list[Envelope]) -> list[ToolCall]:
    """Add the results of one turn's lines; return its calls."""
    recorded = entries(lines)
    calls = {call.call_id: call for one in recorded if isinstance(one, ModelReply) for call in one.calls}
    for one in recorded:
        call = calls.get(one.call_id) if isinstance(one, ToolAnswer) else None
        if call is not None and isinstance(one, ToolAnswer):
            output = ToolOutput(text=one.text, failed=one.failed, returned=one.returned, reason=one.reason)
            found.add(agent, call, Result(output=output, writes=tuple(_writes(lines, call.call_id))))
    return list(calls.values())


def _writes(lines: Iterable[Envelope], call_id: str) -> Iterable[JsonObject]:
    """Yield the updates that a call made, without what it expected of the old values: others may be there."""
    for line in lines:
        if line.event_type == EV_CONTEXT_SET and (line.causation_id or "").partition("/")[2] == call_id:
            yield {part: value for part, value in line.event_data.items() if part != "expect"}


async def _present(hub: Hub, channel_ids: Iterable[str]) -> list[str]:
    """The channels that are there, up to the first one that is not."""
    present = []
    for channel_id in channel_ids:
        if await hub.lines.head(channel_id) is None:
            break
        present.append(channel_id)
    return present


def _speaker(state: State) -> tuple[str, bool]:
    """Return the name of the participant whose turn it is, and whether the opener plays it."""
    speaker = state.expected_next_speaker or ""
    member = state.spec.participant(speaker)
    return (speaker, False) if member is None else (member.name, bool(member.played_by))


def _channel_of(context: Context) -> str:
    channel = context.extras.get("channel")
    return channel.channel_id if isinstance(channel, Channel) else ""


def _key(agent: str, tool: str, arguments: JsonObject) -> Key:
    return agent, tool, msgspec.json.encode(arguments, order="sorted")
