"""What a turn is shown of what was said before it, and how a model is told it (W10, N7a).

Rule 1: a view ends at the turn's first unit. What others say later is shown after the unit that it follows.

Rule 2: an agent with `summarise` gets what falls out of its window as a summary. A summary is a model call
like any other: it is on the log, with the line it reaches to, before the round begins. So it is paid once.

Rule 3: a summary is made again only when as much again as the window has gathered after the last one. Until
then those lines are shown as they are, so nothing is left out. None is made after the turn's first unit.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnline.agent.agent import Agent, Config
from turnline.agent.messages import Message as ModelMessage, MessageFile, ModelReply, Usage, UserMessage
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_TURN_MODEL, SUBSTANTIVE, body_of
from turnline.core.parts import files_of
from turnline.core.state import State
from turnline.core.views import FullTranscript, Message, WindowedSummary, view_for
from turnline.hub.seat import Reading
from turnline.turns.files import name_files

if TYPE_CHECKING:
    from turnline.turns.work import Work

Read = Callable[[str, int], Awaitable[Reading]]
"""Reads what the player may see of a channel after a line."""


def last_shown(state: State, units: Sequence[Envelope]) -> int:
    """Return the last line that a turn's view shows: what came later is shown after the unit it follows."""
    return units[0].seq - 1 if units else state.seq


async def read_view(read: Read, state: State, speaker: str, last: int) -> list[Message]:
    """Return what a participant is shown of a channel, up to line `last`."""
    view = view_for(speaker, state.spec)
    if not isinstance(view, WindowedSummary):
        return view.project(await read_after(read, state.channel_id, 0, last), speaker, state.spec)
    then = _without_later(state, last)
    since, earlier = view.start(then)
    lines = await read_after(read, state.channel_id, since, last)
    return view.project(lines, speaker, state.spec, earlier)


async def read_after(read: Read, channel_id: str, since: int, last: int | None = None) -> list[Envelope]:
    """Return what the player may see after line `since`, up to line `last`."""
    found = list[Envelope]()
    while last is None or since < last:
        reading = await read(channel_id, since)
        found += reading.envelopes
        if reading.seq == since:
            break
        since = reading.seq
    return found if last is None else [one for one in found if one.seq <= last]


def _without_later(state: State, last: int) -> State:
    """Return the state with what was said up to line `last` only: a view's window ends there."""
    later = [who for seq, who in state.said if seq > last]
    if not later:
        return state
    counts = {who: count - later.count(who) for who, count in state.said_by.items()}
    return replace(state, said=[one for one in state.said if one[0] <= last], said_by=counts)


class Summary(Struct, frozen=True, kw_only=True):
    """What was said up to a line, in short."""

    agent_id: str = ""
    text: str = ""
    upto: int = 0


class Windows:
    """The windows of turns, and the summaries of what fell out of them, as far as this process knows them."""

    def __init__(self, read_summary: Callable[[Work], Awaitable[JsonObject | None]]) -> None:
        """`read_summary` returns the last summary that the speaker of a turn has recorded on its channel."""
        self._read_summary = read_summary
        self._known: dict[str, dict[str, Summary]] = {}
        """Channel -> speaker -> its last summary."""

    def forget(self, channel_id: str) -> None:
        """Drop what is known of a channel that has closed."""
        self._known.pop(channel_id, None)

    async def show(
        self,
        work: Work,
        agent: Agent,
        view: WindowedSummary,
        *,
        config: Config = None,
        is_shown: Callable[[Envelope], bool] = lambda line: line.event_type in SUBSTANTIVE,
    ) -> tuple[list[Message], Usage]:
        """Return what the speaker is shown of the lines that `is_shown`, and what summing up cost."""
        known = await self._last(work) if agent.summarise else Summary()
        found = await read_after(
            work.port.read, work.channel_id, known.upto, last_shown(work.state, work.units)
        )
        lines, spec = [one for one in found if is_shown(one)], work.state.spec
        if not agent.summarise:
            return view.project(lines, work.speaker, spec), Usage()
        usage, window = Usage(), view.window(spec)
        if len(lines) > 2 * window and not work.units:
            known, usage = await self._sum_up(work, agent, config, known, lines[:-window])
            lines = lines[-window:]
        shown = FullTranscript().project(lines, work.speaker, spec)
        if known.text:
            shown.insert(0, Message("note", "", f"What was said before, in short: {known.text}"))
        return shown, usage

    async def _sum_up(
        self, work: Work, agent: Agent, config: Config, known: Summary, lines: Sequence[Envelope]
    ) -> tuple[Summary, Usage]:
        said = FullTranscript().project(lines, work.speaker, work.state.spec)
        told = [*([known.text] if known.text else []), *(f"{one.name}: {one.text}" for one in said)]
        reply = await agent.sum_up("\n\n".join(told), config=config, sleep=work.port.sleep)
        summary = Summary(agent_id=work.speaker, text=reply.text, upto=lines[-1].seq)
        data = {"summary": msgspec.to_builtins(summary), "usage": msgspec.to_builtins(reply.usage)}
        await work.record(EV_TURN_MODEL, data)
        self._known.setdefault(work.channel_id, {})[work.speaker] = summary
        return summary, reply.usage

    async def _last(self, work: Work) -> Summary:
        """Return the last summary: the turn's own, or one that is remembered, or the one on the log."""
        for unit in work.units:  # Another process may have made it.
            if "summary" in unit.event_data:
                return msgspec.convert(unit.event_data["summary"], Summary)
        known = self._known.setdefault(work.channel_id, {})
        if work.speaker not in known:
            found = await self._read_summary(work)
            known[work.speaker] = Summary() if found is None else msgspec.convert(found, Summary)
        return known[work.speaker]


def spoken(messages: Sequence[Message], files: Sequence[list[MessageFile]] = ()) -> list[ModelMessage]:
    """Return a view as a model's messages: the agent's own as its replies, the others with their names.

    `files` are those of each message that the model is shown; the text names all of them.
    """
    found = list[ModelMessage]()
    for one, shown in zip(messages, files or [[] for _ in messages], strict=True):
        text = name_files(one.text, one.files)
        own = one.role == "own"
        found.append(ModelReply(text=text) if own else UserMessage(text=text, name=one.name, files=shown))
    return found


def heard_after_replies(work: Work) -> dict[int, list[ModelMessage]]:
    """Return what others said while the turn was paused: number of replies -> what came after them (N7a)."""
    spec, found = work.state.spec, dict[int, list[ModelMessage]]()
    replies = [one.seq for one in work.units if one.event_type == EV_TURN_MODEL and "entry" in one.event_data]
    for line in work.heard_since():
        files = files_of(line.event_type, line.event_data)
        text = name_files(body_of(line.event_type, line.event_data), files)
        message = UserMessage(text=text, name=spec.name_of(line.sender_id))
        found.setdefault(bisect(replies, line.seq), []).append(message)
    return found
